"""Scenarios of retention: finalize also deletes what is done, or puts it away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.bench.figures import Found, of_worker
from pgoutbox.bench.seeds import DUE, sow
from pgoutbox.bench.unordered import scaled
from pgoutbox.bench.workers import work

if TYPE_CHECKING:
    from pgoutbox.bench.place import Place

ROWS = 200_000

PREPARE = b"SELECT outbox_archive_prepare()"
LEFT = b"SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox_archive)"


def keep(place: Place, scale: float) -> Found:
    """200,000 messages are finished and stay where they are."""
    return _with_mode("keep", place, scale)


def delete(place: Place, scale: float) -> Found:
    """200,000 messages are finished and deleted."""
    return _with_mode("delete", place, scale)


def archive(place: Place, scale: float) -> Found:
    """200,000 messages are finished and move to the archive."""
    return _with_mode("archive", place, scale)


def _with_mode(mode: str, place: Place, scale: float) -> Found:
    count = scaled(ROWS, scale)
    sow(place, (DUE, {"count": count}))
    with place.connect() as conn:
        # A worker would do so by and by, and until then nothing is put away.
        conn.execute(PREPARE)
    worked = work(place, count, settings={"PGOUTBOX_RETENTION__MODE": mode})
    expected = {"keep": (count, 0), "delete": (0, 0), "archive": (0, count)}[mode]
    with place.connect() as conn:
        left = conn.execute(LEFT).fetchone()
    if worked.finished == count and left != expected:
        raise RuntimeError(f"{left} messages are in outbox and outbox_archive, not {expected}")
    return of_worker(worked, count)
