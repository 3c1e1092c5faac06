"""Federated algorithms: the aggregation at the server and the terms at the members."""
