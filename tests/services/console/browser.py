"""A Chromium that is driven by its own protocol, over a pair of pipes: no library, no port.

Owns: the browser's life, sending a command and waiting for its answer, what a page logged. Does not own: where Chromium
comes from (`chromium_software`), what a test looks for.
Invariants: the browser ends with its block; every wait has a deadline, and says what it waited for.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.services.console.chromium_software import chromium

PATIENCE_S: Final = 60.0
_FLAGS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


class ProtocolError(Exception):
    """Chromium refused a command."""


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **arguments: Any) -> Any:
        """A command of the protocol; its result."""
        return self._browser.send(method, self._session, arguments)

    def open(self, url: str) -> None:
        """Go there."""
        self.send("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page; a promise is waited for."""
        told = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until the expression is true; its value."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(ProtocolError):  # while a page loads there is none to ask
                found = self.value(expression)
                if found:
                    return found
            self._browser.listen(0.1)
        raise AssertionError(f"never true: {expression}; the page says: {self.text()[:2_000]}; it logged {self.faults}")

    def text(self) -> str:
        """All text that is seen."""
        return str(self.value("document.body.innerText"))

    def click(self, selector: str) -> None:
        """Click on the first such element."""
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str) -> None:
        """A key, as from a keyboard: Tab or Enter."""
        number = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=number, **text)

    def prefer(self, scheme: str) -> None:
        """The system's colours: `light` or `dark`."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def resize(self, width: int, height: int) -> None:
        """The size of the window, pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path) -> None:
        """A PNG of what is seen."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    @property
    def faults(self) -> list[str]:
        """Errors and warnings that this page logged, and exceptions that no one caught."""
        self._browser.listen(0.0)
        return self._browser.faults_of(self._session)


class Browser:
    """A running Chromium."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, fro: int) -> None:
        self._process = process
        self._to = to
        self._fro = fro
        self._buffer = b""
        self._number = 0
        self._answers: dict[int, Any] = {}
        self._faults: list[tuple[str, str]] = []

    def new_page(self) -> Page:
        """A tab with a storage of its own."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", None, {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.send("Target.attachToTarget", None, {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, session)

    def send(self, method: str, session: str | None = None, arguments: dict[str, Any] | None = None) -> Any:
        """A command; its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": arguments or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline_s = time.monotonic() + PATIENCE_S
        while number not in self._answers:
            assert time.monotonic() < deadline_s, f"no answer to {method}"
            self.listen(1.0)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise ProtocolError(f"{method}: {answer['error']}")
        return answer["result"]

    def listen(self, wait_s: float) -> None:
        """Take what the browser says; wait so long for something."""
        while select.select([self._fro], [], [], wait_s)[0]:
            read = os.read(self._fro, 1 << 20)
            assert read, f"Chromium has ended: {self._process.poll()}"
            *messages, self._buffer = (self._buffer + read).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
            wait_s = 0.0

    def faults_of(self, session: str) -> list[str]:
        """What a page logged that it should not."""
        return [said for of, said in self._faults if of == session]

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        what, session = message["params"], message.get("sessionId", "")
        match message["method"]:
            case "Runtime.consoleAPICalled" if what["type"] in ("error", "warning", "assert"):
                self._faults.append((session, json.dumps(what["args"])))
            case "Runtime.exceptionThrown":
                self._faults.append((session, json.dumps(what["exceptionDetails"])))
            case "Log.entryAdded" if what["entry"]["level"] in ("error", "warning"):
                self._faults.append((session, json.dumps(what["entry"])))


@contextmanager
def running_chromium(folder: Path) -> Iterator[Browser]:
    """A browser for a block, its profile and log in `folder`."""
    found = chromium()
    there, to = os.pipe()
    fro, back = os.pipe()
    words = [str(found.program), *_FLAGS, f"--user-data-dir={folder / 'chromium'}", "about:blank"]
    # the protocol asks for the descriptors 3 and 4
    command = ["bash", "-c", f"exec {shlex.join(words)} 3<&{there} 4>&{back}"]
    libraries = os.pathsep.join(map(str, found.libraries))
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            pass_fds=(there, back),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
        )
    os.close(there)
    os.close(back)
    try:
        yield Browser(process, to, fro)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to)
        os.close(fro)
