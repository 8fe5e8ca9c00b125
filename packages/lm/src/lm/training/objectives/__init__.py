"""Objectives of training: what a trainer minimizes, each in a file named after the setting train.objective."""
