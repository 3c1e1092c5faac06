"""Alembic's scripts, one a revision: they bring the tables of an older release to what `tables` has."""
