"""A status for people: tables on a terminal, aligned columns elsewhere."""

from __future__ import annotations

import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.cli.console import say, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pgoutbox.cli.status import Status
    from pgoutbox.database.statistics import Statistics
    from pgoutbox.database.upkeep import Upkeep

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

WIDE = 10_000
"""Columns of a terminal on which everything fits."""
SILENT_AFTER = 15.0
"""Seconds after its last heartbeat from which a worker is called silent."""


class Table(NamedTuple):
    """Texts, ready to print."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def show(status: Status) -> None:
    """Print it."""
    found = status.statistics
    tables = [_backlog(found), _attempts(status.attempts or {}), _workers(found)]
    print_tables([table for table in tables if table.rows])
    for sentence in sentences(status):
        say(sentence)


def print_tables(tables: Iterable[Table]) -> None:
    """Lines around the cells on a terminal only."""
    draw = _draw if sys.stdout.isatty() else _write
    draw(tables)


def sentences(status: Status) -> list[str]:
    """What the tables do not say by themselves."""
    found = status.statistics
    told = [
        f"no worker serves {name}: {_count(found.destinations[name].undelivered, found.cap)}"
        " undelivered"
        for name in status.unserved
    ]
    told += [
        _blocked(name, status)
        for name, counts in found.destinations.items()
        if counts.blocked_lanes
    ]
    told += [
        _dead(name, numbers, status)
        for name, numbers in (status.newest_dead or {}).items()
        # Those that block are named already.
        if found.destinations[name].dead > found.destinations[name].blocked_lanes
    ]
    if not found.destinations:
        told.append(f'nothing is waiting in schema "{status.schema}", and nothing is dead')
    if not found.workers:
        told.append("no worker is running (one that stopped properly leaves no trace)")
    if status.upkeep is not None and status.upkeep.behind:
        told.append(_vacuum(status.upkeep, at=found.at))
    if status.attempts is None:
        told.append(
            "attempts are not shown, nor which messages are dead: this role may not read them"
        )
    return told


def duration(seconds: float) -> str:
    """In at most two units: ``59.9s``, ``2m06s``, ``1h05m``, ``3d04h``."""
    if seconds < MINUTE:
        return f"{seconds:.1f}s"
    for unit, size, below, step in (("d", DAY, "h", HOUR), ("h", HOUR, "m", MINUTE)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}{seconds % size // step:02.0f}{below}"
    return f"{seconds // MINUTE:.0f}m{seconds % MINUTE // 1:02.0f}s"


def _blocked(name: str, status: Status) -> str:
    """Which lanes stand still, since when, and what to do about it."""
    counts, cap = status.statistics.destinations[name], status.statistics.cap
    one = counts.blocked_lanes == 1
    lanes = f"{_count(counts.blocked_lanes, cap)} lane{'' if one else 's'}"
    said = f"{lanes} of {name} {'is' if one else 'are'} blocked by a dead message, "
    said += f"{'' if one else 'the oldest '}for {duration(counts.oldest_blocked_age)}"
    if numbers := (status.blocking or {}).get(name):
        said += f" (message{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"
        said += ", ...)" if counts.blocked_lanes > len(numbers) else ")"
    return (
        f"{said}: repair what was wrong and `pgoutbox dead requeue` it, or `pgoutbox dead skip` it"
    )


def _dead(name: str, numbers: Sequence[int], status: Status) -> str:
    count, cap = status.statistics.destinations[name].dead, status.statistics.cap
    listed = ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
    one = count == 1
    return (
        f"{_count(count, cap)} message{'' if one else 's'} of {name} {'is' if one else 'are'} dead"
        f" ({'' if one else 'the newest: '}{listed}): repair what was wrong and `pgoutbox dead"
        " requeue` it, or leave it"
    )


def _vacuum(seen: Upkeep, *, at: float) -> str:
    came = "never vacuumed"
    if seen.vacuumed_at is not None:
        came = f"last vacuumed {duration(at - seen.vacuumed_at)} ago"
    return (
        f"vacuum is behind: about {seen.dead} dead rows in the table beside {seen.live} live ones,"
        f" {came}; docs/sql/vacuum.sql and horizon.sql say more"
    )


def _backlog(found: Statistics) -> Table:
    counts = {"ready": "ready"}
    # Not "expired": nobody shall add it to the one before.
    after = {"leased": "processing", "of which expired": "expired", "dead": "dead"}
    ages = {"oldest pending": "oldest_pending_age", "oldest ready": "oldest_ready_age"}
    every = found.destinations.values()
    if any(each.ready_lanes or each.waiting or each.blocked_lanes for each in every):
        counts["waiting"] = "waiting"
        after |= {"ready lanes": "ready_lanes", "blocked lanes": "blocked_lanes"}
        ages["oldest blocked"] = "oldest_blocked_age"
    counts |= {"scheduled": "scheduled"} | after
    rows = [
        [
            name,
            *(_count(getattr(each, field), found.cap) for field in counts.values()),
            *(duration(getattr(each, field)) for field in ages.values()),
        ]
        for name, each in found.destinations.items()
    ]
    return Table("Messages", ("destination", *counts, *ages), rows)


def _attempts(attempts: Mapping[str, Mapping[int, int]]) -> Table:
    numbers = sorted({number for spread in attempts.values() for number in spread})
    rows = [
        [name, *(str(spread.get(number, 0)) for number in numbers)]
        for name, spread in attempts.items()
        if spread
    ]
    return Table("Undelivered, by attempts", ("destination", *map(str, numbers)), rows)


def _workers(found: Statistics) -> Table:
    rows = [
        [
            worker.owner,
            worker.state if worker.seen_age <= SILENT_AFTER else "silent",
            f"{worker.busy} of {worker.slots}",
            f"{duration(worker.seen_age)} ago",
            worker.version,
            ", ".join(sorted(worker.destinations)),
        ]
        for worker in found.workers
    ]
    columns = ("worker", "state", "in flight", "last seen", "version", "destinations")
    return Table("Workers", columns, rows)


def _count(number: int, cap: int) -> str:
    return str(number) if number < cap else f"{cap}+"


def _draw(tables: Iterable[Table]) -> None:
    """Tables where they fit, else a block for each of their rows."""
    from rich.console import Console  # noqa: PLC0415 - slow
    from rich.measure import Measurement  # noqa: PLC0415
    from rich.table import Table as Drawn  # noqa: PLC0415

    console = Console(markup=False)
    for table in tables:
        drawn = Drawn(title=table.title, title_justify="left")
        for position, column in enumerate(table.columns):
            drawn.add_column(column, justify="right" if position else "left", no_wrap=True)
        for row in table.rows:
            drawn.add_row(*map(shown, row))
        roomy = console.options.update(max_width=WIDE)
        if Measurement.get(console, roomy, drawn).maximum <= console.width:
            console.print(drawn)
        else:
            _write_blocks(table)


def _write_blocks(table: Table) -> None:
    width = max(map(len, table.columns))
    say(f"{table.title}:")
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            say(f"  {column.ljust(width)}  {cell}")
        say()


def _write(tables: Iterable[Table]) -> None:
    for table in tables:
        lines = [table.columns, *table.rows]
        widths = [max(map(len, cells)) for cells in zip_longest(*lines, fillvalue="")]
        say(f"{table.title}:")
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            say("  ".join(cells).rstrip())
        say()
