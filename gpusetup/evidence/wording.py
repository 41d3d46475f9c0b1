"""How a finding is worded: its title begins as a sentence, its evidence is quoted once."""

from __future__ import annotations

import re

from gpusetup.model.finding import Evidence

BEGINS = ("the ", "a ", "an ", "this ")
"""First words that are no name: those of programs and packages keep their small letter."""


def sentence(title: str) -> str:
    """
    >>> sentence("the NVIDIA GPU is lost"), sentence("torch 2.5.1 is lost")
    ('The NVIDIA GPU is lost', 'torch 2.5.1 is lost')
    """
    return title[0].upper() + title[1:] if title.startswith(BEGINS) else title


def once(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """One quote of each line of a text, the longest; of other sources each text once.

    >>> whole, part = Evidence(source="line 3", text="an AMD 6600xt"), "6600xt"
    >>> len(once((Evidence(source="nvidia-smi, line 3", text=part), whole, whole)))
    1
    """
    lines: dict[str, Evidence] = {}
    for one in sorted(evidence, key=lambda one: -len(one.text)):
        line = re.search(r"line \d+$", one.source)
        lines.setdefault(line[0] if line else one.text, one)
    return tuple(dict.fromkeys(one for one in evidence if one in lines.values()))
