"""Tokenizers looked at: tables, drawn tokens, the page that encodes what is typed."""
