"""The URLs ``sqs://`` and ``sns://``: a region, an account, a name, and what AWS allows of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from botocore.utils import is_valid_endpoint_url, is_valid_ipv6_endpoint_url

from pgoutbox.brokers.query import options_of, split, split_hosts
from pgoutbox.errors import InvalidDestination, PermanentError
from pgoutbox.wire.template import Template

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

SMALLEST_LIMIT = 1024
LARGEST_LIMIT = 1024 * 1024
"""What a queue or a topic may be set to take, in bytes."""
FIFO = ".fifo"

_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ACCOUNT = re.compile(r"[0-9]{12}")
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where SQS and SNS differ in what they allow."""

    name: str
    """Also the URL scheme, and what the client library calls it."""
    thing: str
    """What messages are sent to."""
    longest_name: int
    max_bytes: int
    """Of one message with its attributes, and of one request, unless the URL says otherwise."""
    account_required: bool

    @property
    def form(self) -> str:
        """How its URLs look, for people."""
        account = "ACCOUNT/" if self.account_required else "[ACCOUNT/]"
        return f"{self.name}://REGION/{account}{self.thing.upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a URL says."""

    service: Service
    region: str
    account: str | None
    name: Template
    endpoint_url: str | None
    max_bytes: int

    def name_for(self, message: ClaimedMessage) -> str:
        """The queue or topic for this message. Raises `PermanentError` where AWS forbids it."""
        name = self.name.render(message)
        if not self.name.fixed and not _allowed(name, self.service):
            raise PermanentError(
                f"{self.name.text!r} makes of this message a name that no {self.service.thing} "
                f"can have: {_rule(self.service)}"
            )
        return name


def parse(url: str, service: Service, options: PublisherOptions) -> Place:
    """Raises `InvalidDestination`, in words that repeat nothing of the URL but names of options."""

    def invalid(problem: str) -> InvalidDestination:
        return InvalidDestination(options.destination, problem)

    parts = split_hosts(url, options.destination)
    if problem := _host_problem(parts, service):
        raise invalid(problem)
    chosen = options_of(url, options.destination, known=("endpoint_url", "max_bytes"))
    endpoint_url = chosen.get("endpoint_url")
    if endpoint_url is not None and not _is_endpoint(endpoint_url):
        raise invalid(
            "endpoint_url is not of the form http://HOST:PORT or https://HOST, without credentials"
        )
    max_bytes = chosen.get("max_bytes", str(service.max_bytes))
    if not _is_limit(max_bytes):
        raise invalid(
            f"max_bytes is not a whole number between {SMALLEST_LIMIT} and {LARGEST_LIMIT}"
        )
    account, text = _account_and_name(unquote(parts.path).removeprefix("/"))
    if service.account_required and account is None:
        raise invalid(f"the URL names no account of 12 digits; write {service.form}")
    return Place(
        service=service,
        region=parts.netloc,
        account=account,
        name=_template(text, service, options),
        endpoint_url=endpoint_url,
        max_bytes=int(max_bytes),
    )


def _host_problem(parts: SplitResult, service: Service) -> str | None:
    if "@" in parts.netloc:
        return (
            "credentials do not belong in the URL; the worker finds them as every AWS client does: "
            "in its role, in the environment, or in ~/.aws"
        )
    if _REGION.fullmatch(parts.netloc) is None:
        return f"the URL names no region, such as eu-west-1; write {service.form}"
    if parts.fragment or "#" in parts.path:
        return "the URL has a fragment (#...); percent-encode the character, or leave it out"
    return None


def _is_endpoint(text: str) -> bool:
    try:
        parts = split(text, "")
    except InvalidDestination:
        return False
    simple = "@" not in parts.netloc and not parts.query and not parts.fragment
    # The last is the client's own opinion, which it would tell by a ValueError later.
    known = is_valid_endpoint_url(text) or is_valid_ipv6_endpoint_url(text)
    return simple and parts.scheme in ("http", "https") and bool(known)


def _is_limit(text: str) -> bool:
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_LIMIT))
    return digits and SMALLEST_LIMIT <= int(text) <= LARGEST_LIMIT


def _account_and_name(path: str) -> tuple[str | None, str]:
    account, slash, name = path.partition("/")
    return (account, name) if slash and _ACCOUNT.fullmatch(account) else (None, path)


def _template(text: str, service: Service, options: PublisherOptions) -> Template:
    if text and options.topic is not None:
        raise InvalidDestination(
            options.destination,
            f"the {service.thing} is named in the URL and in the topic setting; leave one of them",
        )
    try:
        template = options.topic or Template(text)
    except ValueError as error:
        raise InvalidDestination(options.destination, f"the URL's path {error}") from None
    if not template.text:
        raise InvalidDestination(
            options.destination, f"the URL names no {service.thing}; write {service.form}"
        )
    if not _allowed(template.filled("x"), service):
        raise InvalidDestination(
            options.destination, f"this is no name of a {service.thing}: {_rule(service)}"
        )
    return template


def _allowed(name: str, service: Service) -> bool:
    return len(name) <= service.longest_name and _NAME.fullmatch(name) is not None


def _rule(service: Service) -> str:
    return f"it has up to {service.longest_name} of A-Z a-z 0-9 _ - and may end in {FIFO}"
