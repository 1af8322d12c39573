"""Logins to MCP servers with OAuth 2.1, as the protocol's authorization page specifies.

The SDK finds the authorization server (RFC 9728, RFC 8414), registers, uses PKCE, checks the issuer
and refreshes tokens. This module stores the tokens, one private file per server, and serves the
callback page on 127.0.0.1.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ....tools.system.files import make_private_folder, replace_file
from ...version import __version__
from .config import ServerConfig

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

LOGIN_TIMEOUT_S = 600.0
LOCK_TIMEOUT_S = 30.0  # while another process refreshes the token
EARLY_S = 30.0  # refresh a token this long before it expires
CALLBACK_PATH = "/callback"
DONE_PAGE = "<!doctype html><title>ctxagent</title><p>You can close this page and go back."


class TokenFile:
    """The tokens and the registered client of a server, in a file; implements the SDK's
    `TokenStorage`. The file name depends on the URL, so servers of the same name with different
    URLs share no tokens.
    """

    def __init__(self, folder: Path, config: ServerConfig) -> None:
        digest = hashlib.sha256(config.url.encode()).hexdigest()[:16]
        self.path = folder / f"{config.name}-{digest}.json"
        self._config = config

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @property
    def expires_at(self) -> float | None:
        """When to refresh the token (Unix time, EARLY_S before it expires), None if unknown."""
        found = self._read().get("expires_at")
        return found if isinstance(found, int | float) else None

    async def get_tokens(self) -> "OAuthToken | None":
        from mcp.shared.auth import OAuthToken

        kept = self._read().get("tokens")
        return OAuthToken.model_validate(kept) if kept else None

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        ends = time.time() + tokens.expires_in - EARLY_S if tokens.expires_in else None
        self._write(tokens=tokens.model_dump(mode="json"), expires_at=ends)

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        from mcp.shared.auth import OAuthClientInformationFull

        if client_id := self._config.oauth.get("clientId"):
            secret = self._config.oauth.get("clientSecret")
            return OAuthClientInformationFull(client_id=client_id, client_secret=secret)
        kept = self._read().get("client")
        return OAuthClientInformationFull.model_validate(kept) if kept else None

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def forget(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Lock the token against refreshes by other processes, because many servers accept a
        refresh token only once. Continue without the lock after LOCK_TIMEOUT_S.
        """
        make_private_folder(self.path.parent)
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + LOCK_TIMEOUT_S
            while time.monotonic() < until:
                with suppress(BlockingIOError):
                    flock(lock, LOCK_EX | LOCK_NB)
                    break
                await asyncio.sleep(0.05)
            yield
        finally:
            os.close(lock)  # also releases the lock

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def _write(self, **values: Any) -> None:
        make_private_folder(self.path.parent)
        replace_file(self.path, json.dumps({**self._read(), **values}).encode())


class BrowserPage:
    """The callback page on 127.0.0.1 that the browser opens after a login."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{CALLBACK_PATH}"

    async def open(self) -> None:
        """Start to listen. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def answer(self) -> "AuthorizationCodeResult":
        """Wait for the browser, and return the authorization code. Raises OAuthFlowError."""
        from mcp.client.auth.exceptions import OAuthFlowError
        from mcp.shared.auth import AuthorizationCodeResult

        found = await asyncio.wait_for(self._answer, LOGIN_TIMEOUT_S)
        if "error" in found:
            said = found.get("error_description") or found["error"]
            raise OAuthFlowError(f"the login was refused: {said[:300]}")
        return AuthorizationCodeResult(
            code=found.get("code", ""), state=found.get("state"), iss=found.get("iss")
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            head = await asyncio.wait_for(reader.readline(), 10)
            while (await asyncio.wait_for(reader.readline(), 10)).strip():
                pass
            asked = urlsplit(head.decode("ascii", "replace").split(" ")[1])
            found = {name: values[0] for name, values in parse_qs(asked.query).items()}
            is_answer = asked.path == CALLBACK_PATH and bool(found.keys() & {"code", "error"})
            if is_answer and not self._answer.done():
                self._answer.set_result(found)
            status = "200 OK" if is_answer else "404 Not Found"
            body = DONE_PAGE if is_answer else ""
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\nconnection: close\r\n"
                f"content-length: {len(body)}\r\n\r\n{body}".encode()
            )
            await writer.drain()
        writer.close()


@asynccontextmanager
async def authentication(
    config: ServerConfig, folder: Path | None, show: Callable[[str], None] | None
) -> AsyncIterator["httpx2.Auth | None"]:
    """Yield an `Auth` that adds the server's tokens to requests, None without a login. With `show`,
    log in now: `show` is called with the URL for the user to open. Without `show`, only stored
    tokens are used.
    """
    file = TokenFile(folder, config) if folder is not None else None
    if file is None or not (show or file.exists):
        yield None
        return
    if show is None:
        yield _provider(config, file, "http://127.0.0.1/", None, None)
        return
    file.forget()  # the registered client has another callback URL
    page = BrowserPage(int(config.oauth.get("callbackPort") or 0))
    await page.open()

    async def redirect(url: str) -> None:
        show(url)

    try:
        yield _provider(config, file, page.url, redirect, page.answer)
    finally:
        page.close()


def _provider(
    config: ServerConfig, file: TokenFile, address: str, redirect: Any, callback: Any
) -> "httpx2.Auth":
    import httpx2
    from mcp.client.auth.exceptions import OAuthFlowError
    from mcp.client.auth.oauth2 import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    class Provider(OAuthClientProvider):
        """Refreshes tokens under a lock, starting from the newest tokens on disk."""

        async def _auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            lock = file.locked()
            is_held = not (self._initialized and self.context.is_token_valid())
            if is_held:
                await lock.__aenter__()
                await self._initialize()
                self.context.token_expiry_time = file.expires_at
            flow = super()._auth_flow(request)
            try:
                outgoing = await anext(flow)
                while True:
                    if is_held and outgoing is request:  # refreshed, or no refresh needed
                        is_held = False
                        await lock.__aexit__(None, None, None)
                    outgoing = await flow.asend((yield outgoing))
            except StopAsyncIteration:
                return
            finally:
                await flow.aclose()
                if is_held:
                    await lock.__aexit__(None, None, None)

    async def refused(*_: object) -> Any:
        raise OAuthFlowError(login_required(config.name))

    metadata = OAuthClientMetadata(
        client_name="ctxagent",
        software_version=__version__,
        redirect_uris=[AnyUrl(address)],
        token_endpoint_auth_method="none",
        scope=config.oauth.get("scopes"),
    )
    return Provider(config.url, metadata, file, redirect or refused, callback or refused)


def login_required(name: str) -> str:
    return f"it requires a login: `ctxagent mcp login {name}`"
