"""What the errors of AWS's client and services mean here."""

from __future__ import annotations

import logging
import re
import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import ClientConnectionError, ClientConnectorError
from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet

log = logging.getLogger(__name__)

_ROLE = "give the worker a role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in its environment"
_CONFIGURATION = "correct AWS_PROFILE and the files in ~/.aws"

# The client's errors, the special before the general.
CLIENT_ERRORS: tuple[tuple[type[Exception], type[PublishError], str], ...] = (
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
    # The request cannot be made, today or later.
    (aws.ParamValidationError, PermanentError, "the message cannot be written as a request"),
    (aws.BotoCoreError, RetryableError, "the client failed"),
    (TimeoutError, RetryableError, "no answer in time"),
    (OSError, RetryableError, "the connection broke"),
    # A bug, here or in the client. What is known is only that there was no word.
    (Exception, RetryableError, "the client failed in a way that it should not"),
)

# The services' codes, as `plain_code` spells them; each service has its own for the same thing.
_TOO_MANY = {"throttling", "throttled", "requestthrottled", "requestlimitexceeded", "slowdown"}
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

CODES: tuple[tuple[AbstractSet[str], type[PublishError], str], ...] = (
    (_TOO_MANY, RetryableError, "too many requests"),
    (_FAULTS, RetryableError, "AWS has a fault of its own"),
    (
        _MISSING,
        RetryableError,
        "it does not exist; create it, or correct its name, account or region",
    ),
    (
        _DENIED,
        DestinationUnavailable,
        "not allowed; grant it to the worker's role, and in the policy of what it sends to",
    ),
    (
        _STALE | _UNPROVEN,
        DestinationUnavailable,
        "AWS does not accept the credentials; renew them, and check the system's clock",
    ),
    (
        _KEY,
        DestinationUnavailable,
        "its encryption key cannot be used; correct the key's state or policy",
    ),
    (_TOO_LARGE, PermanentError, "the message is too large"),
    (
        _REFUSED,
        PermanentError,
        "the message was refused; it may be too large for what it was sent to",
    ),
)
_MEANINGS = {code: (meaning, text) for codes, meaning, text in CODES for code in codes}
_STRANGE = re.compile(r"[^A-Za-z0-9_.]")


def translated(error: Exception, where: str, *, sent: bool) -> PublishError:
    """One of the four, never with the client's or the service's own words.

    ``sent``: whether a request with messages was under way.
    """
    if isinstance(error, aws.ClientError):
        meaning, text = _meaning_of_answer(error.response)
    else:
        meaning, text = _meaning_of(error)
        if not sent and meaning is RetryableError:
            meaning = DestinationUnavailable
            text += "; nothing was sent"
    return meaning(f"{where}: {text}")


def entry_problem(failed: Mapping[str, Any], where: str) -> PublishError:
    """What an entry of ``Failed`` in an answer means for its message."""
    code = str(failed.get("Code", ""))
    meaning, text = _MEANINGS.get(plain_code(code), (None, ""))
    if meaning is None:
        # A code that nobody here knows: then it counts whose fault the service says it is.
        meaning = PermanentError if failed.get("SenderFault") else RetryableError
        text = f"answered {_quotable(code)} for this message"
    return meaning(f"{where}: {text}")


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


def _meaning_of(error: Exception) -> tuple[type[PublishError], str]:
    kind = _kind_of(error)
    found, meaning, text = next(row for row in CLIENT_ERRORS if issubclass(kind, row[0]))
    if found is Exception:
        # Where, but not its words: they may quote the message.
        trace = "".join(traceback.format_tb(error.__traceback__))
        log.error("unexpected %s from the client\n%s", kind.__name__, trace)
    return meaning, text


def _kind_of(error: Exception) -> type[Exception]:
    """The client says of any connection that broke that there was none. We must know which."""
    inner: object = (
        error.kwargs.get("error") if isinstance(error, aws.EndpointConnectionError) else None
    )
    if isinstance(inner, ClientConnectionError) and not isinstance(inner, ClientConnectorError):
        closed: type[Exception] = aws.ConnectionClosedError
        return closed
    return type(error)


def _meaning_of_answer(response: Mapping[str, Any]) -> tuple[type[PublishError], str]:
    code = str(response.get("Error", {}).get("Code", ""))
    if known := _MEANINGS.get(plain_code(code)):
        return known
    # The request was refused as a whole, so this is less likely the fault of a message. A proxy's
    # answer looks like this too.
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    text = f"answered {_quotable(code)}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return DestinationUnavailable, f"{text}; check the credentials, and what they allow"
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return PermanentError, f"{text}: the message is too large"
    return RetryableError, text


def _quotable(code: str) -> str:
    """An identifier of the service's, as long as it looks like one."""
    return _STRANGE.sub("", code)[:64] or "an error without a code"
