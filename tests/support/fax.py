"""A publisher of somebody else, and ``pgoutbox destinations`` beside it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from pgoutbox.cli.main import group
from pgoutbox.destinations import registry
from pgoutbox.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from click.testing import Result

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions
    from pgoutbox.wire.template import Template

BASE = "PGOUTBOX_DESTINATIONS__"
ORDERS = f"{BASE}ORDERS__"
NOTHING: dict[str, str | None] = {"PGOUTBOX_DSN": None, "PGOUTBOX_DSN_FILE": None}


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(group, ["destinations", *arguments], env=NOTHING | environ)


def listed(**environ: str) -> list[dict[str, Any]]:
    result = run("list", "--json", **environ)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["destinations"]
    return found


class Fax:
    """A publisher of somebody else, which answers as it is told."""

    def __init__(self, answer: BaseException | None = None) -> None:
        self.answer = answer
        self.seen: list[ClaimedMessage] = []
        self.options: PublisherOptions | None = None
        self.topic: Template | None = None
        self.closed = 0

    async def publish(self, message: ClaimedMessage) -> None:
        self.seen.append(message)
        if self.answer is not None:
            raise self.answer

    async def close(self) -> None:
        self.closed += 1


class BatchFax(Fax):
    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        self.seen += messages
        return [self.answer if isinstance(self.answer, PublishError) else None]


class SilentFax(Fax):
    async def publish(self, message: ClaimedMessage) -> None:
        self.seen.append(message)
        await asyncio.Event().wait()


def install(monkeypatch: pytest.MonkeyPatch, fax: Fax) -> None:
    async def open_fax(_url: str, /, *, options: PublisherOptions) -> Fax:
        fax.options = options
        return fax

    monkeypatch.setattr(registry, "_load", lambda _entry, _destination: open_fax)
