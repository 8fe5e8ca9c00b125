"""Experiments: many runs of one configuration in which settings are varied."""
