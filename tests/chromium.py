"""Chromium without a window, driven through a pipe: no driver, no port, no further package."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PATIENCE = 300  # Seconds that an answer may take on a busy machine

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",  # a mouse
    "--remote-debugging-pipe",
)
WEBGPU = (
    *(flag for flag in FLAGS if flag != "--disable-gpu"),
    "--enable-unsafe-webgpu",
    "--enable-features=Vulkan",
    "--use-webgpu-adapter=swiftshader",
    "--use-vulkan=swiftshader",
)
"""Flags with WebGPU, computed by software."""


def find() -> str | None:
    """Where Chromium is, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page, a file or an address, in a browser of its own; it lists `problems` and the addresses of `requests`."""

    def __init__(
        self, where: Path | str, width: int = 1280, height: int = 900, *, flags: tuple[str, ...] = FLAGS
    ) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def place() -> None:
            os.dup2(os.dup(theirs_in), 3)
            os.dup2(os.dup(theirs_out), 4)

        program = find()
        assert program is not None
        self._browser = subprocess.Popen(
            [program, *flags, f"--user-data-dir={self._profile.name}"],
            preexec_fn=place,  # noqa: PLW1509 - no threads here
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        self.send("Page.navigate", url=where if isinstance(where, str) else where.absolute().as_uri())
        self.wait("document.readyState === 'complete' && location.protocol !== 'about:'")

    _session = None

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Give a command, and wait for its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._see(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], PATIENCE)[0], f"Chromium has not answered for {PATIENCE} s"
            piece = os.read(self._in, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _see(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event["method"] == "Log.entryAdded":
            if params["entry"]["text"] != "No available adapters.":  # Chromium's remark where it has no WebGPU
                self.problems.append(params["entry"]["text"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(json.dumps(params["args"]))

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        look = f"const look = () => ({condition}) ? done() : setTimeout(look, 20)"
        self.evaluate(f"new Promise(done => {{ {look}; look(); }})")

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window another size."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def emulate(self, media: str = "", **features: str) -> None:
        """Emulate print, or a dark color scheme: `color_scheme="dark"`."""
        listed = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.send("Emulation.setEmulatedMedia", media=media, features=listed)

    def click(self, selector: str) -> None:
        """Click into the middle of an element."""
        where = self.evaluate(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            point = {"x": where[0], "y": where[1], "button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, **point)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key, such as ("Enter", 13, "\\r")."""
        named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    def pdf(self) -> bytes:
        """Print the page."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self.send("Browser.close")
        except (AssertionError, OSError):
            self._browser.kill()
        self._browser.wait(30)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()
