"""How a finding is worded: its title begins as a sentence, its evidence is quoted once."""

from __future__ import annotations

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
    """Each line quoted once: no part of what is quoted in full from the same place.

    >>> whole, part = Evidence(source="line 3", text="an AMD 6600xt"), "6600xt"
    >>> len(once((Evidence(source="line 3", text=part), whole, whole)))
    1
    """
    if len(evidence) < 2:
        return evidence
    told: dict[tuple[str, str], Evidence] = {}
    for one in evidence:
        told.setdefault((_place(one.source), _words(one.text)), one)
    lines = tuple(told.values())
    return tuple(a for a in lines if not any(_within(a, b) for b in lines))


def _within(part: Evidence, whole: Evidence) -> bool:
    """Whether one line is a true part of another from the same place."""
    here = _place(part.source) == _place(whole.source)
    return here and part.text != whole.text and _words(part.text) in _words(whole.text)


def _words(text: str) -> str:
    """The text however it was spaced."""
    return " ".join(text.split())


def _place(source: str) -> str:
    """Where a source stands: two readers of a text may quote the same line of it.

    >>> _place("nvidia-smi, line 3"), _place("nvml, libcuda")
    ('line 3', 'nvml, libcuda')
    """
    line = source.rpartition(", ")[2]
    return line if line.startswith("line ") else source
