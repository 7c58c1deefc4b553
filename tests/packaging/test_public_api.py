"""The public surface is a short list of names that costs next to nothing to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pgoutbox

NAMES = [
    "Defer",
    "DestinationUnavailable",
    "InvalidMessage",
    "Message",
    "NotInTransaction",
    "PermanentError",
    "PgOutboxError",
    "RetryableError",
    "__version__",
    "enqueue",
    "enqueue_many",
    "inbox",
]
HEAVY = {
    "aiohttp",
    "click",
    "kopf",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "psycopg_pool",
    "pydantic",
    "rich",
    "structlog",
    "uvloop",
}


ADAPTERS = {"sqlalchemy": {"sqlalchemy"}, "asyncpg": {"asyncpg"}, "django": {"django", "psycopg"}}
"""The modules of `pgoutbox.producer` that need the library of their name, and what they load."""
LIBRARIES = {"asyncpg", "django", "greenlet", "psycopg", "psycopg2", "sqlalchemy"}


def loaded_by(*statements: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after the statements."""
    program = "\n".join(
        [*statements, "import sys", "print(*{name.partition('.')[0] for name in sys.modules})"]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(pgoutbox.__all__) == NAMES
    assert {name for name in dir(pgoutbox) if not name.startswith("_")} >= set(NAMES) - {
        "__version__"
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_can_be_used_as_the_first_one(name: str) -> None:
    assert "pgoutbox" in loaded_by("import pgoutbox", f"assert pgoutbox.{name}")
    assert "pgoutbox" in loaded_by(f"from pgoutbox import {name}", f"assert {name}")


def test_a_star_import_brings_every_name() -> None:
    brought = ", ".join(NAMES)
    assert "pgoutbox" in loaded_by("from pgoutbox import *", f"assert all([{brought}])")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pgoutbox' has no attribute 'publish'"):
        getattr(pgoutbox, "publish")  # noqa: B009 - mypy knows that it is not there


def test_the_bare_import_pulls_in_nothing_heavy() -> None:
    assert loaded_by("import pgoutbox") & HEAVY == set()


def test_a_message_and_the_exceptions_need_no_driver() -> None:
    use = "pgoutbox.Message, pgoutbox.RetryableError, pgoutbox.__version__"
    assert loaded_by("import pgoutbox", use) & HEAVY == set()


def test_enqueue_and_the_inbox_need_psycopg_and_nothing_else() -> None:
    with_pgoutbox = loaded_by("import pgoutbox", "pgoutbox.enqueue, pgoutbox.inbox")
    with_psycopg = loaded_by("import psycopg")
    assert with_pgoutbox - with_psycopg - sys.stdlib_module_names == {"pgoutbox"}


@pytest.mark.parametrize(("adapter", "needed"), ADAPTERS.items())
def test_an_adapter_needs_its_library_and_no_other_driver(adapter: str, needed: set[str]) -> None:
    loaded = loaded_by(f"import pgoutbox.producer.{adapter}")
    assert loaded & (LIBRARIES | HEAVY) == needed


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_without_its_library_says_what_to_install(adapter: str) -> None:
    program = f"import sys; sys.modules[{adapter!r}] = None; import pgoutbox.producer.{adapter}"
    command = [sys.executable, "-c", program]
    failed = subprocess.run(command, check=False, capture_output=True, text=True)
    [line] = [each for each in failed.stderr.splitlines() if each.startswith("ImportError: ")]
    assert line.endswith(f"pip install 'pgoutbox[{adapter}]'")
