"""``pgoutbox destinations``: where messages go, and whether they would arrive there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from pgoutbox.cli.console import FAILURE, OK, complain, say, say_json
from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    from pgoutbox.settings import Destination, Settings

WEBHOOKS = ("http", "https")
# Longer and with a digit in it, a part of a webhook's path is a secret as often as not.
LONGEST_SHOWN = 20

to_option = click.option("--to", metavar="URL", help="The URL of the destination `default`.")


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

    URLs are shown without user, password and query, and long parts of a webhook's path are cut. A
    destination whose URL only `pgoutbox run --to` is told is left out.
    """
    from pgoutbox.cli.status_view import Table, print_tables  # noqa: PLC0415 - slow

    settings = _settings(to, publishes=False)
    found = [facts(name, one) for name, one in settings.destinations.items()]
    if as_json:
        say_json({"destinations": found})
    elif not found:
        say("there is no destination; set PGOUTBOX_DESTINATIONS__DEFAULT__URL for the first one")
    else:
        columns = [column.replace("_", " ") for column in found[0]]
        rows = [[_cell(value) for value in one.values()] for one in found]
        print_tables([Table("Destinations", columns, rows)])


@command.command("test")
@click.argument("name")
@to_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    metavar="SECONDS",
    help="Instead of the destination's publish_timeout.",
)
@click.option(
    "--aggregate-type",
    default="pgoutbox",
    show_default=True,
    metavar="TEXT",
    help="What the probe calls itself, for a topic that is made of it.",
)
def test(name: str, to: str | None, timeout: float | None, aggregate_type: str) -> int:
    """Send one probe message to the destination NAME and say what happened.

    It goes through the publisher that a worker would open, and consumers see it: its event type is
    `probe`. Neither the database nor the outbox is touched. Exits with 0 when the destination took
    it, else with 1, and with 78 when the settings are wrong.
    """
    # Late, since `pgoutbox --help` need not pay for it.
    from pgoutbox.cli.probe import Probe  # noqa: PLC0415
    from pgoutbox.settings import SettingsError, unusable  # noqa: PLC0415
    from pgoutbox.worker import run_process  # noqa: PLC0415

    settings = _settings(to, publishes=True)
    chosen = settings.destinations.get(name)
    if chosen is None:
        named = ", ".join(settings.destinations) or "none"
        complain(f"there is no destination {name!r} in the settings; there are: {named}")
        return FAILURE
    probe = Probe(name, chosen, timeout=timeout, aggregate_type=aggregate_type)
    try:
        taken = run_process(probe.run) == OK
    except InvalidDestination as error:
        raise SettingsError([unusable(error)]) from error
    for sentence in probe.said:
        say(sentence) if taken else complain(sentence)
    return OK if taken else FAILURE


def facts(name: str, chosen: Destination) -> dict[str, object]:
    """What is shown of a destination. The keys are public."""
    return {
        "name": name,
        "url": without_secrets(chosen.url.get_secret_value()),
        "format": chosen.format,
        "topic": chosen.topic,
        "concurrency": chosen.concurrency,
        "rate": chosen.rate,
        "publish_timeout": chosen.publish_timeout,
        "max_attempts": chosen.max_attempts,
    }


def without_secrets(url: str) -> str:
    """Scheme, host and path of a URL, as far as they can be told from its secrets."""
    scheme, colon, rest = url.partition("://")
    authority, slash, path = re.split(r"([/?#]|$)", rest, maxsplit=1)
    if "@" in path:
        # A password with one of these marks in it looks as if the host ended there.
        return f"{scheme}{colon}..."
    host = authority.rpartition("@")[2]
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
    return f"{value:g}" if isinstance(value, float) else str(value)


def _settings(to: str | None, *, publishes: bool) -> Settings:
    from pgoutbox.settings import load_settings  # noqa: PLC0415 - slow

    return load_settings(os.environ, to=to, publishes=publishes, need_database=False)
