from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any

import pytest

from pgoutbox.brokers.http.publisher import HttpPublisher
from pgoutbox.brokers.noop import NoopPublisher
from pgoutbox.destinations import registry
from pgoutbox.destinations.registry import GROUP, known_schemes, open_publisher
from pgoutbox.errors import InvalidDestination, PgOutboxError
from pgoutbox.publisher import PublisherOptions

OPTIONS = PublisherOptions(destination="orders")


def install(monkeypatch: pytest.MonkeyPatch, **named: str) -> None:
    found = EntryPoints(EntryPoint(name, value, GROUP) for name, value in named.items())
    monkeypatch.setattr(registry, "entry_points", lambda *, group: found.select(group=group))


def provide(monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    module = ModuleType("example_fax")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, "example_fax", module)


async def refused(url: str) -> str:
    with pytest.raises(InvalidDestination) as caught:
        await open_publisher(url, options=OPTIONS)
    assert isinstance(caught.value, PgOutboxError)
    assert str(caught.value) == f"destination 'orders': {caught.value.problem}"
    return caught.value.problem


def test_the_built_in_schemes_are_known() -> None:
    assert {"stdout", "jsonl", "noop", "http", "https"} <= set(known_schemes())


@pytest.mark.parametrize(
    ("url", "kind"),
    [("noop://", NoopPublisher), ("NOOP://", NoopPublisher), ("https://a.example/", HttpPublisher)],
)
async def test_the_scheme_chooses_the_publisher(url: str, kind: type) -> None:
    publisher = await open_publisher(url, options=OPTIONS)
    assert type(publisher) is kind
    await publisher.close()


async def test_another_package_may_add_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async def open_fax(url: str, /, *, options: PublisherOptions) -> NoopPublisher:
        seen.append((url, options))
        return NoopPublisher()

    install(monkeypatch, fax="example_fax:open_fax")
    provide(monkeypatch, open_fax=open_fax)
    assert known_schemes() == ("fax",)
    assert isinstance(await open_publisher("fax://+41", options=OPTIONS), NoopPublisher)
    assert seen == [("fax://+41", OPTIONS)]


async def test_an_unknown_scheme_is_answered_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, stdout="a:b", noop="a:b")
    problem = await refused("gopher://user:hunter2@host")
    assert problem == ("no installed package serves gopher:// URLs; known are noop://, stdout://")


@pytest.mark.parametrize("url", ["", "stdout", "://x", "hunter2:/x", "1x://", "/etc/passwd"])
async def test_a_url_without_a_scheme_is_not_repeated(url: str) -> None:
    problem = await refused(url)
    assert problem.startswith("the URL has no scheme; write one of amqp://, amqps://,")
    assert "hunter2" not in problem


async def test_a_missing_client_library_is_answered_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, https="pgoutbox.brokers.http.publisher:open_http")
    monkeypatch.delitem(sys.modules, "pgoutbox.brokers.http.publisher")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert await refused("https://a.example/") == (
        "https:// needs the package aiohttp, which is not installed; "
        "run: pip install 'pgoutbox[http]', or in a clone of it: pip install '.[http]'"
    )


async def test_a_missing_library_of_another_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, fax="no_such_package.fax:open_fax")
    assert await refused("fax://") == (
        "fax:// needs the package no_such_package, which is not installed; "
        "run: pip install no_such_package"
    )


async def test_an_entry_point_that_names_nothing_is_reported_as_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, fax="pgoutbox.brokers.noop:open_fax")
    problem = await refused("fax://")
    assert problem.startswith(
        "pgoutbox.brokers.noop:open_fax, which serves fax:// URLs, cannot be imported: "
    )


async def test_two_packages_with_the_same_scheme_are_told_apart_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = EntryPoints([EntryPoint("fax", "a:f", GROUP), EntryPoint("fax", "b:f", GROUP)])
    monkeypatch.setattr(registry, "entry_points", lambda *, group: found.select(group=group))
    assert "several packages claim fax:// URLs (a:f, b:f)" in await refused("fax://")


async def test_the_same_package_found_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    noop = EntryPoint("noop", "pgoutbox.brokers.noop:open_noop", GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **_: EntryPoints([noop, noop]))
    assert isinstance(await open_publisher("noop://", options=OPTIONS), NoopPublisher)


async def test_what_is_no_publisher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_fax(_url: str, /, *, options: PublisherOptions) -> object:
        return options

    install(monkeypatch, fax="example_fax:open_fax")
    provide(monkeypatch, open_fax=open_fax)
    assert "returned PublisherOptions, which has neither publish()" in await refused("fax://")


async def test_a_client_library_is_imported_with_the_first_url_of_its_scheme() -> None:
    program = """
import asyncio, sys
from pgoutbox.destinations.registry import known_schemes, open_publisher
from pgoutbox.publisher import PublisherOptions
known_schemes()
asyncio.run(open_publisher("noop://", options=PublisherOptions(destination="a")))
assert "aiohttp" not in sys.modules
assert "pytest" not in sys.modules
"""
    import asyncio  # noqa: PLC0415

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0
