"""Find credentials for Amazon Bedrock and Google Vertex AI.

The clouds' libraries search for credentials in many places. This module checks only whether such a
place exists and imports nothing slow, because missing credentials are reported before the prompt is
drawn.
"""

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ...errors import NoCredentials
from ...lazy import regex
from ..keys import check_key
from ..providers import BEDROCK, VERTEX, Endpoint

REGION_VARS = ("AWS_REGION", "AWS_DEFAULT_REGION")
PROFILE_VARS = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
ACCESS_KEY_VAR, SECRET_KEY_VAR = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
SESSION_VAR = "AWS_SESSION_TOKEN"
LOCATION_VAR = "CLOUD_ML_REGION"
PROJECT_VARS = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")

_AWS_SOURCES = (
    ACCESS_KEY_VAR,
    *PROFILE_VARS,
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_AWS_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}
_AWS_ENTRY = regex(  # the file may contain only a region
    r"^\s*(aws_access_key_id|credential_process|login_session|role_arn|sso_\w+)\s*=", re.M
)
_GOOGLE_SOURCES = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")
_GOOGLE_FILE = "application_default_credentials.json"
# Firmware data, to detect a cloud machine, which has its own credentials.
_FIRMWARE = Path("/sys/class/dmi/id")
Environment = Mapping[str, str]


class _Cloud(NamedTuple):
    title: str
    module: str  # Python module that finds credentials
    package: str
    needed: tuple[tuple[tuple[str, ...], str], ...]  # (alternative variables, example value)
    find: Callable[[Environment], str]
    step: str  # command that sets up credentials


def find_key(endpoint: Endpoint, environ: Environment) -> str:
    """Return the name of the credentials for requests, "" if none are needed. Raises NoCredentials
    with everything that is missing and a step for each.
    """
    provider, missing = endpoint.provider, dict[str, str]()
    cloud = _CLOUDS[provider.name]
    for names, example in cloud.needed:
        if not any(map(environ.get, names)):
            missing[f"{names[0]} is not set"] = f"export {names[0]}={example}"
    if found := next((name for name in provider.keys if environ.get(name)), ""):
        check_key(found, environ[found])
    elif not (found := cloud.find(environ)) and endpoint.needs_key:
        missing[f"no {cloud.title} credentials"] = f"export {provider.keys[0]}=…, or {cloud.step}"
    elif found and not _is_installed(cloud.module):
        step = f"pip install 'ctxagent[{provider.name}]'"
        missing[f"the package {cloud.package} is not installed"] = step
    if missing:
        what = f"Not ready for {provider.name}: {', '.join(missing)}."
        raise NoCredentials(what, hint="\n".join(missing.values()))
    return found


def first_set(names: tuple[str, ...], environ: Environment) -> str | None:
    """Return the value of the first of these variables that is set, None if none is."""
    return next(filter(None, map(environ.get, names)), None)


def _find_aws(environ: Environment) -> str:
    if name := next(filter(environ.get, _AWS_SOURCES), ""):
        return name
    for variable, file in _AWS_FILES.items():
        path = environ.get(variable) or _in_home(environ, ".aws", file)
        if _AWS_ENTRY.search(_text(path)):
            return path
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return ""
    is_there = _text(str(_FIRMWARE / "sys_vendor")).startswith("Amazon EC2")
    return "the role of this EC2 instance" if is_there else ""


def _find_google(environ: Environment) -> str:
    if name := next(filter(environ.get, _GOOGLE_SOURCES), ""):
        return name
    folder = environ.get("CLOUDSDK_CONFIG") or _in_home(environ, ".config", "gcloud")
    path = str(Path(folder, _GOOGLE_FILE)) if folder else ""
    if _text(path):
        return path
    is_there = _text(str(_FIRMWARE / "product_name")).startswith("Google")
    return "the service account of this machine" if is_there else ""


_CLOUDS = {
    BEDROCK: _Cloud(
        "AWS",
        "boto3",
        "boto3",
        ((REGION_VARS, "us-east-1"),),
        _find_aws,
        "`aws configure`, AWS_PROFILE=…",
    ),
    VERTEX: _Cloud(
        "Google",
        "google.auth",
        "google-auth",
        (((LOCATION_VAR,), "global"), (PROJECT_VARS, "…")),
        _find_google,
        "`gcloud auth application-default login`",
    ),
}


def _in_home(environ: Environment, *parts: str) -> str:
    return str(Path(environ["HOME"], *parts)) if environ.get("HOME") else ""


def _text(path: str) -> str:
    """Return the text of a file, "" if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace") if path else ""
    except OSError:
        return ""


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
