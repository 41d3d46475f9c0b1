"""JetPack and L4T: which CUDA a Jetson's release serves, and where its torch comes from.

As of 2026-11-20. Sources: NVIDIA's JetPack archive and Jetson Linux archive (L4T, CUDA), NVIDIA,
"Installing PyTorch for Jetson Platform" (its own wheels), the architectures of torch's aarch64
wheels in the catalog (sm_110 from cu130 on; sm_80 serves sm_87 from CUDA 13.2 on), and where the
wheels of cuSPARSELt (read), cuDSS and NVPL (users' reports) put their libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model import Capability, Gpu, Snapshot
from gpusetup.value import Value


class JetPack(Value):
    """One release of Jetson Linux, and what torch finds on it."""

    l4t: str
    name: str
    cuda: str
    """The newest CUDA of its driver, which is numbered apart from the others."""
    python: str
    wheels: str | None = None
    """The folder of NVIDIA's own wheels; None where torch's aarch64 wheels serve its boards."""
    links: str | None = None
    """A library that these wheels link and do not declare."""


REDIST = "https://developer.download.nvidia.com/compute/redist/jp"
JETPACKS = (
    JetPack(
        l4t="R32", name="JetPack 4", cuda="10.2", python="3.6", wheels=f"{REDIST}/v461/pytorch"
    ),
    JetPack(l4t="R34", name="JetPack 5", cuda="11.4", python="3.8", wheels=f"{REDIST}/v50/pytorch"),
    JetPack(
        l4t="R35", name="JetPack 5", cuda="11.4", python="3.8", wheels=f"{REDIST}/v512/pytorch"
    ),
    JetPack(
        l4t="R36",
        name="JetPack 6",
        cuda="12.6",
        python="3.10",
        wheels=f"{REDIST}/v61/pytorch",
        links="libcusparseLt",
    ),
    JetPack(l4t="R38", name="JetPack 7", cuda="13.0", python="3.12"),
    JetPack(l4t="R39", name="JetPack 7.2", cuda="13.2", python="3.12"),
)
BY_L4T = {row.l4t: row for row in JETPACKS}
BY_NAME = {"4": "R32", "5": "R35", "6": "R36", "7": "R38"}

UNIFIED = BY_L4T["R39"]
"""From here on Orin runs the ordinary wheels too; no older board gets it."""
FIRST_OF_THOR = BY_L4T["R38"]
THOR = Capability(11, 0)
ORIN = Capability(8, 7)
BOARDS = frozenset({Capability(5, 3), Capability(6, 2), Capability(7, 2), ORIN, THOR})
"""The GPUs that are part of a Jetson's chip."""
ITS_NAMES = r"(?i)\b(jetson|thor|orin|xavier|tegra|nvgpu)\b"


def l4t_of(board: str | None) -> str | None:
    """The major release of a Jetson's Linux; None where a text names only an older board.

    >>> l4t_of("R36 (release), REVISION: 4.3"), l4t_of("35.4.1"), l4t_of("JetPack 6.1")
    ('R36', 'R35', 'R36')
    >>> l4t_of("JP7.2"), l4t_of("nvidia-jetpack 7.0-b128"), l4t_of("Jetson AGX Thor Developer Kit")
    ('R39', 'R38', 'R38')
    """
    text = board or ""
    if found := re.match(r"r?(\d\d)(?!\d)", text, re.IGNORECASE):
        return f"R{found.group(1)}"
    named = re.search(r"\b(?:JetPack|JP)[ -]{0,3}(\d)(?:\.(\d))?", text, re.IGNORECASE)
    if named is None:
        return FIRST_OF_THOR.l4t if "thor" in text.lower() else None
    if named.group(1) == "7" and int(named.group(2) or 0) > 1:
        return UNIFIED.l4t
    return BY_NAME.get(named.group(1))


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
    return gpu.compute_capability in BOARDS or bool(re.search(ITS_NAMES, gpu.name))


def runs_ordinary_wheels(jetpack: JetPack, capabilities: Iterable[Capability]) -> bool:
    """Whether torch's aarch64 wheels serve the board: Thor from JetPack 7, Orin from 7.2."""
    if jetpack.l4t == UNIFIED.l4t:
        return True
    known = tuple(capabilities)
    return jetpack.l4t == FIRST_OF_THOR.l4t and all(c == THOR for c in known)


class Undeclared(Value):
    """A library that torch's wheels for Jetson link and do not declare."""

    library: str
    """How its file begins."""
    packages: tuple[str, ...]
    """What pip installs it by; `{major}` is CUDA's."""
    folder: str
    """Where that puts it, below site-packages."""

    def by_pip(self, cuda_major: str) -> tuple[str, ...]:
        return tuple(name.format(major=cuda_major) for name in self.packages)

    def below(self, cuda_major: str) -> str:
        if self.library == "libcusparseLt" and cuda_major == "12":
            return "nvidia/cusparselt/lib"
        return self.folder.format(major=cuda_major)


UNDECLARED = (
    Undeclared(
        library="libcusparseLt",
        packages=("nvidia-cusparselt-cu{major}",),
        folder="nvidia/cu{major}/lib",
    ),
    Undeclared(
        library="libcudss", packages=("nvidia-cudss-cu{major}",), folder="nvidia/cu{major}/lib"
    ),
    Undeclared(library="libnvpl_", packages=("nvpl-lapack", "nvpl-blas"), folder="nvpl/lib"),
)


def undeclared(library: str) -> Undeclared | None:
    """The row of a library that is missing.

    >>> undeclared("libcudss.so.0").by_pip("12"), undeclared("libcublas.so.12")
    (('nvidia-cudss-cu12',), None)
    """
    return next((row for row in UNDECLARED if library.startswith(row.library)), None)
