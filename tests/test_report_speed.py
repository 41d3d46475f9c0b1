"""Decisions that are kept for the next text change no answer."""

from __future__ import annotations

import writers
from report_messages import MESSAGES

from gpusetup.catalog.builds import with_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.decided import decided
from gpusetup.diagnosis.request import chosen_request
from gpusetup.report.read import read_report
from gpusetup.resolver import to_answer
from gpusetup.resolver.companions import moved_with

TOLD = tuple(text for _, text in MESSAGES)


def test_a_decision_that_is_kept_is_the_one_of_the_whole_text() -> None:
    catalog = load_catalog()
    for seed in range(60):
        machine = with_catalog(read_report(writers.mixture(seed, TOLD)), catalog)
        request, decision = chosen_request(machine, catalog)
        moved = moved_with(machine, decision.resolution.build)
        answer = to_answer(decision.resolution, machine, moved)
        assert decided(machine, catalog, None) == (request, decision, answer)
