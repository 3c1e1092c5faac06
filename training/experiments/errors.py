"""What can be wrong with an experiment's file."""

from __future__ import annotations


class ConfigError(ValueError):
    """A choice that is none, or that another one forbids; says what would be allowed."""
