"""Times as the API server writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """In seconds, as in ``metav1.Time``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_exactly() -> str:
    """In microseconds, as in ``metav1.MicroTime``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def at(seconds: float) -> str:
    """Of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> float:
    """Seconds since the epoch. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()
