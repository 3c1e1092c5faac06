"""Alembic's scripts, one a format: they bring the tables of an older one to what `tables` has."""
