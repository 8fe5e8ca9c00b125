"""Text to pretokens: a compiled scanner for each published split pattern, special tokens, safe cuts."""
