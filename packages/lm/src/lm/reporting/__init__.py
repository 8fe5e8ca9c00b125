"""Reports of runs, charts and TensorBoard. Nothing here needs torch."""
