"""A real browser for tests, over the DevTools protocol and a pipe: nothing but the standard library and a Chromium.

with Browser() as browser:
    page = browser.open(path)
    page.evaluate("document.title")
    page.errors                          what the console said, and uncaught exceptions
    page.requests                        every address that was asked for
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support import browser_install

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell")

# A browser reads commands from 3 and answers on 4.
PIPES = """
import os, sys
a, b = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
os.dup2(a, 3), os.dup2(b, 4)
os.set_inheritable(3, True), os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str:
    """The browser of this machine, else the one that browser_install.py fetches, else AssertionError."""
    for path in map(shutil.which, NAMES):
        if path:
            return path
    try:
        return browser_install.install()
    except (ImportError, OSError, ValueError) as error:
        names = ", ".join(NAMES)
        raise AssertionError(
            f"expected a browser: one of {names} on the path (Debian: apt install chromium), or the one that "
            f"browser_install.py fetches, which said: {error}"
        ) from None


class Page:
    def __init__(self, browser: "Browser", session: str):
        self._browser, self._session = browser, session
        self.errors: list[str] = []
        self.requests: list[str] = []

    def send(self, method: str, **parameters) -> dict:
        return self._browser.send(method, parameters, self._session)

    def evaluate(self, expression: str):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"expected {expression} within {seconds} s; errors: {self.errors}"
            time.sleep(0.02)

    def hover(self, selector: str) -> tuple[float, float]:
        """Moves the mouse to the middle of an element, and returns where that is."""
        node = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{node}.scrollIntoView({{block: 'center'}})")
        self.settle()
        box = self.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({node}.getBoundingClientRect())")
        place = box[0] + box[2] / 2, box[1] + box[3] / 2
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        return place

    def click(self, selector: str) -> None:
        """With the mouse, where the element is on the screen."""
        x, y = self.hover(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def settle(self) -> None:
        """Until two more pictures have been drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key: str) -> None:
        text, code = ("\r", 13) if key == "Enter" else (key, ord(key))
        for kind in ("keyDown", "keyUp"):
            said = {"text": text} if kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **said)

    def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()

    def screenshot(self, path: Path, whole: bool = True) -> None:
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(answer["data"]))


class Browser:
    def __init__(self, path: str | None = None):
        path = path or find()
        environment = dict(os.environ)
        if (libraries := Path(path).parent / "lib" / "libnss3.so").exists():  # those that came with it
            environment["LD_LIBRARY_PATH"] = str(libraries.parent)
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._write = os.pipe()
        self._read, theirs_out = os.pipe()

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
        # No name can be looked up: whatever the page asked of a network would fail.
        names = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        flags += [names, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._log = open(Path(self._folder.name) / "browser.log", "w+")  # noqa: SIM115
        start = [sys.executable, "-c", PIPES, str(theirs), str(theirs_out), path, *flags]
        self._process = subprocess.Popen(
            start, pass_fds=(theirs, theirs_out), stdout=self._log, stderr=self._log, env=environment
        )
        os.close(theirs)
        os.close(theirs_out)
        self._number, self._buffer, self._pages = 0, b"", {}

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        try:
            self.send("Browser.close")
            self._process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._log.close()
        self._folder.cleanup()

    def _receive(self, end: float) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._read, 1 << 16) if ready else b""
            if not data:
                self._log.seek(0)
                raise AssertionError(
                    f"expected an answer of the browser, got none. It said: {self._log.read()[-2000:]}"
                )
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def send(
        self, method: str, parameters: dict | None = None, session: str | None = None, seconds: float = 60.0
    ) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        end = time.monotonic() + seconds
        while True:
            answer = self._receive(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict) -> None:
        page, method, facts = self._pages.get(event.get("sessionId")), event.get("method"), event.get("params", {})
        if page is None:
            return
        if method == "Network.requestWillBeSent":
            page.requests.append(facts["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            page.errors.append(str(facts["exceptionDetails"].get("exception", {}).get("description", facts)))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            page.errors.append(facts["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            page.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in facts["args"]))

    def open(self, path: Path | str) -> Page:
        """The page of a file, with the network switched off; or of a server of this machine, by its http address."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        served = str(path).startswith("http:")
        limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        page.send("Network.emulateNetworkConditions", offline=not served, **limits)
        page.send("Page.navigate", url=str(path) if served else Path(path).resolve().as_uri())
        page.wait("document.readyState === 'complete'")
        return page
