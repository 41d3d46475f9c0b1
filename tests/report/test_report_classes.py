"""Each class of texts in several variants, and what stands near it."""

from __future__ import annotations

from functools import cache

import pytest
from judging import spoken_of
from report_classes import CLASSES

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.report.read import read_bytes


@cache
def cause_of(raw: bytes) -> str:
    return spoken_of(diagnose(read_bytes(raw), load_catalog()))


def plain(text: str) -> bytes:
    return text.encode()


@pytest.mark.parametrize("name", CLASSES)
def test_every_variant_of_a_class_has_its_cause(name: str) -> None:
    one = CLASSES[name]
    found = {text: cause_of(plain(text)) for text in one.variants}
    assert {text: cause for text, cause in found.items() if cause not in one.causes.split()} == {}


@pytest.mark.parametrize("name", CLASSES)
def test_no_neighbour_of_a_class_is_taken_for_it(name: str) -> None:
    one = CLASSES[name]
    meant = one.causes.split()[0]
    assert [text for text in one.neighbours if cause_of(plain(text)) == meant] == []
