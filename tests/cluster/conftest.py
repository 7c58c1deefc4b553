"""One cluster for all; a namespace of its own for each test."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from pgoutbox_operator.crd.definition import definition
from tests.support.api_server import (
    API,
    DEFINITION,
    MANAGER,
    ApiServer,
    Shop,
    api_server,
    is_established,
    shop,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

HERE = os.path.dirname(__file__)  # noqa: PTH120 - compared with what pytest tells


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.cluster)
            # Each waits for what it waits for by a deadline of its own.
            item.add_marker(pytest.mark.timeout(300))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was measured."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name} {value:.2f}")


@pytest.fixture(scope="session")
def installed() -> Iterator[None]:
    """The definition. Where it was there before, it stays: others may have objects of it."""

    async def install() -> bool:
        async with api_server() as api:
            known = await api.find(DEFINITION) is not None
            await api.apply(DEFINITION, definition(), manager=MANAGER, force="true")
            await api.until(DEFINITION, is_established)
            # It is served a moment later.
            await api.until(f"/apis/{API}/outboxscalers", lambda found: "items" in found)
            return known

    async def remove() -> None:
        async with api_server() as api:
            await api.delete(DEFINITION)
            await api.until_gone(DEFINITION, within=30)

    known = asyncio.run(install())
    yield
    if not known:
        asyncio.run(remove())


@pytest.fixture
async def api(installed: None) -> AsyncIterator[ApiServer]:
    del installed
    async with api_server() as made:
        yield made


@pytest.fixture
async def bare(api: ApiServer) -> AsyncIterator[Shop]:
    """A namespace with nothing in it."""
    async with shop(api) as made:
        yield made


@pytest.fixture
async def place(bare: Shop, dsn: str) -> Shop:
    """One with a Deployment of one worker and the DSN of an empty outbox."""
    await furnish(bare, dsn)
    return bare


@pytest.fixture
async def beside(api: ApiServer, dsn: str) -> AsyncIterator[Shop]:
    """Another one like it, for what takes long and can happen at the same time."""
    async with shop(api) as made:
        await furnish(made, dsn)
        yield made


async def furnish(place: Shop, dsn: str) -> None:
    await place.add_secret(dsn)
    await place.add_deployment()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Where operators log to."""
    return tmp_path
