"""A real browser without a window, for pages that this program writes: headless Chromium,
controlled through a pipe. It resolves only the loopback address and records every request of a
page.

    with Browser(folder) as browser:
        view = browser.open(path, width=360, height=800, dark=True)
        view.evaluate("document.title")
        view.troubles, view.requests
        pixels(view.shoot(0.25))

One page is open at a time. `folder` must be new; the browser writes all its files there.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ..machine import needs, program

needs_browser = needs("chromium")
PATIENCE = 120  # timeout in seconds for a silent browser
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)  # fmt: skip
# Chromium requires descriptors 3 and 4 for its ends of the pipes.
_ONTO = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD_CLOEXEC, 10) for end in sys.argv[1:3]]\n"
    "os.dup2(ends[0], 3), os.dup2(ends[1], 4)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)

_SEEN = "[scrollX, scrollY, innerWidth, innerHeight]"
_BOX = """(() => {
  const element = document.querySelector(%s);
  element.scrollIntoView({ block: "center" });
  const box = element.getBoundingClientRect();
  return [box.x + scrollX, box.y + scrollY, box.width, box.height];
})()"""

Message = dict[str, Any]


class Browser:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._sockets = tempfile.mkdtemp(prefix="c", dir="/tmp")  # their paths must be short
        theirs, self._to = os.pipe()
        self._from, ours = os.pipe()
        self._log = (folder / "log").open("wb")
        chromium = [str(program("chromium")), *_OPTIONS, f"--user-data-dir={folder / 'profile'}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ONTO, str(theirs), str(ours), *chromium, "about:blank"],
            pass_fds=(theirs, ours),
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": self._sockets},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(theirs)
        os.close(ours)
        self._said = b""
        self._number = 0
        self._tab = ""
        self.heard: list[Message] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.ask("Browser.close")
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()
            os.close(self._to)
            os.close(self._from)
            shutil.rmtree(self._sockets, ignore_errors=True)

    def open(self, page: Path | str, *, width: int, height: int, dark: bool = False) -> "View":
        """Open a page by path or address in a new tab and wait until it is loaded. The previous tab
        is closed, because background tabs may not be painted.
        """
        last, target = self._tab, self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._tab = target
        if last:
            self.ask("Target.closeTarget", targetId=last)
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        view = View(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            view.ask(f"{domain}.enable")
        view.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        view.ask("Emulation.setEmulatedMedia", features=[scheme])
        view.ask("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        view.wait("Page.loadEventFired")
        return view

    def ask(self, method: str, session: str = "", **params: Any) -> Message:
        """Send a command; return its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer = self.until(lambda said: said.get("id") == number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: Message = answer["result"]
        return result

    def until(self, wanted: Callable[[Message], bool]) -> Message:
        """Return the next message that `wanted` accepts; all messages are kept in `heard`."""
        while True:
            said = self._next()
            self.heard.append(said)
            if wanted(said):
                return said

    def _next(self) -> Message:
        while b"\0" not in self._said:
            ready, _, _ = select.select([self._from], [], [], PATIENCE)
            got = os.read(self._from, 1 << 20) if ready else b""
            assert got, f"the browser says nothing: {Path(self._log.name).read_text()[-2000:]}"
            self._said += got
        line, _, self._said = self._said.partition(b"\0")
        message: Message = json.loads(line)
        return message


class View:
    """An open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def ask(self, method: str, **params: Any) -> Message:
        return self._browser.ask(method, self._session, **params)

    def wait(self, method: str) -> None:
        """Wait for an event; return immediately if it has already occurred."""
        if not self._of(method):
            self._browser.until(
                lambda said: said.get("method") == method and said["sessionId"] == self._session
            )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a script expression in the page as JSON; promises are awaited."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def shoot(self, scale: float = 1, *, of: str = "") -> bytes:
        """Return a PNG of the visible page, or of one element, selected by `of` and scrolled into
        view.
        """
        size = self.evaluate(_BOX % json.dumps(of) if of else _SEEN)
        clip = dict(zip(("x", "y", "width", "height"), size, strict=True), scale=scale)
        return base64.b64decode(self.ask("Page.captureScreenshot", clip=clip)["data"])

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def point(self, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    @property
    def troubles(self) -> list[Message]:
        """Errors, warnings and blocked requests of the page."""
        methods = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [params for method in methods for params in self._of(method)]

    @property
    def requests(self) -> list[str]:
        """The requested addresses; that of the page itself is first."""
        return [params["request"]["url"] for params in self._of("Network.requestWillBeSent")]

    def _of(self, method: str) -> list[Message]:
        return [
            said["params"]
            for said in self._browser.heard
            if said.get("method") == method and said.get("sessionId") == self._session
        ]


def pixels(png: bytes) -> list[tuple[int, ...]]:
    """Return the colours of a PNG with 8 bits per channel, row by row."""
    data, at, packed = png[8:], 0, b""
    width = height = channels = 0
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height = int.from_bytes(body[:4]), int.from_bytes(body[4:8])
            assert (body[8], body[12]) == (8, 0), "another kind of PNG"
            channels = {2: 3, 6: 4}[body[9]]
        packed += body if kind == b"IDAT" else b""
        at += size + 12
    raw, stride, above = zlib.decompress(packed), width * channels, bytearray(width * channels)
    found: list[tuple[int, ...]] = []
    for row in range(height):
        start = row * (stride + 1)
        above = _unfiltered(raw[start], raw[start + 1 : start + 1 + stride], above, channels)
        found += [tuple(above[x : x + 3]) for x in range(0, stride, channels)]
    return found


def _unfiltered(kind: int, line: bytes, above: bytearray, step: int) -> bytearray:
    """Undo the PNG filter of a row."""
    row = bytearray(line)
    for x in range(len(row)):
        left = row[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        if kind == 4:
            guess = left + above[x] - corner
            added = min((left, above[x], corner), key=lambda value: abs(guess - value))
        else:
            added = (0, left, above[x], (left + above[x]) // 2)[kind]
        row[x] = (row[x] + added) & 255
    return row
