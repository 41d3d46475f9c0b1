"""Every kind of event with the values that it may carry, read from the tables and the sources.

A row of `messages/` names its kind; the other events are made by readers of a machine or of a text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import gpusetup
from gpusetup.causes.table import ROWS

READERS = ("probe", "readings", "report", "commands", "resolver")

OWN_NAME: Mapping[str, str] = {
    "nvml-unknown-error": "container-nvml-lost where a container shows, else nvml-init-failed",
    # --- one message, several findings
    "program-lib-missing": "cuda-lib-missing, of the program that the text is about",
    "program-lib-unfound": "cuda-lib-missing, where nothing else ended the program",
    "libcuda-unlinked": "libcuda-missing, asked for by its plain name",
    "child-failed": "which of our questions died decides",
    "conda-not-found": "wrong-index, or no-wheel-for-platform where conda has none of this machine",
    "cuda-error": "each code has its finding",
    "cuda-lost-after-suspend": "cuda-unknown-error, where no code is shown",
    "cuda-unavailable": "what the machine has decides",
    "cuda-version-err": "libcuda-missing, container-driver-capability-missing, wsl-driver",
    "gpu-not-in-wheel": "arch-too-old-for-wheel, arch-too-new-for-wheel",
    "gpu-not-chosen": "no-nvidia-gpu, of a hosted notebook",
    "hip-kernel-missing": "amd-gpu, with its own way out",
    "mps-lacks": "apple-silicon",
    "nccl-hangs": "nccl-p2p-failure, where no message says why",
    "torch-uninstalled": "torch-cpu-build, where what came in its place has no CUDA",
    "gpu-read-failed": "gpu-does-not-answer, or what else NVML's code means",
    "module-not-found": "driver-not-loaded, uvm-missing",
    "no-devices-found": "gpu-init-failed, container-no-gpu",
    "no-hip-gpus": "amd-gpu, or no finding beside an NVIDIA GPU",
    "no-matching-distribution": "the requirement decides",
    "no-nvidia-driver": "driver-missing, driver-not-loaded, container-no-gpu",
    "no-xpu": "intel-gpu, or no finding beside an NVIDIA GPU",
    "smi-not-found": "driver-missing, container-no-gpu, wsl-driver",
    "torch-not-compiled-with-cuda": "torch-cpu-build, jetson-wrong-wheel, another maker's GPU",
    "wheel-not-supported": "python-no-wheel, no-wheel-for-platform",
    "xid": "each number has its finding",
    # --- several messages of one finding, which the rule tells apart
    "backport-in-the-way": "module-shadowed, by an installed package",
    "gpus-not-given": "cuda-visible-devices-hidden, by the scheduler of the program",
    "slurm-job": "cuda-visible-devices-hidden, where the job asked for no GPU",
    "driver-check-failed": "container-no-gpu, where the container was started without one",
    "foreign-library": "ld-library-path-conflict, only a warning without a message",
    "gpu-not-listed": "gpu-init-failed, of one GPU of several",
    "image-needs-newer-driver": "driver-too-old for an image",
    "musl-libc": "no-wheel-for-platform, by the C library",
    "nccl-connect-failed": "nccl-no-socket-interface, unless a rank ended",
    "pcie-errors": "pcie-degraded, in a text about nothing else",
    "pcie-slow": "pcie-degraded, in a text about nothing else",
    "nouveau-in-the-way": "driver-not-loaded, with its own way out",
    "results-differ": "tf32-precision, if torch and GPU compute so",
    "sxid": "hardware-fault, of a switch",
    "torchvision-image-mismatch": "torchvision-mismatch, an error in a text that says nothing else",
    # --- evidence, which makes no finding alone
    "guarded-set": "guarded-set-changed, where another version is installed",
    "capability-warning": "proof that the GPU is served",
    "extension-arch": "what an extension was built for",
    "extension-installed": "extension-arch-mismatch, where a kernel is missing and no GPU is named",
    "triton-image-invalid": "driver-too-old, of a driver of CUDA 11 beside a torch with Triton 2.1",
    "foreign-gpu": "who made the GPU",
    "gpu-image": "an image made for GPUs, whose program found none",
    "gpu-computes": "proof that the GPU works",
    "hosted-notebook": "where the program ran",
    "module-missing": "a program that is not complete",
    "new-smi-banner": "the layout of nvidia-smi",
    "no-nvswitch": "nothing needs the Fabric Manager",
    "requires-python": "which Pythons a distribution takes",
    "training-run": "out-of-memory, with the steps of a training",
    "backend-runs": "the maker's own backend computes: whose GPU it is explains nothing",
    "ran-first": "it started and computed: no cause of a start",
    "shared-node": "administrators mend its driver",
    "smi-sees-it": "an NVIDIA GPU is there, whatever finds none",
}  # fmt: skip
"""A kind that is named otherwise than a finding, and which findings it leads to."""

MADE_APART: Mapping[str, tuple[str, ...]] = {
    "out-of-memory": ("asked_bytes", "total_bytes", "free_bytes"),
    "no-kernel-image": ("module",),
    "gpu-not-in-wheel": ("gpu", "kernels"),
    "no-matching-distribution": ("versions", "index"),
    "capability-warning": ("gpu", "capability"),
    "torch-missing": ("module",),
    "xid": ("bus_ids",),
    "sxid": ("bus_ids",),
}
"""Values that stand neither in a pattern nor beside the event."""


@cache
def event_kinds() -> dict[str, frozenset[str]]:
    """Each kind, with the names of its values."""
    kinds: dict[str, set[str]] = {}
    for row in ROWS:
        names = {*re.compile(row.pattern, re.IGNORECASE).groupindex, *row.values}
        kinds.setdefault(row.kind, set()).update(names)
    for kind, values in (*_made_by_readers(), *MADE_APART.items()):
        kinds.setdefault(kind, set()).update(values)
    return {kind: frozenset(values) for kind, values in sorted(kinds.items())}


def _made_by_readers() -> Iterator[tuple[str, Iterable[str]]]:
    for room in READERS:
        for path in sorted((Path(gpusetup.__file__).parent / room).rglob("*.py")):
            yield from _made_in(ast.parse(path.read_text(encoding="utf-8")))


def _made_in(module: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """`Event(kind=...)`, `event(text, kind, ...)`, and what a name of the module stands for."""
    named = {
        target.id: node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", "")
        given = {word.arg: word.value for word in node.keywords}
        if called == "event" and len(node.args) > 1:
            given.setdefault("kind", node.args[1])
        if "kind" in given and called in ("Event", "event", "replace"):
            for kind in _strings(given["kind"], named):
                yield kind, set(_keys(given.get("values"), named))


def _strings(node: ast.AST, named: dict[str, ast.expr]) -> Iterator[str]:
    """The texts that an expression may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _strings(node.body, named)
        yield from _strings(node.orelse, named)
    elif isinstance(node, ast.Name) and node.id in named:
        yield from _strings(named[node.id], {})


def _keys(node: ast.AST | None, named: dict[str, ast.expr]) -> Iterator[str]:
    if isinstance(node, ast.Name):
        node = named.get(node.id)
    for one in ast.walk(node) if node else ():
        if isinstance(one, ast.Dict):
            keys = (key for key in one.keys if isinstance(key, ast.Constant))
            yield from (str(key.value) for key in keys)
