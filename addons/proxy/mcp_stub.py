"""Connect a client that starts MCP servers as programs to the MCP server of a running proxy.

A program of its own, with few imports: some clients wait only a short time for the first answer.
Usage: mcp_stub.py HOST PORT PATH
"""

import socket
import sys


def main(host: str, port: str, path: str) -> None:
    """Send each line of stdin to the server, and print its answers."""
    for line in sys.stdin.buffer:
        head = (
            f"POST {path} HTTP/1.0\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(line)}\r\n\r\n"
        )
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + line)
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        _, _, body = answer.partition(b"\r\n\r\n")
        if body:
            sys.stdout.buffer.write(body + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
