"""Experiments: learning-rate and batch-size sweeps, ablations, and laws fitted to runs."""
