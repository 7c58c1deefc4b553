"""What the errors of AWS's client and services mean here."""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import ClientConnectionError, ClientConnectorError
from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from pgoutbox.brokers.answers import Refused, Row, translated as by_table
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set as AbstractSet


class Closed(Exception):  # noqa: N818 - what it is
    """The publisher was closed, so nothing is sent any more."""


_ROLE = "give the worker a role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in its environment"
_CONFIGURATION = "correct AWS_PROFILE and the files in ~/.aws"

# The client's errors, the special before the general.
CLIENT_ERRORS: tuple[Row, ...] = (
    (Closed, DestinationUnavailable, "the publisher is closed"),
    # No request could be made.
    (aws.NoCredentialsError, DestinationUnavailable, f"there are no credentials; {_ROLE}"),
    (aws.PartialCredentialsError, DestinationUnavailable, f"half of the credentials; {_ROLE}"),
    (aws.CredentialRetrievalError, DestinationUnavailable, "no credentials from their provider"),
    (
        aws.MetadataRetrievalError,
        DestinationUnavailable,
        "no credentials from the metadata service",
    ),
    (aws.NoAuthTokenError, DestinationUnavailable, "no token for the credentials; log in again"),
    (aws.TokenRetrievalError, DestinationUnavailable, "no token for the credentials; log in again"),
    (aws.SSOError, DestinationUnavailable, "no token for the credentials; log in again"),
    (aws.ProfileNotFound, DestinationUnavailable, f"there is no such profile; {_CONFIGURATION}"),
    (aws.ConfigNotFound, DestinationUnavailable, f"a file is missing; {_CONFIGURATION}"),
    (aws.ConfigParseError, DestinationUnavailable, f"a file cannot be read; {_CONFIGURATION}"),
    (aws.InvalidConfigError, DestinationUnavailable, f"a file makes no sense; {_CONFIGURATION}"),
    (aws.BaseEndpointResolverError, DestinationUnavailable, "no endpoint for this region"),
    (aws.EndpointProviderError, DestinationUnavailable, "no endpoint for this region"),
    (aws.InvalidRegionError, DestinationUnavailable, "no endpoint for this region"),
    # Never connected: nothing was sent.
    (aws.ProxyConnectionError, DestinationUnavailable, "no connection to the HTTP proxy"),
    (aws.SSLError, DestinationUnavailable, "the TLS handshake failed"),
    (aws.ConnectTimeoutError, DestinationUnavailable, "connecting took too long"),
    (aws.EndpointConnectionError, DestinationUnavailable, "no connection could be established"),
    (aws.ConnectionError, DestinationUnavailable, "no connection could be established"),
    # Connected: the request may have arrived.
    (aws.ReadTimeoutError, RetryableError, "no answer in time"),
    (aws.ConnectionClosedError, RetryableError, "the connection ended before the answer"),
    (aws.HTTPClientError, RetryableError, "the connection broke"),
    (aws.IncompleteReadError, RetryableError, "the answer broke off"),
    (aws.ChecksumError, RetryableError, "the answer arrived damaged"),
    (ResponseParserError, RetryableError, "the answer is not one of AWS"),
    (aws.ParamValidationError, Refused, "the client cannot write this as a request"),
    (aws.BotoCoreError, RetryableError, "the client failed"),
    (TimeoutError, RetryableError, "no answer in time"),
    (OSError, RetryableError, "the connection broke"),
    (Exception, RetryableError, "the client failed in a way that it should not"),
)

# The services' codes, as `plain_code` spells them; each service has its own for the same thing.
_TOO_MANY = {"throttling", "throttled", "requestthrottled", "requestlimitexceeded", "slowdown"}
_TOO_MANY |= {"ec2throttled", "provisionedthroughputexceeded", "limitexceeded"}
_TOO_MANY |= {"toomanyrequests", "bandwidthlimitexceeded", "kmsthrottled", "kmsthrottling"}
_FAULTS = {"serviceunavailable", "internalerror", "internalfailure", "internalservererror"}
_MISSING = {"nonexistentqueue", "queuedoesnotexist", "notfound", "resourcenotfound"}
_DENIED = {"accessdenied", "authorizationerror", "unauthorizedoperation", "optinrequired"}
_STALE = {"invalidclienttokenid", "unrecognizedclient", "invalidaccesskeyid", "expiredtoken"}
_UNPROVEN = {"signaturedoesnotmatch", "invalidsignature", "incompletesignature"}
_UNPROVEN |= {"missingauthenticationtoken", "requestexpired", "invalidsecurity"}
_KEY = {"kmsaccessdenied", "kmsdisabled", "kmsinvalidstate", "kmsinvalidkeyusage"}
_KEY |= {"kmsnotfound", "kmsoptinrequired"}
_TOO_LARGE = {"batchrequesttoolong", "messagetoolong", "requestentitytoolarge"}
_REFUSED = {"invalidmessagecontents", "invalidparameter", "invalidparametervalue"}
_REFUSED |= {"parametervalueinvalid", "missingparameter", "validation", "validationerror"}

NOT_VALID = "the message was refused; it may be too large for what it was sent to"

CODES: tuple[tuple[AbstractSet[str], Callable[[str], PublishError], str], ...] = (
    (_TOO_MANY, partial(RetryableError, throttled=True), "too many requests"),
    (_FAULTS, RetryableError, "AWS has a fault of its own"),
    (
        _MISSING,
        RetryableError,
        "it does not exist; create it, or correct its name, account or region",
    ),
    (
        _DENIED,
        DestinationUnavailable,
        "AWS refused us; allow it in the worker's role, and in the policy of what it sends to",
    ),
    (
        _STALE | _UNPROVEN,
        DestinationUnavailable,
        "AWS refused us: it does not accept the credentials; renew them, and check the clock",
    ),
    (
        _KEY,
        DestinationUnavailable,
        "its encryption key cannot be used; correct the key's state or policy",
    ),
    (_TOO_LARGE, PermanentError, "the message is too large"),
    # Of one message. Of a whole request it may also be the queue's or the topic's doing.
    (_REFUSED, PermanentError, NOT_VALID),
)
_MEANINGS = {code: (meaning, text) for codes, meaning, text in CODES for code in codes}
_TOO_LARGE_WORDS = ("must be shorter than", "too long")
_STRANGE = re.compile(r"[^A-Za-z0-9_.]")


def translated(error: Exception, where: str, *, sent: bool) -> PublishError:
    """One of the four, never with the client's or the service's own words.

    ``sent``: whether a request with messages was under way.
    """
    if isinstance(error, aws.ClientError):
        return _answered(error.response, where)
    problem = by_table(_precisely(error), CLIENT_ERRORS, where)
    if not sent and isinstance(problem, RetryableError):
        return DestinationUnavailable(f"{problem}; nothing was sent")
    return problem


def entry_problem(failed: Mapping[str, Any], where: str) -> PublishError:
    """What an entry of ``Failed`` in an answer means for its message."""
    code = str(failed.get("Code", ""))
    if known := _MEANINGS.get(plain_code(code)):
        meaning, text = known
        return meaning(f"{where}: {text}")
    # Also where it says that it is the sender's fault: that may be a setting.
    return RetryableError(f"{where}: answered {_quotable(code)} for this message")


def is_missing(error: Exception) -> bool:
    """Whether the queue or topic is not there."""
    return _code_of(error) in _MISSING


def is_stale(error: Exception) -> bool:
    """Whether a client with credentials that are looked up anew may do better."""
    no_credentials = (
        aws.NoCredentialsError,
        aws.PartialCredentialsError,
        aws.CredentialRetrievalError,
        aws.NoAuthTokenError,
        aws.TokenRetrievalError,
        aws.SSOError,
    )
    return isinstance(error, no_credentials) or _code_of(error) in _STALE


def plain_code(code: str) -> str:
    """A code without what varies between protocols: its prefix, dots, case, and ``Exception``."""
    last = code.rpartition("#")[2].removeprefix("AWS.SimpleQueueService.")
    return last.replace(".", "").lower().removesuffix("exception")


def _code_of(error: Exception) -> str:
    if not isinstance(error, aws.ClientError):
        return ""
    return plain_code(str(error.response.get("Error", {}).get("Code", "")))


def _precisely(error: Exception) -> Exception:
    """The client says of any connection that broke that there was none. We must know which."""
    inner: object = (
        error.kwargs.get("error") if isinstance(error, aws.EndpointConnectionError) else None
    )
    if isinstance(inner, ClientConnectionError) and not isinstance(inner, ClientConnectorError):
        closed: Exception = aws.ConnectionClosedError(endpoint_url="")
        return closed
    return error


def _answered(response: Mapping[str, Any], where: str) -> PublishError:
    """What the refusal of a whole request means. A proxy's answer looks like one, too."""
    error = response.get("Error", {})
    code = str(error.get("Code", ""))
    plain = plain_code(code)
    if plain in _REFUSED and not any(
        words in str(error.get("Message", "")) for words in _TOO_LARGE_WORDS
    ):
        return Refused(f"{where}: it refuses the request as a whole; look at its settings")
    if known := _MEANINGS.get(plain):
        meaning, text = known
        return meaning(f"{where}: {text}")
    text = f"{where}: answered {_quotable(code)}"
    match response.get("ResponseMetadata", {}).get("HTTPStatusCode"):
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return DestinationUnavailable(
                f"{text}: AWS refused us; check the credentials, and what they allow"
            )
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return PermanentError(f"{text}: the message is too large")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return RetryableError(f"{text}: too many requests", throttled=True)
        case _:
            return RetryableError(text)


def _quotable(code: str) -> str:
    """An identifier of the service's, as long as it looks like one."""
    return _STRANGE.sub("", code)[:64] or "an error without a code"
