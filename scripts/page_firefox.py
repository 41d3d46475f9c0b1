"""A Firefox as it is, driven by WebDriver BiDi: no other program stands between."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import websocket


class Firefox:
    """One tab of a running Firefox."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(f"{address}/session", suppress_origin=True)
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
    with tempfile.TemporaryDirectory() as profile:
        options = ("--headless", "--no-remote", "--profile", profile)
        with subprocess.Popen(
            (program, *options, "--remote-debugging-port", "0", "about:blank"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            try:
                assert child.stderr is not None
                found = (
                    re.search(r"WebDriver BiDi listening on (ws:\S+)", s) for s in child.stderr
                )
                yield Firefox(next(one[1] for one in found if one))
            finally:
                child.terminate()
                child.wait(20)
