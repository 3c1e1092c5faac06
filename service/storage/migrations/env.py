"""Alembic's entry: on the connection that `migrating` hands over, inside its transaction."""

from alembic import context

from service.storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
