"""The first format. New databases get their tables from `tables` itself."""

revision = "3.1"
down_revision = None
