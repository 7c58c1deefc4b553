"""Headers: what the user gave, checked, and the trace context beside it."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping

from pgoutbox.errors import InvalidMessage
from pgoutbox.message import HEADER_NAME
from pgoutbox.producer import trace
from pgoutbox.producer.text import unstorable

MAX_BYTES = 16 * 1024
"""All names and values together, in UTF-8."""

TRACEPARENT = "traceparent"

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")


def headers_text(headers: object, creation: trace.Creation | None = None) -> str:
    """The headers' JSON text, the current trace context included; ``creation`` may be its span.

    Raises `InvalidMessage` with the path of the first header that is not acceptable.
    """
    checked = _checked(headers)
    _add_trace(checked, creation)
    return json.dumps(checked, ensure_ascii=False) if checked else "{}"


def _checked(headers: object) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise InvalidMessage(
            "headers", f"must be a mapping of str to str, not {type(headers).__name__}"
        )
    checked: dict[str, str] = {}
    seen: dict[str, str] = {}
    for name, value in headers.items():
        path = f"headers[{reprlib.repr(name)}]"
        if why := _name_problem(name) or _value_problem(value):
            raise InvalidMessage(path, why)
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise InvalidMessage(path, f"differs from {reprlib.repr(other)} only in its case")
        checked[name] = value
    if (size := _size(checked)) > MAX_BYTES:
        raise InvalidMessage("headers", f"have {size} bytes together; at most {MAX_BYTES}")
    return checked


def _name_problem(name: object) -> str | None:
    if not isinstance(name, str):
        return f"the name must be a str, not {type(name).__name__}"
    if not HEADER_NAME.fullmatch(name):
        return "the name must be of letters, digits and !#$%&'*+-.^_`|~, and not empty"
    return None


def _value_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return f"the value must be a str, not {type(value).__name__}"
    if why := unstorable(value):
        return f"the value {why}"
    if found := _CONTROL.search(value):
        return f"the value contains the control character {found[0]!r}"
    return None


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())


def _add_trace(headers: dict[str, str], creation: trace.Creation | None) -> None:
    """What the user gave wins, and what does not fit is left out: a trace fails no message."""
    taken = {name.lower() for name in headers}
    size = _size(headers)
    if TRACEPARENT in taken:
        # Where the message was created is said already, and a tracestate would be another one's.
        creation = None
        taken.add("tracestate")
    for name, value in trace.current_headers(creation).items():
        if _name_problem(name) or _value_problem(value) or name.lower() in taken:
            continue
        size += _size({name: value})
        if size > MAX_BYTES:
            return
        headers[name] = value
