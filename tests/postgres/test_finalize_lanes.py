"""A failure and what is given back behind it are written together, or not at all for the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.lanes import Asked, claim_runs
from pgoutbox.outcome import Finish, Release, Retry
from tests.support.dispatching import claimed, database, settled
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage


async def test_while_somebody_has_locked_one_row_of_a_lane_no_other_of_it_is_written(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    for _ in range(3):
        insert(conn, ordering_key="a")
    other = insert(conn)
    async with database(dsn) as db:
        asked = Asked("default", lanes=1, rows=10, run=10)
        runs = await claim_runs(db, asked, owner="w", lease=30.0)
        [neighbour] = await claimed(db)
        lane: list[ClaimedMessage] = runs.lanes["a"]
        batch = [
            settled(lane[0], Retry(60.0, "busy")),
            *(settled(message, Release()) for message in lane[1:]),
            settled(neighbour, Finish()),
        ]
        with psycopg.connect(dsn) as person:
            person.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [lane[2].id])
            first = await finalize(db, batch, retried=False, patience=0.05)
        assert [each.message.id for each in first.written] == [other]
        assert [each.message.id for each in first.locked] == [message.id for message in lane]
        again = await finalize(db, first.locked, retried=True)
    assert len(again.written) == len(lane)
