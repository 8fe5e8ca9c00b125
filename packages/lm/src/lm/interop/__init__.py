"""Models to other programs and from them."""
