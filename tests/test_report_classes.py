"""Each class of texts in several variants, and what stands near it."""

from __future__ import annotations

import pytest
from report_classes import CLASSES

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.report.read import read_report


def cause_of(text: str) -> str:
    return diagnose(read_report(text), load_catalog()).cause


@pytest.mark.parametrize("name", CLASSES)
def test_every_variant_of_a_class_has_its_cause(name: str) -> None:
    one = CLASSES[name]
    wrong = {
        text: cause for text in one.variants if (cause := cause_of(text)) not in one.causes.split()
    }
    assert not wrong


@pytest.mark.parametrize("name", CLASSES)
def test_no_neighbour_of_a_class_is_taken_for_it(name: str) -> None:
    one = CLASSES[name]
    meant = one.causes.split()[0]
    assert not [text for text in one.neighbours if cause_of(text) == meant]
