"""The pages of the findings: a page for each, and doctor reads what a page's check prints."""

from __future__ import annotations

import re

import finding_pages

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.explanations import records
from gpusetup.report.read import read_bytes


def test_the_index_names_every_finding_once() -> None:
    named = re.findall(r"(?m)^- \[([\w-]+)\]", finding_pages.markdown_index())
    assert sorted(named) == sorted(record.id for record in finding_pages.shown())
    assert {id for id, _ in finding_pages.written()} <= set(named)


def test_the_page_of_a_searched_message_has_it_as_its_title_and_a_command() -> None:
    by_id = {record.id: record for record in records()}
    for id in ("nvml-mismatch", "driver-too-old", "torch-cpu-build", "uvm-missing"):
        page = finding_pages.markdown(by_id[id])
        assert page.startswith("# `"), id
        assert "```sh" in page.partition("## How to fix it")[2], id


# The output alone does not prove these causes: it lacks the GPU, the torch or the error beside it.
NOT_PROVEN_BY_THE_CHECK = frozenset((
    "bf16-unsupported", "cuda-lib-missing", "cuda-visible-devices-hidden",
    "dataloader-worker-killed", "device-permission", "docker-other-daemon", "driver-too-old",
    "externally-managed", "gpu-unused", "invalid-device-ordinal",
    "no-kernel-image",
    "other-torch-imported", "out-of-memory", "rocm-override-wrong",
    "tf32-precision", "wrong-libcuda-loaded",
))  # fmt: skip
"""Findings that doctor does not name if it reads only the page's check and its output. The list may
only get shorter."""


def findings_in_the_check(record: Cause) -> set[str]:
    """What doctor finds in a paste of the page's check command and what it prints."""
    assert record.check is not None
    pasted = f"$ {record.check.command}\n{record.check.prints}\n"
    diagnosis = diagnose(read_bytes(pasted.encode()), load_catalog())
    return {finding.id for finding in diagnosis.findings}


def test_doctor_names_the_finding_in_the_output_of_its_pages_check() -> None:
    missed = set()
    for record in records():
        if record.check and record.id not in findings_in_the_check(record):
            missed.add(record.id)
    assert missed == NOT_PROVEN_BY_THE_CHECK
