"""`enqueue` for Django: in the atomic block of a database, whose alias has to be the right one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pgoutbox.errors import NotInTransaction
from pgoutbox.producer.checked import MAX_PAYLOAD_BYTES
from pgoutbox.producer.enqueue import enqueue as _enqueue, enqueue_many as _enqueue_many

try:
    from django.db import DEFAULT_DB_ALIAS, connections
except ImportError as error:
    raise ImportError(
        "pgoutbox.producer.django needs Django: pip install 'pgoutbox[django]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

    import psycopg

    from pgoutbox.message import Message


def enqueue(
    message: Message,
    *,
    using: str | None = None,
    beside: object = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> UUID:
    """Insert one message in the ``transaction.atomic()`` block of a database; its message id.

    ``using`` is the alias of the database, as everywhere in Django; else it is the default one.
    ``beside`` is a model instance that was saved in the same transaction: when it was saved to
    another database the message is refused, since the two would not be committed together.

    Raises NotInTransaction outside an atomic block of that database, unless autocommit was turned
    off for it or ``allow_autocommit`` says that there are no rows beside the message; TypeError
    where it is not PostgreSQL with psycopg 3; ValueError for another database than that of
    ``beside``; otherwise what `pgoutbox.enqueue` raises, the database's errors as Django's.
    """
    _check_place("enqueue", using, [beside], alone=allow_autocommit)
    with _connection(using) as conn:
        return _enqueue(
            conn,
            message,
            max_payload_bytes=max_payload_bytes,
            allow_autocommit=allow_autocommit,
        )


def enqueue_many(
    messages: Iterable[Message],
    *,
    using: str | None = None,
    beside: Iterable[object] = (),
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> list[UUID]:
    """Insert all messages, or none, by one statement; their ids in the given order.

    Otherwise as `enqueue`, with as many instances in ``beside`` as you like.
    """
    _check_place("enqueue_many", using, beside, alone=allow_autocommit)
    with _connection(using) as conn:
        return _enqueue_many(
            conn,
            messages,
            max_payload_bytes=max_payload_bytes,
            allow_autocommit=allow_autocommit,
        )


@contextmanager
def _connection(using: str | None) -> Iterator[psycopg.Connection[Any]]:
    """The psycopg connection of the alias, in its transaction."""
    django = connections[using or DEFAULT_DB_ALIAS]
    # As Django's own cursors do: without them a block would not know that it has to be rolled back.
    django.validate_no_broken_transaction()
    with django.wrap_database_errors:
        django.ensure_connection()
        yield django.connection


def _check_place(caller: str, using: str | None, beside: Iterable[object], *, alone: bool) -> None:
    alias = using or DEFAULT_DB_ALIAS
    django = connections[alias]
    if django.vendor != "postgresql" or not _with_psycopg_3():
        raise TypeError(
            f"{caller}: the database {alias!r} is not PostgreSQL with psycopg 3, where the outbox"
            " is: name the alias of that one with using="
        )
    for instance in beside:
        state = getattr(instance, "_state", None)
        saved_to = getattr(state, "db", None)
        if state is not None and saved_to != alias:
            place = f"was saved to {saved_to!r}" if saved_to else "was not saved yet"
            raise ValueError(
                f"{caller}: {type(instance).__name__} {place}, and the message would go to"
                f" {alias!r}: the two would not be committed together. Save it first, and name its"
                " database with using="
            )
    # Who turned autocommit off ends transactions by hand.
    if not (alone or django.in_atomic_block) and django.get_autocommit():
        raise NotInTransaction(_outside(caller, alias))


def _outside(caller: str, alias: str) -> str:
    begun = sorted(each.alias for each in connections.all() if each.in_atomic_block)
    other = f" (there is one of {', '.join(map(repr, begun))})" if begun else ""
    named = "" if alias == DEFAULT_DB_ALIAS else repr(alias)
    return (
        f"{caller}: there is no atomic block of the database {alias!r}{other}, so the message would"
        " be committed apart from the business rows that it tells about. Put both into one"
        f" `with transaction.atomic({named}):` block, name the block's database with"
        " using=, or pass allow_autocommit=True if there are no such rows"
    )


def _with_psycopg_3() -> bool:
    try:
        from django.db.backends.postgresql.psycopg_any import is_psycopg3  # noqa: PLC0415 - see below
    except ImportError:
        # Whichever of the drivers there is: Django says so itself once a connection is made.
        return False
    return bool(is_psycopg3)
