"""Federated learning simulated locally: data, partitions, models, heads, algorithms, the run loop."""
