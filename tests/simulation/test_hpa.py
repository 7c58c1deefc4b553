"""What Kubernetes documents of the HorizontalPodAutoscaler."""

from __future__ import annotations

import pytest

from simulation.scalers.hpa import AverageValue, Hpa, Rule, Value


def hpa(*metrics: AverageValue | Value, **rules: object) -> Hpa:
    given: dict[str, object] = {"metrics": metrics, "max_replicas": 100}
    return Hpa(**(given | rules))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "ready", "desired"), [(200.0, 3, 6), (50.0, 4, 2), (109.0, 4, 4), (91.0, 4, 4)]
)
def test_a_value_twice_the_target_doubles_and_half_of_it_halves_beyond_a_tenth(
    value: float, ready: int, desired: int
) -> None:
    assert Value(100.0).desired(value, ready, ready) == desired


@pytest.mark.parametrize(
    ("total", "replicas", "desired"), [(1000.0, 5, 10), (95.0, 1, 1), (540.0, 5, 5), (12.0, 5, 1)]
)
def test_an_average_value_divides_the_total_whatever_the_replicas(
    total: float, replicas: int, desired: int
) -> None:
    assert AverageValue(100.0).desired(total, replicas, replicas) == desired


def test_ten_per_cent_of_80_are_8_pods_and_of_72_are_8_as_well() -> None:
    scaler = hpa(AverageValue(1.0), down=(Rule("Percent", 10, 60.0),), down_window=0.0)
    seen, replicas = [], 80
    for minute in range(1, 4):
        replicas = scaler.sync(60.0 * minute, replicas, replicas, (10.0,))
        seen.append(replicas)
    assert seen == [72, 64, 57]


def test_within_a_period_the_rule_counts_from_its_beginning() -> None:
    scaler = hpa(AverageValue(1.0), down=(Rule("Percent", 10, 60.0),), down_window=0.0)
    replicas, seen = 80, []
    for now in (60.0, 75.0, 90.0, 121.0):
        replicas = scaler.sync(now, replicas, replicas, (10.0,))
        seen.append(replicas)
    assert seen == [72, 72, 72, 64]


def test_of_two_rules_the_one_that_allows_more_counts() -> None:
    rules = (Rule("Pods", 4, 60.0), Rule("Percent", 10, 60.0))
    large = hpa(AverageValue(1.0), down=rules, down_window=0.0)
    small = hpa(AverageValue(1.0), down=rules, down_window=0.0)
    assert large.sync(60.0, 80, 80, (1.0,)) == 72
    assert small.sync(60.0, 20, 20, (1.0,)) == 16


@pytest.mark.parametrize(("replicas", "after"), [(1, 5), (3, 7), (10, 20)])
def test_by_default_four_pods_or_as_many_again_come_in_15_seconds(
    replicas: int, after: int
) -> None:
    assert hpa(AverageValue(1.0)).sync(15.0, replicas, replicas, (1000.0,)) == after


def test_replicas_go_when_none_of_five_minutes_wanted_more() -> None:
    scaler = hpa(AverageValue(1.0))
    replicas = scaler.sync(0.0, 10, 10, (10.0,))
    seen = {}
    for tick in range(1, 25):
        replicas = scaler.sync(15.0 * tick, replicas, replicas, (2.0,))
        seen[15 * tick] = replicas
    assert (seen[285], seen[300]) == (10, 2)


def test_the_most_that_any_metric_wants_counts() -> None:
    assert hpa(AverageValue(10.0), Value(5.0)).sync(0.0, 5, 5, (90.0, 8.0)) == 9


@pytest.mark.parametrize(("depth", "after"), [(20.0, 5), (90.0, 9)])
def test_when_one_metric_cannot_be_read_the_others_may_only_add(depth: float, after: int) -> None:
    scaler = hpa(AverageValue(10.0), Value(5.0), down_window=0.0)
    assert scaler.sync(0.0, 5, 5, (depth, None)) == after


def test_nothing_happens_when_no_metric_can_be_read() -> None:
    assert hpa(AverageValue(10.0)).sync(0.0, 5, 5, (None,)) == 5


def test_somebody_who_scales_to_none_switches_it_off() -> None:
    assert hpa(AverageValue(10.0)).sync(0.0, 0, 0, (1000.0,)) == 0
