"""What can be said about a DSN without connecting: that it is one, and whom it trusts."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgoutbox.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITTEN = (
    "Write postgresql://user:password@host/db with the characters : @ / % # ? and spaces of the"
    " password percent-encoded, or key=value pairs with quotes: host=... password='...'."
)
VERIFIED = (
    "Add sslmode=verify-full and sslrootcert=<file> (or sslrootcert=system for a public CA), or"
    " accept the risk with PGOUTBOX_DATABASE__INSECURE=true."
)


def dsn_problems(
    field: str, dsn: str, environ: Mapping[str, str], *, insecure: bool
) -> list[Problem]:
    """Everything wrong with one DSN. ``environ`` holds libpq's own variables (``PGHOST``, ...).

    The DSN is never quoted, nor is libpq's message about it: either may hold the password.
    """
    try:
        parameters = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    except psycopg.Error:
        return [Problem(field=field, rule="cannot be read as a DSN", advice=WRITTEN)]
    if "://" in dsn and _split_at_the_wrong_place(dsn, parameters):
        rule = "has special characters in its user or password that are not encoded"
        return [Problem(field=field, rule=rule, advice=WRITTEN)]
    if insecure or _stays_on_this_machine(parameters, environ) or _is_verified(parameters, environ):
        return []
    mode = parameters.get("sslmode", environ.get("PGSSLMODE"))
    found = "has no sslmode" if mode is None else f"has sslmode={mode}"
    rule = f"{found}, so that nobody checks which server answers"
    return [Problem(field=field, rule=rule, advice=VERIFIED)]


def dsn_place(dsn: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Which database it leads to, whoever connects: equal for two DSNs only if that is the same.

    None where it cannot be read.
    """
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    except psycopg.Error:
        return None
    user = given.get("user") or environ.get("PGUSER", "")
    # A service's own values stand behind those of the DSN, so they differ only with its name.
    return (
        given.get("service", ""),
        given.get("hostaddr", ""),
        given.get("host", ""),
        given.get("port") or environ.get("PGPORT") or "5432",
        given.get("dbname") or environ.get("PGDATABASE") or user,
    )


def _split_at_the_wrong_place(dsn: str, parameters: Mapping[str, str]) -> bool:
    """A raw @ or / in a password moves the rest of it into the host, the port or the database."""
    ports = parameters.get("port", "").split(",")
    if not all(port.isdecimal() or not port for port in ports):
        return True
    if "%40" in dsn:
        return False
    return "@" in parameters.get("host", "").lstrip("@") or "@" in parameters.get("dbname", "")


def _stays_on_this_machine(parameters: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    given = parameters.get("hostaddr") or parameters.get("host")
    if not given and "service" in parameters:
        return False
    hosts = given or environ.get("PGHOSTADDR") or environ.get("PGHOST") or ""
    return all(_is_local(host.strip()) for host in hosts.split(","))


def _is_local(host: str) -> bool:
    if host in {"", "localhost"} or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_verified(parameters: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    mode = parameters.get("sslmode", environ.get("PGSSLMODE"))
    roots = parameters.get("sslrootcert", environ.get("PGSSLROOTCERT"))
    # libpq takes verify-full for granted with the system's certificates, and refuses anything less.
    return mode == "verify-full" or (roots == "system" and mode is None)
