"""A Firefox as it is, driven by WebDriver BiDi: no other program stands between."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websocket

START_SECONDS = 60
ANSWER_SECONDS = 180


class Firefox:
    """One tab of a running Firefox."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(
            f"{address}/session", suppress_origin=True, timeout=ANSWER_SECONDS
        )
        self._number = 0
        self.requests: list[str] = []
        self.said: list[str] = []
        self.ask("session.new", capabilities={})
        events = ["network.beforeRequestSent", "log.entryAdded"]
        self.ask("session.subscribe", events=events)
        self.context = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method: str, **parameters: Any) -> Any:
        """One command and its result; events that come before it are kept."""
        self._number += 1
        words = {"id": self._number, "method": method, "params": parameters}
        self._socket.send(json.dumps(words))
        while True:
            told = json.loads(self._socket.recv())
            if told.get("id") == self._number:
                break
            self._keep(told)
        if told["type"] == "error":
            raise RuntimeError(f"{method}: {told['message']}")
        return told["result"]

    def _keep(self, event: dict[str, Any]) -> None:
        if event.get("method") == "network.beforeRequestSent":
            self.requests.append(event["params"]["request"]["url"])
        elif event.get("method") == "log.entryAdded":
            self.said.append(str(event["params"].get("text")))

    def open(self, address: str) -> None:
        self.ask("browsingContext.navigate", context=self.context, url=address, wait="complete")

    def run(self, function: str, *texts: str) -> Any:
        """An async function of the page with texts as arguments; it answers with a plain value."""
        told = self.ask(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[{"type": "string", "value": text} for text in texts],
            target={"context": self.context},
            awaitPromise=True,
        )
        if told["type"] == "exception":
            raise RuntimeError(told["exceptionDetails"]["text"])
        return told["result"].get("value")


@contextlib.contextmanager
def firefox(program: str) -> Iterator[Firefox]:
    """A headless Firefox with a profile of its own, ended at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ("--headless", "--no-remote", "--profile", profile)
        said = Path(profile) / "stderr.txt"
        with (
            said.open("w", encoding="utf-8") as out,
            subprocess.Popen(
                (program, *options, "--remote-debugging-port", "0", "about:blank"),
                stdout=subprocess.DEVNULL,
                stderr=out,
            ) as child,
        ):
            try:
                yield Firefox(_address(said, child))
            finally:
                child.terminate()
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    child.kill()


def _address(said: Path, child: subprocess.Popen[bytes]) -> str:
    """Where it listens, as it says on stderr."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and child.poll() is None:
        text = said.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"WebDriver BiDi listening on (ws:\S+)\s", text):
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"Firefox did not start within {START_SECONDS} s")
