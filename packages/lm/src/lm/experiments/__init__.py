"""Experiments: learning-rate and batch-size sweeps, ablations, and IsoFLOP grids."""
