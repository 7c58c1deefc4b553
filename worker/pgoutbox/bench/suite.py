"""The scenarios by name, and a run of some of them on tables that each builds itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import psycopg

from pgoutbox.bench import ordered, retained, unordered
from pgoutbox.bench.bars import BARS, FLOOR, Verdict, judge
from pgoutbox.bench.bulkhead import dead_destination
from pgoutbox.bench.floor import floor
from pgoutbox.bench.place import place
from pgoutbox.bench.producers import producers
from pgoutbox.bench.seeds import DUE, sow
from pgoutbox.bench.traced import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pgoutbox.bench.figures import Found
    from pgoutbox.bench.place import Place

BASELINE = "baseline"
FLOOR_COUNT = 200_000

Scenario: TypeAlias = "Callable[[Place, float], Found]"
"""Builds its table in the place, with so many times the usual rows, and measures.

Its docstring is told before it runs; numbers of thousands in it are rows or keys, and scaled.
"""
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")

# In the order in which they run: what others are compared with comes before them.
SCENARIOS: Mapping[str, Scenario] = {
    BASELINE: unordered.baseline,
    "history": unordered.history,
    "backoff": unordered.backoff,
    "dead": unordered.dead,
    "bulk-backlog": unordered.bulk_backlog,
    "xmin": unordered.xmin,
    "xmin-worker": unordered.xmin_worker,
    "lanes-uniform": ordered.lanes_uniform,
    "lanes-hot": ordered.lanes_hot,
    "lanes-blocked": ordered.lanes_blocked,
    "xmin-hot-lane": ordered.xmin_hot_lane,
    "mixed": ordered.mixed,
    "retention-keep": retained.keep,
    "retention-delete": retained.delete,
    "retention-archive": retained.archive,
    "producers": producers,
    "dead-destination": dead_destination,
    "tracing": tracing,
}


class Scored(NamedTuple):
    """A scenario that has run. ``found`` is None when it failed, and ``failure`` says why."""

    name: str
    about: str
    found: Found | None
    verdicts: list[Verdict]
    failure: str = ""

    @property
    def holds(self) -> bool:
        """Whether it ran, finished, and is as good as it has to be."""
        done = self.found is not None and self.found.complete
        return done and all(verdict.holds for verdict in self.verdicts)

    def as_dict(self) -> dict[str, object]:
        """For JSON, rounded to what a measurement is worth."""
        result: dict[str, object] = {
            "scenario": self.name,
            "claim_ms_per_100": None,
            "msgs_per_s": None,
        }
        if self.found is None:
            result["failure"] = self.failure
        else:
            figures = self.found.figures().items()
            result |= {name: value if value is None else round(value, 3) for name, value in figures}
            result |= {"by": self.found.by, "finished": self.found.finished, "of": self.found.of}
        if self.verdicts or not self.holds:
            result["holds"] = self.holds
        if self.verdicts:
            result["bars"] = [verdict.as_dict() for verdict in self.verdicts]
        return result


def needed(names: Collection[str]) -> list[str]:
    """These, the baseline, and what they are compared with, in the order of the run."""
    wanted = {BASELINE, *names}
    wanted |= {bar.against or BASELINE for bar in BARS if bar.scenario in wanted}
    return [name for name in SCENARIOS if name in wanted]


def run(
    dsn: str, names: Collection[str], *, scale: float, say: Callable[[str], None]
) -> Iterator[tuple[float, Scored]]:
    """The floor's messages per second with each scenario as it is done; `needed` says which.

    ``scale`` multiplies every number of rows. ``say`` is told what comes next.
    """
    count = unordered.scaled(FLOOR_COUNT, scale)
    say(f"the floor: {count:,} messages, claims of 500 and their finalizes in turn, one connection")
    with place(dsn) as somewhere:
        sow(somewhere, (DUE, {"count": count}))
        speed = floor(somewhere, count)
    figures: dict[str, Mapping[str, float | None]] = {FLOOR: {"msgs_per_s": speed}}
    for name in needed(names):
        about = what(SCENARIOS[name], scale)
        say(f"{name}: {about}")
        found, failure = _try(dsn, SCENARIOS[name], scale)
        figures[name] = found.figures() if found else {}
        verdicts = judge(name, figures, complete=found is not None and found.complete)
        yield speed, Scored(name, about, found, verdicts, failure)


def what(scenario: Scenario, scale: float) -> str:
    """What the scenario measures, with as many rows and keys as it will have."""

    def will_have(found: re.Match[str]) -> str:
        return f"{unordered.scaled(int(found[0].replace(',', '')), scale):,}"

    return THOUSANDS.sub(will_have, (scenario.__doc__ or "").rstrip("."))


def _try(dsn: str, scenario: Scenario, scale: float) -> tuple[Found | None, str]:
    """What it found, or why it could not: the others are run in any case."""
    try:
        with place(dsn) as somewhere:
            return scenario(somewhere, scale), ""
    except (RuntimeError, psycopg.Error) as error:
        return None, " ".join(str(error).split())
