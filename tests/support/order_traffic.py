"""Producers for the drill: transactions of any size over several lanes, some of them in vain.

Beside its messages each transaction writes down what it enqueued, in a table of its own that
nothing locks: the server's commit timestamp of those rows is the commit order.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

import pgoutbox
from pgoutbox import Message
from tests.support.order_oracle import Enqueued
from tests.support.order_replay import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Conn = psycopg.Connection[tuple[Any, ...]]

DESTINATIONS = ("default", "skipping", "batched")
SIZES = (1, 1, 1, 2, 3, 5, 8, 13, 40)
PAUSES = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.001, 0.003, 0.02)
"""Seconds before a commit, while others wait for its lanes."""
HASTY = "-c deadlock_timeout=20ms"

# What was committed, and what every statement made of every row. Nothing but what was delivered is
# deleted in a drill, and only where that is the retention mode.
BOOKS = b"""
CREATE UNLOGGED TABLE drill_truth (
    message_id uuid, destination text, lane text, transaction bigint, position int);
CREATE UNLOGGED TABLE drill_changes (
    seq bigint GENERATED ALWAYS AS IDENTITY, transaction xid8, at timestamptz, id bigint,
    message_id uuid, lane text, status text, version bigint, attempts int, owner text,
    lease_until timestamptz, left_lane boolean);
CREATE FUNCTION drill_note_end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO drill_changes (transaction, at, id, message_id, lane, status, version, attempts,
                               left_lane)
    SELECT pg_current_xact_id(), now(), id, message_id, destination || '/' || ordering_key, 'done',
           lease_version, attempts, true
      FROM gone ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER drill_deleted AFTER DELETE ON outbox REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION drill_note_end();
CREATE FUNCTION drill_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO drill_changes (transaction, at, id, message_id, lane, status, version, attempts,
                               owner, lease_until, left_lane)
    SELECT pg_current_xact_id(), now(), id, message_id, destination || '/' || ordering_key, status,
           lease_version, attempts, lease_owner, lease_until, done_at IS NOT NULL
      FROM fresh ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER drill_inserted AFTER INSERT ON outbox REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION drill_note();
CREATE TRIGGER drill_updated AFTER UPDATE ON outbox REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION drill_note();
"""
NOTE = b"""
INSERT INTO drill_truth
SELECT u.message_id, u.destination, u.lane, %s, u.position
  FROM unnest(%s::uuid[], %s::text[], %s::text[]) WITH ORDINALITY
       AS u (message_id, destination, lane, position)
"""
TRUTH = b"""
SELECT t.message_id, t.destination, t.lane, t.transaction, t.position,
       coalesce(o.id, 0),
       CASE WHEN current_setting('track_commit_timestamp')::boolean
            THEN extract(epoch FROM pg_xact_commit_timestamp(t.xmin))::float8 END
  FROM drill_truth t
  LEFT JOIN (SELECT message_id, min(id) AS id FROM drill_changes GROUP BY message_id) o
       USING (message_id)
"""
CHANGES = b"""
SELECT transaction::text::bigint, extract(epoch FROM at)::float8, id, message_id, lane, status,
       version, attempts, owner, extract(epoch FROM lease_until)::float8, left_lane
  FROM drill_changes ORDER BY seq
"""


class Mix(NamedTuple):
    """What is enqueued."""

    seed: int
    messages: int
    keys: int
    """Lanes of each destination; the first one gets a quarter of everything that has one."""
    producers: int


class Producer(threading.Thread):
    """One connection and its share of the messages."""

    def __init__(self, dsn: str, mix: Mix, number: int) -> None:
        super().__init__(name=f"producer {number}", daemon=True)
        self._dsn = dsn
        self._mix = mix
        self._random = random.Random(f"{mix.seed} producer {number}")
        self._left = mix.messages // mix.producers
        self._number = number
        self.windows: dict[int, tuple[float, float]] = {}
        """Of each transaction: before it sent anything, and after its COMMIT was answered."""
        self.error: BaseException | None = None

    def run(self) -> None:
        """Commit until the share is used up."""
        try:
            with psycopg.connect(self._dsn, options=HASTY) as conn:
                transaction = self._number
                while self._left > 0:
                    transaction += self._mix.producers
                    self._one(conn, transaction)
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the thread
            self.error = error

    def _one(self, conn: Conn, transaction: int) -> None:
        messages = [self._message() for _ in range(self._random.choice(SIZES))]
        began = time.time()
        try:
            self._enqueue(conn, messages)
            ids, lanes = [m.message_id for m in messages], [lane_of(m) for m in messages]
            conn.execute(NOTE, [transaction, ids, [m.destination for m in messages], lanes])
            time.sleep(self._random.choice(PAUSES))
            if self._random.random() < 0.1:
                conn.rollback()
                return
            conn.commit()
        except psycopg.errors.DeadlockDetected:
            conn.rollback()
            return
        self.windows[transaction] = (began, time.time())
        self._left -= len(messages)

    def _enqueue(self, conn: Conn, messages: list[Message]) -> None:
        if self._random.random() < 0.5:
            pgoutbox.enqueue_many(conn, messages)
            return
        # In any order of lanes now and then: a deadlock undoes it all.
        if self._random.random() < 0.9:
            messages.sort(key=lambda message: lane_of(message) or "")
        for message in messages:
            pgoutbox.enqueue(conn, message)

    def _message(self) -> Message:
        dice = self._random
        lane = dice.choice((0, *range(self._mix.keys), *[0] * (self._mix.keys // 4)))
        later = dice.random() < 0.01
        return Message(
            aggregate_type="drill",
            aggregate_id=str(lane),
            event_type="Drilled",
            payload={"by": self.name},
            destination=dice.choice(DESTINATIONS),
            ordering_key=f"k{lane}" if dice.random() < 0.85 else None,
            message_id=uuid.UUID(int=dice.getrandbits(128), version=4),
            delay=timedelta(seconds=dice.uniform(0.0, 0.3)) if later else None,
        )


def lane_of(message: Message) -> str | None:
    """As the trigger writes it down."""
    key = message.ordering_key
    return None if key is None else f"{message.destination}/{key}"


def read_truth(conn: Conn, windows: Mapping[int, tuple[float, float]]) -> Iterator[Enqueued]:
    """What was committed, and when: exactly, or within its client's window."""
    for message, destination, lane, transaction, position, row, at in conn.execute(TRUTH):
        earliest, latest = (at, at) if at is not None else windows[transaction]
        yield Enqueued(message.hex, destination, lane, earliest, latest, transaction, position, row)


def read_changes(conn: Conn) -> Iterator[Change]:
    """What every statement made of every row."""
    for transaction, at, row, message, *rest in conn.execute(CHANGES):
        yield Change(transaction, at, row, message.hex, *rest)
