"""One cluster for all; a namespace of its own for each test."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from pgoutbox_operator.crd.definition import definition
from tests.support.api_server import DEFINITION, ApiServer, Shop, api_server, shop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HERE = os.path.dirname(__file__)  # noqa: PTH120 - compared with what pytest tells


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def installed() -> None:
    """The definition. It stays: other namespaces may hold objects of it."""

    async def install() -> None:
        async with api_server() as api:
            await api.apply(DEFINITION, definition(), manager="pgoutbox-tests", force="true")
            await api.until(DEFINITION, is_established)

    asyncio.run(install())


def is_established(found: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


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
    await bare.add_secret(dsn)
    await bare.add_deployment()
    return bare


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Where operators log to."""
    return tmp_path
