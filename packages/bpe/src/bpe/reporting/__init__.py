"""Tokenizers looked at: tables, drawn tokens, the page that encodes text as it is typed."""
