"""Check the addresses of requests: only public ones are allowed, unless a rule names the host.

A name is resolved once, all its addresses are checked, and the connection uses a checked address.
So a second, different DNS answer has no effect. RFC 6890 lists the addresses that are not public.
"""

import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from ...agent.errors import ToolError

MAX_URL_CHARS = 2_000
PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# IPv6 prefixes with an embedded IPv4 address, and the number of bits after it.
_EMBEDDING = (
    (ipaddress.ip_network("::ffff:0:0/96"), 0),
    (ipaddress.ip_network("64:ff9b::/96"), 0),
    (ipaddress.ip_network("64:ff9b:1::/48"), 0),
    (ipaddress.ip_network("2002::/16"), 80),
    (ipaddress.ip_network("::/96"), 0),
)


def parse_url(url: str) -> SplitResult:
    """Return the parts of an allowed URL, with its host in lower case. Raises ToolError with the
    reason.
    """
    if len(url) > MAX_URL_CHARS:
        raise ToolError(f"The address has more than {MAX_URL_CHARS:,} characters.")
    if any(ord(char) <= 32 or ord(char) == 127 for char in url) or "\\" in url:
        raise ToolError("The address has a blank, a backslash or a control character in it.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host = host if ":" in host else host.encode("idna").decode() if host else ""
    except (ValueError, UnicodeError):
        raise ToolError(f"{url[:200]!r} is no address of a page.") from None
    if parts.scheme not in PORTS or not host:
        raise ToolError(f"{url[:200]!r} is not an http:// or https:// address.")
    if parts.username is not None or parts.password is not None:
        raise ToolError("An address with a user or a password in it is not asked.")
    shown = f"[{host}]" if ":" in host else host
    given = "" if port in (None, PORTS[parts.scheme]) else f":{port}"
    return parts._replace(netloc=f"{shown}{given}", path=parts.path or "/", fragment="")


def public_addresses(host: str, port: int, *, private: bool) -> Sequence[str]:
    """Return the addresses of a host, in the order to try. Blocks.

    Raises ToolError if there are none, or if one is not public, unless `private` ones are allowed.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no name"
        raise ToolError(f"{host} cannot be found: {why}") from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    closed = [each for each in addresses if not is_public(each)]
    if closed and not private:
        raise ToolError(
            f"{host} is at {closed[0]}, which is no public address, so it is not asked. A rule "
            "that names the host allows it."
        )
    return addresses


def is_public(text: str) -> bool:
    """Return True if an address, as the system writes it, is public."""
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        for network, behind in _EMBEDDING:
            if address in network:
                inner = ipaddress.IPv4Address((int(address) >> behind) & 0xFFFFFFFF)
                return (
                    address.is_global and is_public(str(inner)) if behind else is_public(str(inner))
                )
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved
