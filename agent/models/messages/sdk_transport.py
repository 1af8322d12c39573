"""The transport to a Messages API server, using the `anthropic` SDK.

Used for credentials other than keys: profiles, federation, custom headers, clouds. Only this module
and `cloud_transports` use the SDK. Its import takes up to a second, so it runs in a thread
(`start_import`), never at start-up. The SDK provides authentication, headers, connection pooling
and typed errors.
"""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from threading import Lock, RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...errors import NoCredentials, conceal
from ...lazy import regex
from ..http_client import Timeouts, import_in_background, open_client, timeout_of
from ..keys import ANY_TOKEN
from ..providers import DEFAULT_PROVIDER, Endpoint, check_address
from ..transport import ErrorAnswer, NotConnected, parse_error
from .credentials import KEY_VAR, TOKEN_VAR, find_key

if TYPE_CHECKING:
    import anthropic
    import httpx2


SDK = "anthropic"
CLIENT = "AsyncAnthropic"  # for an API key
TELEMETRY = f"{SDK}.lib._tracing"
ERRORS = f"{SDK}._error_classes"
LOGGING_VARIABLE = "ANTHROPIC_LOG"  # read by the SDK's normal import
_REEXPORT = regex(r"^from (\.[\w.]+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_loading = Lock()  # two clients can be loaded at the same time
_NAME = regex(r"\s*(\w+)(?: as (\w+))?\s*")


def load(client: str = CLIENT) -> None:
    """Import the modules that a client of the SDK needs. Raises ImportError."""
    with _loading:
        _load()
        getattr(import_module(SDK), client)


def _load() -> None:
    if SDK in sys.modules or os.environ.get(LOGGING_VARIABLE):
        _import()
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)  # stays installed for later names
    try:
        _import()
        finder.loading = False
    except (ImportError, AttributeError, NameError, TypeError):  # the SDK has another structure
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_of_sdk(name)]:
            del sys.modules[name]
        _import()


def _import() -> None:
    """Import everything that the adapter uses from its first request to the reply."""
    from anthropic import (  # noqa: F401
        APIConnectionError,
        APIStatusError,
        AsyncAnthropic,
        AsyncStream,
        CredentialsError,
        DefaultAsyncHttpxClient,
    )


def _is_of_sdk(name: str) -> bool:
    return name.partition(".")[0] == SDK


class _Finder(MetaPathFinder):
    """Finds only the packages of the SDK."""

    loading = True  # True while `load` runs

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_of_sdk(fullname):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and type(spec.loader) is SourceFileLoader:
            if fullname == ERRORS:
                spec.loader = _LateLoader(fullname, spec.loader.path)
            elif spec.submodule_search_locations:
                spec.loader = _Loader(fullname, spec.loader.path, self)
        return spec


class _LateLoader(SourceFileLoader):
    """Loads a module that runs when one of its functions is called or one of its classes is
    accessed.
    """

    def exec_module(self, module: ModuleType) -> None:
        lock = RLock()

        def run(name: str) -> Any:
            with lock:
                if name not in module.__dict__:
                    SourceFileLoader.exec_module(self, module)
            return module.__dict__[name]

        def look_up(name: str) -> Any:
            if _is_special(name):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if name.islower():
                return lambda *arguments, **named: run(name)(*arguments, **named)
            return run(name)

        module.__dict__["__getattr__"] = look_up


class _Loader(SourceFileLoader):
    """Loads a package whose `__init__` runs only when needed."""

    def __init__(self, fullname: str, path: str, finder: _Finder) -> None:
        super().__init__(fullname, path)
        self.finder = finder

    def exec_module(self, module: ModuleType) -> None:
        reexports = _reexports(self.get_data(self.path).decode())
        with os.scandir(Path(self.path).parent) as files:
            siblings = {file.name.partition(".")[0] for file in files}
        if siblings & reexports.keys():  # a module of that name would hide the re-export
            super().exec_module(module)
            return
        lock, running = RLock(), False

        def look_up(name: str) -> object:
            nonlocal running
            if name in reexports:
                origin, there = reexports[name]
                if self.finder.loading and module.__name__ == TELEMETRY and there.islower():
                    return _imported_when_called(origin, there)
                value = getattr(import_module(origin, module.__name__), there)
                module.__dict__[name] = value
                return value
            with lock:
                if not running and not _is_special(name):
                    submodule = f"{module.__name__}.{name}"
                    if PathFinder.find_spec(submodule, module.__path__):
                        return import_module(submodule)
                    running = True
                    SourceFileLoader.exec_module(self, module)
                    if name in module.__dict__:
                        return module.__dict__[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__dict__["__getattr__"] = look_up


def _imported_when_called(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports a function of the SDK's telemetry and calls it."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module, TELEMETRY), name)(*arguments, **named)

    return call


def _reexports(text: str) -> dict[str, tuple[str, str]]:
    """Return {name: (module, original name)} for the names that an `__init__` imports from its
    modules at the top level.
    """
    found = {}
    for statement in _REEXPORT.finditer(text):
        for item in (statement[2] or statement[3] or "").split(","):
            if name := _NAME.fullmatch(item):
                found[name[2] or name[1]] = (statement[1], name[1])
    return found


def _is_special(name: str) -> bool:
    """Return True for names that the import system looks up on any module. `__all__` is excluded,
    because it is looked up only to get all names.
    """
    return name.startswith("__") and name.endswith("__") and name != "__all__"


@cache
def start_import(client: str = CLIENT) -> "Future[None]":
    """Start to import the SDK with one of its clients in a thread. Later calls return the same
    future. The future completes when the import ends, and has the ImportError of a failed import.
    """
    return import_in_background(partial(load, client), "import-anthropic")


class SdkTransport:
    """A transport using the SDK's client for API keys. See `transport.Transport`."""

    client_name = CLIENT

    def __init__(self, endpoint: Endpoint, environ: Mapping[str, str], timeouts: Timeouts) -> None:
        self._endpoint, self._environ, self._timeouts = endpoint, environ, timeouts
        self._client: Any = None

    async def connect(self) -> None:
        if self._client is None:
            endpoint = self._endpoint
            find_key(endpoint, self._environ)
            if endpoint.address:
                check_address(endpoint.address, endpoint.provider.address_variable)
            await asyncio.wrap_future(start_import(self.client_name))
        if self._client is None:  # a concurrent call may have connected
            self._client = self._build(**self._options())

    def _options(self) -> dict[str, Any]:
        """Return the common options of the SDK's clients."""
        import anthropic

        endpoint = self._endpoint
        variable = endpoint.provider.address_variable
        if not os.environ.get(variable, "set").strip():
            del os.environ[variable]  # otherwise the SDK uses "" as the base URL
        return {
            "base_url": endpoint.address or None,
            "default_headers": {**endpoint.provider.headers},
            "max_retries": 0,
            "timeout": timeout_of(self._timeouts),
            "http_client": open_client(anthropic.DefaultAsyncHttpxClient, endpoint.address),
        }

    def _build(self, **options: Any) -> Any:
        import anthropic

        endpoint, environ = self._endpoint, self._environ
        if endpoint.provider.name == DEFAULT_PROVIDER:
            key, token = environ.get(KEY_VAR) or None, environ.get(TOKEN_VAR) or None
        else:
            key, token = None, environ.get(find_key(endpoint, environ)) or ANY_TOKEN
        return anthropic.AsyncAnthropic(api_key=key, auth_token=None if key else token, **options)

    async def post(self, path: str, data: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        """Send the bytes of a request. Bypass `client.messages.create`, which would copy every
        block of every message to produce the same bytes, and import hundreds of modules.
        """
        import anthropic

        try:
            opened = await self._connected().post(
                path,
                cast_to=object,
                content=data,
                options={"headers": headers},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        except anthropic.APIStatusError as error:
            kind, words = parse_error(error.body) or ("", error.message)
            raise ErrorAnswer(
                error.status_code, kind, words, error.response.headers, error.request_id
            ) from error
        except anthropic.CredentialsError as error:
            words = conceal(str(error), *map(self._environ.get, (KEY_VAR, TOKEN_VAR)))
            raise NoCredentials(
                f"The SDK found no credentials that work: {words}",
                hint="`ctxagent guide models` names the variables that it reads.",
            ) from error
        except anthropic.APIConnectionError as error:
            raise NotConnected from (error.__cause__ or error)
        response: httpx2.Response = opened.response
        return response

    async def get(self, path: str) -> object:
        import anthropic

        with suppress(ValueError, anthropic.AnthropicError):
            return await self._connected().get(path, cast_to=object)
        return None

    async def get_local(self, path: str) -> object:
        return await self.get(path)

    async def post_local(self, path: str, body: dict[str, Any]) -> object:
        import anthropic

        with suppress(ValueError, anthropic.AnthropicError):
            return await self._connected().post(path, cast_to=object, body=body)
        return None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _connected(self) -> "anthropic.AsyncAnthropic":
        if self._client is None:
            raise NotConnected
        client: anthropic.AsyncAnthropic = self._client  # or a cloud's client with the same methods
        return client
