"""What an operator sees of the running process: logs, metrics, readiness, traces. None of it knows a value of anybody's."""
