"""What is nearest to the machine: bytes, memory, UTF-8, threads, files."""
