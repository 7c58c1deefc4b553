"""What groups of settings are made of."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads the annotations
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0)]


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
