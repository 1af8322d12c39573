"""A language server for tests: `python language_server.py MODE [FILE]` speaks the protocol on stdin
and stdout. Each line of a file with "error: WORDS" or "warning: WORDS" is a problem. FILE gets a
line for each message, so that tests see what the server received.

    push, pull  report problems of a file unasked, or when asked
    late        like push, but waits for the file NAME.go before it reports anything about NAME
    silent      reports nothing about files
    hang        never answers
    crash       exits at the first change of a file
    garbage     answers with invalid data
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def read() -> dict[str, Any] | None:
    size = 0
    while line := sys.stdin.buffer.readline().strip():
        size = int(line.split(b":")[1]) if line.lower().startswith(b"content-length") else size
    message: dict[str, Any] | None = json.loads(sys.stdin.buffer.read(size)) if size else None
    return message


def send(**message: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    sys.stdout.buffer.flush()


def problems(text: str) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(text.splitlines()):
        for severity, word in ((1, "error: "), (2, "warning: "), (4, "hint: ")):
            if word in line:
                at = {"line": number, "character": line.index(word)}
                message = line.partition(word)[2]
                found.append(
                    {"range": {"start": at, "end": at}, "severity": severity, "message": message}
                )
    return found


def path_of(params: dict[str, Any]) -> Path:
    return Path(unquote(urlsplit(params["textDocument"]["uri"]).path))


def publish(mode: str, params: dict[str, Any], text: str) -> None:
    if mode in ("silent", "pull"):
        return
    go = path_of(params).with_suffix(".go")
    while mode == "late" and not go.exists():
        time.sleep(0.01)
    document = params["textDocument"]
    send(
        method="textDocument/publishDiagnostics",
        params={"uri": document["uri"], "version": document["version"],
                "diagnostics": problems(text)},
    )  # fmt: skip


def main(mode: str, heard_in: Path) -> None:
    texts: dict[str, str] = {}
    while (message := read()) is not None:
        method, params = message.get("method", ""), message.get("params") or {}
        with heard_in.open("a") as heard:
            heard.write(json.dumps({"method": method, "params": params}) + "\n")
        if mode == "hang":
            continue
        if method == "initialize":
            if mode == "garbage":
                print("Warning: walrus", flush=True)
                continue
            can = {"diagnosticProvider": {}} if mode == "pull" else {}
            send(id=message["id"], result={"capabilities": can})
            send(id="a", method="workspace/configuration", params={"items": [{}, {}]})
            send(id="b", method="walrus/unknown")
        elif method == "shutdown":
            send(id=message["id"], result=None)
        elif method == "exit":
            return
        elif method == "textDocument/didOpen":
            texts[params["textDocument"]["uri"]] = params["textDocument"]["text"]
            publish(mode, params, params["textDocument"]["text"])
        elif method == "textDocument/didChange":
            if mode == "crash":
                print("out of herrings", file=sys.stderr, flush=True)
                sys.exit(3)
            texts[params["textDocument"]["uri"]] = params["contentChanges"][0]["text"]
            publish(mode, params, params["contentChanges"][0]["text"])
        elif method == "textDocument/diagnostic":
            items = problems(texts[params["textDocument"]["uri"]])
            send(id=message["id"], result={"kind": "full", "items": items})


if __name__ == "__main__":
    main(sys.argv[1], Path(*sys.argv[2:3] or [os.devnull]))
