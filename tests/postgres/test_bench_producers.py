"""The sessions that insert as fast as they can."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from pgoutbox.bench import producers
from pgoutbox.bench.pipelines import rate
from pgoutbox.bench.place import Place, place

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = {variant.name: variant for variant in producers.ALONE}
COLUMNS = sql.SQL("""
SELECT destination, ordering_key, aggregate_type, aggregate_id, event_type, content_type,
       dedup_key, headers, payload, body, status, attempts, lease_version
  FROM {}
""")
NOTIFYING = b"SELECT wanted FROM outbox_wakeup"


@pytest.fixture
def here(empty_dsn: str) -> Iterator[Place]:
    with place(empty_dsn) as somewhere:
        with somewhere.connect() as conn:
            conn.execute(producers.BARE)
        yield somewhere


def test_every_insert_is_a_row_with_an_id_of_its_own(here: Place) -> None:
    with ExitStack() as stack:
        variant = VARIANTS["wakeup_off"]
        sessions = [stack.enter_context(producers._session(here, variant)) for _ in range(3)]
        speed = rate(sessions, warm_up=0.0, seconds=0.3)
    with here.connect() as conn:
        count = b"SELECT count(*), count(DISTINCT message_id), min(octet_length(body)) FROM outbox"
        [(rows, ids, size)] = conn.execute(count).fetchall()
    assert rows >= speed * 0.3
    # The first of each session is the one that was prepared.
    assert ids == rows - len(sessions) + 3
    assert size == producers.SIZE


def test_a_bare_insert_writes_the_same_row(here: Place) -> None:
    for name in ("bare", "bare_indexed", "wakeup_off"):
        with producers._session(here, VARIANTS[name]):
            pass
    with here.connect() as conn:
        outbox, bare, indexed = (
            conn.execute(COLUMNS.format(sql.Identifier(table))).fetchall()
            for table in ("outbox", "bare", "bare_indexed")
        )
    assert outbox == bare == indexed
    assert len(outbox) == 1


def test_an_insert_that_fails_is_no_success(here: Place) -> None:
    with producers._session(here, VARIANTS["wakeup_off"]) as session:
        with here.connect() as conn:
            conn.execute(b"ALTER TABLE outbox ADD CHECK (id < 0) NOT VALID")
        with pytest.raises(RuntimeError, match="insert failed"):
            rate([session], warm_up=0.0, seconds=5.0)


def test_the_scenario_compares_all_variants_and_one_of_them_wakes(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "ROUNDS", 1)
    with here.connect() as conn:
        conn.execute(b"DROP TABLE bare, bare_indexed")
    found = producers.producers(here, 0.001)
    assert found.complete
    assert set(producers.RATIOS) <= set(found.more)
    assert all(value is not None and value > 0 for value in found.more.values())
    with here.connect() as conn:
        # The last variant of a round is that in which every insert notifies.
        assert conn.execute(NOTIFYING).fetchone() == (True,)
