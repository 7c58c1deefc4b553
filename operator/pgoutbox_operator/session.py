"""One HTTP session to the API server, for kopf and for `pgoutbox_operator.cluster`."""

from __future__ import annotations

import os
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import kopf
import yaml

from pgoutbox.errors import PgOutboxError
from pgoutbox_operator.permissions import access_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.client_middlewares import ClientHandlerType, ClientMiddlewareType

    from pgoutbox_operator.permissions import Permissions

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoCluster(PgOutboxError):  # noqa: N818 - reads better where it is caught
    """Nothing tells which cluster to talk to."""


class Server(NamedTuple):
    """Where the API server is, and how to get in."""

    url: str
    headers: Callable[[], dict[str, str]]
    """Asked for every request: the kubelet replaces the token long before it expires."""
    tls: ssl.SSLContext | None


def find_server(account: Path = ACCOUNT) -> Server:
    """By the pod's service account, else by the kubeconfig. Raises NoCluster."""
    token = account / "token"
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if token.is_file() and host:
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        shown = f"[{host}]" if ":" in host else host
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        return Server(f"https://{shown}:{port}", bearer(token), tls)
    try:
        found = kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    except (kopf.LoginError, OSError, LookupError, TypeError, ValueError, yaml.YAMLError) as error:
        raise NoCluster(f"the kubeconfig cannot be used: {error}") from error
    if not isinstance(found, kopf.ConnectionInfo):
        raise NoCluster(
            "there is neither a service account nor a kubeconfig:"
            " run it in a pod, or set KUBECONFIG"
        )
    return Server(found.server, found.as_http_headers, found.as_ssl_context())


def bearer(token: Path) -> Callable[[], dict[str, str]]:
    """The header with what the file says now."""

    def headers() -> dict[str, str]:
        return {"Authorization": f"Bearer {token.read_text(encoding='utf-8').strip()}"}

    return headers


class Link:
    """The session, opened anew after somebody closed it, as kopf does when TLS breaks."""

    def __init__(self, server: Server, permissions: Permissions) -> None:
        self.url = server.url.rstrip("/")
        self._server = server
        self._permissions = permissions
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """To be used at once, and not to be kept."""
        if self._session is None or self._session.closed:
            tls = self._server.tls
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True),
                middlewares=(
                    _authenticate(self._server.headers),
                    _watch_permissions(self._permissions),
                ),
                headers={"User-Agent": "pgoutbox-operator"},
            )
        return self._session

    async def close(self) -> None:
        """May be repeated."""
        if self._session is not None:
            await self._session.close()


def _authenticate(headers: Callable[[], dict[str, str]]) -> ClientMiddlewareType:
    async def middleware(
        request: aiohttp.ClientRequest, handler: ClientHandlerType
    ) -> aiohttp.ClientResponse:
        try:
            request.headers.update(headers())
        except OSError as error:
            # The file is missing for a moment while the kubelet replaces it.
            raise aiohttp.ClientConnectionError(f"no token: {error}") from error
        response = await handler(request)
        if response.status == HTTPStatus.UNAUTHORIZED:
            # kopf takes a 401 for a reason to log in again, thousands of times a minute, and the
            # next for a reason to exit. A token that is not accepted yet is a matter of time.
            response.status = HTTPStatus.SERVICE_UNAVAILABLE
        return response

    return middleware


def _watch_permissions(permissions: Permissions) -> ClientMiddlewareType:
    async def middleware(
        request: aiohttp.ClientRequest, handler: ClientHandlerType
    ) -> aiohttp.ClientResponse:
        response = await handler(request)
        access = access_of(request.method, request.url.path, request.url.query)
        if response.status == HTTPStatus.FORBIDDEN:
            permissions.told(access, allowed=False)
        elif response.status < HTTPStatus.INTERNAL_SERVER_ERROR and response.status not in {
            HTTPStatus.UNAUTHORIZED,
            # Said before anybody looks at rights.
            HTTPStatus.TOO_MANY_REQUESTS,
        }:
            permissions.told(access, allowed=True)
        return response

    return middleware
