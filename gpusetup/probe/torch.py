"""The torch that the target would import, from its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Package, Reading, Snapshot, Torch
from gpusetup.probe.packages import installed_packages
from gpusetup.probe.target import Target
from gpusetup.readings.packages import backend_of, parse_version_file
from gpusetup.readings.paths import is_below, join, separator
from gpusetup.readings.sources import missing
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

IMPORTED_BY_TORCH = (
    "torch", "numpy", "triton",
    "calendar", "copy", "csv", "datetime", "dis", "email", "enum", "glob", "http", "inspect",
    "json", "logging", "math", "numbers", "operator", "pickle", "platform", "queue", "random",
    "select", "signal", "socket", "ssl", "string", "struct", "tarfile", "tempfile", "timeit",
    "token", "traceback", "types", "typing", "uuid", "warnings",
)  # fmt: skip
"""Modules that `import torch` imports: a file of that name in the working folder hides them."""


def read_torch(system: System, target: Target | None) -> Snapshot:
    """The torch family of the target, and what stands in its way."""
    if target is None:
        return Snapshot()
    packages = installed_packages(system, target)
    found = _torch(system, target, packages)
    return replace(found, packages=packages, events=tuple(shadowed_modules(system, target)))


def _torch(system: System, target: Target, packages: tuple[Package, ...] | None) -> Snapshot:
    if packages is None:
        problem = target.problem or "gpusetup cannot list the environment's folders"
        return missing("torch", "site-packages", problem)
    for folder in target.path:
        source = join(folder, "torch", "version.py")
        text = read_or_none(system, source)
        if text is not None:
            torch = from_version_file(parse_version_file(text), folder, packages)
            reading = Reading(subject="torch", source=source, value=torch.version)
            return Snapshot(torch=torch, readings=(reading,))
    # No `torch/version.py` in any folder: not installed, or an install that was cut.
    listed = next((p for p in packages if p.name in ("torch", "pytorch")), None)
    if listed is None:
        absent = missing("torch", "site-packages", "not installed")
        return replace(absent, torch=Torch(installed=False))
    cut = f"{listed.name} {listed.version} is listed but torch/version.py is not there"
    torch = Torch(
        installed=True,
        version=listed.version,
        backend=backend_of(listed.version, None, None),
        installer=listed.installer,
        location=listed.location,
    )
    return replace(missing("torch", "site-packages", cut), torch=torch)


def from_version_file(
    fields: Mapping[str, Any], folder: str, packages: tuple[Package, ...]
) -> Torch:
    """The torch whose `version.py` says so."""
    version, cuda, hip = (fields.get(name) for name in ("__version__", "cuda", "hip"))
    of_no_gpu = "cpu" if "cuda" in fields else None
    return Torch(
        installed=True,
        version=version,
        backend="xpu" if fields.get("xpu") else backend_of(version, cuda, hip) or of_no_gpu,
        installer=installer_of(version, folder, packages),
        location=folder,
        cuda=cuda,
        hip=hip,
        debug=fields.get("debug"),
    )


def installer_of(version: str | None, folder: str, packages: Iterable[Package]) -> str | None:
    """Who installed the torch of a folder: the listed distribution whose version it has."""
    own = [p for p in packages if p.name == "torch" and p.location == folder]
    own.sort(key=lambda package: package.version != version)
    conda = [p for p in packages if p.name in ("pytorch", "libtorch") and p.installer == "conda"]
    return next((package.installer for package in own + conda), None)


def shadowed_modules(system: System, target: Target) -> Iterable[Event]:
    """Files of the working folder that would hide a module that `import torch` needs."""
    cwd = str(system.facts().get("cwd") or "")
    names = list_or_empty(system, cwd) if cwd and cwd not in target.path else ()
    for module in IMPORTED_BY_TORCH:
        path = join(cwd, f"{module}.py")
        if f"{module}.py" not in names:
            path = join(cwd, module) + separator(cwd)
            if module not in names or not exists(system, join(cwd, module, "__init__.py")):
                continue
        values = {"module": module, "path": path}
        yield Event(kind="module-shadowed", values=values, source="cwd", text=path)


TORCH_LIBRARIES = (
    r"lib(cudart|cublas|cublasLt|cudnn\w*|nvJitLink|cusparse|cusolver|nccl|nvrtc|cufft|curand|"
    r"cupti|stdc\+\+|gomp|mkl_rt)\.so"
)
"""Libraries that torch brings itself: another one that is found first takes their place."""


def library_events(system: System, target: Target | None) -> Iterable[Event]:
    """What `LD_LIBRARY_PATH` puts in front of the libraries that torch brings."""
    if system.family != "linux":
        return
    for folder in filter(None, system.environ().get("LD_LIBRARY_PATH", "").split(":")):
        names = list_or_empty(system, folder.rstrip("/") or "/")
        if "/stubs" in folder and any(name.startswith("libcuda.so") for name in names):
            yield _event("libcuda-stub", folder, "libcuda.so")
        first = sorted({match[0] for name in names if (match := re.match(TORCH_LIBRARIES, name))})
        if first and not (target and is_below(folder, target.prefix) and target.prefix != "/usr"):
            yield _event("foreign-library", folder, " ".join(first))


def _event(kind: str, folder: str, libraries: str) -> Event:
    return Event(
        kind=kind,
        values={"folder": folder, "libraries": libraries, "variable": "LD_LIBRARY_PATH"},
        source="LD_LIBRARY_PATH",
        text=join(folder, libraries),
    )
