"""Faster twins of the model's parts: C for CPUs in cpu, Triton's attention in triton, torch's FlexAttention in flex."""
