"""A headless Chromium, spoken to over a pipe in its own DevTools protocol: load a page, run JavaScript in it, type,
look.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATH = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)

AXE = "axe-core@4.14.1"


def axe(folder: Path) -> str | None:
    """The source of axe-core, which npm puts into a folder; None where npm cannot fetch it."""
    npm = shutil.which("npm")
    if npm is None or subprocess.run([npm, "pack", AXE, "--silent"], cwd=folder, capture_output=True).returncode:
        return None
    with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as package:
        return package.extractfile("package/axe.min.js").read().decode()


# Chromium reads commands from descriptor 3 and writes answers to 4, each ended by a zero byte.
START = """\
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """One browser with one page; a context manager. Errors in the page's JavaScript are raised here as RuntimeError."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1280, 900)) -> None:
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        command = [
            *(sys.executable, "-c", START, str(read), str(write), PATH),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
            *(
                "--no-first-run",
                "--disable-extensions",
                f"--user-data-dir={folder}",
                f"--window-size={size[0]},{size[1]}",
            ),
        ]
        plain = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}  # sanitizers are for us alone
        self._process = subprocess.Popen(
            command, env=plain, pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        self._buffer, self._count, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._out)
        self._process.terminate()
        self._process.wait()
        os.close(self._in)

    def call(self, method: str, **parameters: object) -> dict:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return answer["result"]

    def _receive(self) -> dict:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def run(self, expression: str) -> object:
        """The value of a JavaScript expression, waited for where it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def open(self, page: Path) -> None:
        """Load a page of this machine and wait for its promise `ready`, if it has one."""
        self.call("Page.navigate", url=page.as_uri())
        while self.run("document.readyState") != "complete":
            time.sleep(0.02)
        self.run("typeof ready === 'undefined' || ready.then(() => 1)")

    def violations(self, axe: str, width: int) -> list:
        """The rules that axe-core finds broken on a screen of this width, in light, dark and forced colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.run(axe + "; 0")
        violations = []
        for name, value in (
            ("prefers-color-scheme", "light"),
            ("prefers-color-scheme", "dark"),
            ("forced-colors", "active"),
        ):
            self.call("Emulation.setEmulatedMedia", features=[{"name": name, "value": value}])
            rules = "violations.map(({id, nodes}) => [id, nodes.slice(0, 3).map(({html}) => html)])"
            broken: Any = self.run(f"axe.run().then(({{violations}}) => {rules})")
            violations += [(value, rule) for rule in broken]
        self.call("Emulation.setEmulatedMedia", features=[])
        return violations

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path, dark: bool = False) -> None:
        """A screenshot of what is in the window."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
