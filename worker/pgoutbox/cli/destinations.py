"""``pgoutbox destinations``: where messages go, and whether they would arrive there."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING

import click

from pgoutbox.cli.console import FAILURE, OK, complain, headers_of, say, say_json
from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    from pgoutbox.cli.opening import Opened
    from pgoutbox.problem import Problem
    from pgoutbox.settings import Destination

WEBHOOKS = ("http", "https")
COLUMNS = (
    *("name", "usable", "url", "format", "topic"),
    *("concurrency", "rate", "publish_timeout", "max_attempts"),
)
# Longer and with a digit in it, a part of a webhook's path is a secret as often as not.
_HOST = re.compile(r"([A-Za-z0-9._{}\[\]-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
LONGEST_SHOWN = 20

to_option = click.option("--to", metavar="URL", help="The URL of the destination `default`.")


def _a_number(
    _context: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value


@click.group("destinations")
def command() -> None:
    """Show where messages go, or send a message there to try it.

    Neither command needs a database.
    """


@command.command("list")
@to_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(to: str | None, *, as_json: bool) -> None:
    """List the destinations of the settings.

    URLs are shown without user, password and query, and long parts of a webhook's path are cut.
    Each is opened as by a worker and closed again (a jsonl file is created where there is none);
    one that cannot be is not usable, and the problem is told. A destination whose URL only
    `pgoutbox run --to` is told is left out.
    """
    from pgoutbox.cli.opening import open_all  # noqa: PLC0415 - slow
    from pgoutbox.cli.status_view import Table, print_tables  # noqa: PLC0415 - slow

    usable, wrong = _destinations(to, publishes=False)
    opened = open_all(usable, to=to)
    found = {name: facts(name, one, opened[name]) for name, one in usable.items()}
    found |= {name: dict.fromkeys(COLUMNS) | {"name": name, "usable": False} for name in wrong}
    problems = {name: [one.problem] for name, one in opened.items() if one.problem} | wrong
    rows = [found[name] for name in sorted(found)]
    if as_json:
        told = [
            one | {"problems": [str(each) for each in problems.get(str(one["name"]), ())]}
            for one in rows
        ]
        say_json({"destinations": told})
        return
    if not rows:
        say("there is no destination; set PGOUTBOX_DESTINATIONS__DEFAULT__URL for the first one")
        return
    columns = [column.replace("_", " ") for column in COLUMNS]
    print_tables([Table("Destinations", columns, [list(map(_cell, one.values())) for one in rows])])
    for name in sorted(problems):
        for problem in problems[name]:
            say(f"problem: {problem}")


@command.command("test")
@click.argument("name")
@to_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    callback=_a_number,
    metavar="SECONDS",
    help="Instead of the destination's publish_timeout.",
)
@click.option(
    "--aggregate-type",
    default="pgoutbox",
    show_default=True,
    metavar="TEXT",
    help="What the probe calls itself, for a topic or a URL that is made of it.",
)
@click.option(
    "--event-type",
    default="probe",
    show_default=True,
    metavar="TEXT",
    help="Its event type, likewise.",
)
@click.option(
    "--header", metavar="NAME=VALUE", multiple=True, help="A header, likewise. May be repeated."
)
def test(
    name: str,
    *,
    to: str | None,
    timeout: float | None,
    aggregate_type: str,
    event_type: str,
    header: tuple[str, ...],
) -> int:
    """Send one probe message to the destination NAME and say what happened.

    It goes through the publisher that a worker would open, and consumers see it: its event type is
    `probe`. Neither the database nor the outbox is touched. Exits with 0 when the destination took
    it, else with 1, and with 78 when its settings are wrong.
    """
    # Late, since `pgoutbox --help` need not pay for it.
    from pgoutbox.cli.probe import Probe, probe_message  # noqa: PLC0415
    from pgoutbox.settings import SettingsError, located, unusable  # noqa: PLC0415
    from pgoutbox.worker import run_process  # noqa: PLC0415

    usable, wrong = _destinations(to, publishes=True)
    if name in wrong:
        raise SettingsError(wrong[name])
    chosen = usable.get(name)
    if chosen is None:
        named = ", ".join(sorted({*usable, *wrong})) or "none"
        complain(f"there is no destination {name!r} in the settings; there are: {named}")
        return FAILURE
    message = probe_message(name, aggregate_type, event_type, headers_of(header))
    probe = Probe(name, chosen, message, timeout=timeout)
    try:
        taken = run_process(probe.run) == OK
    except InvalidDestination as error:
        problem = unusable(name, chosen, error.problem)
        raise SettingsError(located([problem], os.environ, to=to)) from error
    for sentence in probe.said:
        say(sentence) if taken else complain(sentence)
    return OK if taken else FAILURE


def facts(name: str, chosen: Destination, opened: Opened) -> dict[str, object]:
    """What is shown of a destination. The keys are public."""
    told = {
        "name": name,
        "usable": opened.problem is None,
        "url": without_secrets(chosen.url.get_secret_value()),
        "topic": opened.topic,
    }
    return {
        column: told[column] if column in told else getattr(chosen, column) for column in COLUMNS
    }


def without_secrets(url: str) -> str:
    """Scheme, host and path of a URL, as far as they can be told from its secrets."""
    scheme, colon, rest = url.partition("://")
    authority, slash, path = re.split(r"([/?#]|$)", rest, maxsplit=1)
    if "@" in path:
        # A password with one of these marks in it looks as if the host ended there.
        return f"{scheme}{colon}..."
    host = authority.rpartition("@")[2]
    if host and not all(map(_HOST.fullmatch, host.split(","))):
        # It may be a password that nobody stands before.
        return f"{scheme}{colon}..."
    if slash != "/":
        return f"{scheme}{colon}{host}"
    path = re.split("[?#]", path, maxsplit=1)[0]
    if scheme.lower() in WEBHOOKS:
        path = "/".join(map(_cut, path.split("/")))
    return f"{scheme}{colon}{host}/{path}"


def _cut(part: str) -> str:
    is_short = len(part) <= LONGEST_SHOWN or not any(map(str.isdigit, part))
    return part if is_short else f"{part[:4]}..."


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _destinations(
    to: str | None, *, publishes: bool
) -> tuple[dict[str, Destination], dict[str, list[Problem]]]:
    """Those that can be used as far as the settings tell, and what is wrong with others."""
    from pgoutbox.settings import SettingsError, load_settings  # noqa: PLC0415 - slow

    try:
        settings = load_settings(os.environ, to=to, publishes=publishes, need_database=False)
    except SettingsError as error:
        if error.concerns_all:
            raise
        return error.usable, error.wrong
    return dict(settings.destinations), {}
