"""``pgoutbox bench --scenario``: which ones, and what they found in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pgoutbox.cli.console import FAILURE, OK, complain, say, say_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.bench.suite import Scored

ALL = "all"
HEAD = f"{'scenario':<18} {'claim ms/100':>12} {'messages/s':>11}"


def chosen(words: Sequence[str]) -> list[str]:
    """The names in them, which may be separated by commas. Raises click.BadParameter."""
    from pgoutbox.bench.suite import SCENARIOS  # noqa: PLC0415 - slow to import, and rarely needed

    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    unknown = [name for name in names if name not in SCENARIOS and name != ALL]
    if unknown or not names:
        raise click.BadParameter(
            f"there is no scenario {unknown[0] if unknown else ''!r}: choose from "
            f"{', '.join((ALL, *SCENARIOS))}",
            param_hint="--scenario",
        )
    return list(SCENARIOS) if ALL in names else names


def run_scenarios(
    dsn: str, names: Sequence[str], *, scale: float, as_json: bool, strict: bool
) -> int:
    """Run them and say what they found; the exit code.

    With ``as_json`` the table goes to stderr and one object to stdout. Only with ``strict`` is it
    a failure that something does not hold.
    """
    from pgoutbox.bench.suite import run  # noqa: PLC0415 - as above

    tell = complain if as_json else say
    if scale != 1:
        complain(f"every number of rows is multiplied by {scale:g}; the bars are meant for 1")
    floor = 0.0
    scores: list[Scored] = []
    for speed, scored in run(dsn, names, scale=scale, say=lambda text: complain(f"next: {text}")):
        if not scores:
            tell(f"floor {speed:,.0f} messages/s")
            tell(HEAD)
        floor = speed
        scores.append(scored)
        _tell(scored, tell)
    if as_json:
        results = [scored.as_dict() for scored in scores]
        say_json({"floor_msgs_per_s": round(floor, 1), "scenarios": results})
    return FAILURE if strict and not all(scored.holds for scored in scores) else OK


def _tell(scored: Scored, tell: Callable[[str], None]) -> None:
    found = scored.found
    if found is None:
        tell(f"{scored.name:<18} failed: {scored.failure}")
        return
    claim, speed = _number(found.claim_ms_per_100, ".2f"), _number(found.msgs_per_s, ",.0f")
    tell(f"{scored.name:<18} {claim:>12} {speed:>11}")
    if not found.complete:
        tell(f"  UNFINISHED: {found.finished} of {found.of} messages in the time that there is")
    for name, value in found.more.items():
        tell(f"  {name:<34} {_number(value, ',.2f'):>12}")
    for verdict in scored.verdicts:
        tell(f"  {verdict}")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
