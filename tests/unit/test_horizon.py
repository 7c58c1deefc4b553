from __future__ import annotations

from dataclasses import replace

import pytest

from pgoutbox.cli.horizon import Seen, as_object, fact, hidden, named, unreadable, warnings
from pgoutbox.database.horizon import Access, Holder, Horizon, parse

BACKEND = Holder(
    kind="backend",
    name=None,
    pid=4711,
    role="app",
    database="shop",
    application="report",
    state="idle in transaction",
    transactions=5_000,
    seconds=754.0,
)
SLOT = replace(
    BACKEND, kind="slot", name="old", pid=None, role=None, database=None, application=None
)
ACCESS = Access(
    exists=True, enters=True, calls=False, schema="app", role="desk", owner="shop_owner"
)


def seen(*holders: Holder, hidden: bool = False) -> Horizon:
    return Horizon(hidden=hidden, holders=holders)


def test_nothing_held_is_an_age_of_zero() -> None:
    assert (seen().transactions, seen().seconds, seen().late) == (0, 0.0, None)
    assert warnings(seen()) == ()


def test_the_age_is_that_of_the_oldest_holder_and_unknown_where_its_time_is() -> None:
    undated = replace(SLOT, seconds=None, transactions=9_000)
    assert (seen(undated, BACKEND).transactions, seen(undated, BACKEND).seconds) == (9_000, None)


@pytest.mark.parametrize(
    ("seconds", "transactions", "late"),
    [
        (300.0, 100, True),
        (299.9, 10**6, False),
        (10**6, 99, False),
        (None, 100_000, True),
        (None, 99_999, False),
    ],
)
def test_late_is_old_and_in_the_way(seconds: float | None, transactions: int, late: bool) -> None:  # noqa: FBT001
    holder = replace(BACKEND, seconds=seconds, transactions=transactions)
    assert (seen(holder).late is holder) == late
    assert len(warnings(seen(holder))) == late


def test_the_one_who_is_warned_of_is_the_oldest_that_is_late() -> None:
    busy = replace(SLOT, seconds=None, transactions=6_000)
    [warning] = warnings(seen(busy, BACKEND, replace(BACKEND, pid=4712)))
    assert "backend 4711 (database shop, role app, application report" in warning.rule
    assert "for up to 12m34s (5000 transactions)" in warning.rule


@pytest.mark.parametrize(
    ("holder", "advice"),
    [
        (BACKEND, "pg_terminate_backend(4711)"),
        (SLOT, "SELECT pg_drop_replication_slot('old')."),
        (
            replace(SLOT, kind="prepared", name="it's", database="shop"),
            "Connected to database shop: COMMIT PREPARED 'it''s' or ROLLBACK PREPARED 'it''s'",
        ),
        (replace(BACKEND, kind="standby"), "hot_standby_feedback = off"),
    ],
)
def test_each_kind_has_its_remedy(holder: Holder, advice: str) -> None:
    [warning] = warnings(seen(holder))
    assert advice in warning.advice


def test_a_kind_that_a_newer_schema_knows_is_named_as_it_is() -> None:
    assert named(replace(SLOT, kind="miracle")) == "a miracle (idle in transaction)"
    assert warnings(seen(replace(SLOT, kind="miracle"))) != ()


def test_names_cannot_write_on_the_terminal() -> None:
    named_so = named(replace(SLOT, name="a\x1b[2J", kind="prepared", role="b\x07"))
    assert named_so.isprintable()


def test_what_is_hidden_is_said() -> None:
    told = fact(Seen(seen(hidden=True), hidden(ACCESS)))
    assert told.startswith("fine, 0 transactions back; not all of it is known, which by itself")
    assert "does no harm: shop_owner, who owns" in told
    assert told.endswith("As a superuser: GRANT pg_read_all_stats TO shop_owner")
    assert fact(Seen(seen())) == "fine, 0 transactions back"
    assert not fact(Seen(seen(BACKEND))).startswith("fine")
    assert fact(Seen(None, "why")) == "unknown: why"
    assert as_object(None) is None


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "outbox_horizon() is missing: run `pgoutbox migrate`"),
        (replace(ACCESS, exists=False, owner=None), "outbox_horizon() is missing: run `pgout"),
        (ACCESS, "the owner for GRANT EXECUTE ON FUNCTION app.outbox_horizon() TO desk"),
        (
            replace(ACCESS, enters=False),
            "GRANT USAGE ON SCHEMA app TO desk and GRANT EXECUTE ON FUNCTION",
        ),
    ],
)
def test_it_is_said_whether_the_function_is_missing_or_forbidden(
    found: Access | None, says: str
) -> None:
    assert says in unreadable(found)


def test_what_a_newer_schema_adds_is_left_out() -> None:
    holder = {name: getattr(BACKEND, name) for name in BACKEND.__slots__}
    answer = {"hidden": False, "holders": [holder | {"mood": "good"}], "more": 1}
    assert parse(answer) == seen(BACKEND)
