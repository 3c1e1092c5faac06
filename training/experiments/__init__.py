"""Experiment files, and runs of them."""
