"""Tokenizers looked at: tables, drawn tokens, the page that encodes while one types."""
