"""The address of a model's server: whether requests can go there, and unencrypted."""

from urllib.parse import urlsplit

from ..errors import RequestRejected, conceal

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
UNENCRYPTED = "the key and all words go to {host} unencrypted, readable on the way; use https"


def host_of(url: str) -> str:
    """Return the host of an address, "" where it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def check_address(url: str, variable: str) -> None:
    """Raise RequestRejected for a base URL that no request can go to. `variable` names it in the
    environment."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # not a port, or a bracket that is not closed
        sound = False
    if not sound:
        raise RequestRejected(
            f"The base URL {conceal(url)!r} is not an http or https address.",
            hint=f"Write {variable} or model.base_url as https://HOST[:PORT].",
        )


def unencrypted_host(url: str) -> str:
    """Return the host of a base URL to which the key, and all that is said, would go unencrypted;
    "" for https and for this machine."""
    host = host_of(url)
    return host if host not in ("", *LOOPBACK_HOSTS) and urlsplit(url).scheme == "http" else ""
