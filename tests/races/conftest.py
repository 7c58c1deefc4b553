from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgoutbox.dispatch import finalize
from tests.support.locks import STATEMENT_TIMEOUT, Session, open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def one(dsn: str) -> AsyncIterator[Session]:
    """A worker's session, usually the one whose transaction stays open."""
    async with open_session(dsn) as session:
        yield session


@pytest.fixture
async def two(dsn: str) -> AsyncIterator[Session]:
    """Another worker's session."""
    async with open_session(dsn) as session:
        yield session


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A race is over when the test says so, however long that takes on a busy machine."""
    monkeypatch.setattr(finalize, "PATIENCE", STATEMENT_TIMEOUT)
