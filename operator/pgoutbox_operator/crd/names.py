"""What the custom resource is called."""

from __future__ import annotations

GROUP = "pgoutbox.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "OutboxScaler"
PLURAL = "outboxscalers"
SINGULAR = "outboxscaler"
SHORT_NAMES = ("oxs",)
CATEGORIES = ("outbox",)

SCHEMA_ANNOTATION = f"{GROUP}/schema-version"
SCHEMA_VERSION = 1
"""Grows with every change of the schema: who installs the definition never goes back."""
