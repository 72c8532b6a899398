"""A headless Chromium, driven by the DevTools protocol over two pipes."""

import base64
import fcntl
import json
import os
import shutil
import signal
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import IO, Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
FREE_FD = 10  # above 3 and 4, which the protocol uses
PROBLEMS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")


class Tab:
    """An open page; `problems` are the messages of its console and the errors of its scripts."""

    def __init__(self, requests: RawIOBase, answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        self._last_id = 0
        self._session = ""
        self.problems: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last_id += 1
        request = {"id": self._last_id, "method": method, "params": params}
        request |= {"sessionId": self._session} if self._session else {}
        self._requests.write(json.dumps(request).encode() + b"\0")
        while (answer := self._next()).get("id") != self._last_id:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        content = b"".join(iter(lambda: self._answers.read(1), b"\0"))
        message: dict[str, Any] = json.loads(content)
        if message.get("method") in PROBLEMS:
            self.problems.append(message)
        return message

    def open(self, path: Path) -> None:
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """The value of an expression, which the tools evaluate even where the page permits no script."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of the first element of a CSS selector."""
        element = f"document.querySelector({json.dumps(selector)})"
        box = self.value(f"({element}.scrollIntoView(), {element}.getBoundingClientRect().toJSON())")
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def new_tab(width=1600, height=1200):
    assert CHROMIUM is not None
    request_end, requests = os.pipe()
    answers, answer_end = os.pipe()
    far_ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FREE_FD) for end in (request_end, answer_end)]
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    joined = [(os.POSIX_SPAWN_DUP2, end, fd) for end, fd in zip(far_ends, (3, 4), strict=True)]
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
    command = [CHROMIUM, *options, f"--window-size={width},{height}"]
    browser = os.posix_spawn(CHROMIUM, command, os.environ, file_actions=[*silent, *joined])
    for end in (request_end, answer_end, *far_ends):
        os.close(end)
    with os.fdopen(requests, "wb", buffering=0) as written, os.fdopen(answers, "rb") as read:
        try:
            yield Tab(written, read)
        finally:
            os.kill(browser, signal.SIGKILL)
            os.waitpid(browser, 0)
