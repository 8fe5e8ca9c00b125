"""C for what a step of decoding does, compiled where it is used; PyTorch does the same where there is no compiler."""
