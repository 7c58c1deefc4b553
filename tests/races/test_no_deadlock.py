"""Every statement against every other one, over a few hot rows, until 10,000 have run.

Nothing is undone between them: what must still hold at the end is counted from the answers alone.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.claim import claim
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.reclaim import reclaim
from pgoutbox.dispatch.renew import renew
from pgoutbox.dispatch.retention import prune
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry, Transition
from tests.support.leases import DESTINATION, LIMIT, enqueue, settle
from tests.support.locks import Session, open_session

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage

STATEMENTS = 10_000
SESSIONS = 6
HOT_ROWS = 120
BATCH = 60
TRANSITIONS: list[Transition] = [
    Finish(),
    Retry(0.0, "e"),
    DeferUntil(0.0, "e"),
    Release(),
    Release(0.0, "e"),
    Bury("e"),
]
REFUNDED = (DeferUntil, Release)

REQUEUE = b"""
WITH dead AS MATERIALIZED (
    SELECT id FROM outbox WHERE status = 'dead' ORDER BY id LIMIT 60 FOR UPDATE SKIP LOCKED
)
UPDATE outbox
   SET status = 'pending', lease_version = lease_version + 1, attempts = 0, reclaims = 0,
       available_at = now(), pending_since = now(), done_at = NULL
 WHERE id = ANY (ARRAY (SELECT id FROM dead))
RETURNING id
"""


@dataclass
class Ledger:
    """What the statements answered, all sessions together."""

    random: random.Random
    statements: int = 0
    held: dict[tuple[int, int], ClaimedMessage] = field(default_factory=dict)
    """Some are lost already, and nobody here knows."""
    newest: Counter[int] = field(default_factory=Counter)
    """The highest version that each id was claimed with."""
    claims: Counter[tuple[int, int]] = field(default_factory=Counter)
    writes: Counter[tuple[int, int]] = field(default_factory=Counter)
    message_ids: dict[int, set[object]] = field(default_factory=dict)
    finished: int = 0
    buried: int = 0
    reaped: int = 0
    requeued: int = 0
    enqueued: int = 0

    def took(self, messages: list[ClaimedMessage]) -> None:
        for message in messages:
            self.held[message.lease] = message
            self.newest[message.id] = max(self.newest[message.id], message.lease_version)
            self.claims[message.lease] += 1
            self.message_ids.setdefault(message.id, set()).add(message.message_id)

    def some_held(self) -> list[ClaimedMessage]:
        """In any order, and perhaps also in the hands of another session at this moment."""
        held = list(self.held.values())
        return self.random.sample(held, min(len(held), self.random.randint(1, BATCH)))

    def outdated(self, messages: list[ClaimedMessage]) -> set[tuple[int, int]]:
        """The leases of messages that somebody has claimed since."""
        return {m.lease for m in messages if m.lease_version < self.newest[m.id]}


class Actor:
    """One session that does whatever comes to mind."""

    def __init__(self, session: Session, ledger: Ledger) -> None:
        self.session = session
        self.ledger = ledger
        self.random = ledger.random

    async def run(self) -> None:
        acts = {
            self.claim: 3,
            self.reclaim: 2,
            self.finalize: 5,
            self.renew: 4,
            self.reap: 2,
            self.requeue: 2,
            self.prune: 1,
            self.enqueue: 1,
        }
        while self.ledger.statements < STATEMENTS:
            self.ledger.statements += 1
            (act,) = self.random.choices(list(acts), list(acts.values()))
            await act()

    def lease(self) -> float:
        """Either over at once or not at all."""
        return self.random.choice([0.001, 0.001, 3600.0])

    async def claim(self) -> None:
        slots = {DESTINATION: self.random.randint(1, BATCH)}
        self.ledger.took(await claim(self.session, owner="a", lease=self.lease(), slots=slots))

    async def reclaim(self) -> None:
        slots = {DESTINATION: (self.random.randint(1, BATCH), LIMIT)}
        suspect_allowed = self.random.random() < 0.5
        self.ledger.took(
            await reclaim(
                self.session,
                owner="b",
                lease=self.lease(),
                slots=slots,
                suspect_allowed=suspect_allowed,
            )
        )

    async def finalize(self) -> None:
        messages = self.ledger.some_held()
        batch = [
            settled._replace(transition=self.random.choice(TRANSITIONS))
            for settled in settle(messages)
        ]
        outdated = self.ledger.outdated(messages)
        done = await finalize(self.session, batch, retried=False)
        assert not done.refused
        assert outdated.isdisjoint(settled.message.lease for settled in done.written)
        for settled in (*done.written, *done.lost):
            self.ledger.held.pop(settled.message.lease, None)
        for settled in done.written:
            self.ledger.writes[settled.message.lease] += 1
            self.ledger.finished += isinstance(settled.transition, Finish)
            self.ledger.buried += isinstance(settled.transition, Bury)

    async def renew(self) -> None:
        messages = self.ledger.some_held()
        outdated = self.ledger.outdated(messages)
        renewal = await renew(self.session, messages, lease=self.lease())
        assert renewal.kept <= {message.lease for message in messages} - outdated
        assert renewal.lost >= outdated

    async def reap(self) -> None:
        counts = await reap(self.session, {DESTINATION: 2})
        self.ledger.reaped += counts.total()

    async def requeue(self) -> None:
        requeued = await self.session.fetch(REQUEUE)
        self.ledger.requeued += len(requeued)

    async def prune(self) -> None:
        await prune(self.session, keep=timedelta(0), limit=self.random.randint(1, 10))

    async def enqueue(self) -> None:
        missing = HOT_ROWS - (self.ledger.enqueued - self.ledger.finished)
        if missing > 0:
            self.ledger.enqueued += missing
            await enqueue(self.session.conn, missing)


@pytest.mark.timeout(180)
async def test_ten_thousand_statements_at_random_neither_deadlock_nor_lose_a_message(
    aconn: psycopg.AsyncConnection, dsn: str
) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    # What is pruned goes on counting.
    await aconn.execute("CREATE TABLE pruned AS SELECT * FROM outbox")
    await aconn.execute(
        "CREATE FUNCTION keep_pruned() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO pruned VALUES (OLD.*); RETURN NULL; END $$"
    )
    await aconn.execute(
        "CREATE TRIGGER keep_pruned AFTER DELETE ON outbox"
        " FOR EACH ROW EXECUTE FUNCTION keep_pruned()"
    )
    ledger = Ledger(random.Random(seed))
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(open_session(dsn, as_given=True))
            for _ in range(SESSIONS)
        ]
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(Actor(session, ledger).run())
    await assert_accounts_balance(aconn, ledger)


async def assert_accounts_balance(conn: psycopg.AsyncConnection[Any], ledger: Ledger) -> None:
    cursor = await conn.execute(
        "SELECT id, message_id, status, lease_version"
        " FROM (SELECT * FROM outbox UNION ALL SELECT * FROM pruned) AS every ORDER BY id"
    )
    rows = await cursor.fetchall()
    assert ledger.statements >= STATEMENTS
    assert [row[0] for row in rows] == list(range(1, ledger.enqueued + 1))
    # Nobody held what another one held, and nothing was written twice or without a claim.
    assert set(ledger.claims.values()) == {1}
    assert set(ledger.writes.values()) == {1}
    assert ledger.writes.keys() <= ledger.claims.keys()
    # Each step up of a version is a claim, a reap or a requeue that somebody was told of.
    steps = ledger.claims.total() + ledger.reaped + ledger.requeued
    assert sum(version for *_, version in rows) == steps
    # What is done stays done, and what is dead leaves only by a requeue.
    statuses = Counter(status for _, _, status, _ in rows)
    assert statuses["done"] == ledger.finished
    assert statuses["dead"] == ledger.buried + ledger.reaped - ledger.requeued
    assert all(
        ledger.message_ids.get(number, {message_id}) == {message_id}
        for number, message_id, *_ in rows
    )
    # The run was what it claims to be.
    assert min(ledger.finished, ledger.buried, ledger.reaped, ledger.requeued) > 100
