"""Experiments: many runs of one configuration with varied settings."""
