"""How good each scenario has to be, always against something measured in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOOR = "floor"


class Bar(NamedTuple):
    """The scenario's ``figure``, divided by the same figure of ``against``, within a limit.

    Without ``against`` the figure is a ratio already.
    """

    scenario: str
    figure: str
    against: str | None = None
    at_most: float | None = None
    at_least: float | None = None


BARS = (
    Bar("history", "claim_ms_per_100", "baseline", at_most=1.5),
    Bar("backoff", "claim_ms_per_100", "baseline", at_most=1.5),
    Bar("dead", "claim_ms_per_100", "baseline", at_most=1.5),
    Bar("bulk-backlog", "claim_ms_per_100", "baseline", at_most=1.5),
    Bar("xmin", "last_to_first", at_most=2.0),
    Bar("xmin-worker", "last_to_first", at_most=2.0),
    Bar("xmin-worker", "drain_last_to_first", at_most=2.0),
    Bar("xmin-hot-lane", "last_to_first", at_most=2.0),
    Bar("lanes-uniform", "msgs_per_s", FLOOR, at_least=0.30),
    Bar("lanes-hot", "msgs_per_s", FLOOR, at_least=0.24),
    Bar("lanes-blocked", "msgs_per_s", "lanes-uniform", at_least=0.5),
    Bar("producers", "enqueue_to_bare", at_most=1.3),
    Bar("producers", "switching_to_no_trigger", at_most=1.25),
    Bar("dead-destination", "refusing_to_alone", at_most=1.2),
    Bar("dead-destination", "silent_to_alone", at_most=1.2),
    Bar("dead-destination", "failing_to_alone", at_most=1.2),
    Bar("tracing", "absent_to_none", at_least=0.97),
    Bar("tracing", "off_to_none", at_least=0.97),
    Bar("tracing", "one_percent_to_none", at_least=0.95),
    Bar("tracing", "ten_percent_to_none", at_least=0.80),
    Bar("retention-delete", "msgs_per_s", "retention-keep", at_least=0.75),
    Bar("retention-archive", "msgs_per_s", "retention-keep", at_least=0.75),
)


class Verdict(NamedTuple):
    """What became of one bar. ``ratio`` is None where there is nothing to compare."""

    bar: Bar
    ratio: float | None
    holds: bool

    def __str__(self) -> str:
        """In words, as in ``msgs_per_s is 0.42 of floor, >= 0.3 wanted: holds``."""
        bar = self.bar
        of = f" of {bar.against}" if bar.against else ""
        limit = f"<= {bar.at_most:g}" if bar.at_most is not None else f">= {bar.at_least:g}"
        found = "unknown" if self.ratio is None else f"{self.ratio:.2f}{of}"
        verdict = "holds" if self.holds else "FALLS SHORT"
        return f"{bar.figure} is {found}, {limit} wanted: {verdict}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        bar = self.bar
        return {
            "figure": bar.figure,
            "against": bar.against,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "at_most": bar.at_most,
            "at_least": bar.at_least,
            "holds": self.holds,
        }


def judge(
    scenario: str, found: Mapping[str, Mapping[str, float | None]], *, complete: bool
) -> list[Verdict]:
    """The scenario's bars. ``found`` has the figures of every scenario so far, by its name.

    One that did not finish its messages holds no bar, whatever its figures are.
    """
    return [_verdict(bar, found, complete=complete) for bar in BARS if bar.scenario == scenario]


def _verdict(
    bar: Bar, found: Mapping[str, Mapping[str, float | None]], *, complete: bool
) -> Verdict:
    value = found.get(bar.scenario, {}).get(bar.figure)
    base = found.get(bar.against, {}).get(bar.figure) if bar.against else 1.0
    if value is None or not base:
        return Verdict(bar, None, holds=False)
    ratio = value / base
    within = (bar.at_most is None or ratio <= bar.at_most) and (
        bar.at_least is None or ratio >= bar.at_least
    )
    return Verdict(bar, ratio, holds=within and complete)
