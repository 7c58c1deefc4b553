"""What a worker is told: read once, checked as a whole, frozen."""

from pgoutbox.problem import Problem
from pgoutbox.settings.destination import Destination, Retry
from pgoutbox.settings.load import load_settings, located
from pgoutbox.settings.model import (
    Database,
    Drain,
    Lease,
    Retention,
    Settings,
    Wakeup,
)
from pgoutbox.settings.problems import SettingsError, unusable
from pgoutbox.settings.rules import warnings

__all__ = [
    "Database",
    "Destination",
    "Drain",
    "Lease",
    "Problem",
    "Retention",
    "Retry",
    "Settings",
    "SettingsError",
    "Wakeup",
    "load_settings",
    "located",
    "unusable",
    "warnings",
]
