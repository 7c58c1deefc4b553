"""The operation of the app's migrations: the product's own migrations, by the product's own runner.

So `pgoutbox migrate --check` and the workers agree with what ``manage.py migrate`` did, and either
may go first.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.conf import settings
from django.db import router
from django.db.migrations.operations.base import Operation
from psycopg.conninfo import make_conninfo

from pgoutbox.database.migrate import apply

SCHEMA = "PGOUTBOX_SCHEMA"
"""The setting that names the schema, else ``public``."""
DJANGOS_OWN = frozenset({"context", "cursor_factory", "prepare_threshold", "autocommit"})
"""What Django hands to its connections besides what libpq knows."""


class MigrateOutbox(Operation):
    """Bring the tables to what this version of pgoutbox works with.

    On databases other than PostgreSQL, and where a router does not allow the app, it does nothing.
    """

    reversible = False
    reduces_to_sql = False
    atomic = False

    def __init__(self, version: int) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: Any) -> None:  # noqa: ANN401 - Django's own
        """No models."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: Any,  # noqa: ANN401 - as above
        from_state: Any,  # noqa: ANN401, ARG002 - as above
        to_state: Any,  # noqa: ANN401, ARG002 - as above
    ) -> None:
        """Apply what the database does not have yet. Raises MigrationError."""
        django = schema_editor.connection
        if django.vendor != "postgresql" or not router.allow_migrate(django.alias, app_label):
            return
        # A connection of its own: the runner begins and ends a transaction.
        given = {k: v for k, v in django.get_connection_params().items() if k not in DJANGOS_OWN}
        with psycopg.connect(make_conninfo("", **given), autocommit=True) as conn:
            apply(conn, schema=getattr(settings, SCHEMA, "public"))

    def describe(self) -> str:
        """As ``manage.py migrate --plan`` shows it."""
        return f"Migrate the outbox to version {self.version} or later"
