"""Rules of one destination that no single value can break."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pgoutbox.destinations.registry import known_schemes
from pgoutbox.problem import Problem
from pgoutbox.settings.destination import WEBHOOK_SCHEMES, words
from pgoutbox.settings.names import variable
from pgoutbox.wire.cloudevents import SOURCE
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.settings.destination import Destination
    from pgoutbox.settings.model import Settings

DESTINATION_NAME = re.compile(r"[a-z][a-z0-9_]*")
DESTINATION_NAME_LENGTH = 40


def _destination_name(name: str) -> Iterator[Problem]:
    if DESTINATION_NAME.fullmatch(name) is None or len(name) > DESTINATION_NAME_LENGTH:
        yield Problem(
            field=variable(("destinations", name)),
            rule="is no name for a destination",
            value=name,
            advice="Use at most 40 lower-case letters, digits and underscores, a letter first.",
        )


def destination_problems(
    settings: Settings, name: str, destination: Destination
) -> Iterator[Problem]:
    """What keeps one destination from being used as it stands in the settings."""
    yield from _destination_name(name)
    yield from _scheme(name, destination)
    yield from _topic(name, destination)
    yield from _source(name, destination)
    yield from _signing(name, destination)
    yield from _only_for_webhooks(name, destination)
    yield from _publish_timeout(settings, name, destination)
    if destination.concurrency > settings.max_in_flight:
        yield Problem(
            field=variable(("destinations", name, "concurrency")),
            rule=f"must be at most PGOUTBOX_MAX_IN_FLIGHT ({settings.max_in_flight})",
            value=str(destination.concurrency),
            advice="Lower it, or raise the other.",
            others=("PGOUTBOX_MAX_IN_FLIGHT",),
        )
    yield from _in_order(name, ("retry", "base"), ("retry", "cap"), destination)
    yield from _in_order(name, ("breaker", "pause"), ("breaker", "max_pause"), destination)


def _in_order(
    name: str, lower: tuple[str, str], upper: tuple[str, str], destination: Destination
) -> Iterator[Problem]:
    section = getattr(destination, lower[0])
    low, high = getattr(section, lower[1]), getattr(section, upper[1])
    if high < low:
        lower_name = variable(("destinations", name, *lower))
        yield Problem(
            field=variable(("destinations", name, *upper)),
            rule=f"must be at least {lower_name} ({low:g})",
            value=f"{high:g}",
            advice="Raise it, or lower the other.",
            others=(lower_name,),
        )


def _topic(name: str, destination: Destination) -> Iterator[Problem]:
    if destination.topic is None:
        return
    try:
        Template(destination.topic)
    except ValueError as error:
        yield Problem(
            field=variable(("destinations", name, "topic")),
            rule=str(error),
            value=destination.topic,
            advice="What stands in braces comes out of the message; a brace has no other use.",
        )


def _source(name: str, destination: Destination) -> Iterator[Problem]:
    if destination.source != SOURCE and not destination.format.startswith("cloudevents"):
        yield Problem(
            field=variable(("destinations", name, "source")),
            rule="is for the formats cloudevents_binary and cloudevents_structured only",
            value=destination.source,
            advice="Remove it, or choose one of these formats.",
        )


def _signing(name: str, destination: Destination) -> Iterator[Problem]:
    secrets = destination.signing_secrets
    if secrets is not None and not words(secrets.get_secret_value()):
        by_file = destination.signing_secrets_file is not None
        setting = "signing_secrets_file" if by_file else "signing_secrets"
        yield Problem(
            field=variable(("destinations", name, setting)),
            rule="holds no secret, and webhooks would go out unsigned",
            advice="Give it a secret, or unset it.",
        )


def _only_for_webhooks(name: str, destination: Destination) -> Iterator[Problem]:
    if destination.scheme in WEBHOOK_SCHEMES:
        return
    for setting in ("signing_secrets", "allowed_hosts"):
        if getattr(destination, setting):
            yield Problem(
                field=variable(("destinations", name, setting)),
                rule="is for http:// and https:// only",
                advice="Remove it.",
            )


def _scheme(name: str, destination: Destination) -> Iterator[Problem]:
    known = known_schemes()
    if destination.scheme not in known:
        # What stands where a scheme should be may be anything, a secret included.
        yield Problem(
            field=variable(("destinations", name, "url")),
            rule="does not begin with the scheme of an installed publisher",
            advice=f"There are {', '.join(f'{scheme}://' for scheme in known)}.",
        )


def _publish_timeout(settings: Settings, name: str, destination: Destination) -> Iterator[Problem]:
    """Finalize may take as long as a statement may."""
    statement, soft = settings.database.statement_timeout, settings.drain.soft
    if destination.publish_timeout + statement > soft:
        yield Problem(
            field=variable(("destinations", name, "publish_timeout")),
            rule=f"and PGOUTBOX_DATABASE__STATEMENT_TIMEOUT ({statement:g}) must together be at"
            f" most PGOUTBOX_DRAIN__SOFT ({soft:g}), or a drain cuts off what would have ended",
            value=f"{destination.publish_timeout:g}",
            advice=f"Lower it to {max(soft - statement, 0):g}, or raise the soft wait to"
            f" {destination.publish_timeout + statement:g}.",
            others=("PGOUTBOX_DATABASE__STATEMENT_TIMEOUT", "PGOUTBOX_DRAIN__SOFT"),
        )
