"""What groups of settings are made of."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads the annotations
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

YEAR = 366 * 86_400.0
"""More is a mistake, and much more is no interval in PostgreSQL."""
MOST = 1_000_000
SCHEMA_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
SCHEMA_LENGTH = 63


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic wants this one
    return value


Seconds = Annotated[float, BeforeValidator(_no_switch), Field(gt=0, le=YEAR)]
Count = Annotated[int, BeforeValidator(_no_switch), Field(ge=1, le=MOST)]
Number = Annotated[float, BeforeValidator(_no_switch), Field(gt=0, le=MOST)]


class Section(BaseModel):
    """A group of settings: one level of the tree."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def read_secret(path: Path) -> str:
    """A secret from a file, without the newline that editors and Kubernetes tools leave at its end.

    Raises OSError when it cannot be read, ValueError when it is empty or not UTF-8.
    """
    secret = path.read_text(encoding="utf-8").rstrip("\r\n")
    if not secret:
        raise ValueError("it is empty")
    return secret
