"""Lanes with a long backlog do not keep those from their turn that have a single message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.dispatching import Scripted, dispatching, to
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

BACKLOG = 8000
OLD = 5


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("hot", [1, 8])
async def test_old_messages_of_other_lanes_do_not_wait_for_all_hot_lanes_to_end(
    dsn: str, conn: psycopg.Connection, slots: int, hot: int
) -> None:
    fill(conn, BACKLOG, ordering_key=f"'hot ' || g % {hot}")
    old = {
        insert(conn, ordering_key=f"lane {number}", available_at="2020-01-01T00:00:00Z")
        for number in range(OLD)
    }
    publisher = Scripted()
    async with dispatching(dsn, to(publisher, concurrency=slots)) as running:
        await publisher.until(lambda: old <= {message.id for message in publisher.begun})
        running.dispatcher.request_stop("seen enough")
    order = [message.id for message in publisher.begun]
    assert max(map(order.index, old)) < BACKLOG // 2
