"""JetPack and L4T: which CUDA version a Jetson release supports, and where to get torch for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.catalog.facts import Integrated, JetPack, facts
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.versions import Capability, parsed

JETPACKS = facts(JetPack)
"""All JetPack releases, oldest first."""
FIRST_OF_THOR = next(row for row in JETPACKS if row.torch_for)
UNIFIED = next(row for row in JETPACKS if len(row.torch_for) > 1)
"""The first release in which Orin also runs torch's ordinary aarch64 wheels. Boards older than Orin
cannot install this release."""
BOARDS = frozenset(row.capability for row in facts(Integrated))
"""The GPUs that are part of a Jetson's chip."""
UNDECLARED = ("libcusparseLt", "libcudss", "libnvpl_")
"""How the names of libraries begin that NVIDIA's wheels for Jetson need but do not declare."""
INSTALLING_ON_JETSON = (
    "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform"
)
"""NVIDIA's guide, which says how to install these libraries."""


L4T_RELEASE = re.compile(r"r?(\d\d)(?!\d)", re.IGNORECASE)
"""The release of Jetson Linux at the beginning of a text, such as `R36 (release)` or `35.4.1`."""
JETPACK_VERSION = re.compile(r"\b(?:JetPack|JP)[ -]{0,3}(\d(?:\.\d)?)", re.IGNORECASE)
"""A version of JetPack, such as `JetPack 6.1`, `JP7.2` or `nvidia-jetpack 7.0-b128`."""


def jetpack_of(board: str | None) -> JetPack | None:
    """Returns the JetPack that a text about a Jetson names (see `board_of`), JetPack 7 for a Thor;
    None if it names no known release.

    >>> [row and row.l4t for row in map(jetpack_of, ("R36 (release)", "35.4.1", "JetPack 6.1"))]
    ['R36', 'R35', 'R36']
    >>> [row and row.l4t for row in map(jetpack_of, ("JP7.2", "nvidia-jetpack 7.0-b128", "a Thor"))]
    ['R39', 'R38', 'R38']
    """
    text = board or ""
    l4t = L4T_RELEASE.match(text)
    if l4t is not None:
        return next((row for row in JETPACKS if row.l4t == f"R{l4t[1]}"), None)

    named_version = JETPACK_VERSION.search(text)
    if named_version is None:
        return FIRST_OF_THOR if "thor" in text.lower() else None
    version = parsed(named_version[1])
    # The newest release that is not newer than the named one: `JetPack 6.1` is R36, as 6.0 is.
    for row in reversed(JETPACKS):
        release = parsed(row.name.removeprefix("JetPack "))
        if release.major == version.major and release <= version:
            return row
    return None


def board_of(machine: Snapshot) -> str | None:
    """The text which shows that a machine is a Jetson: its L4T release, its model, or the name of
    its GPU; None if it is none."""
    if machine.os.jetson:
        return machine.os.jetson
    gpus = machine.gpus or ()
    # A machine with a Jetson's GPU and a desktop GPU in its report is not a Jetson.
    if gpus and all(map(is_board_gpu, gpus)):
        return gpus[0].name or None
    return None


def is_board_gpu(gpu: Gpu) -> bool:
    """Whether a GPU is part of a Jetson's chip.

    >>> is_board_gpu(Gpu(name="NVIDIA Thor")), is_board_gpu(Gpu(name="Tesla T4"))
    (True, False)
    """
    return gpu.compute_capability in BOARDS or BOARD_WORD.search(gpu.name) is not None


BOARD_WORD = re.compile(r"(?i)\b(jetson|thor|orin|xavier|tegra|nvgpu)\b")
"""Words that name a Jetson's chip. `nvgpu` is among them, because nvidia-smi prints this driver's
name as the GPU's name on a Jetson."""


def runs_ordinary_wheels(jetpack: JetPack, capabilities: Iterable[Capability | None]) -> bool:
    """Whether torch's aarch64 wheels work on the board: on Thor from JetPack 7, on Orin from 7.2;
    never under an older JetPack, even if no GPU of the board is known."""
    return bool(jetpack.torch_for) and set(capabilities) <= {*jetpack.torch_for}
