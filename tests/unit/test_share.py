from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, strategies as st

from pgoutbox.dispatch.flight import InFlight
from pgoutbox.dispatch.share import share
from tests.support.dispatching import Scripted, a_message, to

if TYPE_CHECKING:
    import asyncio

    from pgoutbox.destinations.destination import Destination

wishes = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-5, 80), max_size=8)
totals = st.integers(-10, 200)


@given(total=totals, wants=wishes)
def test_nobody_gets_more_than_wanted_and_all_together_not_more_than_there_is(
    total: int, wants: dict[str, int]
) -> None:
    shares = share(total, wants)
    assert all(0 < part <= wants[name] for name, part in shares.items())
    wanted = sum(want for want in wants.values() if want > 0)
    assert sum(shares.values()) == max(0, min(total, wanted))


@given(total=totals, wants=wishes)
def test_whoever_wants_less_than_an_equal_part_gets_it_whole(
    total: int, wants: dict[str, int]
) -> None:
    shares = share(total, wants)
    asking = [name for name, want in wants.items() if want > 0]
    for name in asking:
        if wants[name] <= total // len(asking):
            assert shares[name] == wants[name]


@given(total=totals, wants=wishes)
def test_nobody_is_short_by_more_than_one_while_another_has_more(
    total: int, wants: dict[str, int]
) -> None:
    shares = share(total, wants)
    most = max(shares.values(), default=0)
    for name, want in wants.items():
        assert shares.get(name, 0) >= min(max(want, 0), most - 1)


@pytest.mark.parametrize("wants", [{"a": 1, "b": 50}, {"a": 50, "b": 1}, {"a": 50, "b": 50}])
def test_what_does_not_divide_goes_to_whoever_comes_first(wants: dict[str, int]) -> None:
    assert share(1, wants) == {"a": 1}


@pytest.mark.parametrize("small", [1, 50])
def test_a_destination_is_not_starved_by_a_greedy_one_when_one_slot_at_a_time_falls_free(
    small: int,
) -> None:
    served = Counter(name for free in islice(single_slots(small), 40) for name in free)
    assert served["quiet"] >= 10
    assert served["greedy"] >= 10


def single_slots(small: int) -> list[dict[str, int]]:
    """What a full worker grants: it looks in vain, waits, and finds one free slot."""
    in_flight = InFlight(limit=10)
    destinations = {
        "quiet": to(Scripted(), "quiet", concurrency=small),
        "greedy": to(Scripted(), "greedy", concurrency=50),
    }
    in_flight.take([a_message(id=n, destination="busy") for n in range(10)], 0.0, 0.0)
    grants = []
    for n in range(40):
        assert in_flight.free(in_flight.wants(destinations, 0.0)) == {}
        in_flight.release([a_message(id=n % 10)])
        grants.append(in_flight.free(in_flight.wants(destinations, 0.0)))
        in_flight.take([a_message(id=n % 10, destination="busy")], 0.0, 0.0)
    return grants


@given(
    limits=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    limit=st.integers(1, 30),
    data=st.data(),
)
def test_slots_never_exceed_the_concurrency_of_a_destination_nor_the_worker(
    limits: list[int], limit: int, data: st.DataObject
) -> None:
    in_flight = InFlight(limit)
    destinations: dict[str, Destination] = {
        f"d{number}": to(Scripted(), f"d{number}", concurrency=concurrency)
        for number, concurrency in enumerate(limits)
    }
    publishing: Counter[str] = Counter()
    running: defaultdict[str, list[asyncio.Task[None]]] = defaultdict(list)
    row = 0
    for _ in range(8):
        free = in_flight.free(in_flight.wants(destinations, 0.0))
        for name, slots in free.items():
            taken = data.draw(st.integers(0, slots))
            for _ in range(taken):
                row += 1
                flights = in_flight.take([a_message(id=row, destination=name)], 0.0, 0.0)
                task = cast("asyncio.Task[None]", f"{name} {row}")
                in_flight.depart(flights, task)
                running[name].append(task)
            publishing[name] += taken
            assert publishing[name] <= destinations[name].concurrency
        assert len(in_flight) <= limit
        for name in list(publishing):
            ended = data.draw(st.integers(0, publishing[name]))
            for _ in range(ended):
                in_flight.landed(running[name].pop())
            publishing[name] -= ended
        mine = [flight.message for flight in in_flight]
        in_flight.release(mine[: data.draw(st.integers(0, len(mine)))])


def test_a_stopped_destination_gets_no_slots() -> None:
    destinations = {"a": to(Scripted(), "a"), "b": to(Scripted(), "b")}
    destinations["a"].stopped = True
    in_flight = InFlight(10)
    assert in_flight.free(in_flight.wants(destinations, 0.0)) == {"b": 10}
