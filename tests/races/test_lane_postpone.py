"""A head that cannot be claimed is put off, and nothing else of its lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.dispatch.careful import postpone_head
from tests.support.leases import DESTINATION, claim_lanes_as, enqueue_lane, ids

if TYPE_CHECKING:
    import psycopg

    from tests.support.locks import Session


async def test_while_somebody_has_locked_the_head_no_other_message_is_put_off_in_its_place(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [lane[0]])
        await postpone_head(two, DESTINATION, "", ValueError("unreadable"))
    assert ids((await claim_lanes_as("b", two)).messages) == lane
