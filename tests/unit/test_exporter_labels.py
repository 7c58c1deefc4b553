from __future__ import annotations

from typing import Any

import pytest

from pgoutbox.database.statistics import DestinationStatistics
from pgoutbox.telemetry.exporter_labels import FORGOTTEN_AFTER, Labels, together

COUNTS: dict[str, Any] = dict.fromkeys(DestinationStatistics.__slots__, 0)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def labels(clock: Clock) -> Labels:
    return Labels(limit=2, clock=clock)


def ready(**counts: int) -> dict[str, DestinationStatistics]:
    return {
        name: DestinationStatistics(**COUNTS | {"ready": count}) for name, count in counts.items()
    }


def shown(labels: Labels, *, served: tuple[str, ...] = (), **counts: int) -> dict[str, int]:
    return {
        name: each.ready for name, each in labels.spread(ready(**counts), served=served).items()
    }


def test_beyond_the_limit_destinations_share_a_label(labels: Labels) -> None:
    assert shown(labels, a=1, b=2, c=3, d=4) == {"a": 1, "b": 2, "_other": 7}


def test_up_to_the_limit_nobody_shares_one(labels: Labels) -> None:
    assert shown(labels, a=1, b=2) == {"a": 1, "b": 2}


def test_what_is_shared_is_a_sum_and_the_oldest_age() -> None:
    each = [
        DestinationStatistics(**COUNTS | {"ready": 2, "oldest_pending_age": float(age)})
        for age in (1, 4, 3)
    ]
    told = together(each)
    assert (told.ready, told.oldest_pending_age) == (6, 4.0)


def test_a_newcomer_whose_name_comes_first_takes_nobodys_label(labels: Labels) -> None:
    shown(labels, b=1, c=1)
    assert shown(labels, a=5, b=1, c=1) == {"b": 1, "c": 1, "_other": 5}


def test_destinations_with_messages_come_before_those_that_are_only_served(labels: Labels) -> None:
    assert shown(labels, served=("a", "b"), c=1) == {"a": 0, "c": 1}


def test_the_shared_label_stays_at_0_when_its_messages_are_gone(
    labels: Labels, clock: Clock
) -> None:
    shown(labels, a=1, b=1, c=1)
    assert shown(labels, a=1, b=1) == {"a": 1, "b": 1, "_other": 0}
    clock.now += FORGOTTEN_AFTER + 1
    assert shown(labels, a=1, b=1) == {"a": 1, "b": 1}


def test_a_label_that_was_forgotten_is_free_again(labels: Labels, clock: Clock) -> None:
    shown(labels, a=1, b=1)
    clock.now += FORGOTTEN_AFTER
    shown(labels, b=1)
    clock.now += 1
    assert shown(labels, b=1, c=1) == {"b": 1, "c": 1}
