"""The options of commands that talk to the database directly, and the connection they use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.settings import Settings

dsn_option = click.option(
    "--dsn", help="Instead of PGOUTBOX_DSN. Other users of this machine can see it while it runs."
)
schema_option = click.option("--schema", help="Instead of PGOUTBOX_DATABASE__SCHEMA.")


def settings_for(dsn: str | None, schema: str | None) -> Settings:
    """The settings, with what the command line says in place of what the environment says.

    For commands that publish nothing: a destination's URL may be known to the workers alone.
    """
    return _settings(dsn, schema, need_database=True)


def settings_for_watching(dsn: str | None, schema: str | None) -> Settings:
    """As `settings_for`, unless ``dsn`` is None and there are ``databases``: then these suffice.

    Where they do not, the settings have none. Where they do, there is no other database.
    """
    if dsn is None:
        settings = _settings(dsn, schema, need_database=False)
        if settings.databases:
            return settings
    return _settings(dsn, schema, need_database=True).model_copy(update={"databases": {}})


def _settings(dsn: str | None, schema: str | None, *, need_database: bool) -> Settings:
    from pgoutbox.settings import load_settings  # noqa: PLC0415 - slow

    overrides: dict[str, object] = {}
    if dsn is not None:
        overrides["dsn"] = dsn
    if schema is not None:
        overrides["database"] = {"schema": schema}
    return load_settings(
        os.environ, overrides=overrides, publishes=False, need_database=need_database
    )


def connect(settings: Settings) -> psycopg.Connection:
    """An autocommit connection that also works through a pooler. Raises psycopg.Error."""
    import psycopg  # noqa: PLC0415 - slow

    return psycopg.connect(
        settings.read_dsn(),
        autocommit=True,
        prepare_threshold=None,
        connect_timeout=10,
        application_name="pgoutbox",
    )
