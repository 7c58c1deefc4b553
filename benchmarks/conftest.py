"""The brokers that tests use, for the benchmarks that are run as tests."""

# ruff: noqa: INP001 - a script

from __future__ import annotations

from tests.contract import conftest as contract

globals().update({name: found for name, found in vars(contract).items() if name.endswith("_url")})
