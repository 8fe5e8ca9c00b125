"""Pretokens to counts: tables, threads, files for what exceeds the memory, checkpoints."""
