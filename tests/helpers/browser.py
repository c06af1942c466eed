"""Drive a headless Chromium over a pipe by the DevTools protocol: without a driver, a port or a library.

Debian's package is installed where there is none (as root, with apt-get), and axe-core, which checks accessibility, is
taken out of a wheel that carries it; that package's own code and what it depends on are not needed.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from helpers.environments import debian

AXE = "axe-playwright-python==0.1.8"
CACHE = Path(tempfile.gettempdir(), f"babelmill-browser-{os.getuid()}")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe"
)


def axe() -> str:
    """Return the script of axe-core, which is kept for the next time."""
    script = CACHE / f"{AXE}.js"
    if not script.is_file():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, AXE]
            subprocess.run(download, check=True)
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                Path(folder, "axe.js").write_bytes(wheel.read("axe_playwright_python/axe.min.js"))
            os.replace(Path(folder, "axe.js"), script)
    return script.read_text(encoding="utf-8")


class Browser:
    """Runs a Chromium with one page. Use it in a `with`.

    Attributes:
        requests: the addresses that were asked for since the last `open`.
        errors: errors that the page has written to its console.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._number, self._session, self._events = 0, None, b""

    def __enter__(self) -> "Browser":
        program = debian("chromium", "chromium")
        self._profile = tempfile.mkdtemp()
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        # Chromium reads its file 3 and writes to its file 4.
        shell = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *FLAGS.split(), f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(to_child, from_child),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._out, text) :]
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        """Return the next message, and note what it reports."""
        while b"\0" not in self._events:
            found = os.read(self._in, 1 << 20)
            assert found, "Chromium has ended"
            self._events += found
        text, _, self._events = self._events.partition(b"\0")
        message = json.loads(text)
        about = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif message.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        return message

    def open(self, path: Path, width: int, dark: bool = False) -> None:
        """Open a file in a window of a width, as a phone would if it is narrow."""
        self.requests.clear()
        window = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **window)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """Return the value of an expression of the page."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def violations(self) -> list[str]:
        """Return what axe-core finds wrong: the rule and the first element of each."""
        self.value(axe() + "; 0")
        found = self.value("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
        return [f"{each['id']}: {each['nodes'][0]['html']} {each['nodes'][0]['failureSummary']}" for each in found]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write a picture of the page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
