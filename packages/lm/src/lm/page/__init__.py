"""A model as one HTML page that computes in the browser: weights, tokenizer, forward pass and views of what happens."""
