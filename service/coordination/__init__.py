"""Cohorts and rounds: what is opened, what members send, the sum, and what is published."""
