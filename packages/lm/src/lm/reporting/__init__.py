"""What is shown of runs: reports, charts, TensorBoard. Nothing here needs torch."""
