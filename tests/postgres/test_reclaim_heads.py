"""Which expired lanes a reclaim takes, and what it makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.reclaim import reclaim, reclaim_heads
from pgoutbox.dispatch.scan import MAX_RUN
from tests.support.leases import (
    DESTINATION,
    LEASE,
    LIMIT,
    State,
    claim_lanes_as,
    enqueue_lane,
    expire,
    ids,
    reclaim_heads_as,
    states_of,
)
from tests.support.locks import Session, open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

    from pgoutbox.message import ClaimedMessage

    Conn = psycopg.AsyncConnection[Any]

GIVEN_BACK = State("pending", None, 2, 0, 0)


@pytest.fixture
async def session(dsn: str) -> AsyncIterator[Session]:
    async with open_session(dsn) as opened:
        yield opened


async def expired_lanes(
    conn: Conn, session: Session, keys: str, count: int = 3
) -> dict[str, list[ClaimedMessage]]:
    """A run of each lane, whose leases ran out in the order of the keys."""
    for key in keys:
        await enqueue_lane(conn, key, count)
    runs = await claim_lanes_as("gone", session, len(keys), run=count)
    assert sorted(runs.lanes) == sorted(keys)
    for key in keys:
        await expire(conn, runs.lanes[key])
    return runs.lanes


async def test_so_many_heads_are_reclaimed_as_there_are_slots_and_all_others_wait(
    aconn: Conn, session: Session
) -> None:
    lanes = await expired_lanes(aconn, session, "abcd")
    heads = [lanes[key][0].id for key in "abcd"]
    assert ids(await reclaim_heads_as("w", session, 3)) == heads[:3]
    assert ids(await reclaim_heads_as("w", session, 3)) == heads[3:]
    # What is behind them went back with the first one: it takes no slot.
    assert [(await states_of(aconn, key))[1:] for key in "abcd"] == [[GIVEN_BACK] * 2] * 4


async def test_a_reclaimed_head_has_a_new_version_and_spends_an_attempt(
    aconn: Conn, session: Session
) -> None:
    lanes = await expired_lanes(aconn, session, "a", 1)
    (head,) = await reclaim_heads_as("w", session)
    (gone,) = lanes["a"]
    assert (head.id, head.message_id, head.body) == (gone.id, gone.message_id, gone.body)
    assert (head.lease_version, head.attempts, head.reclaims) == (2, 2, 1)
    assert (head.ordering_key, head.headers_json) == ("a", gone.headers_json)


async def test_a_live_lease_is_left_alone(aconn: Conn, session: Session) -> None:
    await enqueue_lane(aconn, "a", 3)
    await claim_lanes_as("alive", session)
    assert await reclaim_heads_as("w", session) == []
    assert {state.owner for state in await states_of(aconn, "a")} == {"alive"}


async def test_only_lanes_of_the_given_destinations_are_touched(
    aconn: Conn, session: Session
) -> None:
    await expired_lanes(aconn, session, "ab")
    await aconn.execute("UPDATE outbox SET destination = 'mail' WHERE ordering_key = 'b'")
    before = await states_of(aconn, "b")
    (head,) = await reclaim_heads_as("w", session)
    assert head.ordering_key == "a"
    assert await states_of(aconn, "b") == before


async def test_each_destination_has_its_own_slots_and_its_own_limit(
    aconn: Conn, session: Session
) -> None:
    await expired_lanes(aconn, session, "abcd")
    await aconn.execute("UPDATE outbox SET destination = 'mail' WHERE ordering_key IN ('c', 'd')")
    heads = await reclaim_heads(
        session,
        owner="w",
        lease=LEASE,
        slots={DESTINATION: (1, LIMIT), "mail": (5, 1)},
        suspect_allowed=True,
    )
    # Those of the other one have spent their only attempt.
    assert [head.ordering_key for head in heads] == ["a"]
    assert [(await states_of(aconn, key))[1] for key in "cd"] == [GIVEN_BACK] * 2


async def test_of_two_destinations_one_suspect_is_reclaimed_in_all(
    aconn: Conn, session: Session
) -> None:
    lanes = await expired_lanes(aconn, session, "abcd", 1)
    await aconn.execute("UPDATE outbox SET reclaims = 1")
    await aconn.execute("UPDATE outbox SET destination = 'mail' WHERE ordering_key IN ('c', 'd')")
    slots = {DESTINATION: (9, LIMIT), "mail": (9, LIMIT)}
    heads = await reclaim_heads(session, owner="w", lease=LEASE, slots=slots, suspect_allowed=True)
    assert ids(heads) == ids(lanes["a"])


async def test_messages_whose_publish_kills_every_worker_do_not_take_their_lane_with_them(
    aconn: Conn, session: Session
) -> None:
    """The rest of the run spends no attempt, however often its head is reclaimed."""
    lanes = await expired_lanes(aconn, session, "a")
    for _ in range(LIMIT - 1):
        heads = await reclaim_heads_as("w", session)
        assert ids(heads) == ids(lanes["a"][:1])
        await expire(aconn, heads)
    assert await reclaim_heads_as("w", session) == []
    head, *rest = await states_of(aconn, "a")
    assert (head.attempts, head.reclaims) == (LIMIT, LIMIT - 1)
    assert rest == [GIVEN_BACK] * 2


async def test_large_heads_are_reclaimed_a_few_at_a_time_and_one_of_any_size(
    aconn: Conn, session: Session
) -> None:
    lanes = await expired_lanes(aconn, session, "abc", 1)
    await aconn.execute("UPDATE outbox SET payload = NULL, body = repeat('x', 1000)::bytea")
    slots = {DESTINATION: (9, LIMIT)}
    taken = [
        ids(
            await reclaim_heads(
                session, owner="w", lease=LEASE, slots=slots, suspect_allowed=True, budget=budget
            )
        )
        for budget in (2500, 500)
    ]
    assert taken == [ids([*lanes["a"], *lanes["b"]]), ids(lanes["c"])]


async def test_both_reclaims_together_take_everything_that_expired_and_nothing_twice(
    aconn: Conn, session: Session
) -> None:
    lanes = await expired_lanes(aconn, session, "ab", 1)
    await aconn.execute("UPDATE outbox SET ordering_key = NULL WHERE ordering_key = 'b'")
    slots = {DESTINATION: (9, LIMIT)}
    taken = [
        ids(await branch(session, owner="w", lease=LEASE, slots=slots, suspect_allowed=True))
        for branch in (reclaim, reclaim_heads)
    ]
    assert taken == [ids(lanes["b"]), ids(lanes["a"])]


async def test_the_longest_run_goes_back_as_a_whole(aconn: Conn, session: Session) -> None:
    await expired_lanes(aconn, session, "a", MAX_RUN)
    await reclaim_heads_as("w", session)
    head, *rest = await states_of(aconn, "a")
    assert head.owner == "w"
    assert rest == [GIVEN_BACK] * (MAX_RUN - 1)
