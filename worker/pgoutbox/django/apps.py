"""The app's configuration, and a look at the databases before anything is done with them."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register
from django.db import connections


class OutboxConfig(AppConfig):
    """The tables of the outbox. It has no models: what is in them is the workers' business."""

    name = "pgoutbox.django"
    label = "pgoutbox"
    verbose_name = "Outbox"

    def ready(self) -> None:
        """Have ``manage.py check`` look."""
        register(databases_with_an_outbox)


def databases_with_an_outbox(**_options: Any) -> list[CheckMessage]:  # noqa: ANN401 - Django's own
    """An error where no database can have an outbox."""
    if any(connection.vendor == "postgresql" for connection in connections.all()):
        return []
    return [
        Error(
            "pgoutbox.django is installed, and no database is PostgreSQL",
            hint="The outbox is in the database of the business rows: give DATABASES one with the"
            " engine django.db.backends.postgresql.",
            id="pgoutbox.E001",
        )
    ]
