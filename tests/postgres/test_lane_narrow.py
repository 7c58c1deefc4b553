"""The narrowest place: a single slot for lanes and unordered messages, and leases that differ."""

from __future__ import annotations

import asyncio
import time
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from pgoutbox.dispatch.reclaim import reclaim_heads
from tests.support.crowds import BACKLOG, SOON, a_tick, passed_by
from tests.support.dispatching import Scripted, database, dispatching, eventually, to
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage


@pytest.mark.parametrize("key", ["a", "z"])
async def test_a_new_message_of_another_lane_gets_the_only_slot_before_a_hot_lane_ends(
    dsn: str, conn: psycopg.Connection, key: str
) -> None:
    fill(conn, BACKLOG, ordering_key="'hot'")
    publisher = Scripted(a_tick)
    async with dispatching(dsn, to(publisher, concurrency=1), listen=True) as running:
        assert await passed_by(running, publisher, lambda: insert(conn, ordering_key=key)) < SOON


async def test_an_old_message_of_another_lane_gets_the_only_slot_before_a_hot_lane_ends(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, BACKLOG, ordering_key="'hot'")
    old = insert(conn, ordering_key="other", available_at="2020-01-01T00:00:00Z")
    publisher = Scripted(a_tick)
    async with dispatching(dsn, to(publisher, concurrency=1), sweep_interval=0.1) as running:
        await publisher.until(lambda: publisher.begun and publisher.begun[-1].id == old)
        running.dispatcher.request_stop("seen enough")
    assert len(publisher.begun) < SOON


async def test_of_two_backlogs_neither_keeps_the_only_slot_for_itself(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, BACKLOG)
    fill(conn, BACKLOG, ordering_key="'k' || g % 100")
    publisher = Scripted(a_tick)
    async with dispatching(dsn, to(publisher, concurrency=1)) as running:
        await publisher.until(lambda: len(publisher.begun) >= 2 * SOON)
        running.dispatcher.request_stop("seen enough")
    kinds = [message.ordering_key is None for message in publisher.begun]
    assert max(len(list(stretch)) for _, stretch in groupby(kinds)) < SOON


async def test_a_run_goes_on_only_while_the_lease_of_the_next_one_lasts(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 2, ordering_key="'k'")
    [(first,), (second,)] = conn.execute("SELECT id FROM outbox ORDER BY id").fetchall()
    goes_on = asyncio.Event()

    async def wait_with_the_first(message: ClaimedMessage) -> None:
        if message.id == first:
            await goes_on.wait()

    publisher = Scripted(wait_with_the_first)
    async with (
        database(dsn) as other,
        dispatching(dsn, to(publisher), lease=1.8, renew=0.6, max_interval=0.05) as running,
    ):
        await publisher.until(lambda: publisher.begun)
        with conn.transaction():
            # So that nobody can renew it, while the first one is renewed.
            conn.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [second])
            await eventually(lambda: has_run_out(conn, second))
        slots = {"default": (10, 3)}
        await reclaim_heads(other, owner="b", lease=30.0, slots=slots, suspect_allowed=True)
        goes_on.set()
        await running.events.finished(2)
    assert [(message.id, message.lease_version) for message in publisher.begun] == [
        (first, 1),
        (second, 3),
    ]


@pytest.mark.parametrize("key", ["NULL", "g::text"])
async def test_nothing_is_begun_after_its_lease_when_another_publish_stopped_the_whole_worker(
    dsn: str, conn: psycopg.Connection, key: str
) -> None:
    fill(conn, 2, ordering_key=key)

    begun: list[ClaimedMessage] = []

    class Blocking(Scripted):
        async def publish(self, message: ClaimedMessage) -> None:
            begun.append(message)
            if len(begun) == 1:
                time.sleep(1.0)  # noqa: ASYNC251 - as a client without await does
            await super().publish(message)

    publisher = Blocking()
    async with dispatching(dsn, to(publisher), lease=0.6, renew=0.2) as running:
        await running.events.finished(2)
    blocked = begun[0]
    assert all(one.lease_version > 1 for one in begun if one.id != blocked.id)


def has_run_out(conn: psycopg.Connection, number: int) -> bool:
    """By the clock, whatever the transaction's own time is."""
    query = "SELECT FROM outbox WHERE id = %s AND lease_until < clock_timestamp()"
    return bool(conn.execute(query, [number]).rowcount)
