"""Alembic's scripts. Until version 1.0 there is one, made anew whenever the tables change: see `tables`."""
