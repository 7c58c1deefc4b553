"""Everything around the story: server, schema, folder of logs, and a way out of each of them."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.demo.interruption import Interruption
from pgoutbox.demo.place import place
from pgoutbox.demo.plan import DemoFailed, Plan
from pgoutbox.demo.report import Findings, broken_promises
from pgoutbox.demo.story import Story
from pgoutbox.demo.table import Picture
from pgoutbox.demo.workers import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.demo.table import Screen


class Ending(NamedTuple):
    """What was found, and where the workers' logs are, which are kept when a promise broke."""

    findings: Findings
    broken: list[str]
    logs: Path | None


def perform(plan: Plan, screen: Screen, *, dsn: str | None = None) -> Ending:
    """Play the demo on the server at ``dsn``, or on a throw-away one.

    Raises SettingsError where a worker would refuse the DSN, DemoFailed where the demo cannot be
    played to its end, and KeyboardInterrupt after SIGINT, SIGTERM or SIGHUP. Nothing is left
    running in any case, and nothing on the disk but the workers' logs after a failure.
    """
    with Interruption() as interruption, contextlib.ExitStack() as stack:
        with interruption.held():
            folder = tempfile.TemporaryDirectory(prefix="pgoutbox-demo-")
            logs = Path(stack.enter_context(folder))
            stack.enter_context(_library_warnings(logs / "demo.log"))
            address = stack.enter_context(_throw_away_server(screen)) if dsn is None else dsn
        stack.callback(interruption.ignore)
        check(address)
        try:
            with place(address) as somewhere:
                findings = interruption.run(Story(plan, somewhere, screen, logs).tell())
        except Exception as error:
            if not any(logs.iterdir()):
                raise
            said = str(error).strip() or type(error).__name__
            raise DemoFailed(f"{said}; the workers' logs are in {_kept(logs)}") from error
        broken = broken_promises(findings)
        return Ending(findings, broken, _kept(logs) if broken else None)


@contextlib.contextmanager
def _throw_away_server(screen: Screen) -> Iterator[str]:
    # An extra, and only here.
    from pgoutbox.demo.embedded import EmbeddedServer  # noqa: PLC0415

    screen.show(Picture(now="A throw-away PostgreSQL server starts, with fsync on."))
    with contextlib.ExitStack() as stack:
        try:
            server = EmbeddedServer()
            stack.callback(server.remove)
            server.start()
        except RuntimeError as error:
            raise DemoFailed(f"{error}; or name a server with --dsn") from error
        yield server.dsn


@contextlib.contextmanager
def _library_warnings(log: Path) -> Iterator[None]:
    """To a file, which is made when there is one: they would tear the table."""
    handler = logging.FileHandler(log, delay=True)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


def _kept(logs: Path) -> Path:
    """A copy of the folder that stays."""
    kept = Path(tempfile.mkdtemp(prefix="pgoutbox-demo-logs-"))
    shutil.copytree(logs, kept, dirs_exist_ok=True)
    return kept
