"""The command line, as far as it may go before anything heavy is imported."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run ``pgoutbox``; the process ends here."""
    if _subcommand() in {"run", "exporter"}:
        # A signal that arrives while the imports run must not kill the process with an error:
        # it holds nothing yet. Either command replaces both handlers by its own.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
    try:
        from pgoutbox.cli.main import group  # noqa: PLC0415 - only after the handlers
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgoutbox"):
            raise
        sys.exit(
            f"pgoutbox: {error.name} is not installed; run: pip install 'pgoutbox[worker]', or in"
            " a clone of it: pip install '.[worker]'"
        )
    group.main(prog_name="pgoutbox")


def _subcommand() -> str | None:
    """The first argument that is no option; the global options take no values."""
    return next((word for word in sys.argv[1:] if not word.startswith("-")), None)


def _leave(_number: int, _frame: object) -> None:
    os._exit(0)
