"""Logs, metrics and traces of the running process. None of them contains a member's values."""
