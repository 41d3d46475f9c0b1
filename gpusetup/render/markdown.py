"""A reply for a thread: the screen in one block of code, in which nothing acts as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpusetup.render.language import Screen, facts, plain
from gpusetup.render.text import judged, machine_facts

if TYPE_CHECKING:
    from gpusetup.model.documents import DoctorAnswer

COLUMNS = 100
READ = ("system", "driver", "GPU", "torch", "Python")
"""Rows of the machine that a reply repeats."""
WHAT_IT_IS = (
    "`gpusetup` reads what a machine or a text shows and installs the torch that fits. It is on no "
    "package index yet: `pip install .` in a clone of its repository installs it. All other "
    "commands above work without it."
)
NEXT = (
    "If it still fails, post the whole error and the output of `gpusetup snapshot`, or of "
    "`python -m torch.utils.collect_env` and `nvidia-smi`."
)


def fenced(lines: Iterable[str], language: str = "") -> list[str]:
    """A code block whose fence is longer than any run of backticks in it.

    >>> fenced(["a ``` b"])
    ['````', 'a ``` b', '````']
    """
    text = plain("\n".join(lines))
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return [fence + language, text, fence]


def doctor_markdown(answer: DoctorAnswer) -> str:
    """The cause, all that the screen says of it, and what to report if that does not help."""
    told = machine_facts(answer)
    read = facts({name: told[name] for name in READ if told[name] != "unknown"}, 0)
    screen = Screen((*judged(answer).lines, "", *read)).shown(width=COLUMNS, colour=False)
    block = fenced(screen.splitlines(), "text")
    return "\n".join((f"**{answer.cause}**", "", *block, "", WHAT_IT_IS, "", NEXT, ""))
