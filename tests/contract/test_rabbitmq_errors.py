"""Every error of the client is one of the four, and no URL is quoted."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiormq
import aiormq.exceptions as amqp
import pytest
from aiormq.abc import ChannelFrame, DeliveredMessage
from aiormq.channel import Channel
from aiormq.connection import TransportFactory
from pamqp import commands
from pamqp.header import ContentHeader

from pgoutbox.brokers.rabbitmq.errors import (
    CLIENT_ERRORS,
    CONNECT_ERRORS,
    NoConfirmation,
    NoTls,
    VirtualHostRefused,
)
from pgoutbox.brokers.rabbitmq.frames import Framing
from pgoutbox.brokers.rabbitmq.link import RabbitmqLink
from pgoutbox.brokers.rabbitmq.log import LOGGERS
from pgoutbox.brokers.rabbitmq.publisher import open_rabbitmq
from pgoutbox.brokers.rabbitmq.url import target_of
from pgoutbox.errors import DestinationUnavailable, InvalidDestination, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.answers import Row

URL = "amqp://user:hunter2@host.example/shop?exchange=events"
OPTIONS = PublisherOptions(destination="rabbit", publish_timeout=2.0)
RETURNED = DeliveredMessage(
    delivery=commands.Basic.Return(312, "hunter2", "events", "key"),
    header=ContentHeader(),
    body=b"",
    channel=mock.Mock(),
)

CONNECT_EXAMPLES: list[Exception] = [
    amqp.ProbableAuthenticationError("ACCESS_REFUSED hunter2"),
    amqp.AuthenticationError("EXTERNAL", ["hunter2"]),
    amqp.IncompatibleProtocolError("hunter2"),
    VirtualHostRefused("hunter2"),
    NoTls(1, "hunter2"),
    amqp.InvalidFrameError("hunter2"),
    amqp.ProtocolSyntaxError("hunter2"),
    ssl.SSLCertVerificationError(1, "hunter2"),
    ssl.SSLError(1, "hunter2"),
    socket.gaierror(socket.EAI_NONAME, "hunter2"),
    TimeoutError("hunter2"),
    amqp.ConnectionClosed(320, "hunter2"),
    amqp.ConnectionNotAllowed("hunter2"),
    amqp.AMQPConnectionError("hunter2"),
    ConnectionRefusedError(111, "hunter2"),
    RuntimeError("hunter2"),
]
SENT_EXAMPLES: list[BaseException] = [
    TimeoutError("hunter2"),
    NoConfirmation("hunter2"),
    amqp.PublishError(RETURNED, commands.Basic.Return(312, "hunter2", "events", "key")),
    amqp.DeliveryError(None, commands.Basic.Nack(1)),
    amqp.ChannelNotFoundEntity("hunter2"),
    amqp.ChannelAccessRefused("hunter2"),
    amqp.ChannelPreconditionFailed("hunter2"),
    amqp.ChannelLockedResource("hunter2"),
    amqp.ChannelClosed(0, "hunter2"),
    amqp.ConnectionClosed(320, "hunter2"),
    amqp.AMQPConnectionError("hunter2"),
    asyncio.CancelledError("hunter2"),
    Exception("hunter2"),
]


@pytest.mark.parametrize("words", [bytes(64), b"AMQP\0\1\0\0"], ids=["zeros", "AMQP 1.0"])
async def test_what_does_not_speak_the_protocol_is_not_taken_for_a_refused_virtual_host(
    words: bytes,
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        publisher = await open_rabbitmq(f"amqp://127.0.0.1:{port}/", options=OPTIONS)
        with pytest.raises(DestinationUnavailable, match="does not speak AMQP 0-9-1"):
            await publisher.publish_batch([make_message()])
        await publisher.close()


def names(examples: Sequence[BaseException]) -> list[str]:
    return [type(error).__name__ for error in examples]


def well_told(error: PublishError) -> bool:
    text = repr(error) + str(error.__cause__)
    return "hunter2" not in text and str(error).startswith("host.example:5672: ")


@pytest.mark.parametrize("error", CONNECT_EXAMPLES, ids=names(CONNECT_EXAMPLES))
async def test_an_error_while_connecting_makes_the_destination_unavailable(
    error: Exception,
) -> None:
    publisher = await open_rabbitmq(URL, options=OPTIONS)
    with (
        mock.patch("aiormq.Connection.connect", side_effect=error),
        pytest.raises(DestinationUnavailable) as caught,
    ):
        await publisher.publish_batch([make_message()])
    assert well_told(caught.value)
    await publisher.close()


async def answer_by(confirm: asyncio.Future[object]) -> PublishError | None:
    loop = asyncio.get_running_loop()
    link = mock.Mock(spec=RabbitmqLink, usable=True, blocked=False, last_confirm=0.0)
    link.framing = Framing(channel=1, frame_max=0, exchange="events")
    link.send.return_value = ([confirm], loop.create_future())
    publisher = await open_rabbitmq(URL, options=OPTIONS)
    with mock.patch("pgoutbox.brokers.rabbitmq.publisher.connect", return_value=link):
        (answer,) = await publisher.publish_batch([make_message()])
    await publisher.close()
    return answer


@pytest.mark.parametrize("error", SENT_EXAMPLES, ids=names(SENT_EXAMPLES))
async def test_an_error_instead_of_a_confirmation_is_retried(error: BaseException) -> None:
    confirm = asyncio.get_running_loop().create_future()
    if isinstance(error, asyncio.CancelledError):
        confirm.cancel()
    else:
        confirm.set_exception(error)
    answer = await answer_by(confirm)
    no_right = isinstance(error, amqp.ChannelAccessRefused)
    assert type(answer) is (DestinationUnavailable if no_right else RetryableError)
    assert well_told(answer)


@pytest.mark.parametrize("result", [None, True, commands.Basic.Nack(1), mock.Mock()], ids=repr)
async def test_nothing_but_the_brokers_acknowledgement_is_taken_for_one(result: object) -> None:
    confirm = asyncio.get_running_loop().create_future()
    confirm.set_result(result)
    assert type(await answer_by(confirm)) is RetryableError
    confirm = asyncio.get_running_loop().create_future()
    confirm.set_result(commands.Basic.Ack(1))
    assert await answer_by(confirm) is None


async def test_what_nobody_expected_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    publisher = await open_rabbitmq(URL.replace("example", "invalid"), options=OPTIONS)
    with (
        mock.patch("aiormq.Connection.connect", side_effect=KeyError("odd")),
        pytest.raises(DestinationUnavailable, match="see the log"),
    ):
        await publisher.publish_batch([make_message()])
    assert "unexpected KeyError" in caplog.text
    await publisher.close()


def test_what_the_client_is_built_on_is_still_there() -> None:
    """Not public: confirmations are counted as `basic_publish` does, and frames queued likewise."""
    counting = inspect.getsource(Channel.basic_publish)
    for step in (
        "self.delivery_tag += 1",
        "self.confirmations[delivery_tag] = confirmation",
        "self.message_id_delivery_tag[message_id] = delivery_tag",
        "self.write_queue.put(",
    ):
        assert step in counting
    assert "confirmation.set_result(frame)" in inspect.getsource(Channel._confirm_delivery)
    assert "maxsize=self.FRAME_BUFFER_SIZE" in inspect.getsource(aiormq.Connection.__init__)
    assert "self._transport_factory" in inspect.getsource(aiormq.Connection.__init__)
    assert isinstance(inspect.getattr_static(aiormq.Connection, "is_opened"), property)
    waiting = inspect.getsource(aiormq.Connection.ready)
    assert "await self.__connection_unblocked.wait()" in waiting.replace("_Connection", "")
    assert {"payload", "should_close", "drain_future"} == set(ChannelFrame.__dataclass_fields__)
    assert list(inspect.signature(TransportFactory.create).parameters)[:2] == ["self", "url"]
    assert commands.Connection.OpenOk.name == "Connection.OpenOk"


async def test_the_clients_log_is_silent_unless_somebody_asked_for_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await open_rabbitmq(URL, options=OPTIONS)).close()
    for name in LOGGERS:
        logging.getLogger(name).error("the broker's own words")
    assert not caplog.records
    assert logging.getLogger("aiormq").level == logging.NOTSET
    monkeypatch.setattr(logging.getLogger("aiormq"), "level", logging.ERROR)
    logging.getLogger(LOGGERS[0]).error("the broker's own words")
    assert caplog.records


async def test_a_port_without_tls_is_told_as_such() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"AMQP\0\0\x09\1")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        publisher = await open_rabbitmq(f"amqps://127.0.0.1:{port}/", options=OPTIONS)
        with pytest.raises(DestinationUnavailable, match="does not speak TLS"):
            await publisher.publish_batch([make_message()])
        await publisher.close()


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
    table: Sequence[Row], examples: Sequence[BaseException]
) -> None:
    reached = {next(kind for kind, _, _ in table if isinstance(error, kind)) for error in examples}
    assert reached == {kind for kind, _, _ in table}


def test_what_the_client_says_of_a_message_is_known_by_name() -> None:
    known: list[tuple[str, Any]] = inspect.getmembers(amqp, inspect.isclass)
    about = (amqp.AMQPChannelError, amqp.DeliveryError, amqp.AMQPConnectionError)
    covered = tuple(kind for kind, _, _ in CLIENT_ERRORS if kind is not Exception)
    errors = [kind for _, kind in known if issubclass(kind, about)]
    assert len(errors) > 15
    assert all(issubclass(kind, covered) for kind in errors)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("amqp://", "names no host"),
        ("amqp:///vhost", "names no host"),
        ("amqp://user:hunter2@", "names no host"),
        ("amqp://host:hunter2/", "host or port is not well-formed"),
        ("amqp://[::1/hunter2", "host or port is not well-formed"),
        ("amqp://host:99999/", "host or port is not well-formed"),
        ("amqp://user:hunter2@host/two words", "percent-encode them"),
        ("amqp://user:hunter2@host/Zürich", "percent-encode them"),
        ("amqp://user:hunter2@host/a/b", "the virtual host, and that is one name"),
        ("amqp://user:hunter2@host/?queue=a", "'queue' is no option of amqp://"),
        ("amqp://user:hunter2@host/?exchange=a&exchange=b", "given twice"),
        (f"amqp://user:hunter2@host/?exchange={'e' * 256}", "at most 255 bytes"),
        ("amqp://user:hunter2@host/?heartbeat=0", "from 1 to 3600"),
        ("amqp://user:hunter2@host/?heartbeat=soon", "from 1 to 3600"),
        ("amqp://user:hunter2@host/?ca_file=/ca.pem", "ca_file is for amqps:// only"),
        ("amqps://user:hunter2@host/?ca_file=/no/such/file", "ca_file cannot be loaded"),
        ("amqps://user:hunter2@host/?cert_file=/no/such/file", "cert_file cannot be loaded"),
        ("amqps://user:hunter2@host/?key_file=/key.pem", "key_file needs cert_file"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_at_the_start_without_repeating_it(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidDestination, match=problem) as caught:
        await open_rabbitmq(url, options=OPTIONS)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_the_parts_of_a_url_are_percent_decoded() -> None:
    target = target_of("amqp://us%40er:p%C3%A4ss%2F@host:1/a%2Fb?exchange=e%26f", "rabbit")
    assert (target.user, target.password) == ("us@er", "päss/")
    assert (target.host, target.port, target.vhost) == ("host", 1, "a/b")
    assert target.exchange == "e&f"
    assert "päss" not in repr(target)


@pytest.mark.parametrize("path", ["", "/", "/%2F", "/%2f"])
def test_without_a_path_the_virtual_host_is_the_brokers_first(path: str) -> None:
    target = target_of(f"amqp://host{path}", "rabbit")
    assert (target.vhost, target.port, target.user) == ("/", 5672, "guest")
    assert target_of("amqps://host", "rabbit").port == 5671
