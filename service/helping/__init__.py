"""Rounds with mask helpers (docs/helpers.md) as the coordinator serves them."""
