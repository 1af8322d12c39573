"""Test the connection to the model's server, link by link: proxy, certificates, server, request.

Each test is a finding. The first one that fails names the broken link.
"""

import asyncio
from contextlib import aclosing
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ...api.base import CtxagentError, RequestRejected, conceal
from ...api.models import (
    API_HOST,
    LOOPBACK_HOSTS,
    NotConnected,
    ServerModel,
    check_server,
    status_of,
)
from ...api.programs import (
    CertificatesUnreadable,
    certificate_problem,
    certificates_variable,
    tls_context,
)
from .setup import Finding

TIMEOUT_S = 10.0  # of each connection
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


async def check_network(model: ServerModel) -> list[Finding]:
    """Return the findings about the connection to a model's server, up to the first failure."""
    address = model.access.endpoint.address or f"https://{API_HOST}"
    found = list[Finding]()
    for check in (_proxy, _certificates, _server):
        found.append(await check(address))
        if not found[-1].ok:
            return found
    try:
        async with aclosing(check_server(model)) as answers:
            answer = await anext(answers)
        found.append(Finding("request", answer.found, ok=answer.ok))
    except CtxagentError as error:
        found.append(Finding("request", error.message, ok=False))
    return found


def proxy_of(address: str) -> str:
    """Return the proxy for a server according to the environment, "" for none."""
    url = urlsplit(address)
    host = url.hostname or ""
    if url.scheme == "http" and host in LOOPBACK_HOSTS:
        return ""  # the client ignores proxies
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


async def _proxy(address: str) -> Finding:
    if not (proxy := proxy_of(address)):
        return Finding("proxy", "none")
    url, shown = urlsplit(proxy), conceal(proxy)
    if url.scheme not in _PORTS:
        return Finding("proxy", f"{shown} has an unknown scheme; use http or socks5", ok=False)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            port = url.port or _PORTS[url.scheme]
            _, writer = await asyncio.open_connection(url.hostname, port)
        writer.close()
    except (OSError, ValueError) as error:
        return Finding("proxy", f"{shown} does not answer: {_text_of(error)}", ok=False)
    return Finding("proxy", f"{shown} answers")


async def _certificates(address: str) -> Finding:
    named = certificates_variable()
    try:
        context = tls_context()
    except CertificatesUnreadable as error:
        return Finding("certificates", str(error), ok=False)
    if context is None or named is None:
        return Finding("certificates", "those of the system")
    return Finding("certificates", f"those in {named[1]} ({named[0]})")


async def _server(address: str) -> Finding:
    """Send a GET request. Any answer shows that the server can be reached."""
    shown = conceal(address)
    try:
        status = await status_of(address, TIMEOUT_S)
    except RequestRejected as error:
        return Finding("server", error.message, ok=False)
    except NotConnected as error:
        why = certificate_problem(error)
        what = f"its certificate is not trusted: {why}" if why else _text_of(error.__cause__)
        return Finding("server", f"{shown} cannot be reached: {what}", ok=False)
    return Finding("server", f"{shown} answers (status {status})")


def _text_of(error: BaseException | None) -> str:
    return conceal(str(error)) or type(error).__name__
