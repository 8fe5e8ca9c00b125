"""Serving a model over HTTP, by the part of OpenAI's interface that has to do with text."""
