"""SQLAlchemy's forms of the statements that psycopg's `enqueue` writes out as text.

Made of its constructs, so that it quotes the schema, and each once, so that it compiles them once.
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


def _type(name: str) -> sa.types.TypeEngine[Any]:
    return TYPES.get(name, sa.Text())


_MICROSECOND: sa.ColumnElement[Any] = sa.literal_column("interval '1 microsecond'", INTERVAL)


# Without a conflict target and RETURNING, for the reasons given beside psycopg's statements.
@lru_cache(maxsize=100)
def insert(schema: str | None) -> Executable:
    """One message without a dedup key; the parameters are its values."""
    values = _values({name: _parameter(name, _type(name)) for name in Row._fields})
    return sa.insert(_outbox(schema)).values(values)


@lru_cache(maxsize=100)
def insert_many(schema: str | None) -> Executable:
    """Messages without dedup keys; the parameters are their columns."""
    m = _messages().c
    values = _values({name: m[name] for name in Row._fields})
    # Ordered once more, to keep the planner from locking the lanes in another order.
    rows = sa.select(*values.values()).order_by(m.position)
    return sa.insert(_outbox(schema)).from_select(list(values), rows)


@lru_cache(maxsize=100)
def function(schema: str | None) -> Executable:
    """Messages of which some have dedup keys, one by one in their order; as `insert_many`."""
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
    return sa.select(sa.func.count(enqueued))


def _parameter(name: str, type_: sa.types.TypeEngine[Any]) -> sa.ColumnElement[Any]:
    """Cast, since not every version and driver says what it sends."""
    return sa.cast(sa.bindparam(name, type_=type_), type_)


def _messages() -> sa.FromClause:
    """``unnest(...) WITH ORDINALITY``: a row for each message, and their order as ``position``."""
    arrays = [_parameter(name, ARRAY(_type(name))) for name in Row._fields]
    columns = [sa.column(name, _type(name)) for name in Row._fields]
    return (
        sa.func.unnest(*arrays).table_valued(*columns, with_ordinality="position").render_derived()
    )


def _values(given: dict[str, sa.ColumnElement[Any]]) -> dict[str, sa.ColumnElement[Any]]:
    """What the columns of the table get, of the values of a `Row`."""
    values = {name: value for name, value in given.items() if name != "delay"}
    values["headers"] = sa.cast(given["headers"], JSONB)
    values["payload"] = sa.cast(given["payload"], JSONB)
    values["available_at"] = sa.func.coalesce(
        given["available_at"], sa.func.now() + given["delay"] * _MICROSECOND, sa.func.now()
    )
    return values


def _outbox(schema: str | None) -> sa.TableClause:
    """No ``Table``: a map of schemas is for the business tables, and is applied to those alone."""
    return sa.table(
        "outbox", *(sa.column(name) for name in Row._fields if name != "delay"), schema=schema
    )


def _named(name: str, schema: str | None) -> type[FunctionElement[Any]]:
    """A function of this schema; those of ``sa.func`` leave a schema of mixed case unquoted."""

    class Named(FunctionElement[Any]):
        inherit_cache = True

    @compiles(Named)
    def _call(element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - SQLAlchemy's
        qualified = compiler.preparer.format_table(sa.table(name, schema=schema))
        return qualified + compiler.process(element.clause_expr, **options)

    return Named
