"""What spans cost is measured on messages that have a trace, and only some of which are sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgoutbox.bench import seeds, traced
from pgoutbox.bench.place import Place, place

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = b"SELECT right(headers ->> 'traceparent', 2), count(*) FROM outbox GROUP BY 1"


@pytest.fixture
def here(empty_dsn: str) -> Iterator[Place]:
    with place(empty_dsn) as somewhere:
        yield somewhere


@pytest.mark.parametrize(("every", "found"), [(0, {"00": 60}), (20, {"00": 57, "01": 3})])
def test_so_many_of_the_messages_are_sampled(
    here: Place, every: int, found: dict[str, int]
) -> None:
    seeds.sow(here, (seeds.TRACED, {"count": 60, "every": every}))
    with here.connect() as conn:
        assert dict(conn.execute(FLAGS).fetchall()) == found


def test_every_variant_finishes_its_messages_and_sends_spans_where_it_has_to(here: Place) -> None:
    # It fails where spans come that should not, or do not come that should.
    found = traced.tracing(here, 0.001)
    assert found.complete
    assert {name for name in found.more if name.endswith("_to_none")} >= {
        "absent_to_none",
        "off_to_none",
        "one_percent_to_none",
        "ten_percent_to_none",
    }
