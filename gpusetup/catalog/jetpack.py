"""JetPack and L4T: which CUDA a Jetson's release serves, and where its torch comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from gpusetup.catalog.facts import Integrated, JetPack, Undeclared, facts
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.versions import Capability, parsed

JETPACKS = facts(JetPack)
"""Oldest first."""
FIRST_OF_THOR = next(row for row in JETPACKS if row.torch_for)
UNIFIED = next(row for row in JETPACKS if len(row.torch_for) > 1)
"""From here on Orin runs the ordinary wheels too; no older board gets it."""
BOARDS = frozenset(row.capability for row in facts(Integrated))
"""The GPUs that are part of a Jetson's chip."""


def jetpack_of(board: str | None) -> JetPack | None:
    """The release of a Jetson's Linux; None if a text names only an older board.

    >>> [row and row.l4t for row in map(jetpack_of, ("R36 (release)", "35.4.1", "JetPack 6.1"))]
    ['R36', 'R35', 'R36']
    >>> [row and row.l4t for row in map(jetpack_of, ("JP7.2", "nvidia-jetpack 7.0-b128", "a Thor"))]
    ['R39', 'R38', 'R38']
    """
    text = board or ""
    if found := re.match(r"r?(\d\d)(?!\d)", text, re.IGNORECASE):
        return next((row for row in JETPACKS if row.l4t == f"R{found[1]}"), None)
    named = re.search(r"\b(?:JetPack|JP)[ -]{0,3}(\d(?:\.\d)?)", text, re.IGNORECASE)
    if named is None:
        return FIRST_OF_THOR if "thor" in text.lower() else None
    asked = parsed(named[1])
    own = ((parsed(row.name.removeprefix("JetPack ")), row) for row in reversed(JETPACKS))
    return next((row for it, row in own if it.major == asked.major and it <= asked), None)


def board_of(machine: Snapshot) -> str | None:
    """What says that a machine is a Jetson: its release, its model, else its only GPU."""
    gpus = machine.gpus or ()
    boards = {gpu.name for gpu in gpus if is_board_gpu(gpu)}
    only = gpus and gpus[0].name if all(gpu.name in boards for gpu in gpus) else None
    return machine.os.jetson or only or None


def is_board_gpu(gpu: Gpu) -> bool:
    """Whether a GPU is part of a Jetson's chip.

    >>> is_board_gpu(Gpu(name="NVIDIA Thor")), is_board_gpu(Gpu(name="Tesla T4"))
    (True, False)
    """
    return gpu.compute_capability in BOARDS or _is_a_boards(gpu.name)


@lru_cache(maxsize=1024)
def _is_a_boards(name: str) -> bool:
    return re.search(r"(?i)\b(jetson|thor|orin|xavier|tegra|nvgpu)\b", name) is not None


def runs_ordinary_wheels(jetpack: JetPack, capabilities: Iterable[Capability | None]) -> bool:
    """Whether torch's aarch64 wheels serve the board: Thor from JetPack 7, Orin from 7.2."""
    return bool(jetpack.torch_for) and set(capabilities) <= set(jetpack.torch_for)


def undeclared(library: str) -> Undeclared | None:
    """The row of a library that is missing.

    >>> undeclared("libcudss.so.0").by_pip("12"), undeclared("libcublas.so.12")
    (('nvidia-cudss-cu12',), None)
    """
    rows = facts(Undeclared)
    return next((row for row in rows if library.startswith(row.library)), None)
