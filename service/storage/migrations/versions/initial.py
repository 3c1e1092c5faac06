"""The first format. New databases get their tables from `tables` itself."""

revision = "4.1"
down_revision = None
