"""Training: the loop, its steps, checkpoints, run folders, several processes, memory and speed."""
