"""Every error of AWS's client and services is one of the four."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from pgoutbox.brokers.answers import Refused
from pgoutbox.brokers.aws.errors import CLIENT_ERRORS, CODES, Closed, plain_code
from pgoutbox.brokers.sns import open_sns
from pgoutbox.brokers.sqs import open_sqs
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one
from tests.support.brokers.aws import standing_in

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = PublisherOptions(destination="queues", publish_timeout=6.0)
REFUSED_CODES = next(codes for codes, _, text in CODES if "may be too large" in text)
URL = "hunter2://host.example"
KEY = ConnectionKey("host.example", 80, False, True, None, None, None)  # noqa: FBT003
REFUSED = aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(111, "hunter2"))
RESET = aiohttp.ClientOSError(104, "hunter2")
URL_FOUND = {"QueueUrl": "http://127.0.0.1:1/q"}

EXAMPLES: list[tuple[Exception, type[PublishError]]] = [
    (Closed(), DestinationUnavailable),
    (aws.NoCredentialsError(), DestinationUnavailable),
    (aws.PartialCredentialsError(provider="env", cred_var="hunter2"), DestinationUnavailable),
    (aws.CredentialRetrievalError(provider="p", error_msg="hunter2"), DestinationUnavailable),
    (aws.MetadataRetrievalError(error_msg="hunter2"), DestinationUnavailable),
    (aws.NoAuthTokenError(), DestinationUnavailable),
    (aws.TokenRetrievalError(provider="p", error_msg="hunter2"), DestinationUnavailable),
    (aws.UnauthorizedSSOTokenError(), DestinationUnavailable),
    (aws.ProfileNotFound(profile="hunter2"), DestinationUnavailable),
    (aws.ConfigNotFound(path="hunter2"), DestinationUnavailable),
    (aws.ConfigParseError(path="hunter2"), DestinationUnavailable),
    (aws.InvalidConfigError(error_msg="hunter2"), DestinationUnavailable),
    (aws.NoRegionError(), DestinationUnavailable),
    (aws.EndpointProviderError(msg="hunter2"), DestinationUnavailable),
    (aws.InvalidRegionError(region_name="hunter2"), DestinationUnavailable),
    (aws.ProxyConnectionError(proxy_url=URL), DestinationUnavailable),
    (aws.SSLError(endpoint_url=URL, error="hunter2"), DestinationUnavailable),
    (aws.ConnectTimeoutError(endpoint_url=URL), DestinationUnavailable),
    (aws.EndpointConnectionError(endpoint_url=URL, error=REFUSED), DestinationUnavailable),
    (aws.EndpointConnectionError(endpoint_url=URL), DestinationUnavailable),
    (aws.ConnectionError(error="hunter2"), DestinationUnavailable),
    (aws.ReadTimeoutError(endpoint_url=URL), RetryableError),
    # The client calls it the same, but there was a connection, and a request on it.
    (aws.EndpointConnectionError(endpoint_url=URL, error=RESET), RetryableError),
    (aws.ConnectionClosedError(endpoint_url=URL), RetryableError),
    (aws.HTTPClientError(error="hunter2"), RetryableError),
    (aws.IncompleteReadError(actual_bytes=1, expected_bytes=2), RetryableError),
    (
        aws.ChecksumError(checksum_type="crc", expected_checksum="1", actual_checksum="2"),
        RetryableError,
    ),
    (ResponseParserError("hunter2"), RetryableError),
    (aws.ParamValidationError(report="hunter2"), Refused),
    (aws.BotoCoreError(), RetryableError),
    (TimeoutError("hunter2"), RetryableError),
    (ConnectionResetError(104, "hunter2"), RetryableError),
    (RuntimeError("hunter2"), RetryableError),
]


def answered(code: str, status: int = 400, words: str = "") -> aws.ClientError:
    response = {
        "Error": {"Code": code, "Message": f"hunter2 {words}"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return aws.ClientError(response, "SendMessageBatch")


async def attempt(
    send: BaseException | dict[str, Any], *, find: BaseException | dict[str, Any] = URL_FOUND
) -> PublishError | None:
    """What becomes of a message when the client answers its two calls like this."""

    async def answer(operation: str, _: object) -> object:
        outcome = find if operation == "get_queue_url" else send
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    with standing_in(answer):
        publisher = await open_sqs("sqs://eu-west-1/q", options=OPTIONS)
        try:
            return await publish_one(publisher, make_message())
        finally:
            await publisher.close()


@pytest.mark.parametrize(
    ("error", "meaning"), EXAMPLES, ids=[type(error).__name__ for error, _ in EXAMPLES]
)
async def test_an_error_of_the_client_becomes_one_of_the_four_without_its_words(
    error: Exception, meaning: type[PublishError]
) -> None:
    problem = await attempt(error)
    assert type(problem) is meaning
    assert "hunter2" not in repr(problem)
    assert str(problem).startswith("queue q in eu-west-1: ")
    assert problem.__cause__ is None


@pytest.mark.parametrize(
    ("code", "meaning", "text"),
    [(code, meaning, text) for codes, meaning, text in CODES for code in sorted(codes)],
)
async def test_a_code_has_the_meaning_of_its_row(
    code: str, meaning: Callable[[str], PublishError], text: str
) -> None:
    failed = {"Id": "0", "Code": code, "SenderFault": True, "Message": "hunter2"}
    expected = meaning(f"queue q in eu-west-1: {text}")
    throttled = text == "too many requests"
    of_one = await attempt({"Failed": [failed]})
    assert (type(of_one), str(of_one)) == (type(expected), str(expected))
    assert getattr(of_one, "throttled", False) is throttled
    of_all = await attempt(answered(code))
    if code in REFUSED_CODES:
        # It may be the queue's doing, and then it is that of all messages.
        assert type(of_all) is Refused
    else:
        assert (type(of_all), str(of_all)) == (type(expected), str(expected))
        assert getattr(of_all, "throttled", False) is throttled


@pytest.mark.parametrize("code", ["InvalidParameterValue", "InvalidParameter"])
@pytest.mark.parametrize(
    "words", ["Reason: Message must be shorter than 1024 bytes.", "Message too long"]
)
async def test_a_whole_request_is_refused_for_good_where_it_is_said_to_be_too_large(
    code: str, words: str
) -> None:
    problem = await attempt(answered(code, words=words))
    assert type(problem) is PermanentError
    assert "hunter2" not in str(problem)


async def test_while_the_queue_is_looked_up_no_message_is_to_blame() -> None:
    problem = await attempt({}, find=answered("InvalidParameterValue"))
    assert type(problem) is Refused


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ("AWS.SimpleQueueService.NonExistentQueue", "nonexistentqueue"),
        ("com.amazonaws.sqs#QueueDoesNotExist", "queuedoesnotexist"),
        ("KMS.DisabledException", "kmsdisabled"),
        ("ThrottlingException", "throttling"),
        ("InternalError", "internalerror"),
    ],
)
def test_a_code_is_known_in_the_spelling_of_every_protocol(code: str, plain: str) -> None:
    assert plain_code(code) == plain
    assert any(plain in codes for codes, _, _ in CODES)


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (400, RetryableError),
        (401, DestinationUnavailable),
        (403, DestinationUnavailable),
        (413, PermanentError),
        (429, RetryableError),
        (500, RetryableError),
        (502, RetryableError),
    ],
)
async def test_an_unknown_code_is_judged_by_the_status_and_named(
    status: int, meaning: type[PublishError]
) -> None:
    problem = await attempt(answered("New<Error>\n", status))
    assert type(problem) is meaning
    assert "answered NewError" in str(problem)
    assert getattr(problem, "throttled", False) is (status == 429)


@pytest.mark.parametrize("fault", [True, False])
async def test_an_unknown_code_of_one_message_never_buries_it(fault: bool) -> None:  # noqa: FBT001
    failed = {"Id": "0", "Code": "NewError", "SenderFault": fault, "Message": "hunter2"}
    problem = await attempt({"Failed": [failed]})
    assert type(problem) is RetryableError
    assert str(problem).endswith("answered NewError for this message")


async def test_while_the_queue_is_looked_up_nothing_was_sent() -> None:
    for error in (aws.ReadTimeoutError(endpoint_url=URL), aws.HTTPClientError(error="hunter2")):
        problem = await attempt({}, find=error)
        assert type(problem) is DestinationUnavailable
        assert str(problem).endswith("; nothing was sent")


async def test_a_topic_that_is_missing_or_denied_is_named() -> None:
    for code, meaning in (("NotFound", RetryableError), ("AuthorizationError", None)):
        refuse = mock.AsyncMock(side_effect=answered(code, 404))
        with standing_in(refuse):
            publisher = await open_sns("sns://eu-west-1/123456789012/t", options=OPTIONS)
            problem = await publish_one(publisher, make_message())
        assert type(problem) is (meaning or DestinationUnavailable)
        assert str(problem).startswith("topic t in eu-west-1: ")


async def test_a_bug_is_logged_with_its_place_and_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unheard(Exception):  # noqa: N818 - of this test alone, as each kind is told once
        pass

    with caplog.at_level(logging.ERROR, "pgoutbox"):
        await attempt(Unheard("hunter2"))
    assert "queue q in eu-west-1: unexpected Unheard" in caplog.text
    assert "in send" in caplog.text
    assert "hunter2" not in caplog.text


def test_the_special_stands_before_the_general() -> None:
    kinds = [kind for kind, _, _ in CLIENT_ERRORS]
    for place, kind in enumerate(kinds):
        hidden = [later.__name__ for later in kinds[place + 1 :] if issubclass(later, kind)]
        assert not hidden, f"{kind.__name__} hides {hidden}"


def test_every_row_of_the_table_has_an_example() -> None:
    reached = set()
    for error, _ in EXAMPLES:
        reached.add(next(kind for kind, _, _ in CLIENT_ERRORS if isinstance(error, kind)))
    assert reached == {kind for kind, _, _ in CLIENT_ERRORS}


def test_no_code_stands_in_two_rows() -> None:
    codes = [code for row, _, _ in CODES for code in row]
    assert len(codes) == len(set(codes))


def test_every_error_that_the_client_has_is_known_by_more_than_being_an_exception() -> None:
    covered = tuple(kind for kind, _, _ in CLIENT_ERRORS if kind is not Exception)
    known = inspect.getmembers(aws, inspect.isclass)
    errors = [kind for _, kind in known if issubclass(kind, Exception)]
    errors = [k for k in errors if not issubclass(k, (aws.ClientError, Warning))]
    assert len(errors) > 80
    # Broken descriptions of services, which are bugs.
    bugs = {aws.MissingServiceIdError, aws.UndefinedModelAttributeError}
    assert {kind for kind in errors if not issubclass(kind, covered)} <= bugs


async def test_a_cancellation_is_none_of_them() -> None:
    with pytest.raises(asyncio.CancelledError):
        await attempt(asyncio.CancelledError())
