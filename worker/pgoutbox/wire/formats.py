"""Every wire format by the name that the settings know it by."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pgoutbox.wire.cloudevents import CLOUDEVENTS_BINARY, CLOUDEVENTS_STRUCTURED
from pgoutbox.wire.debezium import DEBEZIUM
from pgoutbox.wire.plain import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.wire.envelope import WireFormat

FORMATS: Mapping[str, WireFormat] = MappingProxyType(
    {one.name: one for one in (PLAIN, DEBEZIUM, CLOUDEVENTS_BINARY, CLOUDEVENTS_STRUCTURED)}
)
