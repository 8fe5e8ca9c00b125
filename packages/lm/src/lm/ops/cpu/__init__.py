"""Faster on a CPU: C compiled at first use, attention a head at a time, int8 weights; PyTorch without a compiler."""
