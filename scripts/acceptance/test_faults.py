"""A card that computes wrongly, made on purpose, and a card that is shared."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from acceptance.conftest import Work, unknown
from acceptance.faults.sitecustomize import FAULTS, UNORDERED
from acceptance.processes import ROOT, Said, end, environment

ON_PATH = str(ROOT / "scripts" / "acceptance" / "faults")
ON_CARD = pytest.param(UNORDERED, "streams", marks=pytest.mark.card)
SPOIL = """
import torch
try:
    torch.zeros(4, device="cuda")[torch.tensor([99], device="cuda")].sum().item()
except Exception as problem:
    from gpusetup.verify.worker import raised
    print("spent" if raised(problem).spent else f"not spent: {problem}"[:200])
"""
COMPETITOR = """
import sys, torch
a = torch.randn(int(sys.argv[2]), int(sys.argv[2]), device=sys.argv[1])
print("ready", flush=True)
while True:
    a = (a @ a).clamp(-1, 1)
"""


def verify(work: Work, *words: str, **more: Any) -> Said:
    return work.gpusetup("verify", "--device", work.device, "--json", *words, **more)


@pytest.mark.claim("mutants-caught")
@pytest.mark.parametrize(
    ("fault", "check"), [*((name, check) for name, (_, check) in FAULTS.items()), ON_CARD]
)
def test_a_card_that_computes_wrongly_is_caught(work: Work, fault: str, check: str) -> None:
    """The check must also pass without the fault: else it shows nothing of it."""
    level = ("--level", "standard", "--only", check)
    path = f"{ON_PATH}{os.pathsep}{environment()['PYTHONPATH']}"
    with_fault = {"ACCEPTANCE_FAULT": fault, "PYTHONPATH": path}
    sound, sick = (verify(work, *level, **more) for more in ({}, with_fault))
    clean, found = (
        next(row for row in said.document["checks"] if row["name"] == check)
        for said in (sound, sick)
    )
    caught = found["status"] in ("failed", "crashed") if clean["status"] == "passed" else None
    work.row("mutants", fault=fault, check=check, caught=caught, detail=found["detail"])
    work.found(f"{fault}: {check} {found['status']}")
    if caught is None:
        unknown("the check fails without the fault too")
    assert caught


@contextlib.contextmanager
def competitor(work: Work) -> Iterator[bool]:
    """Another process that multiplies on the same card all the time; whether it came to that."""
    argv = (sys.executable, "-c", COMPETITOR, work.device, "8192" if work.on_card else "256")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment()) as child:
        try:
            yield child.stdout.readline() == b"ready\n"
        finally:
            end(child)


@pytest.mark.claim("shared-card")
def test_a_second_process_on_the_card_makes_nothing_look_wrong(work: Work) -> None:
    with competitor(work) as there:
        if not there:
            unknown("no other process came up")
        rows = verify(work).document["checks"]
    bad = [row["name"] for row in rows if row["status"] in ("failed", "crashed")]
    work.found(f"{len(rows)} checks, bad: {', '.join(bad) or 'none'}")
    assert rows and not bad


@pytest.mark.card
@pytest.mark.claim("doubt-13")
def test_after_an_error_that_spoils_its_process_verify_takes_a_new_one(work: Work) -> None:
    said = work.python(SPOIL, limit=30)
    told = said.stdout.strip().rpartition("\n")[2] or said.problem
    work.found(told)
    assert told == "spent"
