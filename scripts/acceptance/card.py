"""Asks torch for the card, in a child that may hang, and says why a run cannot begin."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceptance import evidence
from acceptance.work import Said, run_program

TORCH_SECONDS, SMI_SECONDS = 120.0, 10.0
ASK_TORCH = """
import json, sys, torch
told = {"torch": torch.__version__, "cuda": torch.version.cuda}
print(json.dumps(told), flush=True)
if sys.argv[1] != "cpu" and torch.cuda.is_available():
    one = torch.ones(64, 64, device="cuda:0")
    assert (one @ one).sum().item() == 64 ** 3, "the card computes a wrong product"
    assert one.is_cuda and torch.cuda.memory_allocated() > 0, "the card holds no memory of it"
    told["card"] = torch.cuda.get_device_name(0)
print(json.dumps(told))
"""
REHEARSE = "; a rehearsal, which proves nothing of a card, is --device cpu"


class NoTorch(Exception):
    """There is nothing to measure with."""


def machine(wanted: str, seconds: float = TORCH_SECONDS) -> dict[str, Any]:
    """The facts of this machine; NoTorch where torch, or the card that is asked for, is not usable.

    `seconds` is how long torch may take to answer.
    """
    said = run_program(
        (sys.executable, "-c", ASK_TORCH, wanted), min(seconds, TORCH_SECONDS), folder="/"
    )
    smi = _smi("driver_version")
    problem = trouble(wanted, said, _smi("name") or _node())
    if problem and wanted != "cpu":
        raise NoTorch(problem + REHEARSE * (wanted == "auto"))
    if problem:
        print(f"torch: {problem}", file=sys.stderr)
    return evidence.facts(said.document if said.exit == 0 else {}, smi)


def trouble(wanted: str, said: Said, card: str | None) -> str:
    """Why the run cannot be on what is wanted; empty where it can.

    >>> trouble("auto", Said(1, "", "No module named 'torch'", 0.1), None)
    "torch is not usable: exit 1: No module named 'torch'"
    >>> trouble("auto", Said(0, '{"torch": "2.13.0+cpu"}', "", 0.1), "NVIDIA H200")
    'there is a card (NVIDIA H200), and torch 2.13.0+cpu computes on none'
    >>> trouble("auto", Said(0, '{"torch": "2.13.0+cpu"}', "", 0.1), None)
    ''
    """
    told: Mapping[str, Any] = said.document
    if said.exit != 0 or not told.get("torch"):
        return f"torch is not usable: {said.problem}"
    if wanted == "cpu" or told.get("card"):
        return ""
    if card:
        return f"there is a card ({card}), and torch {told['torch']} computes on none"
    return f"torch {told['torch']} computes on no GPU here" if wanted == "cuda" else ""


def _smi(field: str) -> str | None:
    """nvidia-smi's answer for the first card."""
    argv = ("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", "--id=0")
    said = run_program(argv, SMI_SECONDS, folder="/")
    return said.stdout.strip().partition("\n")[0][:200] or None if said.exit == 0 else None


def _node() -> str | None:
    return "/dev/nvidia0" if Path("/dev/nvidia0").exists() else None
