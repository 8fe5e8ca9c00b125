"""The decoder, its key/value cache, sampling, and what streams tokens."""
