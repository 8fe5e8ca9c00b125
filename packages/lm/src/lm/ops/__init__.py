"""What is only faster than the model as it is written: C for CPUs in cpu, attention in Triton in triton, and in flex
torch's FlexAttention."""
