"""The part of GitHub's REST API that triage needs: an issue's comments and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import requests

PAGES = 5
PER_PAGE = 100
SECONDS = 30


class NoAnswer(Exception):
    """GitHub did not do it, in one sentence."""


class GitHub:
    """One issue of a repository. `issues: write` is all that the token needs."""

    def __init__(self, api: str, repository: str, number: int, token: str) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise ValueError("GITHUB_REPOSITORY is no owner/name")
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
        """The oldest comments first, some hundreds at most."""
        return list(self._pages())

    def _pages(self) -> Iterator[dict[str, Any]]:
        for page in range(1, PAGES + 1):
            rows = self._ask("GET", f"comments?per_page={PER_PAGE}&page={page}")
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise NoAnswer("GitHub's answer to GET comments is no list of comments")
            yield from rows
            if len(rows) < PER_PAGE:
                return

    def comment(self, body: str) -> None:
        self._ask("POST", "comments", {"body": body})

    def label(self, name: str) -> None:
        self._ask("POST", "labels", {"labels": [name]})

    def _ask(self, method: str, what: str, data: dict[str, Any] | None = None) -> Any:
        part = what.partition("?")[0]
        try:
            answer = self._session.request(
                method, f"{self._issue}/{what}", json=data, timeout=SECONDS, allow_redirects=False
            )
        except requests.RequestException as problem:
            raise NoAnswer(f"GitHub does not answer ({type(problem).__name__})") from problem
        if answer.status_code in (401, 403, 404):
            raise NoAnswer(
                f"GitHub refuses {method} {part} ({answer.status_code}): "
                "the job needs `permissions: issues: write`"
            )
        if answer.status_code >= 300:
            raise NoAnswer(f"GitHub answered {method} {part} with {answer.status_code}")
        try:
            return answer.json()
        except ValueError as problem:
            raise NoAnswer(f"GitHub's answer to {method} {part} is no JSON") from problem
