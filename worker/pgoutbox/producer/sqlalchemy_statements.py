"""SQLAlchemy's forms of the statements that psycopg's `enqueue` writes out as text.

Made of its constructs, so that it quotes the schema, and each once, so that it compiles them once.
A map of schemas for the business tables is not meant for the outbox.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, INTERVAL, JSONB, TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from pgoutbox.producer.row import Row

if TYPE_CHECKING:
    from sqlalchemy.sql.base import Executable
    from sqlalchemy.sql.compiler import SQLCompiler

TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    "message_id": sa.Uuid(),
    "body": BYTEA(),
    "available_at": TIMESTAMP(timezone=True),
    "delay": sa.BigInteger(),
}
"""Of what each column is sent as; the others are text."""


def _messages() -> sa.FromClause:
    """``unnest(...) WITH ORDINALITY``: a row for each message, and their order as ``position``."""
    types = {name: TYPES.get(name, sa.Text()) for name in Row._fields}
    # Cast, since not every version and driver gives arrays their types.
    arrays = [
        sa.cast(sa.bindparam(name, type_=ARRAY(type_)), ARRAY(type_))
        for name, type_ in types.items()
    ]
    columns = [sa.column(name, type_) for name, type_ in types.items()]
    return (
        sa.func.unnest(*arrays).table_valued(*columns, with_ordinality="position").render_derived()
    )


_MICROSECOND: sa.ColumnElement[Any] = sa.literal_column("interval '1 microsecond'", INTERVAL)


# Without a conflict target and RETURNING, for the reasons given beside psycopg's statements, and
# ordered once more for the same.
@lru_cache(maxsize=100)
def insert(schema: str | None) -> Executable:
    """Messages without dedup keys."""
    m = _messages().c
    values: dict[str, sa.ColumnElement[Any]] = {
        name: m[name] for name in Row._fields if name != "delay"
    }
    values["headers"] = sa.cast(m.headers, JSONB)
    values["payload"] = sa.cast(m.payload, JSONB)
    values["available_at"] = sa.func.coalesce(
        m.available_at, sa.func.now() + m.delay * _MICROSECOND, sa.func.now()
    )
    outbox = sa.table("outbox", *map(sa.column, values), schema=schema)
    rows = sa.select(*values.values()).order_by(m.position)
    return (
        sa.insert(outbox)
        .from_select(list(values), rows)
        .execution_options(schema_translate_map=None)
    )


@lru_cache(maxsize=100)
def function(schema: str | None) -> Executable:
    """Messages of which some have dedup keys, one by one in their order."""
    unsorted = _messages()
    m = sa.select(unsorted).order_by(unsorted.c.position).subquery("m").c
    enqueued = _named("outbox_enqueue", schema)(
        m.aggregate_type,
        m.aggregate_id,
        m.event_type,
        sa.cast(m.payload, JSONB),
        m.body,
        m.content_type,
        m.destination,
        sa.cast(m.headers, JSONB),
        m.ordering_key,
        m.dedup_key,
        sa.case((m.dedup_key.is_(None), m.message_id)),
        m.available_at,
        m.delay * _MICROSECOND,
    )
    return sa.select(sa.func.count(enqueued)).execution_options(schema_translate_map=None)


def _named(name: str, schema: str | None) -> type[FunctionElement[Any]]:
    """A function of this schema; those of ``sa.func`` leave a schema of mixed case unquoted."""

    class Named(FunctionElement[Any]):
        inherit_cache = True

    @compiles(Named)
    def _call(element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - SQLAlchemy's
        qualified = compiler.preparer.format_table(sa.table(name, schema=schema))
        return qualified + compiler.process(element.clause_expr, **options)

    return Named
