"""What was forbidden is missing until it is allowed, or until nobody asks for it any more."""

from __future__ import annotations

from pgoutbox_operator.permissions import FORGOTTEN_SECONDS, Access, Permissions

EVENTS = Access("create", "events", "shop")
SECRET = Access("get", "secrets", "shop", "dsn")


class Clock:
    """As a test says."""

    time = 1000.0

    def __call__(self) -> float:
        return self.time


def test_an_object_that_nobody_asks_for_any_more_is_not_missed_for_ever() -> None:
    clock = Clock()
    permissions = Permissions(now=clock)
    permissions.told(SECRET, allowed=False)
    clock.time += FORGOTTEN_SECONDS - 1
    assert permissions.missing("shop") == [SECRET]
    permissions.told(SECRET, allowed=False)
    clock.time += FORGOTTEN_SECONDS - 1
    assert permissions.missing("shop") == [SECRET]
    clock.time += 2
    assert permissions.missing("shop") == []


def test_what_is_asked_for_only_now_and_then_is_missed_until_it_is_allowed() -> None:
    clock = Clock()
    permissions = Permissions(now=clock)
    permissions.told(EVENTS, allowed=False)
    clock.time += 100 * FORGOTTEN_SECONDS
    assert permissions.missing("shop") == [EVENTS]
    permissions.told(EVENTS, allowed=True)
    assert permissions.missing("shop") == []
