"""What no server says about itself: whether a pooler is in between, and what it lets through."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

SELF_TEST_SECONDS = 2.0
REFUSED_OPTIONS = "unsupported startup parameter"
"""What PgBouncer answers to start-up options."""

MARKED = b"SELECT current_setting('pgoutbox.probe', true)"
LISTEN = b"LISTEN outbox"
UNLISTEN = b"UNLISTEN outbox"
NOTIFY_SELF = b"SELECT pg_notify('outbox', %(payload)s)"


async def keeps_options(conninfo: str) -> bool:
    """Whether start-up options take effect: a pooler refuses or ignores them.

    Raises psycopg.OperationalError when there is no server to ask.
    """
    # A mark of our own: a setting's usual value could as well be the role's default.
    mark = uuid.uuid4().hex
    given = conninfo_to_dict(conninfo).get("options") or ""
    marked = make_conninfo(conninfo, options=f"{given} -c pgoutbox.probe={mark}".strip())
    try:
        async with await _connect(marked) as conn:
            return await (await conn.execute(MARKED)).fetchone() == (mark,)
    except psycopg.OperationalError as error:
        if REFUSED_OPTIONS in str(error):
            return False
        raise


async def hears_notifications(
    conn: AsyncConnection[Any], conninfo: str, *, seconds: float = SELF_TEST_SECONDS
) -> bool:
    """LISTEN on the autocommit connection, and see whether a notification from elsewhere arrives.

    It keeps listening only if one does. It is sent from another connection, made with
    ``conninfo``: a pooler in transaction mode passes on what arrives during a client's own
    statement, and later gives it to nobody or to another client. Raises psycopg.Error.
    """
    # Not the name of any destination.
    payload = f"self-test {uuid.uuid4()}"
    await conn.execute(LISTEN)
    async with await _connect(conninfo) as other:
        await other.execute(NOTIFY_SELF, {"payload": payload})
    async with aclosing(conn.notifies(timeout=seconds)) as notifications:
        async for notification in notifications:
            if notification.payload == payload:
                return True
    # The server connection may outlive this client, and serve another one.
    await conn.execute(UNLISTEN)
    return False


async def notification_arrives(conninfo: str, *, seconds: float = SELF_TEST_SECONDS) -> bool:
    """`hears_notifications` on a connection of its own, for once. Raises psycopg.Error."""
    async with await _connect(conninfo) as conn:
        return await hears_notifications(conn, conninfo, seconds=seconds)


async def _connect(conninfo: str) -> AsyncConnection[Any]:
    return await AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
