"""From the URL in the settings and a message to the URL of one request."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from yarl import URL

from pgoutbox.brokers.http.guard import HostRules
from pgoutbox.brokers.query import is_host
from pgoutbox.errors import InvalidDestination, PermanentError
from pgoutbox.wire.template import FIELDS, Template

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage

_VISIBLE = re.compile(r"[!-~]+")
_PARTS = re.compile(
    r"(?P<scheme>https?)://(?P<authority>(?:\{[^{}]*\}|[^/?#])*+)"
    r"(?P<path>(?:\{[^{}]*\}|[^?#])*+)(?P<query>(?:\{[^{}]*\}|[^#])*+)(?:#.*)?",
    re.IGNORECASE,
)
# Digits and dots are an address of four numbers, or nothing.
_NUMBERS = re.compile(r"(?!\d+(?:\.\d+){3}$)[\d.]+")
# A step to another place, as a receiver reads it that decodes before it looks.
_CLIMBS = re.compile(r"(?:\A|[/\\])\.{1,2}(?:\Z|[/\\;])")
_OFFER = ", ".join(f"{{{name}}}" for name in FIELDS) + " and {headers[name]}"


class Target:
    """One URL, or a template of URLs. Raises `InvalidDestination`, which never quotes it."""

    def __init__(self, url: str, *, destination: str, allowed_hosts: tuple[str, ...] = ()) -> None:
        self._destination = destination
        parts = self._parts(url)
        scheme, path, query = parts["scheme"].lower(), parts["path"] or "/", parts["query"]
        user, at, where = parts["authority"].rpartition("@")
        host, colon, port = where.partition(":") if "{" in where else (where, "", "")
        if "{" in user + port:
            raise self._invalid(
                "fields of the message may stand in the URL's host, path and query, "
                "not in its user, password or port; a brace that is none is written %7B"
            )
        self._host = self._template(host)
        shape = self._shape(f"{scheme}://{user}{at}{self._host.filled('x')}{colon}{port}/")
        self.authorization = _basic(shape)
        """The header's value, where the URL has a user or a password."""
        self._rules = self._host_rules(allowed_hosts)
        self.guarded = not self._host.fixed
        """Whether messages choose the host."""
        self.public_only = self.guarded and self._rules.open
        """Whether its addresses must be public, whatever the name."""
        if self.guarded:
            self._check_guarded(scheme, shape)
        elif not self._rules.allows(shape.raw_host or ""):
            raise self._invalid("the URL's host is not in allowed_hosts")
        self._scheme, self._port = scheme, colon + port
        self._rest = self._template(path + query)
        self._watched = [n for n, segment in enumerate(path.split("/")) if "{" in segment]
        self.url: URL | None = None
        """The URL of every request, where it is the same for all."""
        if self._host.fixed and self._rest.fixed:
            self.url = URL(f"{scheme}://{where}{self._rest.text}", encoded=True)

    def url_for(self, message: ClaimedMessage) -> URL:
        """Where this message goes. Raises `PermanentError` where it must not or cannot."""
        if self.url is not None:
            return self.url
        host = self._host.render(message)
        if self.guarded:
            host = self._rules.checked(host)
        rest = self._rest.render(message, _escaped)
        segments = rest.partition("?")[0].split("/")
        for place in self._watched:
            segment = unquote(segments[place])
            if not segment or _CLIMBS.search(segment):
                raise PermanentError(
                    "the message makes a part of the URL's path empty, or a step to another path"
                )
        try:
            return URL(f"{self._scheme}://{host}{self._port}{rest}", encoded=True)
        except ValueError:
            raise PermanentError("the message makes the URL one that cannot be read") from None

    def _parts(self, url: str) -> re.Match[str]:
        if _VISIBLE.fullmatch(url) is None:
            raise self._invalid("the URL has blanks or non-ASCII characters; percent-encode them")
        parts = _PARTS.fullmatch(url)
        if parts is None:
            raise self._invalid("the URL is not one of http:// or https://")
        return parts

    def _shape(self, text: str) -> URL:
        """The URL as far as it is the same for all, with something in place of fields."""
        try:
            shape = URL(text, encoded=True)
            host, port = shape.host, shape.port
        except ValueError:
            raise self._invalid("the URL's host or port is not well-formed") from None
        if not host:
            raise self._invalid("the URL names no host")
        if port == 0 or (":" not in host and (_NUMBERS.fullmatch(host) or not is_host(host))):
            raise self._invalid("the URL's host or port is not well-formed")
        return shape

    def _template(self, text: str) -> Template:
        try:
            return Template(text)
        except ValueError:
            # Its own words quote what stands in the braces, and that may be a secret.
            raise self._invalid(
                f"the URL has a brace that begins no field; there are {_OFFER}, "
                "and a brace that is none is written %7B or %7D"
            ) from None

    def _host_rules(self, allowed_hosts: tuple[str, ...]) -> HostRules:
        try:
            return HostRules(allowed_hosts)
        except ValueError as problem:
            raise self._invalid(str(problem)) from None

    def _check_guarded(self, scheme: str, shape: URL) -> None:
        if scheme != "https":
            raise self._invalid("a URL whose host depends on the message must be https://")
        if self.authorization and self._rules.open:
            raise self._invalid(
                "a user and a password go only to hosts that the settings name; "
                "put those into allowed_hosts"
            )
        try:
            HostRules().checked(shape.raw_host or "")
        except PermanentError:
            raise self._invalid("the URL's host or port is not well-formed") from None

    def _invalid(self, problem: str) -> InvalidDestination:
        return InvalidDestination(self._destination, problem)


def _escaped(value: str) -> str:
    return quote(value, safe="", errors="replace")


def _basic(url: URL) -> str | None:
    if url.user is None and url.password is None:
        return None
    pair = f"{url.user or ''}:{url.password or ''}".encode()
    return f"Basic {b64encode(pair).decode()}"
