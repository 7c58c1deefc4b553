"""Rows as a long life leaves them, by the million.

The triggers are off while they are written: a lane's trigger takes a lock per key, of which one
transaction may hold some thousands, and the ids come in order anyway. What the triggers would set
is set here. Nothing reads the ids of messages, and drawing them at random takes longer than all
the rest, so they are counted.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.bench.place import Place

SIZE = 200
"""Bytes of each payload, except where a scenario says otherwise."""

# Due in the order of their ids, a tenth of a millisecond apart, as a busy producer leaves them.
DUE = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    created_at, available_at, pending_since)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain', t.at, t.at, t.at
  FROM generate_series(1, %(count)s::bigint) AS i
 CROSS JOIN LATERAL (SELECT now() - (%(count)s - i) * interval '100 microseconds') AS t (at)
"""

# As `DUE`. Every so many of the traces are sampled; with 0 none is.
TRACED = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    created_at, available_at, pending_since, headers)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain', t.at, t.at, t.at,
       jsonb_build_object('traceparent',
           '00-' || md5(i::text) || '-' || left(md5((-i)::text), 16)
           || CASE WHEN i %% nullif(%(every)s, 0) = 0 THEN '-01' ELSE '-00' END)
  FROM generate_series(1, %(count)s::bigint) AS i
 CROSS JOIN LATERAL (SELECT now() - (%(count)s - i) * interval '100 microseconds') AS t (at)
"""

# Within the retention, so that no worker prunes them during a measurement.
FINISHED = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    created_at, available_at, pending_since, done_at, status, attempts,
                    lease_version)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain', t.at, t.at, NULL,
       t.at + interval '1 second', 'done', 1, 1
  FROM generate_series(1, %(count)s::bigint) AS i
 CROSS JOIN LATERAL (
    SELECT now() - interval '1 hour' - (%(count)s - i) * interval '400 milliseconds') AS t (at)
"""

LATER = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    available_at, attempts, lease_version, last_error)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain',
       now() + interval '6 hours' + i * interval '1 millisecond', 3, 3, 'HTTP 503'
  FROM generate_series(1, %(count)s::bigint) AS i
"""

DEAD = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    pending_since, done_at, status, attempts, lease_version, last_error)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain',
       NULL, now(), 'dead', 12, 12, 'HTTP 400'
  FROM generate_series(1, %(count)s::bigint) AS i
"""

# Round and round over the keys. The digest scatters them: neighbours in time are none by key.
IN_LANES = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    created_at, available_at, pending_since, ordering_key)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain', t.at, t.at, t.at,
       md5((i %% %(lanes)s)::text)
  FROM generate_series(1, %(count)s::bigint) AS i
 CROSS JOIN LATERAL (SELECT now() - (%(count)s - i) * interval '100 microseconds') AS t (at)
"""

# Every other row is the hot lane's.
HALF_IN_ONE_LANE = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    created_at, available_at, pending_since, ordering_key)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain', t.at, t.at, t.at,
       CASE WHEN i %% 2 = 0 THEN 'hot' ELSE md5((i / 2 %% %(lanes)s)::text) END
  FROM generate_series(1, %(count)s::bigint) AS i
 CROSS JOIN LATERAL (SELECT now() - (%(count)s - i) * interval '100 microseconds') AS t (at)
"""

# A dead head, and behind it a message that has been due for an hour: every look at what is due
# meets these first.
BLOCKED_LANES = b"""
INSERT INTO outbox (message_id, aggregate_type, aggregate_id, event_type, body, content_type,
                    created_at, available_at, pending_since, ordering_key,
                    status, attempts, lease_version, last_error)
SELECT lpad(to_hex(i * 2 + n), 32, '0')::uuid, 'order', i::text, 'created',
       convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain', t.at, t.at,
       CASE WHEN n = 1 THEN t.at END, md5('blocked ' || i),
       CASE n WHEN 0 THEN 'dead' ELSE 'pending' END, CASE n WHEN 0 THEN 12 ELSE 0 END,
       CASE n WHEN 0 THEN 12 ELSE 0 END, CASE n WHEN 0 THEN 'HTTP 400' END
  FROM generate_series(0, 1) AS n
 CROSS JOIN generate_series(1, %(count)s::bigint) AS i
 CROSS JOIN LATERAL (
    SELECT now() - interval '1 hour' - (%(count)s - i) * interval '100 microseconds') AS t (at)
"""

TRIGGERS_OFF = b"ALTER TABLE outbox DISABLE TRIGGER USER"
TRIGGERS_ON = b"ALTER TABLE outbox ENABLE TRIGGER USER"
SETTLE = b"VACUUM (ANALYZE) outbox"
FLUSH = b"CHECKPOINT"


def sow(place: Place, *rows: tuple[bytes, Mapping[str, int]]) -> None:
    """Insert each of ``rows``, a statement from above with its parameters; then vacuum.

    A checkpoint follows where the role may ask for one: else the writes of the seed would still
    be going on while something is measured.
    """
    with place.connect() as conn:
        conn.execute(TRIGGERS_OFF)
        for statement, parameters in rows:
            conn.execute(statement, {"size": SIZE, **parameters})
        conn.execute(TRIGGERS_ON)
        conn.execute(SETTLE)
        flush(conn)


def flush(conn: psycopg.Connection[Any]) -> None:
    """Have everything on disk, where the role may."""
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
        conn.execute(FLUSH)
