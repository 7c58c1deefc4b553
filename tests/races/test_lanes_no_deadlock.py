"""Every statement that meets a lane against every other one, over a few lanes, thousands of times.

A trigger watches over the order from within: whatever is taken is the front of its lane.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.lanes import Asked, claim_runs
from pgoutbox.dispatch.reclaim import reclaim, reclaim_heads
from pgoutbox.dispatch.renew import renew
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Bury, Finish, Release, Retry, Transition
from tests.support.leases import DESTINATION, LIMIT, enqueue_lane, settle
from tests.support.locks import Session, open_session

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage

STATEMENTS = 4_000
SESSIONS = 6
KEYS = [f"lane {number}" for number in range(8)]
LENGTH = 15
TRANSITIONS: list[Transition] = [
    Finish(),
    Finish(),
    Retry(0.0, "e"),
    Retry(3600.0, "e"),
    Release(),
    Bury("e"),
    Bury("e", skipped=True),
]

# A person's, for what is dead and for what is to come later.
REQUEUE = b"""
WITH waiting AS MATERIALIZED (
    SELECT id FROM outbox
     WHERE status = 'dead' AND done_at IS NULL OR status = 'pending' AND available_at > now()
     ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED
)
UPDATE outbox
   SET status = 'pending', lease_version = lease_version + 1, attempts = 0, reclaims = 0,
       available_at = now(), pending_since = now()
 WHERE id = ANY (ARRAY (SELECT id FROM waiting))
RETURNING id
"""

# Of all that one statement took (a higher version, and under a lease): what precedes it in its lane
# and has not left that must have been taken together with it, and by a reclaim nothing.
WATCH = [
    """
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wrong text;
BEGIN
    SELECT format('%s of %s', t.id, t.ordering_key) INTO wrong
      FROM after AS t JOIN before AS b USING (id)
     WHERE t.status = 'processing' AND t.lease_version > b.lease_version
       AND EXISTS (
        SELECT FROM outbox AS o
         WHERE o.destination = t.destination AND o.ordering_key = t.ordering_key
           AND o.id < t.id AND o.done_at IS NULL
           AND (b.status = 'processing'
                OR NOT EXISTS (SELECT FROM after AS a JOIN before AS p USING (id)
                                WHERE a.id = o.id AND a.status = 'processing'
                                  AND a.lease_version > p.lease_version)));
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'taken out of turn: %', wrong USING ERRCODE = 'internal_error';
    END IF;
    RETURN NULL;
END $$
""",
    """
CREATE TRIGGER watch AFTER UPDATE ON outbox
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION watch()
""",
]


@dataclass
class Ledger:
    """What the statements answered, all sessions together."""

    random: random.Random
    statements: int = 0
    held: dict[tuple[int, int], ClaimedMessage] = field(default_factory=dict)
    """Some are lost already, and nobody here knows."""
    claims: Counter[tuple[int, int]] = field(default_factory=Counter)
    writes: Counter[tuple[int, int]] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)

    def took(self, how: str, messages: list[ClaimedMessage]) -> None:
        self.happened[how] += len(messages)
        for message in messages:
            self.held[message.lease] = message
            self.claims[message.lease] += 1

    def some_held(self) -> list[ClaimedMessage]:
        """In any order, and perhaps also in the hands of another session at this moment."""
        held = list(self.held.values())
        return self.random.sample(held, min(len(held), self.random.randint(1, 30)))


class Actor:
    """One session that does whatever comes to mind."""

    def __init__(self, session: Session, ledger: Ledger) -> None:
        self.session = session
        self.ledger = ledger
        self.random = ledger.random

    async def run(self) -> None:
        acts = {
            self.claim: 5,
            self.reclaim: 3,
            self.finalize: 6,
            self.renew: 4,
            self.reap: 2,
            self.requeue: 1,
            self.enqueue: 2,
        }
        while self.ledger.statements < STATEMENTS:
            self.ledger.statements += 1
            (act,) = self.random.choices(list(acts), list(acts.values()))
            await act()

    def lease(self) -> float:
        """Either over at once or not at all."""
        return self.random.choice([0.001, 0.001, 3600.0])

    async def claim(self) -> None:
        asked = Asked(
            DESTINATION,
            lanes=self.random.randint(1, len(KEYS)),
            rows=self.random.randint(1, 40),
            run=self.random.randint(1, 10),
            cursor=self.random.choice(["", *KEYS]),
            fresh=self.random.choice([0, 50]),
            hot=dict.fromkeys(self.random.sample(KEYS, 2), 0),
            tried=self.random.sample(KEYS, 2),
        )
        runs = await claim_runs(self.session, asked, owner="a", lease=self.lease())
        self.ledger.took("claimed", runs.messages)

    async def reclaim(self) -> None:
        branch = self.random.choice([reclaim_heads, reclaim_heads, reclaim])
        messages = await branch(
            self.session,
            owner="b",
            lease=self.lease(),
            slots={DESTINATION: (self.random.randint(1, 10), LIMIT)},
            suspect_allowed=self.random.random() < 0.5,
        )
        assert branch is reclaim_heads or messages == []
        self.ledger.took("reclaimed", messages)

    async def finalize(self) -> None:
        batch = [
            settled._replace(transition=self.random.choice(TRANSITIONS))
            for settled in settle(self.ledger.some_held())
        ]
        done = await finalize(self.session, batch, retried=False)
        assert not done.refused
        for settled in (*done.written, *done.lost):
            self.ledger.held.pop(settled.message.lease, None)
        for settled in done.written:
            self.ledger.writes[settled.message.lease] += 1
            self.ledger.happened[type(settled.transition).__name__] += 1

    async def renew(self) -> None:
        messages = self.ledger.some_held()
        renewal = await renew(self.session, messages, lease=self.lease())
        assert renewal.kept <= {message.lease for message in messages}

    async def reap(self) -> None:
        skip = [DESTINATION] if self.random.random() < 0.5 else []
        buried = await reap(self.session, {DESTINATION: 2}, skip=skip)
        self.ledger.happened["reaped"] += buried.total()

    async def requeue(self) -> None:
        self.ledger.happened["requeued"] += len(await self.session.fetch(REQUEUE))

    async def enqueue(self) -> None:
        await enqueue_lane(self.session.conn, self.random.choice(KEYS), self.random.randint(1, 3))


@pytest.mark.timeout(180)
async def test_four_thousand_statements_over_lanes_neither_deadlock_nor_take_a_message_out_of_turn(
    aconn: psycopg.AsyncConnection, dsn: str
) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    for statement in WATCH:
        await aconn.execute(statement.encode())
    for key in KEYS:
        await enqueue_lane(aconn, key, LENGTH)
    ledger = Ledger(random.Random(seed))
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(open_session(dsn, as_given=True))
            for _ in range(SESSIONS)
        ]
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(Actor(session, ledger).run())
    # Nobody held what another one held, and nothing was written twice or without a claim.
    assert set(ledger.claims.values()) == {1}
    assert set(ledger.writes.values()) == {1}
    assert ledger.writes.keys() <= ledger.claims.keys()
    # The run was what it claims to be.
    print(ledger.happened)  # noqa: T201 - a measurement to look at
    assert min(ledger.happened.values()) > 20
