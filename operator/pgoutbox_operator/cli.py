"""``pgoutbox-operator``: run it, print its definition, ask it for reasons."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgoutbox._version import __version__
from pgoutbox.errors import PgOutboxError
from pgoutbox_operator import rights

if TYPE_CHECKING:
    from pgoutbox.telemetry.logs_setup import LogFormat

PREFIX = "PGOUTBOX_OPERATOR"
CONNECTIONS = "/etc/pgoutbox/connections"

connections_option = click.option(
    "--connections",
    type=click.Path(path_type=Path),
    default=CONNECTIONS,
    show_default=True,
    envvar=f"{PREFIX}_CONNECTIONS",
    show_envvar=True,
    help="Folder of files with a DSN each, for spec.database.connectionName.",
)
insecure_option = click.option(
    "--insecure-databases",
    "insecure",
    is_flag=True,
    envvar=f"{PREFIX}_INSECURE_DATABASES",
    show_envvar=True,
    help="Accept a DSN that does not verify the server.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pgoutbox-operator", message="%(prog)s %(version)s")
def group() -> None:
    """Give a Deployment of workers as many pods as its outbox needs."""


@group.command("run")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    envvar=f"{PREFIX}_NAMESPACES",
    show_envvar=True,
    help="Look after this one; may be repeated. None: all of them.",
)
@click.option(
    "--lease",
    is_flag=True,
    envvar=f"{PREFIX}_LEASE",
    show_envvar=True,
    help="Take turns with other replicas, by a Lease called pgoutbox-operator.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    envvar=f"{PREFIX}_HTTP_PORT",
    show_envvar=True,
    help="For /livez, /readyz and /metrics; 0 takes any free one.",
)
@connections_option
@insecure_option
@click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    envvar=f"{PREFIX}_LOG_FORMAT",
    show_envvar=True,
)
def run(
    *,
    namespaces: tuple[str, ...],
    lease: bool,
    port: int,
    connections: Path,
    insecure: bool,
    log_format: LogFormat,
) -> None:
    """Scale what every OutboxScaler names, until SIGTERM or SIGINT."""
    # Late, since `pgoutbox-operator --help` need not pay for it.
    from pgoutbox.telemetry.logs_setup import configure  # noqa: PLC0415
    from pgoutbox_operator.run import Operator, Options  # noqa: PLC0415

    configure(log_format)
    options = Options(
        namespaces=namespaces,
        lease=lease,
        port=port,
        connections=connections,
        insecure=insecure,
    )

    async def main() -> None:
        await Operator(options).run()

    asyncio.run(main())


@group.command("crd")
def crd() -> None:
    """Print the definition of OutboxScaler, for `kubectl apply --server-side -f -`."""
    from pgoutbox_operator.crd.definition import render  # noqa: PLC0415

    click.echo(render(), nl=False)


@group.command("rbac")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Where scalers are; may be repeated. None: a ClusterRole for all of them.",
)
@click.option(
    "--service-account",
    metavar="NAMESPACE/NAME",
    default=f"default/{rights.NAME}",
    show_default=True,
    help="Whom to allow it.",
)
@click.option("--lease", is_flag=True, help="Also what `run --lease` needs.")
@click.option("--deployment", "deployments", multiple=True, help="Only this one; may be repeated.")
@click.option("--secret", "secrets", multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--no-secrets", is_flag=True, help="No right to read any, for spec.database.connectionName."
)
def rbac(
    *,
    namespaces: tuple[str, ...],
    service_account: str,
    lease: bool,
    deployments: tuple[str, ...],
    secrets: tuple[str, ...],
    no_secrets: bool,
) -> None:
    """Print the Role that allows what the operator does, and nothing else."""
    account = rights.Account(*_two_names(service_account, "--service-account"))
    chosen = rights.narrowed(rights.SCALERS, deployments=deployments, secrets=secrets)
    if no_secrets:
        chosen = tuple(right for right in chosen if right.resource != "secrets")
    found = rights.manifests(account, namespaces, chosen, lease=lease)
    click.echo(rights.render(found), nl=False)


@group.command("explain")
@click.argument("scaler", metavar="NAMESPACE/NAME")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 300),
    default=10.0,
    show_default=True,
    help="Between the two looks that rates are measured by.",
)
@connections_option
@insecure_option
def explain(*, scaler: str, seconds: float, connections: Path, insecure: bool) -> None:
    """Tell what would be done about an OutboxScaler now, and why. Changes nothing."""
    from pgoutbox_operator.explain import explain as lines_of  # noqa: PLC0415
    from pgoutbox_operator.run import Operator, Options  # noqa: PLC0415

    namespace, name = _two_names(scaler, "NAMESPACE/NAME")

    async def main() -> list[str]:
        operator = Operator(Options(connections=connections, insecure=insecure))
        try:
            return await lines_of(operator, namespace, name, seconds=seconds)
        finally:
            await operator.link.close()

    for line in asyncio.run(main()):
        click.echo(line)


def _two_names(given: str, hint: str) -> tuple[str, str]:
    namespace, slash, name = given.partition("/")
    if not (slash and namespace and name):
        raise click.BadParameter("it has to be NAMESPACE/NAME", param_hint=hint)
    return namespace, name


def main() -> None:
    """The console script."""
    try:
        group()
    except PgOutboxError as error:
        click.echo(f"pgoutbox-operator: {error}", err=True)
        sys.exit(1)
