"""Certificates for all HTTP clients of the program.

`SSL_CERT_FILE`, `SSL_CERT_DIR` and `REQUESTS_CA_BUNDLE` name the certificates to trust. Without
them, a client trusts the certificates of the system. The clients read the proxy variables
themselves.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import ssl

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")  # the first one set counts


class CertificatesUnreadable(OSError):
    """A variable names certificates that cannot be read. `str` names both."""


class TlsOptions(TypedDict, total=False):
    """Options of an `httpx2` client."""

    verify: "ssl.SSLContext"


def certificates_variable() -> tuple[str, str] | None:
    """Return the variable that names certificates, and its value. None if there is none."""
    found = ((name, os.environ.get(name, "")) for name in VARIABLES)
    return next(((name, path) for name, path in found if path), None)


def tls_context() -> "ssl.SSLContext | None":
    """Return a TLS context that trusts the certificates in the variables, or None without them.
    Raises CertificatesUnreadable.
    """
    import ssl

    if (named := certificates_variable()) is None:
        return None
    name, path = named
    is_folder = Path(path).is_dir()
    try:
        return ssl.create_default_context(
            cafile=None if is_folder else path, capath=path if is_folder else None
        )
    except OSError as error:  # also of `ssl`
        why = error.strerror if isinstance(error, FileNotFoundError) else "it has no certificates"
        raise CertificatesUnreadable(f"{name} names {path}: {why or error}") from error


def tls_options() -> TlsOptions:
    """Return the options of an `httpx2` client. Raises CertificatesUnreadable."""
    context = tls_context()
    return {} if context is None else {"verify": context}


def certificate_problem(error: BaseException | None) -> str:
    """Return why a certificate was not accepted, "" for any other error and its causes."""
    import ssl

    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message or str(error)
        error = error.__cause__ or error.__context__
    return ""
