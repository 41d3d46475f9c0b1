"""The part of GitHub's REST API that triage needs: an issue's comments and labels."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import requests

PAGES = 30
"""Of comments, which are read all: GitHub allows 2500 in an issue."""
PER_PAGE = 100
SECONDS = 30
"""Between two pieces of an answer."""
ALL_SECONDS = 60.0
"""For a whole answer, however slowly it comes."""
MOST_BYTES = 32 << 20
"""Of an answer: a hundred comments of 65536 letters, as JSON."""
PIECE = 1 << 16
TOO_MANY = "it has more comments than are read"


class NoAnswer(Exception):
    """GitHub did not do it, in one sentence."""


class GitHub:
    """One issue of a repository. `issues: write` is all that the token needs."""

    def __init__(self, api: str, repository: str, number: int, token: str) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise ValueError("GITHUB_REPOSITORY is no owner/name")
        if not re.fullmatch(r"[!-~]*", token):
            raise ValueError("the token is one word of ASCII letters")
        self._issue = f"{api.rstrip('/')}/repos/{repository}/issues/{number}"
        self._session = requests.Session()
        self._session.headers.update(
            {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {token}",
                "X-GitHub-Api-Version": "2022-11-28",
            }
        )

    def comments(self) -> list[dict[str, Any]]:
        """All comments, the oldest first. Raises NoAnswer where there are more than are read: what
        was said before could not be known."""
        return list(self._pages())

    def _pages(self) -> Iterator[dict[str, Any]]:
        for page in range(1, PAGES + 1):
            rows = self._ask("GET", f"comments?per_page={PER_PAGE}&page={page}")
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise NoAnswer("GitHub's answer to GET comments is no list of comments")
            yield from rows
            if len(rows) < PER_PAGE:
                return
        raise NoAnswer(f"nothing is said about this issue: {TOO_MANY}")

    def comment(self, body: str) -> None:
        self._ask("POST", "comments", {"body": body})

    def label(self, name: str) -> None:
        self._ask("POST", "labels", {"labels": [name]})

    def _ask(self, method: str, what: str, data: dict[str, Any] | None = None) -> Any:
        part = what.partition("?")[0]
        try:
            code, raw = self._got(method, f"{self._issue}/{what}", data)
        except requests.RequestException as problem:
            raise NoAnswer(f"GitHub does not answer ({type(problem).__name__})") from problem
        if code in (401, 403, 404):
            raise NoAnswer(
                f"GitHub refuses {method} {part} ({code}): "
                "the job needs `permissions: issues: write`"
            )
        if code >= 300:
            raise NoAnswer(f"GitHub answered {method} {part} with {code}")
        if raw is None:
            raise NoAnswer(f"GitHub's answer to {method} {part} is too long, or comes too slowly")
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as problem:
            raise NoAnswer(f"GitHub's answer to {method} {part} is no JSON") from problem

    def _got(self, method: str, address: str, data: Any) -> tuple[int, bytes | None]:
        """The status and the body; no body where it is beyond our limits.

        In a thread, which is left behind: whoever sends a byte now and then is waited for by no
        socket's limit, neither in the head nor in the body.
        """
        found: list[Any] = []

        def ask() -> None:
            try:
                found.append(self._read(method, address, data))
            except Exception as problem:
                found.append(problem)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(ALL_SECONDS)
        if not found:
            return 200, None
        if isinstance(found[0], Exception):
            raise found[0]
        code, raw = found[0]
        return code, raw

    def _read(self, method: str, address: str, data: Any) -> tuple[int, bytes | None]:
        with self._session.request(
            method, address, json=data, timeout=SECONDS, allow_redirects=False, stream=True
        ) as answer:
            raw = bytearray()
            for piece in answer.iter_content(PIECE):
                raw += piece
                if len(raw) > MOST_BYTES:
                    return answer.status_code, None
            return answer.status_code, bytes(raw)
