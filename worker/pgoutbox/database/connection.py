"""A connection class for the pool that tells why it could not connect, where the pool only logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg import AsyncConnection

if TYPE_CHECKING:
    from collections.abc import Callable


def reporting(report: Callable[[str], None]) -> type[AsyncConnection[Any]]:
    """``report`` is called after each try: with what went wrong, or with an empty string."""

    class Reporting(AsyncConnection[Any]):
        @classmethod
        async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:  # noqa: ANN401 - psycopg's
            try:
                connection = await super().connect(conninfo, **kwargs)
            except psycopg.Error as error:
                report(str(error).strip())
                raise
            report("")
            return connection

    return Reporting
