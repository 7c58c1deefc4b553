"""A dead message at the head of a lane, and the person who comes to look at it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.database import desk
from pgoutbox.destinations.destination import RetryPolicy
from pgoutbox.errors import PermanentError, RetryableError
from tests.support.dispatching import Scripted, dispatching, eventually, row, to, until_true
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from pgoutbox.message import ClaimedMessage
    from tests.support.dispatching import Running

BLOCK = RetryPolicy(base=0.0, cap=0.0, max_attempts=2, dead_head="block")
SKIP = RetryPolicy(base=0.0, cap=0.0, max_attempts=2, dead_head="skip")
NOBODY_WORKS = b"SELECT NOT EXISTS (SELECT FROM outbox WHERE status = 'processing')"
REFUSALS = [
    pytest.param(lambda: PermanentError("no"), id="refused"),
    pytest.param(lambda: RetryableError("no"), id="out of attempts"),
]


class Refusing(Scripted):
    """Refuses messages by name, until it is repaired."""

    def __init__(self, make: Callable[[], Exception], *refused: str) -> None:
        super().__init__(self._judge)
        self._make = make
        self.refused = set(refused)

    async def _judge(self, message: ClaimedMessage) -> None:
        if message.event_type in self.refused:
            raise self._make()

    @property
    def names(self) -> list[str]:
        return [message.event_type for message in self.taken]


def lane(conn: psycopg.Connection[Any], *names: str, key: str = "k") -> list[int]:
    """Messages of one lane; their ids."""
    return [insert(conn, ordering_key=key, event_type=name) for name in names]


async def stuck(conn: psycopg.Connection[Any], *dead: int) -> None:
    """These are dead, what else can be delivered was, and nobody is at work."""
    await until_true(
        conn,
        b"SELECT count(*) = %s FROM outbox WHERE id = ANY (%s) AND status = 'dead'",
        len(dead),
        list(dead),
    )
    await until_true(conn, b"SELECT bool_and(status = 'done') FROM outbox WHERE ordering_key = 'l'")
    await until_true(conn, NOBODY_WORKS)


@pytest.mark.parametrize("make", REFUSALS)
async def test_under_block_a_dead_message_holds_back_its_lane_until_it_is_skipped(
    dsn: str, conn: psycopg.Connection, make: Callable[[], Exception]
) -> None:
    one, two, _ = lane(conn, "1", "2", "3")
    lane(conn, "other", key="l")
    publisher = Refusing(make, "1", "2")
    async with dispatching(dsn, to(publisher, policy=BLOCK)):
        await stuck(conn, one)
        assert publisher.names == ["other"]
        assert desk.skip(conn, one, "a test", schema="public").done
        await stuck(conn, one, two)
        assert publisher.names == ["other"]
        assert desk.skip(conn, two, "a test", schema="public").done
        await publisher.until(lambda: publisher.names == ["other", "3"])
    assert row(conn, one)["status"] == row(conn, two)["status"] == "dead"


@pytest.mark.parametrize("make", REFUSALS)
async def test_a_requeued_head_goes_first_again_and_has_all_its_attempts(
    dsn: str, conn: psycopg.Connection, make: Callable[[], Exception]
) -> None:
    one, *_ = lane(conn, "1", "2", "3")
    lane(conn, "other", key="l")
    publisher = Refusing(make, "1")
    async with dispatching(dsn, to(publisher, policy=BLOCK)):
        await stuck(conn, one)
        publisher.refused.clear()
        assert desk.requeue(conn, one, "repaired", schema="public").done
        await publisher.until(lambda: len(publisher.taken) == 4)
    assert publisher.names == ["other", "1", "2", "3"]
    assert publisher.taken[1].attempts == 1


@pytest.mark.parametrize("make", REFUSALS)
async def test_under_skip_the_lane_goes_on_without_its_dead_message(
    dsn: str, conn: psycopg.Connection, make: Callable[[], Exception]
) -> None:
    one, _, three, _ = lane(conn, "1", "2", "3", "4")
    publisher = Refusing(make, "1", "3")
    async with dispatching(dsn, to(publisher, policy=SKIP)) as running:
        await running.events.until(lambda: publisher.names == ["2", "4"])
        await until_true(conn, NOBODY_WORKS)
        for number in (one, three):
            end = row(conn, number)
            assert (end["status"], end["ordering_key"]) == ("dead", "k")
            assert end["done_at"] is not None
        publisher.refused.clear()
        assert "out of order" in desk.requeue(conn, one, "repaired", schema="public").said
        await publisher.until(lambda: publisher.names == ["2", "4", "1"])
    assert row(conn, one)["ordering_key"] is None


async def test_a_sleeping_worker_looks_at_once_when_a_lane_was_unblocked(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No poll and no sweep will come to its help.
    monkeypatch.setattr("pgoutbox.dispatch.wakeup.FIRST_INTERVAL", 600.0)
    dead = insert(conn, ordering_key="k", status="dead", pending_since=None)
    behind = insert(conn, ordering_key="k", available_at="2020-01-01")
    publisher = Scripted()
    async with dispatching(
        dsn, to(publisher), listen=True, max_interval=600.0, sweep_interval=600.0
    ) as running:
        await until_true(conn, b"SELECT wanted FROM outbox_wakeup")
        await eventually(lambda: is_rested(running))
        assert publisher.taken == []
        assert desk.skip(conn, dead, "a test", schema="public").done
        (taken,) = await running.events.finished(1)
    assert taken.message.id == behind


def is_rested(running: Running) -> bool:
    """Whether it has looked everywhere, and so long ago that it may do so again if asked to."""
    scans = running.dispatcher.claimer._scans["default"]
    walked = not scans.lanes.walking and scans.lanes._rest_until > time.monotonic()
    return walked and time.monotonic() > max(
        scans.lanes._allowed_at, scans.ready._sweeps._allowed_at
    )
