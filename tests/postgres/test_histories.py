"""Any history of claims, crashes, lost answers and interventions, checked after every step.

Hypothesis makes the histories up; the database and a model of it must tell the same story.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pgoutbox.dispatch.claim import claim
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.reclaim import reclaim
from pgoutbox.dispatch.renew import renew
from pgoutbox.dispatch.retention import prune
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry
from tests.support.history import DUE, LATER, LIMIT, Expected, Seen, read
from tests.support.leases import DESTINATION, LEASE, settle
from tests.support.locks import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgoutbox.dispatch.finalize import Written
    from pgoutbox.events import Settled
    from pgoutbox.message import ClaimedMessage
    from tests.support.locks import Session

ENQUEUE = b"""
INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, ordering_key, available_at)
VALUES ('order', 'o-1', 'order_paid', '{}', %s, now() + %s * interval '1 second')
RETURNING id, message_id
"""
EXPIRE = b"UPDATE outbox SET lease_until = now() - interval '1 s' WHERE id = ANY (%s)"
COME_DUE = b"UPDATE outbox SET available_at = now() WHERE id = ANY (%s)"
REQUEUE = b"""
UPDATE outbox
   SET status = 'pending', lease_version = lease_version + 1, attempts = 0, reclaims = 0,
       available_at = now(), pending_since = now(), done_at = NULL
 WHERE id = ANY (%s) AND status = 'dead'
"""
DISCARD = b"DELETE FROM outbox WHERE id = ANY (%s) AND status = 'dead'"

PLENTY = 6
"""With so many messages pending a history is not about producers any more."""
TRANSITIONS = st.sampled_from(
    [
        Finish(),
        Finish(),
        Retry(0.0, "e"),
        Retry(LATER, "e"),
        DeferUntil(0.0, "e"),
        Release(),
        Release(LATER, "e"),
        Bury("e"),
    ]
)


class History(RuleBasedStateMachine):
    """Two workers and an operator; what one of them forgets another one finds."""

    conn: ClassVar[psycopg.Connection]
    session: ClassVar[Session]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.conn.execute("TRUNCATE outbox RESTART IDENTITY")
        self.model: dict[int, Expected] = {}
        self.lanes: dict[int, Seen] = {}
        """Of no concern to claims without lanes."""
        self.versions: dict[int, int] = {}
        self.held: list[ClaimedMessage] = []
        """What some worker believes to hold; not all of it is right."""
        self.forgotten: list[ClaimedMessage] = []
        """Held by nobody any more: crashed, or settled already."""
        self.sent: list[list[Settled]] = []
        """Batches that were written, but perhaps nobody heard so."""

    # What the model says.

    def ids(self, *statuses: str, **columns: object) -> list[int]:
        return [
            row_id
            for row_id, row in self.model.items()
            if row.seen.status in statuses
            if all(getattr(row.seen, name) == value for name, value in columns.items())
        ]

    def is_current(self, message: ClaimedMessage) -> bool:
        row = self.model.get(message.id)
        return (
            row is not None
            and row.seen.status == "processing"
            and row.seen.version == message.lease_version
        )

    def change(self, ids: Iterable[int], how: Callable[[Expected], Expected]) -> None:
        for row_id in ids:
            self.model[row_id] = how(self.model[row_id])

    def some(self, data: st.DataObject, of: list[Any]) -> list[Any]:
        return data.draw(st.lists(st.sampled_from(of), min_size=1, max_size=4, unique=True))

    def took(self, messages: list[ClaimedMessage]) -> None:
        self.change((message.id for message in messages), Expected.claimed)
        for message in messages:
            seen = self.model[message.id].seen
            assert message.lease_version == seen.version
            assert message.attempts == seen.attempts
            assert message.reclaims == seen.reclaims
            assert message.message_id == seen.message_id
        self.held += messages

    # Producers.

    @precondition(lambda self: len(self.ids("pending", due=True)) < PLENTY)
    @rule(kinds=st.lists(st.sampled_from(["due", "due", "later", "lane"]), min_size=1, max_size=4))
    def enqueue(self, kinds: list[str]) -> None:
        for kind in kinds:
            lane = "k" if kind == "lane" else None
            row = self.conn.execute(ENQUEUE, [lane, LATER * (kind == "later")]).fetchone()
            assert row is not None
            row_id, message_id = row
            seen = Seen(message_id, "pending", 0, 0, 0, due=kind != "later", expired=None)
            if kind == "lane":
                self.lanes[row_id] = seen
            else:
                self.model[row_id] = Expected(seen)

    # Workers.

    @precondition(lambda self: self.ids("pending", due=True))
    @rule(slots=st.integers(1, 4))
    def claim(self, slots: int) -> None:
        due = [row_id for (row_id,) in self.conn.execute(DUE)]
        messages = self.runner.run(
            claim(self.session, owner="a", lease=LEASE, slots={DESTINATION: slots})
        )
        assert {message.id for message in messages} == set(due[:slots])
        self.took(messages)

    @precondition(lambda self: self.ids("processing", expired=True))
    @rule(slots=st.integers(1, 4), suspect_allowed=st.booleans())
    def reclaim(self, *, slots: int, suspect_allowed: bool) -> None:
        open_rows = self.ids("processing", expired=True)
        below = {row_id for row_id in open_rows if self.model[row_id].seen.attempts < LIMIT}
        suspects = {row_id for row_id in below if self.model[row_id].seen.reclaims > 0}
        messages = self.runner.run(
            reclaim(
                self.session,
                owner="b",
                lease=LEASE,
                slots={DESTINATION: (slots, LIMIT)},
                suspect_allowed=suspect_allowed,
            )
        )
        taken = {message.id for message in messages}
        assert taken <= below
        assert len(taken & suspects) == min(len(suspects), int(suspect_allowed))
        assert len(taken - suspects) == min(len(below - suspects), slots)
        self.took(messages)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), for_long=st.booleans())
    def crash(self, data: st.DataObject, *, for_long: bool) -> None:
        lost = self.some(data, self.held)
        for message in lost:
            self.held.remove(message)
            self.forgotten.append(message)
        if for_long:
            self.let_expire([message.id for message in lost if self.is_current(message)])

    @precondition(lambda self: self.ids("processing"))
    @rule()
    def crash_loop(self) -> None:
        """Until what is poison has spent its attempts."""
        for _ in range(LIMIT):
            self.forgotten += self.held
            self.held.clear()
            self.let_expire(self.ids("processing"))
            self.reclaim(slots=1, suspect_allowed=True)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), transition=TRANSITIONS, heard=st.booleans())
    def finalize(self, data: st.DataObject, *, transition: Any, heard: bool) -> None:
        batch = self.settled(self.some(data, self.held), transition)
        written = self.runner.run(finalize(self.session, batch, retried=False))
        self.wrote(batch, written)
        for settled in batch:
            self.held.remove(settled.message)
            self.forgotten.append(settled.message)
        if not heard:
            self.sent.append(batch)

    def settled(self, messages: list[ClaimedMessage], transition: Any) -> list[Settled]:
        """As `pgoutbox.dispatch.decide` would: a retry at the limit is a burial."""
        spent = [message for message in messages if message.attempts >= LIMIT]
        rest = [message for message in messages if message.attempts < LIMIT]
        last = Bury("e") if isinstance(transition, Retry) else transition
        return settle(spent, last) + settle(rest, transition)

    def wrote(self, batch: list[Settled], written: Written) -> None:
        current = [settled for settled in batch if self.is_current(settled.message)]
        assert written.written == current
        assert written.refused == []
        for settled in current:
            row = self.model[settled.message.id]
            self.model[settled.message.id] = row.finalized(settled.transition)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def finalize_again_after_a_lost_answer(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.sent))
        self.sent.remove(batch)
        unknown, already_written, lost = [], [], []
        for settled in batch:
            assert not self.is_current(settled.message)
            row = self.model.get(settled.message.id)
            if row is None:
                unknown.append(settled)
            elif row.seen.version == settled.message.lease_version:
                already_written.append(settled)
            else:
                lost.append(settled)
        answer = self.runner.run(finalize(self.session, batch, retried=True))
        assert answer.written == []
        assert answer.already_written == already_written
        assert answer.unknown == unknown
        assert answer.lost == lost

    @precondition(lambda self: not all(map(self.is_current, self.forgotten)))
    @rule(data=st.data(), transition=TRANSITIONS)
    def finalize_by_an_old_version(self, data: st.DataObject, transition: Any) -> None:
        old = [message for message in self.forgotten if not self.is_current(message)]
        batch = settle(self.some(data, old), transition)
        before = read(self.conn)
        written = self.runner.run(finalize(self.session, batch, retried=False))
        assert written.lost == batch
        assert read(self.conn) == before

    @precondition(lambda self: self.held or self.forgotten)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        messages = self.some(data, self.held + self.forgotten)
        kept = {message.lease for message in messages if self.is_current(message)}
        lost = {message.lease for message in messages} - kept
        assert self.runner.run(renew(self.session, messages, lease=LEASE)) == (kept, lost)
        self.change((row_id for row_id, _ in kept), Expected.renewed)

    @precondition(lambda self: self.ids("processing", expired=True))
    @rule()
    def reap(self) -> None:
        expired = self.ids("processing", expired=True)
        spent = [row_id for row_id in expired if self.model[row_id].seen.attempts >= LIMIT]
        counts = self.runner.run(reap(self.session, {DESTINATION: LIMIT}))
        assert counts.total() == len(spent)
        self.change(spent, Expected.reaped)

    @precondition(lambda self: self.ids("done"))
    @rule(limit=st.integers(1, 3))
    def prune(self, limit: int) -> None:
        done = self.ids("done")
        count = self.runner.run(prune(self.session, keep=timedelta(0), limit=limit))
        assert count == min(limit, len(done))
        left = read(self.conn)
        self.drop(row_id for row_id in done if row_id not in left)

    def drop(self, ids: Iterable[int]) -> None:
        for row_id in ids:
            del self.model[row_id]

    # Time and people.

    @precondition(lambda self: self.ids("processing", expired=False))
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.let_expire(self.some(data, self.ids("processing", expired=False)))

    def let_expire(self, ids: list[int]) -> None:
        self.conn.execute(EXPIRE, [ids])
        self.change(ids, Expected.left_alone)

    @precondition(lambda self: self.ids("pending", due=False))
    @rule(data=st.data())
    def come_due(self, data: st.DataObject) -> None:
        ids = self.some(data, self.ids("pending", due=False))
        self.conn.execute(COME_DUE, [ids])
        self.change(ids, Expected.left_alone)

    @precondition(lambda self: self.ids("dead"))
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        ids = self.some(data, self.ids("dead"))
        self.conn.execute(REQUEUE, [ids])
        self.change(ids, Expected.requeued)

    @precondition(lambda self: self.ids("dead"))
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        ids = self.some(data, self.ids("dead"))
        self.conn.execute(DISCARD, [ids])
        self.drop(ids)

    # What always holds.

    @invariant()
    def nothing_is_lost_and_every_row_is_as_expected(self) -> None:
        expected = {row_id: row.seen for row_id, row in self.model.items()}
        assert read(self.conn) == expected | self.lanes

    @invariant()
    def versions_only_rise_and_attempts_are_claims_without_refunds(self) -> None:
        for row_id, seen in read(self.conn).items():
            assert seen.version >= self.versions.get(row_id, 0)
            self.versions[row_id] = seen.version
            assert 0 <= seen.attempts <= LIMIT
            if row_id not in self.lanes:
                row = self.model[row_id]
                assert seen.attempts == row.claims - row.refunds


@pytest.mark.timeout(400)  # a failure takes its time to find a short history
def test_no_history_loses_a_message_or_lets_an_old_lease_write(dsn: str) -> None:
    with asyncio.Runner() as runner, psycopg.connect(dsn, autocommit=True) as conn:
        stack = AsyncExitStack()
        try:
            History.runner, History.conn = runner, conn
            History.session = runner.run(stack.enter_async_context(open_session(dsn)))
            run_state_machine_as_test(
                History,
                settings=settings(
                    max_examples=100,
                    stateful_step_count=40,
                    deadline=None,
                    derandomize=True,
                    phases=[Phase.generate, Phase.shrink],
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(stack.aclose())
