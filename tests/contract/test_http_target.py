"""URLs that depend on the message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import given, strategies as st

from pgoutbox.brokers.http.publisher import open_http
from pgoutbox.brokers.http.target import Target
from pgoutbox.errors import InvalidDestination, PermanentError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.debezium import DEBEZIUM
from pgoutbox.wire.template import Template
from tests.contract.raw_http import raw_server

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def with_headers(**headers: str) -> ClaimedMessage:
    return make_message(headers_json=json.dumps(headers))


def url_for(url: str, message: ClaimedMessage) -> str:
    return str(Target(url, destination="hook").url_for(message))


def host_for(url: str, message: ClaimedMessage, *allowed: str) -> str | None:
    return Target(url, destination="hook", allowed_hosts=allowed).url_for(message).raw_host


async def test_fields_of_the_message_stand_in_the_path_and_the_query_that_are_sent() -> None:
    async with raw_server() as server:
        url = f"{server.url}/{{aggregate_type}}/v1%2F{{aggregate_id}}?t={{headers[tenant]}}&x=%7E"
        publisher = await open_http(url, options=PublisherOptions(destination="hook"))
        message = make_message(
            aggregate_type="order", aggregate_id="a/b?c#d e%", headers_json='{"Tenant": "ü&x=1"}'
        )
        await publisher.publish(message)
        await publisher.close()
        (exchange,) = server.exchanges
    expected = "/hook/order/v1%2Fa%2Fb%3Fc%23d%20e%25?t=%C3%BC%26x%3D1&x=%7E"
    assert exchange.lines[0] == f"POST {expected} HTTP/1.1".encode()


@given(TEXT, TEXT)
def test_no_value_leaves_its_place(path: str, query: str) -> None:
    message = make_message(aggregate_id=f"id{path}", event_type=query)
    try:
        url = Target(
            "https://host.example/a/{aggregate_id}/z?t={event_type}&u=1", destination="hook"
        ).url_for(message)
    except PermanentError:
        assert "/." in path or "\\." in path
        return
    assert (url.scheme, url.raw_host, url.port) == ("https", "host.example", 443)
    first, second, third = url.raw_path.removeprefix("/").split("/")
    assert (first, unquote(second), third) == ("a", f"id{path}", "z")
    assert parse_qsl(url.raw_query_string, keep_blank_values=True) == [("t", query), ("u", "1")]


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "../x", "x/../y", "x/..", "./x", "..\\x", "x\\..", "..;v=1", "a/..;v=1/b"],
)
def test_a_value_that_would_climb_out_of_its_path_is_refused_for_good(value: str) -> None:
    with pytest.raises(PermanentError, match="a step to another path"):
        url_for("https://host.example/a/{aggregate_id}/z", make_message(aggregate_id=value))


@pytest.mark.parametrize("value", ["...", "a..b", ".hidden", "x/...", "1.2", "..x", "%2e%2e"])
def test_dots_that_are_no_step_are_sent(value: str) -> None:
    url = url_for("https://host.example/a/{aggregate_id}/z", make_message(aggregate_id=value))
    assert unquote(url.split("/")[4]) == value


def test_two_fields_together_cannot_climb_either() -> None:
    message = make_message(aggregate_id=".", aggregate_type=".")
    with pytest.raises(PermanentError, match="a step to another path"):
        url_for("https://host.example/{aggregate_type}{aggregate_id}/z", message)
    with pytest.raises(PermanentError, match="a step to another path"):
        url_for("https://host.example/%2e{aggregate_id}/z", message)


def test_dots_in_the_settings_and_in_the_query_are_the_operators_own() -> None:
    message = make_message(aggregate_id="..")
    url = "https://host.example/a/../b?x={aggregate_id}"
    assert url_for(url, message) == "https://host.example/a/../b?x=.."


def test_a_header_that_the_message_lacks_is_an_error_for_good() -> None:
    with pytest.raises(PermanentError, match="no header 'tenant'"):
        url_for("https://host.example/{headers[tenant]}", make_message())


@pytest.mark.parametrize(
    ("url", "value", "host"),
    [
        ("https://{headers[to]}/hook", "api.example.com", "api.example.com"),
        ("https://{headers[to]}/hook", "API.Example.COM.", "api.example.com"),
        ("https://{headers[to]}/hook", "xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
        ("https://{headers[to]}.hooks.example.com:8443?x=1", "a-7", "a-7.hooks.example.com"),
        ("https://eu-{headers[to]}.example.com", "west_1", "eu-west_1.example.com"),
    ],
)
def test_a_message_may_choose_the_host(url: str, value: str, host: str) -> None:
    assert host_for(url, with_headers(to=value)) == host


NO_NAMES = [
    "",
    ".",
    "a..b",
    ".a",
    "-a.example",
    "a-.example",
    "127.0.0.1",
    "127.1",
    "127.0.0.1.",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "0177.0.0.1",
    "example.0x7f",
    "93.184.216.34",
    "[::1]",
    "::1",
    "[::ffff:10.0.0.1]",
    "fe80::1%25eth0",
    "a@127.0.0.1",
    "public.example@inside.example",
    "a:b@inside.example",
    "inside.example:8080",
    "inside.example/x",
    "inside.example?x",
    "inside.example#x",
    "inside.example\\x",
    "inside.example%2fx",
    "inside.example%00",
    "inside.example\x00",
    "inside.example\r\nHost: x",
    "inside example",
    " inside.example",
    "inside.example\n",
    "inside\u3002example",
    "inside\uff0eexample",
    "\uff11\uff12\uff17.0.0.1",
    "ⓛocalhost",
    "münchen.example",
    "a" * 64 + ".example",
    "a." * 126 + "ab",
]


@pytest.mark.parametrize("value", NO_NAMES)
def test_a_host_that_is_no_plain_name_is_refused_for_good(value: str) -> None:
    with pytest.raises(PermanentError, match="no host name"):
        host_for("https://{headers[to]}/hook", with_headers(to=value))


@pytest.mark.parametrize("value", ["x@inside", "inside/", "inside.example#", "a.b:1", "\\"])
def test_a_part_of_a_host_cannot_become_another_host(value: str) -> None:
    with pytest.raises(PermanentError, match="no host name"):
        host_for("https://{headers[to]}.example.com/hook", with_headers(to=value))


@given(TEXT)
def test_whatever_a_message_says_the_host_stays_below_the_operators_domain(value: str) -> None:
    try:
        host = host_for("https://{headers[to]}.example.com/x", with_headers(to=value))
    except PermanentError:
        return
    assert host is not None
    assert host.endswith(".example.com")


@pytest.mark.parametrize(
    ("allowed", "taken", "refused"),
    [
        (("a.example", "B.example."), ("a.example", "b.EXAMPLE"), ("c.example", "x.a.example")),
        (("*.a.example",), ("x.a.example", "x.y.a.example"), ("a.example", "xa.example")),
        (("10.0.0.5",), ("10.0.0.5",), ("10.0.0.6", "10.5", "a.example")),
    ],
)
def test_a_list_of_allowed_hosts_is_the_whole_list(
    allowed: tuple[str, ...], taken: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    for host in taken:
        assert host_for("https://{headers[to]}/", with_headers(to=host), *allowed) == host.lower()
    for host in refused:
        with pytest.raises(PermanentError, match=r"allowed_hosts|no host name"):
            host_for("https://{headers[to]}/", with_headers(to=host), *allowed)


@pytest.mark.parametrize(
    ("url", "allowed", "problem"),
    [
        ("http://{headers[to]}/x", (), "must be https://"),
        ("http://{headers[to]}.example.com/x", ("*.example.com",), "must be https://"),
        ("https://{headers[hunter2]}@host.example/", (), "not in its user, password or port"),
        ("https://us:{hunter2}@host.example/", (), "not in its user, password or port"),
        ("https://us:{hunter2}@{headers[to]}/", (), "not in its user, password or port"),
        ("https://{headers[to]}:{headers[port]}/", (), "not in its user, password or port"),
        ("https://us:hunter2@{headers[to]}/", (), "put those into allowed_hosts"),
        ("https://{headers[to]}.1/", (), "host or port is not well-formed"),
        ("https://[{headers[to]}]/", (), "host or port is not well-formed"),
        ("https://{headers[to]}:99999/", (), "host or port is not well-formed"),
        ("https://{hunter2}/", (), "begins no field"),
        ("https://host.example/{hunter2}", (), "begins no field"),
        ("https://host.example/a{b", (), "begins no field"),
        ("https://host.example/a}b", (), "begins no field"),
        ("https://host.example/{headers[ü]}", (), "percent-encode"),
        ("ftp://host.example/", (), "not one of http"),
        ("https://{headers[to]}/", ("*",), r"neither a host name, \*.a-host-name nor"),
        ("https://{headers[to]}/", ("a.example:80",), "neither a host name"),
        ("https://{headers[to]}/", ("10.0.0.0/8",), "neither a host name"),
        ("https://host.example/", ("other.example",), "host is not in allowed_hosts"),
    ],
)
async def test_a_template_that_makes_no_sense_is_refused_at_start_without_repeating_the_url(
    url: str, allowed: tuple[str, ...], problem: str
) -> None:
    options = PublisherOptions(destination="hook", allowed_hosts=allowed)
    with pytest.raises(InvalidDestination, match=problem) as caught:
        await open_http(url, options=options)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_credentials_may_go_to_hosts_that_the_settings_name() -> None:
    url, allowed = "https://us:pw@{headers[to]}/", ("*.example.com",)
    assert Target(url, destination="hook", allowed_hosts=allowed).authorization == "Basic dXM6cHc="
    target = Target("https://a.example/", destination="hook", allowed_hosts=("a.example",))
    assert not target.guarded


async def test_settings_that_mean_nothing_for_a_webhook_are_refused_at_start() -> None:
    with pytest.raises(InvalidDestination, match="a webhook has no topic"):
        await open_http(
            "https://host.example/",
            options=PublisherOptions(destination="hook", topic=Template("orders")),
        )
    with pytest.raises(InvalidDestination, match="debezium is none for webhooks; there are plain"):
        await open_http(
            "https://host.example/", options=PublisherOptions(destination="hook", wire=DEBEZIUM)
        )
