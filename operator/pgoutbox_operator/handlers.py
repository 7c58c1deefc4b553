"""kopf's part: it watches the objects, and tells. No finalizers, no annotations, no peering."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import kopf

from pgoutbox_operator.crd import GROUP, PLURAL, VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pgoutbox_operator.session import Link
    from pgoutbox_operator.supervisor import Supervisor


class Backoffs:
    """For ever. kopf exits when its backoffs are used up, and asks a list for its length.

    A right that is missing, or an API server that is away, ends by itself.
    """

    def __iter__(self) -> Iterator[float]:
        yield from (1, 2, 4, 8)
        while True:
            yield 15


def configure(settings: kopf.OperatorSettings) -> None:
    """What differs from kopf's defaults."""
    settings.peering.standalone = True
    # Neither namespaces nor definitions: to watch them takes rights to the whole cluster.
    settings.scanning.disabled = True
    settings.networking.error_backoffs = Backoffs()
    settings.networking.request_timeout = 20
    settings.networking.connect_timeout = 5
    # It would also kill a process that begins anew. `Operator` sees to it.
    settings.process.ultimate_exiting_timeout = None
    # Events are posted by ourselves.
    settings.posting.enabled = False
    settings.posting.level = logging.WARNING
    settings.posting.default_backoffs = (1,)
    settings.posting.reporting_component = "pgoutbox-operator"
    # It tells of each event and of each probe.
    for name in ("kopf.objects", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)


def registry(
    supervisor: Supervisor, link: Link, *, on_stop: Callable[[], Awaitable[None]]
) -> kopf.OperatorRegistry:
    """The handlers. ``on_stop`` is awaited while the session is still open."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.startup(registry=handlers)
    async def start(settings: kopf.OperatorSettings, **_: object) -> None:
        configure(settings)

    @kopf.on.login(registry=handlers)
    async def login(**_: object) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=link.url, aiohttp_session=link.session)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def saw(event: kopf.RawEvent, **_: object) -> None:
        supervisor.saw(event["type"], dict(event["object"]))

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: object) -> None:
        await on_stop()

    return handlers
