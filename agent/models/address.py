"""Checks of a model server's base URL: whether it is valid, and whether traffic is encrypted."""

from urllib.parse import urlsplit

from ..errors import RequestRejected, conceal

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
UNENCRYPTED = "the key and all messages are sent to {host} unencrypted; use https"


def host_of(url: str) -> str:
    """Return the host of a URL, "" if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def check_address(url: str, variable: str) -> None:
    """Raise RequestRejected for an invalid base URL. `variable` is the environment variable to name
    in the hint.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid port, or an open bracket
        sound = False
    if not sound:
        raise RequestRejected(
            f"The base URL {conceal(url)!r} is not an http or https address.",
            hint=f"Write {variable} or model.base_url as https://HOST[:PORT].",
        )


def unencrypted_host(url: str) -> str:
    """Return the host of a base URL that would send keys and messages unencrypted. Return "" for
    https and for this machine.
    """
    host = host_of(url)
    return host if host not in ("", *LOOPBACK_HOSTS) and urlsplit(url).scheme == "http" else ""
