"""New message ids are UUIDv7; ids of dedup keys are UUIDv8."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import RFC_4122, UUID

from hypothesis import given, strategies as st

from pgoutbox.producer import ids

if TYPE_CHECKING:
    import pytest


def test_a_new_id_is_a_uuid_of_version_7() -> None:
    message_id = ids.new_id()
    assert (message_id.version, message_id.variant) == (7, RFC_4122)


def test_a_new_id_begins_with_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    stamp = ids.new_id().int >> 80
    assert before <= stamp <= time.time_ns() // 1_000_000 + 1000


def test_new_ids_ascend_and_never_repeat() -> None:
    made = [ids.new_id() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_new_ids_ascend_while_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ids._Clock()
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    first = clock.tick()
    monkeypatch.setattr(time, "time_ns", lambda: now - 3_600_000_000_000)
    assert [clock.tick(), clock.tick()] == [first + 1, first + 2]


@given(st.text(min_size=1))
def test_equal_dedup_keys_give_equal_ids_of_version_8(key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    message_id = ids.id_of_dedup_key(key)
    assert message_id == ids.id_of_dedup_key(key)
    assert (message_id.version, message_id.variant) == (8, RFC_4122)


def test_the_id_of_a_dedup_key_never_changes_between_versions() -> None:
    assert ids.id_of_dedup_key("order-42-paid") == UUID("0be11c62-7bc2-8c14-bd9c-a36ac7db9151")
