"""What is seen while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.console import Console

PLAIN_INTERVAL = 5.0


class WorkerLine(NamedTuple):
    """A worker at one moment."""

    name: str
    state: str
    holds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that is shown at one moment."""

    now: str
    """What is happening, in one sentence."""
    seconds: float = 0.0
    committed: int = 0
    rolled_back: int = 0
    waiting: int = 0
    delivered: int = 0
    retries: int = 0
    duplicates: int = 0
    dead: int = 0
    workers: tuple[WorkerLine, ...] = ()


class Screen(Protocol):
    """Whatever shows pictures."""

    def show(self, picture: Picture) -> None:
        """Show it in place of the one before."""
        ...


class LiveScreen:
    """For a terminal. A context manager: it gives the cursor back at the end."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, picture: Picture) -> None:
        """Draw it over the one before."""
        self._live.update(drawn(picture), refresh=True)


class PlainScreen:
    """For everything else: a line when something happens, and the figures now and then."""

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._said = ""
        self._figures_due = clock() + PLAIN_INTERVAL

    def show(self, picture: Picture) -> None:
        """Say what is new."""
        if picture.now != self._said:
            self._said = picture.now
            self._write(f"{picture.seconds:5.1f} s  {picture.now}")
        if self._clock() >= self._figures_due:
            self._figures_due = self._clock() + PLAIN_INTERVAL
            figures = ", ".join(f"{count} {name}" for name, count in _figures(picture))
            self._write(f"{picture.seconds:5.1f} s  {figures}")


def drawn(picture: Picture) -> Group:
    """The picture for rich."""
    figures = Table(title=f"{picture.seconds:.0f} s", title_justify="left")
    for name, _ in _figures(picture):
        figures.add_column(name, justify="right")
    figures.add_row(*(str(count) for _, count in _figures(picture)))
    workers = Table()
    workers.add_column("worker")
    workers.add_column("state", min_width=13)
    workers.add_column("holds", justify="right")
    for line in picture.workers:
        workers.add_row(line.name, line.state, str(line.holds))
    return Group(figures, workers, Text(picture.now))


def _figures(picture: Picture) -> list[tuple[str, int]]:
    return [
        ("committed", picture.committed),
        ("rolled back", picture.rolled_back),
        ("waiting", picture.waiting),
        ("delivered", picture.delivered),
        ("retries", picture.retries),
        ("duplicates", picture.duplicates),
        ("dead", picture.dead),
    ]
