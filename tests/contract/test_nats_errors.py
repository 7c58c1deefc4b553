"""Every error of the client and every answer is one of the four, and no URL is quoted."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
from typing import TYPE_CHECKING, Any
from unittest import mock

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from pgoutbox.brokers.nats.errors import (
    ANSWERS,
    CLIENT_ERRORS,
    CONNECT_ERRORS,
    Denied,
    NoAnswers,
    answered,
)
from pgoutbox.brokers.nats.frames import fits_subject, headers_of, publication, subject_of
from pgoutbox.brokers.nats.link import NatsLink, Pending
from pgoutbox.brokers.nats.publisher import open_nats, stream_of
from pgoutbox.brokers.nats.url import target_of
from pgoutbox.errors import (
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.envelope import Envelope
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.answers import Row

URL = "nats://user:hunter2@host.example"
OPTIONS = PublisherOptions(destination="nats", publish_timeout=2.0)

CONNECT_EXAMPLES: list[Exception] = [
    nats.errors.AuthorizationError(),
    nats.errors.Error("nats: 'Authorization Violation' hunter2"),
    nats.errors.InvalidUserCredentialsError(),
    nats.errors.SecureConnWantedError(),
    NoAnswers("hunter2"),
    ssl.SSLCertVerificationError(1, "hunter2"),
    ssl.SSLError(1, "hunter2"),
    socket.gaierror(socket.EAI_NONAME, "hunter2"),
    nats.errors.TimeoutError("hunter2"),
    TimeoutError("hunter2"),
    nats.errors.NoServersError(),
    nats.errors.Error("nats: empty response hunter2"),
    ConnectionRefusedError(111, "hunter2"),
    RuntimeError("hunter2"),
]
SENT_EXAMPLES: list[Exception] = [
    nats.errors.NoRespondersError(),
    Denied("hunter2"),
    NoAnswers("hunter2"),
    TimeoutError("hunter2"),
    nats.errors.TimeoutError("hunter2"),
    nats.errors.ConnectionClosedError(),
    RuntimeError("hunter2"),
]


def names(examples: Sequence[BaseException]) -> list[str]:
    return [type(error).__name__ for error in examples]


def well_told(error: PublishError) -> bool:
    text = repr(error) + str(error.__cause__)
    return "hunter2" not in text and str(error).startswith("host.example:4222: ")


@pytest.mark.parametrize("error", CONNECT_EXAMPLES, ids=names(CONNECT_EXAMPLES))
async def test_an_error_while_connecting_makes_the_destination_unavailable(
    error: Exception,
) -> None:
    publisher = await open_nats(URL, options=OPTIONS)
    with (
        mock.patch("nats.aio.client.Client.connect", side_effect=error),
        pytest.raises(DestinationUnavailable) as caught,
    ):
        await publisher.publish_batch([make_message()])
    assert well_told(caught.value)
    assert ("refused; correct" in str(caught.value)) == ("uthorization" in repr(error))
    await publisher.close()


def linked(waiting: asyncio.Future[Any]) -> mock.Mock:
    link = mock.Mock(spec=NatsLink, usable=True, max_payload=2**20)
    link.reply.return_value = "_INBOX.1"
    link.send.return_value = ([waiting], asyncio.get_running_loop().create_future())
    link.duplicate_window.return_value = None
    return link


async def answer_to(waiting: asyncio.Future[Any]) -> PublishError | None:
    publisher = await open_nats(URL, options=OPTIONS)
    with mock.patch("pgoutbox.brokers.nats.publisher.NatsLink", return_value=linked(waiting)):
        (answer,) = await publisher.publish_batch([make_message()])
    await publisher.close()
    return answer


@pytest.mark.parametrize("error", SENT_EXAMPLES, ids=names(SENT_EXAMPLES))
async def test_an_error_instead_of_an_acknowledgement_is_retried(error: Exception) -> None:
    waiting = asyncio.get_running_loop().create_future()
    waiting.set_exception(error)
    answer = await answer_to(waiting)
    no_right = isinstance(error, Denied)
    assert type(answer) is (DestinationUnavailable if no_right else RetryableError)
    assert well_told(answer)


@pytest.mark.parametrize(
    "data",
    [b"", b"+OK", b"null", b"[]", b"{}", b'{"stream": "x"}', b'{"stream": 1, "seq": 1}', b"\xff"],
)
async def test_nothing_but_a_streams_acknowledgement_is_taken_for_one(data: bytes) -> None:
    target = target_of(URL, "nats")
    link = NatsLink(target)
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link._pending["_INBOX.1"] = Pending("orders", waiting)
    link._on_answer("_INBOX.1", data)
    with pytest.raises(RetryableError, match="no acknowledgement in time"):
        stream_of(waiting, target.where)
    link._on_answer("_INBOX.1", b'{"stream": "x", "seq": 1}')
    assert stream_of(waiting, target.where) == "x"


async def test_what_nobody_expected_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    publisher = await open_nats("nats://host.invalid", options=OPTIONS)
    with (
        mock.patch("nats.aio.client.Client.connect", side_effect=KeyError("odd")),
        pytest.raises(DestinationUnavailable, match="see the log"),
    ):
        await publisher.publish_batch([make_message()])
    assert "unexpected KeyError" in caplog.text
    await publisher.close()


async def test_after_close_nothing_is_opened() -> None:
    publisher = await open_nats(URL, options=OPTIONS)
    await publisher.close()
    with (
        mock.patch("nats.aio.client.Client.connect") as connect,
        pytest.raises(DestinationUnavailable, match="the publisher is closed"),
    ):
        await publisher.publish_batch([make_message()])
    connect.assert_not_called()


def test_what_the_client_is_built_on_is_still_there() -> None:
    """Not public: how it begins, what it hands to its flusher, and where messages come in."""
    client = Client()
    assert client._pending == []
    assert client._pending_data_size == 0
    assert client._flush_queue is None
    assert client._transport is None
    assert "_bare_io_writer" in inspect.getsource(TcpTransport)
    assert list(inspect.signature(Client._process_msg).parameters) == [
        *("self", "sid", "subject", "reply", "data", "headers")
    ]
    assert inspect.iscoroutinefunction(Client._process_msg)
    assert list(inspect.signature(Client._connect_command).parameters) == ["self"]
    # Before the command with the password is made, and after the server told of itself.
    connecting = inspect.getsource(Client._process_connect_init)
    assert connecting.index("self._server_info") < connecting.index("self._connect_command()")
    flushing = inspect.getsource(Client._flusher)
    steps = [
        "await self._flush_queue.get()",
        "self._transport.writelines(self._pending[:])",
        "self._pending_data_size = 0",
        "await self._transport.drain()",
        "future.set_result(None)",
    ]
    places = [flushing.index(step) for step in steps]
    assert places == sorted(places)


@pytest.mark.parametrize("code", [*ANSWERS, 1, None])
async def test_an_answer_of_jetstream_is_told_in_our_own_words(code: int | None) -> None:
    waiting = asyncio.get_running_loop().create_future()
    waiting.set_result({"error": {"code": 503, "err_code": code, "description": "hunter2"}})
    answer = await answer_to(waiting)
    expected = ANSWERS[code][0] if code in ANSWERS and code is not None else RetryableError
    assert type(answer) is expected
    assert well_told(answer)


def test_what_is_too_large_is_refused_for_good_and_all_else_is_retried() -> None:
    permanent = [code for code, (meaning, _) in ANSWERS.items() if meaning is PermanentError]
    assert permanent == [10054, 10097]
    assert "error 77" in str(answered({"err_code": 77}, "here"))


@pytest.mark.parametrize("table", [CONNECT_ERRORS, CLIENT_ERRORS], ids=["connect", "sent"])
def test_the_special_stands_before_the_general(table: Sequence[Row]) -> None:
    kinds = [kind for kind, _, _ in table]
    for place, kind in enumerate(kinds):
        hidden = [later.__name__ for later in kinds[place + 1 :] if issubclass(later, kind)]
        assert not hidden, f"{kind.__name__} hides {hidden}"


@pytest.mark.parametrize(
    ("table", "examples"),
    [(CONNECT_ERRORS, CONNECT_EXAMPLES), (CLIENT_ERRORS, SENT_EXAMPLES)],
    ids=["connect", "sent"],
)
def test_every_row_of_the_tables_has_an_example(
    table: Sequence[Row], examples: Sequence[Exception]
) -> None:
    reached = {next(kind for kind, _, _ in table if isinstance(error, kind)) for error in examples}
    assert reached == {kind for kind, _, _ in table}


def test_every_error_of_the_client_is_known_while_connecting() -> None:
    known = inspect.getmembers(nats.errors, inspect.isclass)
    errors = [kind for _, kind in known if issubclass(kind, nats.errors.Error)]
    covered = tuple(kind for kind, _, _ in CONNECT_ERRORS if kind is not Exception)
    assert len(errors) > 15
    assert all(issubclass(kind, covered) for kind in errors)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("nats://", "names no host"),
        ("nats://user:hunter2@", "names no host"),
        ("nats://host:hunter2", "not well-formed"),
        ("nats://host:99999", "not well-formed"),
        ("nats://user:hunter2@host,", "not well-formed"),
        ("nats://[::1", "not well-formed"),
        ("nats://user:hunter2@two words", "percent-encode them"),
        ("nats://user:hunter2@Zürich", "percent-encode them"),
        ("nats://user:hunter2@host/orders", "has no path"),
        ("nats://user:hunter2@host?stream=a", "'stream' is no option of nats://"),
        ("nats://user:hunter2@host?tls=maybe", "neither 1 nor 0"),
        ("nats://user:hunter2@host?ca_file=/ca.pem", "ca_file needs tls=1"),
        ("nats://user:hunter2@host?tls=1&ca_file=/no/such/file", "ca_file cannot be loaded"),
        ("nats://user:hunter2@host?tls=1&cert_file=/no/such/file", "cert_file cannot be loaded"),
        ("nats://user:hunter2@host?tls=1&key_file=/key.pem", "key_file needs cert_file"),
        ("nats://user:hunter2@host?inbox_prefix=a.*", "without wildcards"),
        ("nats://host?credentials=/no/such/file", "credentials file"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_at_the_start_without_repeating_it(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidDestination, match=problem) as caught:
        await open_nats(url, options=OPTIONS)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "topic", ["", "a..b", ".a", "a.", "a b", "a.*", ">", "a.>", "a..{event_type}"]
)
async def test_a_topic_that_is_no_subject_is_refused_at_the_start(topic: str) -> None:
    options = PublisherOptions(destination="nats", topic=Template(topic))
    with pytest.raises(InvalidDestination, match="no subject to publish to"):
        await open_nats("nats://host", options=options)


def test_the_parts_of_a_url_are_percent_decoded() -> None:
    target = target_of("nats://us%40er:p%C3%A4ss%2F@one,two:1,[::1]:2", "nats")
    assert (target.user, target.password) == ("us@er", "päss/")
    assert target.servers == ("one:4222", "two:1", "[::1]:2")
    assert "päss" not in repr(target)
    token = target_of("nats://t0ken@host", "nats")
    assert (token.user, token.password) == ("t0ken", None)
    assert "t0ken" not in repr(token)


def test_a_header_name_that_no_header_can_have_is_refused_for_good() -> None:
    envelope = Envelope("", [("two\r\nNats-Rollup", "all")], "text/plain", b"")
    with pytest.raises(PermanentError, match="a name that NATS does not allow"):
        headers_of(make_message(), envelope)


def test_a_command_is_framed_by_its_sizes() -> None:
    message = make_message()
    headers = headers_of(message, Envelope("", [("a", "ü")], "text/plain", b""))
    assert headers.decode().split("\r\n") == [
        "NATS/1.0",
        f"Nats-Msg-Id: {message.message_id}",
        "content-type: text/plain",
        "a: %C3%BC",
        "",
        "",
    ]
    command = b"".join(publication("orders.x", "_INBOX.1", headers, b"body\r\n"))
    size = len(headers)
    assert command.startswith(b"HPUB orders.x _INBOX.1 %d %d\r\n" % (size, size + 6))
    assert command.endswith(b"\r\n\r\nbody\r\n\r\n")


@pytest.mark.parametrize("value", ["x", "a.b", "*", ">", " ", "\x00", "a\r\nb", "%", "Zürich"])
def test_any_value_that_is_not_empty_makes_a_subject_of_as_many_parts(value: str) -> None:
    subject = subject_of(make_message(event_type=value), Template("a.{event_type}.b"))
    assert fits_subject(subject)
    assert subject.count(".") == 2
