"""From a URL's scheme to the publisher behind it, through entry points.

A package adds a destination by naming a `pgoutbox.publisher.PublisherFactory` in its metadata::

    [project.entry-points."pgoutbox.publishers"]
    fax = "example_fax:open_fax"

A client library is imported when the first URL of its scheme is opened, and not before.
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.publisher import BatchPublisher, Publisher, PublisherFactory, PublisherOptions

GROUP = "pgoutbox.publishers"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(url: str) -> str:
    """The URL's scheme, in lower case; empty where there is none."""
    match = _SCHEME.match(url)
    return match[1].lower() if match else ""


def known_schemes() -> tuple[str, ...]:
    """Every URL scheme that an installed package serves, sorted."""
    return tuple(sorted({entry.name.lower() for entry in entry_points(group=GROUP)}))


async def open_publisher(url: str, *, options: PublisherOptions) -> Publisher | BatchPublisher:
    """Open the publisher that serves ``url``.

    Raises `InvalidDestination` where no package serves the scheme, where the package's client
    library is missing, and where the factory refuses the URL. No error repeats the URL: it may
    hold a password.
    """
    entry = _entry_for(url, options.destination)
    factory = _load(entry, options.destination)
    publisher = await factory(url, options=options)
    if not (hasattr(publisher, "publish") or hasattr(publisher, "publish_batch")):
        raise InvalidDestination(
            options.destination,
            f"{entry.value} returned {type(publisher).__name__}, which has neither publish() "
            "nor publish_batch(); report this to the package that provides it",
        )
    return publisher


def _entry_for(url: str, destination: str) -> EntryPoint:
    scheme = scheme_of(url)
    if not scheme:
        raise InvalidDestination(
            destination,
            f"the URL has no scheme; write one of {_listed()}, as in stdout://",
        )
    found = {
        entry.value: entry for entry in entry_points(group=GROUP) if entry.name.lower() == scheme
    }
    if not found:
        raise InvalidDestination(
            destination,
            f"no installed package serves {scheme}:// URLs; known are {_listed()}",
        )
    if len(found) > 1:
        raise InvalidDestination(
            destination,
            f"several packages claim {scheme}:// URLs ({', '.join(sorted(found))}); "
            "uninstall all but one",
        )
    return next(iter(found.values()))


def _listed() -> str:
    return (
        ", ".join(f"{scheme}://" for scheme in known_schemes()) or "(none: is pgoutbox installed?)"
    )


def _load(entry: EntryPoint, destination: str) -> PublisherFactory:
    try:
        # What an entry point names is known only by its contract.
        return cast("Callable[[], PublisherFactory]", entry.load)()
    except ModuleNotFoundError as error:
        missing = (error.name or "a module").partition(".")[0]
        raise InvalidDestination(
            destination,
            f"{entry.name}:// needs the package {missing}, which is not installed; "
            f"run: pip install {_remedy(entry, missing)}",
        ) from error
    except (AttributeError, ImportError) as error:
        raise InvalidDestination(
            destination,
            f"{entry.value}, which serves {entry.name}:// URLs, cannot be imported: {error}",
        ) from error


def _remedy(entry: EntryPoint, missing: str) -> str:
    """What to install: the extra that brings the client library, where there is one."""
    if entry.module.startswith("pgoutbox.brokers."):
        # The built-in extras are named after their adapter.
        extra = entry.module.split(".")[2]
        return f"'pgoutbox[{extra}]', or in a clone of it: pip install '.[{extra}]'"
    if entry.dist is not None and entry.extras:
        return f"'{entry.dist.name}[{','.join(entry.extras)}]'"
    return missing
