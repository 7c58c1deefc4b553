"""A Django project of two databases of PostgreSQL and one of another kind."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "not yet"}
LITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}

settings.configure(
    DATABASES={"default": POSTGRES, "orders": POSTGRES, "lite": LITE},
    INSTALLED_APPS=["pgoutbox.django"],
    USE_TZ=True,
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a test",
)
django.setup()

# Only what comes after the settings can be imported from a project.
from django.db import connections, models, transaction  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

from pgoutbox import Message  # noqa: E402
from pgoutbox.producer.django import enqueue  # noqa: E402

PLACED = Message(
    aggregate_type="order", aggregate_id="7", event_type="OrderPlaced", payload={"total": 42}
)


class Order(models.Model):
    """What the messages tell about."""

    total = models.IntegerField()

    class Meta:
        """Of no app that has migrations."""

        app_label = "shop"

    def __str__(self) -> str:
        return f"order {self.pk}"


def place(request: Any) -> HttpResponse:
    """Place an order; ``?fail`` raises after it was announced."""
    with transaction.atomic():
        order = Order.objects.create(total=42)
        enqueue(PLACED, beside=order)
        if "fail" in request.GET:
            raise RuntimeError("the request fails")
    return HttpResponse(status=201)


urlpatterns = [path("orders/", place)]


@contextmanager
def databases(**dsns: str) -> Iterator[None]:
    """Give the aliases these databases, with a table for `Order`; close all at the end."""
    before = {alias: dict(connections.databases[alias]) for alias in dsns}
    _forget()
    for alias, dsn in dsns.items():
        _point(alias, conninfo_to_dict(dsn))
    try:
        yield
    finally:
        _forget()
        connections.databases.update(before)


def _forget() -> None:
    """Connections keep the settings that they were made with."""
    for alias in connections:
        connections[alias].close()
        del connections[alias]


def make_tables(*aliases: str) -> None:
    """The project's own table."""
    for alias in aliases:
        with connections[alias].schema_editor() as editor:
            editor.create_model(Order)


def _point(alias: str, given: dict[str, Any]) -> None:
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST"}
    chosen = {names[name]: str(given[name]) for name in names if given.get(name)}
    connections.databases[alias] = (
        connections.databases[alias] | chosen | {"PORT": str(given.get("port") or "")}
    )
