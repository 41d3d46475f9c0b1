"""Every question to the machine and its answer, in words, as `-v` shows them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any

from gpusetup.system.system import System

MOST_CHARACTERS = 160
"""Of an answer."""


class ToldSystem(System):
    """This machine, from any thread: each question is told with its answer."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self.tell = tell

    def answered(self, name: str, *words: Any, **more: Any) -> Any:
        answer: Any = None
        try:
            answer = getattr(System, name)(self, *words, **more)
        except OSError as problem:
            answer = f"no answer ({problem.strerror})"
            raise
        finally:
            asked, said = (" ".join(str(one).split()) for one in (words[0], answer))
            end = "..." if len(said) > MOST_CHARACTERS else ""
            self.tell(f"{name} {asked}: {said[:MOST_CHARACTERS]}{end}")
        return answer


for _name in ("read", "list", "stat", "link", "space", "which", "run", "ask"):
    setattr(ToldSystem, _name, partialmethod(ToldSystem.answered, _name))
