"""The lazy import of the SDK loads fewer modules and gives the same objects as the normal
import.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The modules after `sdk_transport.load`, after a normal import, and every re-exported name.
REAL = """
import importlib, os, pkgutil, sys
from importlib.machinery import SourceFileLoader
from ctxagent.agent.models.messages import sdk_transport

sdk_transport.load()
loaded = {name for name in sys.modules if name.partition(".")[0] == sdk_transport.SDK}
assert "anthropic.resources.beta" not in loaded, "the short way is not taken any more"
assert sys.meta_path[0].__class__ is sdk_transport._Finder, "the short way failed"
clouds = {"anthropic.lib.bedrock._mantle", "anthropic.lib.vertex._client"}
assert not clouds & loaded, "a plain client needs none of the clouds"
sdk_transport.load("AsyncAnthropicBedrockMantle")
sdk_transport.load("AsyncAnthropicVertex")
assert clouds <= {*sys.modules} and not {"boto3", "google.auth"} & {*sys.modules}
import anthropic
client = anthropic.AsyncAnthropic(api_key="k")
assert client.messages and client.models, "what is used is there"
names, differing = 0, []
for found in [None, *pkgutil.walk_packages(anthropic.__path__, "anthropic.")]:
    if found and (not found.ispkg or "._vendor." in found.name):
        continue
    package = importlib.import_module(found.name if found else "anthropic")
    assert "__getattr__" in vars(package), package
    reexports = sdk_transport._reexports(open(package.__file__).read())
    short = {name: getattr(package, name) for name in reexports}
    SourceFileLoader.exec_module(package.__loader__, package)
    differing += [(package, name) for name in short if vars(package)[name] is not short[name]]
    names += len(short)
    # and what is no re-export: made there, or had by a star
    assert all(hasattr(package, name) for name in getattr(package, "__all__", ()))
assert issubclass(anthropic.AsyncAnthropicVertex, object)
whole = {name for name in sys.modules if name.partition(".")[0] == sdk_transport.SDK}
print(names, differing, len(loaded), len(whole))
"""

MADE_UP = {
    "__init__": (
        "from .errors import (\n    APIConnectionError,\n    APIStatusError,\n)\n"
        "from .errors import CredentialsError\n"
        "from .client import AsyncAnthropic as AsyncAnthropic, Http as DefaultAsyncHttpxClient\n"
        "from .client import AsyncStream\n"
        "from . import unused\nMADE = [unused]\n"
    ),
    "errors": "APIConnectionError = APIStatusError = CredentialsError = OSError\n",
    "client": (
        "from .lib._tracing import Config, finish_span\nclass AsyncStream: ...\n"
        "class AsyncAnthropic: ...\nclass Http: ...\n"
    ),
    "unused": "",
    "lib/__init__": "",
    "lib/_tracing/__init__": "from .config import Config\nfrom .spans import finish_span\n",
    "lib/_tracing/config": "class Config: ...\n",
    "lib/_tracing/spans": "def finish_span(*spans, at): return spans, at\n",
    "same/__init__": "from .same import same\n",
    "same/same": "def same(): ...\n",
}


def run(script: str, path: Path | None = None, **env: str) -> str:
    where = {"PYTHONPATH": str(path)} if path else {}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], **where, **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def made_up(folder: Path, changes: dict[str, str]) -> Path:
    """A small fake SDK that is found before the real one."""
    for name, text in {**MADE_UP, **changes}.items():
        path = folder / "anthropic" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.slow
def test_the_real_sdk_is_imported_in_part_and_every_name_is_the_plain_one() -> None:
    names, differing, loaded, whole = run(REAL).split()
    assert int(names) > 1000
    assert differing == "[]"
    assert int(loaded) < int(whole) / 5


def test_a_name_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    script = """
import sys
from ctxagent.agent.models.messages import sdk_transport
sdk_transport.load()
assert "anthropic.unused" not in sys.modules
import anthropic
assert not hasattr(anthropic, "__wrapped__") and "anthropic.unused" not in sys.modules
from anthropic import MADE
assert MADE == [sys.modules["anthropic.unused"]] == [anthropic.unused]
assert not hasattr(anthropic, "nothing")
from anthropic.same import same
assert callable(same)
"""
    run(script, made_up(tmp_path, {}))


def test_the_functions_of_its_telemetry_are_imported_when_they_are_called(tmp_path: Path) -> None:
    script = """
import sys
from ctxagent.agent.models.messages import sdk_transport
sdk_transport.load()
from anthropic import client
assert client.Config is sys.modules["anthropic.lib._tracing.config"].Config
assert "anthropic.lib._tracing.spans" not in sys.modules
assert client.finish_span(1, 2, at=3) == ((1, 2), 3)
from anthropic.lib._tracing import finish_span
assert finish_span is sys.modules["anthropic.lib._tracing.spans"].finish_span
"""
    run(script, made_up(tmp_path, {}))


def test_the_classes_of_errors_are_made_when_the_first_error_comes(tmp_path: Path) -> None:
    script = """
import sys
from ctxagent.agent.models.messages import sdk_transport
sdk_transport.load()
import anthropic._error_classes as errors
from anthropic._error_classes import make_status_error
assert "anthropic.unused" not in sys.modules and not hasattr(errors, "__wrapped__")
assert make_status_error("busy") == ("busy", "anthropic.unused")
assert "anthropic.unused" in sys.modules
assert errors.make_status_error("busy") == make_status_error("busy")
assert errors.BusyError is vars(errors)["BusyError"]
"""
    classes = """
from .unused import __name__ as origin
class BusyError: ...
def make_status_error(text): return text, origin
"""
    run(script, made_up(tmp_path, {"_error_classes": classes}))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["it is built otherwise", "it is to log"])
def test_the_normal_import_is_the_fallback(tmp_path: Path, how: str) -> None:
    script = """
import sys
from ctxagent.agent.models.messages import sdk_transport
sdk_transport.load()
import anthropic
assert "unused" in vars(anthropic) and anthropic.client.AsyncAnthropic is anthropic.AsyncAnthropic
assert not any(isinstance(finder, sdk_transport._Finder) for finder in sys.meta_path)
"""
    client = (
        "from anthropic import READY\nassert READY\n"
        "class AsyncAnthropic: ...\nclass Http: ...\nclass AsyncStream: ...\n"
    )
    if how == "it is built otherwise":
        begins = "READY = True\n"  # its modules need this; alone they have a circular import
        run(script, made_up(tmp_path, {"__init__": begins + MADE_UP["__init__"], "client": client}))
    else:
        run(script, made_up(tmp_path, {}), ANTHROPIC_LOG="info")


def test_an_sdk_that_is_missing_is_told(tmp_path: Path) -> None:
    script = """
from ctxagent.agent.models.messages import sdk_transport
try:
    sdk_transport.load()
except ImportError as error:
    print(error)
"""
    said = run(script, made_up(tmp_path, {"client": "import no_such_module\n"}))
    assert "no_such_module" in said
