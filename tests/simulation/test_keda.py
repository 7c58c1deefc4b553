"""What KEDA documents of a ScaledObject."""

from __future__ import annotations

import pytest

from simulation.scalers.keda import COOLDOWN_SECONDS, Keda


def test_anything_above_the_activation_wakes_one_replica() -> None:
    keda = Keda(target=100.0, max_replicas=10, min_replicas=0)
    assert keda.poll(0.0, 0, 0.0) == 0
    assert keda.poll(30.0, 0, 1.0) == 1


@pytest.mark.parametrize(("value", "after"), [(5.0, 0), (6.0, 1)])
def test_the_activation_itself_is_not_enough(value: float, after: int) -> None:
    keda = Keda(target=100.0, max_replicas=10, min_replicas=0, activation=5.0)
    assert keda.poll(0.0, 0, value) == after


def test_the_last_replica_goes_after_the_cooldown() -> None:
    keda = Keda(target=100.0, max_replicas=10, min_replicas=0)
    keda.poll(0.0, 1, 3.0)
    assert keda.poll(COOLDOWN_SECONDS - 1, 1, 0.0) == 1
    assert keda.poll(COOLDOWN_SECONDS, 1, 0.0) == 0


def test_the_cooldown_is_of_no_concern_where_one_replica_has_to_stay() -> None:
    keda = Keda(target=100.0, max_replicas=10)
    assert keda.poll(10 * COOLDOWN_SECONDS, 1, 0.0) == 1


def test_above_one_replica_it_is_an_hpa_on_the_average() -> None:
    keda = Keda(target=100.0, max_replicas=10)
    assert keda.sync(0.0, 1, 1, 450.0) == 5


def test_a_query_that_fails_changes_nothing() -> None:
    keda = Keda(target=100.0, max_replicas=10, min_replicas=0)
    assert keda.poll(10 * COOLDOWN_SECONDS, 1, None) == 1
    assert keda.sync(0.0, 4, 4, None) == 4
