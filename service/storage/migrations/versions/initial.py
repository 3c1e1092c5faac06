"""The first revision. New databases get their tables from `tables` itself, and databases at this revision have them."""

revision = "studies"
down_revision = None
