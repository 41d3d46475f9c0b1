"""Each class of texts in several variants, what stands near it, and both in other clothes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice

import pytest
from damage import HARMLESS
from judging import spoken_of
from report_classes import SMI_ONE, Class
from report_classes_all import EVERY

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.report.read import read_bytes


@cache
def cause_of(raw: bytes) -> str:
    return spoken_of(diagnose(read_bytes(raw), load_catalog()))


def plain(text: str) -> bytes:
    return text.encode()


@pytest.mark.parametrize("name", EVERY)
def test_every_variant_of_a_class_has_its_cause(name: str) -> None:
    one = EVERY[name]
    found = {text: cause_of(plain(text)) for text in one.variants}
    assert {text: cause for text, cause in found.items() if cause not in one.causes.split()} == {}


@pytest.mark.parametrize("name", EVERY)
def test_no_neighbour_of_a_class_is_taken_for_it(name: str) -> None:
    one = EVERY[name]
    meant = one.causes.split()[0]
    assert [text for text in one.neighbours if cause_of(plain(text)) == meant] == []


def test_a_class_is_no_single_text() -> None:
    assert [name for name, one in EVERY.items() if len(one.variants) < 3] == []


# --- in other clothes ----------------------------------------------------------------------------

Way = Callable[[str], bytes]


def other_lines(text: str) -> bytes:
    """The same message of another day: numbers of lines, processes and addresses are others."""
    text = re.sub(r"\bline \d+", "line 977", text)
    return re.sub(r"(?<=pid=)\d+|(?<=pid )\d{3,6}", "4711", text).encode()


def cut_off(text: str) -> bytes:
    """Without what stood before: the text begins in the middle of a traceback."""
    return (
        f'    self._call_impl(*args, **kwargs)\n  File "run.py", line 7, in main\n{text}'.encode()
    )


def beside_a_healthy_machine(text: str) -> bytes:
    """The part of another machine, which works, stands above."""
    return f"On the other machine, where it works:\n{SMI_ONE}\nAnd here:\n\n{text}".encode()


WAYS: tuple[Way, ...] = (*HARMLESS, other_lines, cut_off)
"""What takes nothing from what a program printed."""
NOT_WORDS = {"wide_punctuation", "chinese", "western", "utf16_without_mark"}
"""Ways that need letters which a short text lacks."""


def pairs() -> Iterator[tuple[str, Way, str, str]]:
    """A class, a way, a variant, and a text of another meaning in the same clothes."""
    ways = [way for way in WAYS if way.__name__ not in NOT_WORDS]
    for name, one in EVERY.items():
        for place, variant in enumerate(one.variants):
            others = one.neighbours or _far_from(one)
            for at, neighbour in enumerate(others):
                for way in ways:
                    if way.__name__ == "mojibake" and not variant.isascii():
                        continue  # nothing is left of its words
                    yield name, way, variant, neighbour if place or at else others[0]


def _far_from(one: Class) -> tuple[str, ...]:
    """Texts of classes that have no cause in common with this one."""
    own = set(one.causes.split())
    return tuple(
        other.variants[0] for other in EVERY.values() if not own & set(other.causes.split())
    )[:3]


def mistaken(found: Iterator[tuple[str, Way, str, str]]) -> tuple[int, list[tuple[str, str, str]]]:
    """How many pairs were asked, and those of which one text was given the other's meaning."""
    count, wrong = 0, []
    for name, way, variant, neighbour in found:
        count += 1
        causes = EVERY[name].causes.split()
        if cause_of(way(variant)) not in causes:
            wrong.append((name, way.__name__, variant))
        elif cause_of(way(neighbour)) == causes[0]:
            wrong.append((name, way.__name__, neighbour))
    return count, wrong


def test_a_share_of_the_pairs_is_told_apart() -> None:
    _, wrong = mistaken(islice(pairs(), 0, None, 97))
    assert wrong == []


@pytest.mark.slow
def test_two_thousand_pairs_of_a_cause_and_a_neighbour_are_told_apart() -> None:
    count, wrong = mistaken(pairs())
    assert count >= 2000
    assert wrong == []
