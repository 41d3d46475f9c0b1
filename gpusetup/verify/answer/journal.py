"""What a run of many minutes has found so far, in a file: a line a result, so that it can go on."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, Optional, Tuple

from ..options import Options
from ..values import PASSED, Blocked, Outcome, WrongQuestion

Key = Tuple[str, str]


class Journal:
    """The results of a file of the same question; new ones are added at once."""

    def __init__(self, path: str, question: Dict[str, Any]) -> None:
        self.path = path
        self.known: Dict[Key, Tuple[Outcome, float]] = {}
        text = _text(path)
        if not text:
            self._add(question)
            return
        first, *rest = (_read(line) for line in text.splitlines())
        if first != question:
            raise WrongQuestion(f"{path} is not of a run with these options", "name another file")
        for row in rest:
            self._learn(row)

    def _learn(self, row: Optional[Dict[str, Any]]) -> None:
        """A line that was cut, or that somebody else wrote, is left out."""
        try:
            outcome = Outcome(**(row or {})["outcome"])
            key = (str((row or {})["name"]), str((row or {})["device"]))
            if outcome.status == PASSED:
                self.known[key] = (outcome, float((row or {})["seconds"]))
        except (KeyError, TypeError, ValueError):
            return

    def keep(self, name: str, device: str, outcome: Outcome, seconds: float) -> None:
        row = {"name": name, "device": device, "seconds": seconds, "outcome": outcome._asdict()}
        self._add(row)

    def _add(self, row: Dict[str, Any]) -> None:
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as problem:
            raise Blocked(
                f"Cannot write {self.path}: {problem.strerror}", "name another --resume"
            ) from problem


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except OSError as problem:
        raise Blocked(
            f"Cannot read {path}: {problem.strerror}", "name another --resume"
        ) from problem


def _read(line: str) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def question(options: Options) -> Dict[str, Any]:
    """What a kept run was asked: results of another question are not taken over."""
    return {
        "verify": 1,
        "level": options.level,
        "device": options.device,
        "seed": options.asked.seed,
        "python": sys.executable,
    }
