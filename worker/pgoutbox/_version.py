"""The version, read by the build and by everything that reports it."""

__version__ = "0.1.0.dev0"
