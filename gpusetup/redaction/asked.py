"""The names that a question asked for: an answer to it says them as they were asked.

A package, a model or a number may look like a secret (`sk-contrib`, a hash, forty digits); who asked
for it gets nothing told that they did not say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

NAMES = (
    *("packages", "gpu", "for_gpu", "model", "params", "id", "explain", "only", "gpu_mem"),
    *("gpus", "context", "batch", "lora", "machine_from", "machine"),
)
"""What a question calls a name or a number by; no address, path or variable is among them."""
MOST = 100
_NAME = re.compile(r"[A-Za-z0-9][\w.+/-]{2,199}")


def names_in(values: Mapping[str, object]) -> tuple[str, ...]:
    """The names in a question's values, the longest first.

    >>> names_in({"packages": ["sk-0learn>=1"], "model": "lab/deadbeef", "gpus": 4, "text": "a b"})
    ('lab/deadbeef', 'sk-0learn')
    """
    given = (one for key in NAMES for one in _each(values.get(key)))
    found = {hit[0] for one in given if (hit := _NAME.match(one))}
    return tuple(sorted(found, key=lambda name: (-len(name), name)))[:MOST]


def _each(value: object) -> Iterable[str]:
    if isinstance(value, list | tuple):
        return (str(one) for one in value)
    return (str(value),) if isinstance(value, str | int) else ()


def but_for(names: Iterable[str], text: str, hide: Callable[[str], str]) -> str:
    """What `hide` makes of a text, in which the names stay.

    >>> but_for(["deadbeef"], "no deadbeef, no cafe", lambda text: text.replace("e", "*"))
    'no deadbeef, no caf*'
    """
    stands = {name: f"\ue000{chr(0xE100 + place)}\ue000" for place, name in enumerate(names)}
    for name, mark in stands.items():
        text = text.replace(name, mark)
    text = hide(text)
    for name, mark in stands.items():
        text = text.replace(mark, name)
    return text
