"""Experiments: sweeps of learning rates and batch sizes, and ablations."""
