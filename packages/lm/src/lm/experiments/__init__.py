"""Experiments: learning-rate and batch-size sweeps and ablations."""
