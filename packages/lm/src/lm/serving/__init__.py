"""Serving a model over HTTP, by the part of OpenAI's interface that a language model of one's own can answer."""
