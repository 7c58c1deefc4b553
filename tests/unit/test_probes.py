from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from pgoutbox.telemetry.probes import Probes, ProbesUnavailable, Readiness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("answer", "To everything", registry=registry).set(42)
    return registry


@pytest.fixture
async def probes(registry: CollectorRegistry) -> AsyncIterator[Probes]:
    probes = Probes(port=0, registry=registry, host="127.0.0.1")
    await probes.start()
    yield probes
    await probes.stop()


async def get(probes: Probes, path: str, **headers: str) -> tuple[int, str, str]:
    url = f"http://127.0.0.1:{probes.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_a_worker_lives_while_its_event_loop_answers(probes: Probes) -> None:
    assert (await get(probes, "/livez"))[:2] == (200, "alive\n")
    probes.readiness.draining = True
    assert (await get(probes, "/livez"))[0] == 200


async def test_a_worker_is_ready_from_its_start_to_its_drain(probes: Probes) -> None:
    assert (await get(probes, "/readyz"))[:2] == (503, "starting\n")
    probes.readiness.ready = True
    assert (await get(probes, "/readyz"))[:2] == (200, "ready\n")
    probes.readiness.draining = True
    assert (await get(probes, "/readyz"))[:2] == (503, "draining\n")


def test_a_worker_that_drains_before_it_was_ready_is_draining() -> None:
    assert Readiness(draining=True).state == "draining"


async def test_metrics_are_plain_text_by_default(probes: Probes) -> None:
    status, text, kind = await get(probes, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert text == "# HELP answer To everything\n# TYPE answer gauge\nanswer 42.0\n"


async def test_metrics_are_open_metrics_for_whom_asks(probes: Probes) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    _, text, kind = await get(probes, "/metrics", Accept=accept)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


async def test_other_paths_do_not_exist(probes: Probes) -> None:
    assert (await get(probes, "/"))[0] == 404


async def test_a_port_in_use_is_named_with_the_setting_to_change(
    probes: Probes, registry: CollectorRegistry
) -> None:
    second = Probes(port=probes.port, registry=registry, host="127.0.0.1")
    with pytest.raises(ProbesUnavailable) as caught:
        await second.start()
    assert str(caught.value) == (
        f"cannot serve probes and metrics on 127.0.0.1, port {probes.port}: "
        "Address already in use; set PGOUTBOX_HTTP__PORT to another port (0 takes any free one)"
    )
    await second.stop()
    third = Probes(port=probes.port, registry=registry, host="127.0.0.1", setting="--port")
    with pytest.raises(ProbesUnavailable, match="set --port to another port"):
        await third.start()


async def test_an_address_of_another_machine_is_refused(registry: CollectorRegistry) -> None:
    with pytest.raises(ProbesUnavailable, match=r"on 203\.0\.113\.1, port 0: Cannot assign"):
        await Probes(port=0, registry=registry, host="203.0.113.1").start()


async def test_without_a_host_both_address_families_are_served(
    registry: CollectorRegistry,
) -> None:
    probes = Probes(port=0, registry=registry)
    await probes.start()
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for host in hosts:
        _, writer = await asyncio.open_connection(host, probes.port)
        writer.close()
    await probes.stop()


async def test_stop_closes_the_port_and_may_be_repeated(registry: CollectorRegistry) -> None:
    probes = Probes(port=0, registry=registry, host="127.0.0.1")
    await probes.start()
    port = probes.port
    await probes.stop()
    await probes.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_stop_ends_although_clients_hold_their_connections(probes: Probes) -> None:
    idle = await asyncio.open_connection("127.0.0.1", probes.port)
    halfway = await asyncio.open_connection("127.0.0.1", probes.port)
    halfway[1].write(b"GET /livez HTTP/1.1\r\nHost:")
    kept = await asyncio.open_connection("127.0.0.1", probes.port)
    kept[1].write(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
    await kept[0].readuntil(b"alive\n")
    async with asyncio.timeout(3):
        await probes.stop()
    for _, writer in (idle, halfway, kept):
        writer.close()
