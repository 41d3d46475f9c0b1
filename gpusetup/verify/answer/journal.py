"""What a run of many minutes has found so far, in a file: a line a result, so that it can go on."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Dict, Tuple

from ..options import Options
from ..values import PASSED, Outcome, Result, WrongQuestion
from .writing import write


class Journal:
    """The passed results of a file of the same question; new ones are added at once."""

    def __init__(self, options: Options) -> None:
        self.path = str(options.resume)
        self.known: Dict[Tuple[str, str], Result] = {}
        asked = options.asked
        question = [asked.level, options.device, asked.seed, sys.executable]
        write("", self.path, "a")
        with open(self.path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        if not lines:
            self.keep(question)
        elif lines[0] != json.dumps(question):
            told = f"{self.path} is not of a run with these options"
            raise WrongQuestion(told, "name another file")
        for line in lines[1:]:
            # A line that was cut, or that somebody else wrote, is left out.
            with contextlib.suppress(TypeError, ValueError):
                row = Result(*json.loads(line))
                row = row._replace(outcome=Outcome(*row.outcome), seconds=float(row.seconds))
                if row.outcome.status == PASSED:
                    self.known[row.name, row.device] = row

    def keep(self, row: object) -> None:
        """Add a result."""
        write(json.dumps(row) + "\n", self.path, "a")
