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
    """Each line quoted once: no part of what is quoted in full from the same place, nor what was
    read from there in the same words.

    >>> whole, part = Evidence(source="line 3", text="an AMD 6600xt"), "6600xt"
    >>> len(once((Evidence(source="line 3", text=part), whole, whole)))
    1
    >>> said = Evidence(source="report, line 1", text="print(cuda.is_available()) False")
    >>> once((said, Evidence(source="line 1", text="cuda.is_available(): False"))) == (said,)
    True
    """
    if len(evidence) < 2:
        return evidence
    told: dict[tuple[str, str], Evidence] = {}
    for one in evidence:
        told.setdefault((place_of(one.source), _words(one.text)), one)
    lines = tuple(told.values())
    return tuple(a for a in lines if not any(_within(a, b) for b in lines))


def _within(part: Evidence, whole: Evidence) -> bool:
    """Whether one line is a true part of another from the same place, or says less of its words."""
    if place_of(part.source) != place_of(whole.source) or part.text == whole.text:
        return False
    if _words(part.text) in _words(whole.text):
        return True
    return place_of(part.source).startswith("line ") and _named(part.text) < _named(whole.text)


def _words(text: str) -> str:
    """The text however it was spaced."""
    return " ".join(text.split())


def _named(text: str) -> set[str]:
    """The words and numbers of a text, however they are joined.

    >>> sorted(_named("driver 535.183: False"))
    ['183', '535', 'driver', 'false']
    """
    return set(re.findall(r"\w+", text.lower()))


def place_of(source: str) -> str:
    """Where a source stands: two readers of a text may quote the same line of it.

    >>> place_of("nvidia-smi, line 3"), place_of("nvml, libcuda")
    ('line 3', 'nvml, libcuda')
    """
    line = source.rpartition(", ")[2]
    return line if line.startswith("line ") else source
