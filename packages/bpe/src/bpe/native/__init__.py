"""Bytes, memory, UTF-8, threads and files."""
