"""Sources of text to train on or encode: files, folders, URLs, Parquet, JSON lines, compressed files."""
