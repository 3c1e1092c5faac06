"""The secure sum: it reveals the sum of the members' integer vectors, and no single vector. This package does no I/O."""
