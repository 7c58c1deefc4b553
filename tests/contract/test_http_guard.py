"""A message that chooses its host reaches no address that is not public."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pgoutbox.brokers.http.guard import is_public
from pgoutbox.brokers.http.publisher import HttpPublisher, open_http
from pgoutbox.errors import DestinationUnavailable, PermanentError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from tests.contract.tls_http import tls_contexts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pgoutbox.message import ClaimedMessage

# Addresses that mean something on the internet; nothing here ever connects to them.
PUBLIC_4, PUBLIC_6 = "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"

INSIDE = [
    "0.0.0.0",  # noqa: S104 - nobody binds to it
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:5db8:d822::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_that_leads_inside_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        PUBLIC_4,
        "1.1.1.1",
        PUBLIC_6,
        "2001:4860:4860::8888",
        f"::ffff:{PUBLIC_4}",
        "64:ff9b::101:101",
    ],
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


class Network:
    """Answers look-ups as told, and notes where anybody connects; only loopback is reached."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        """One for each look-up; the last one stays."""
        self.asked: list[str] = []
        self.connected: list[str] = []
        self._connect = asyncio.get_running_loop().sock_connect

    def getaddrinfo(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (one, port, 0, 0))
            if ":" in one
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in answer
        ]

    async def sock_connect(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.connected.append(address[0])
        if address[0] != "127.0.0.1":
            raise ConnectionRefusedError(111, "Connection refused")
        await self._connect(sock, address)


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network(["127.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", network.getaddrinfo)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", network.sock_connect)
    return network


class Inside:
    """An HTTPS server on loopback that nobody is meant to reach."""

    def __init__(self, server: TestServer, trusted: Any) -> None:
        self.port = server.port
        self.trusted = trusted
        self.requests: list[web.Request] = []
        self.answer = web.Response(text="secrets of the inside")

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return self.answer


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    server_side, client_side = tls_contexts(tmp_path, "a.example", "b.example")
    app = web.Application()
    server = TestServer(app, scheme="https")
    inside = Inside(server, client_side)
    app.router.add_route("*", "/{rest:.*}", inside.take)
    await server.start_server(ssl=server_side)
    inside.port = server.port
    yield inside
    await server.close()


def to(host: str) -> ClaimedMessage:
    return make_message(headers_json=json.dumps({"to": host}))


async def opened(inside: Inside, *allowed: str) -> HttpPublisher:
    publisher = await open_http(
        f"https://{{headers[to]}}:{inside.port}/hook",
        options=PublisherOptions(destination="hook", publish_timeout=4.0, allowed_hosts=allowed),
    )
    connector: Any = publisher._exchanges._connector
    connector._ssl = inside.trusted
    return publisher


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:10.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["100.64.0.1"],
        ["169.254.169.254"],
        ["64:ff9b::7f00:1"],
        [PUBLIC_4, "127.0.0.1"],
        ["127.0.0.1", PUBLIC_6],
    ],
    ids=",".join,
)
async def test_a_name_that_leads_inside_is_refused_for_good_and_nobody_connects(
    inside: Inside, network: Network, addresses: list[str]
) -> None:
    network.answers = [addresses]
    publisher = await opened(inside)
    with pytest.raises(PermanentError, match="an address that is not public") as caught:
        await publisher.publish(to("a.example"))
    await publisher.close()
    assert network.connected == []
    assert inside.requests == []
    assert not any(address in str(caught.value) for address in addresses)


async def test_many_at_once_are_all_refused(inside: Inside, network: Network) -> None:
    publisher = await opened(inside)
    answers = await asyncio.gather(
        *(publisher.publish(to("a.example")) for _ in range(20)), return_exceptions=True
    )
    await publisher.close()
    assert {type(answer) for answer in answers} == {PermanentError}
    assert network.connected == []


async def test_the_address_that_is_connected_to_is_the_one_that_was_checked(
    inside: Inside, network: Network
) -> None:
    network.answers = [[PUBLIC_4], ["127.0.0.1"]]
    publisher = await opened(inside)
    with pytest.raises(DestinationUnavailable):
        await publisher.publish(to("a.example"))
    assert (network.asked, network.connected) == (["a.example"], [PUBLIC_4])
    connector: Any = publisher._exchanges._connector
    connector.clear_dns_cache()
    with pytest.raises(PermanentError, match="an address that is not public"):
        await publisher.publish(to("a.example"))
    await publisher.close()
    assert network.connected == [PUBLIC_4]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f000001", "[::1]", "2130706433"])
async def test_an_address_in_place_of_a_name_is_not_even_looked_up(
    inside: Inside, network: Network, host: str
) -> None:
    publisher = await opened(inside)
    with pytest.raises(PermanentError, match="no host name"):
        await publisher.publish(to(host))
    await publisher.close()
    assert network.asked == network.connected == []


async def test_a_host_that_was_allowed_may_be_inside(inside: Inside, network: Network) -> None:
    publisher = await opened(inside, "a.example")
    await publisher.publish(to("a.example"))
    with pytest.raises(PermanentError, match="not in allowed_hosts"):
        await publisher.publish(to("b.example"))
    await publisher.close()
    assert network.asked == ["a.example"]
    assert [request.host for request in inside.requests] == [f"a.example:{inside.port}"]


async def test_a_certificate_of_another_name_makes_the_destination_unavailable(
    inside: Inside, network: Network
) -> None:
    publisher = await opened(inside, "c.example")
    with pytest.raises(DestinationUnavailable, match="certificate"):
        await publisher.publish(to("c.example"))
    await publisher.close()
    assert network.connected == ["127.0.0.1"]
    assert inside.requests == []


async def test_a_redirect_to_the_inside_is_not_followed(inside: Inside, network: Network) -> None:
    inside.answer = web.Response(status=302, headers={"Location": "http://169.254.169.254/latest"})
    publisher = await opened(inside, "a.example")
    with pytest.raises(PermanentError, match="redirects are not followed"):
        await publisher.publish(to("a.example"))
    await publisher.close()
    assert network.connected == ["127.0.0.1"]


async def test_a_name_without_an_address_is_weather(inside: Inside, network: Network) -> None:
    network.answers = [[]]
    publisher = await opened(inside)
    with pytest.raises(DestinationUnavailable, match="no address"):
        await publisher.publish(to("a.example"))
    await publisher.close()


async def test_410_of_a_host_that_the_message_chose_does_not_stop_the_others(
    inside: Inside, network: Network
) -> None:
    inside.answer = web.Response(status=410)
    publisher = await opened(inside, "a.example")
    with pytest.raises(PermanentError) as caught:
        await publisher.publish(to("a.example"))
    await publisher.close()
    assert type(caught.value) is PermanentError
    assert network.asked == ["a.example"]


async def test_without_a_port_in_the_settings_it_is_443(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(port)
        return network.getaddrinfo(host, port)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    publisher = await open_http(
        "https://{headers[to]}/hook", options=PublisherOptions(destination="hook")
    )
    with pytest.raises(PermanentError, match="an address that is not public"):
        await publisher.publish(to("a.example"))
    await publisher.close()
    assert asked == [443]
