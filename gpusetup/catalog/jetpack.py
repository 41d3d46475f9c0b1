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
BY_L4T = {row.l4t: row for row in JETPACKS}
BY_NAME = {row.name.removeprefix("JetPack "): row for row in JETPACKS}

FIRST_OF_THOR = next(row for row in JETPACKS if row.torch_for)
UNIFIED = next(row for row in JETPACKS if len(row.torch_for) > 1)
"""From here on Orin runs the ordinary wheels too; no older board gets it."""
BOARDS = frozenset(row.capability for row in facts(Integrated))
"""The GPUs that are part of a Jetson's chip."""
ITS_NAMES = ("jetson", "thor", "orin", "xavier", "tegra", "nvgpu")
"""Words of which the name of a board's GPU has one."""


def l4t_of(board: str | None) -> str | None:
    """The major release of a Jetson's Linux; None where a text names only an older board.

    >>> l4t_of("R36 (release), REVISION: 4.3"), l4t_of("35.4.1"), l4t_of("JetPack 6.1")
    ('R36', 'R35', 'R36')
    >>> l4t_of("JP7.2"), l4t_of("nvidia-jetpack 7.0-b128"), l4t_of("Jetson AGX Thor Developer Kit")
    ('R39', 'R38', 'R38')
    """
    text = board or ""
    if not text:
        return None
    if found := re.match(r"r?(\d\d)(?!\d)", text, re.IGNORECASE):
        return f"R{found.group(1)}"
    named = re.search(r"\b(?:JetPack|JP)[ -]{0,3}(\d(?:\.\d)?)", text, re.IGNORECASE)
    if named is None:
        return FIRST_OF_THOR.l4t if "thor" in text.lower() else None
    row = _by_name(named.group(1))
    return row.l4t if row else None


def _by_name(version: str) -> JetPack | None:
    """The newest row of a JetPack's major that is not newer than it."""
    same = [name for name in BY_NAME if parsed(name).major == parsed(version).major]
    older = [name for name in same if parsed(name) <= parsed(version)]
    return BY_NAME[max(older, key=parsed)] if older else None


def jetpack_of(board: str | None) -> JetPack | None:
    """The release of a board; None where it is not known."""
    return BY_L4T.get(l4t_of(board) or "")


def board_of(machine: Snapshot) -> str | None:
    """What says that a machine is a Jetson: its release, its model, else its only GPU."""
    if machine.os.jetson:
        return machine.os.jetson
    gpus = machine.gpus or ()
    own = [gpu for gpu in gpus if is_board_gpu(gpu)]
    return own[0].name if own and len(own) == len(gpus) else None


def is_board_gpu(gpu: Gpu) -> bool:
    """Whether a GPU is part of a Jetson's chip.

    >>> is_board_gpu(Gpu(name="NVIDIA Thor")), is_board_gpu(Gpu(name="Tesla T4"))
    (True, False)
    """
    return gpu.compute_capability in BOARDS or _is_a_boards(gpu.name)


@lru_cache(maxsize=1024)
def _is_a_boards(name: str) -> bool:
    low = name.lower()
    likely = [word for word in ITS_NAMES if word in low]
    return bool(likely) and re.search(rf"(?i)\b({'|'.join(likely)})\b", name) is not None


def runs_ordinary_wheels(jetpack: JetPack, capabilities: Iterable[Capability]) -> bool:
    """Whether torch's aarch64 wheels serve the board: Thor from JetPack 7, Orin from 7.2."""
    return bool(jetpack.torch_for) and set(capabilities) <= set(jetpack.torch_for)


def undeclared(library: str) -> Undeclared | None:
    """The row of a library that is missing.

    >>> undeclared("libcudss.so.0").by_pip("12"), undeclared("libcublas.so.12")
    (('nvidia-cudss-cu12',), None)
    """
    rows = facts(Undeclared)
    return next((row for row in rows if library.startswith(row.library)), None)
