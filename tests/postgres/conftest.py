from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.dispatching import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.database.pool import Database


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    """A worker's pool."""
    async with database(dsn) as opened:
        yield opened
