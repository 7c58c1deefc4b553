from __future__ import annotations

import logging

import pytest

from pgoutbox.brokers.kafka.log import LOGGER, REMEMBERED, SILENCE, Unrepeated

REFUSED = (
    "FAIL [pgoutbox#producer-1] [thrd:a:9092/1]: a:9092/1: Connect failed (after %dms in CONNECT)"
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def said(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("pgoutbox.kafka", logging.ERROR, "", 0, text, args, None)


def test_what_librdkafka_repeats_at_each_try_to_connect_is_written_once_a_minute() -> None:
    clock = Clock()
    unrepeated = Unrepeated(clock)
    passed = []
    for second in range(int(2 * SILENCE)):
        clock.now = float(second)
        passed.append(unrepeated.filter(said(REFUSED, second % 3)))
    assert passed.count(True) == 2
    assert passed[0]
    assert passed[int(SILENCE)]


def test_another_broker_and_another_kind_of_failure_are_written_at_once() -> None:
    unrepeated = Unrepeated(Clock())
    assert unrepeated.filter(said(REFUSED, 1))
    assert unrepeated.filter(said(REFUSED.replace("/1", "/2"), 1))
    assert unrepeated.filter(said(REFUSED.replace("Connect failed", "Disconnected"), 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(after 0ms in state CONNECT)", "(after 1ms in state UP, 12 identical error(s) gone)"),
        ("[pgoutbox#producer-1]", "[pgoutbox#producer-2]"),
        ("Connect to ipv4#10.0.0.1:9092 failed", "Connect to ipv6#[::1]:9092 failed"),
    ],
)
def test_counts_durations_addresses_and_our_own_names_make_nothing_new(
    one: str, other: str
) -> None:
    unrepeated = Unrepeated(Clock())
    assert unrepeated.filter(said(f"FAIL {one}: a:9092/1"))
    assert not unrepeated.filter(said(f"FAIL {other}: a:9092/1"))


def test_ever_new_words_do_not_fill_the_memory() -> None:
    clock = Clock()
    unrepeated = Unrepeated(clock)
    for number in range(3 * REMEMBERED):
        clock.now = float(number)
        assert unrepeated.filter(said(f"word {'x' * number}"))
    assert len(unrepeated._said) == REMEMBERED


def test_the_clients_log_has_this_filter() -> None:
    assert any(isinstance(one, Unrepeated) for one in LOGGER.filters)
