"""Experiments: learning-rate and batch-size sweeps, ablations, and the exercise on plain SGD."""
