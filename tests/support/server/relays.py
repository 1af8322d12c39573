"""Relays on the loopback interface in front of a server: a SOCKS5 proxy, and TLS with a certificate
made for the test.
"""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Accept = Callable[[socket.socket], socket.socket]


@contextmanager
def relay(port: int, accept: Accept) -> Iterator[int]:
    """Yield the port of a relay to a server on `port`. `accept` prepares each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(client: socket.socket) -> None:
            with suppress(OSError), client:
                ready = accept(client)
                with ready, socket.create_connection(("127.0.0.1", port)) as server:
                    back = threading.Thread(target=_copy, args=(server, ready), daemon=True)
                    back.start()
                    _copy(ready, server)
                    back.join()

        def listen() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _read(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (more := client.recv(count - len(data))):
            raise ConnectionError
        data += more
    return data


def socks5(hosts: list[str]) -> Accept:
    """Return the greeting of a SOCKS5 proxy (RFC 1928) without a login, which adds the name of each
    requested host to `hosts`.
    """

    def accept(client: socket.socket) -> socket.socket:
        _, methods = _read(client, 2)
        _read(client, methods)
        client.sendall(b"\5\0")
        _, _, _, kind = _read(client, 4)
        name = _read(client, _read(client, 1)[0]) if kind == 3 else _read(client, 4)
        hosts.append(name.decode() if kind == 3 else socket.inet_ntoa(name))
        _read(client, 2)
        client.sendall(b"\5\0\0\1" + bytes(6))
        return client

    return accept


def tls(folder: Path) -> tuple[Accept, Path]:
    """Return TLS for `localhost` and 127.0.0.1, and the file with its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), address])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, secret)
    return lambda client: context.wrap_socket(client, server_side=True), certificate
