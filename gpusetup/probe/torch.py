"""The torch that the target would import, from its files; torch itself is asked only if `deep`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Package, Reading, Torch
from gpusetup.probe.packages import installed_packages
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join, separator
from gpusetup.readings.torch_version import backend_of, parse_version_file
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

DEEP_SECONDS = 60.0

SHADOWS = (
    "torch", "numpy", "triton",
    "calendar", "copy", "csv", "datetime", "dis", "email", "enum", "glob", "http", "inspect",
    "json", "logging", "math", "numbers", "operator", "pickle", "platform", "queue", "random",
    "select", "signal", "socket", "ssl", "string", "struct", "tarfile", "tempfile", "timeit",
    "token", "traceback", "types", "typing", "uuid", "warnings",
)  # fmt: skip
"""Modules that `import torch` imports: a file of that name in the working folder hides them."""


class TorchSide(Frozen):
    """What was read of the torch family."""

    torch: Torch
    packages: tuple[Package, ...] | None
    events: tuple[Event, ...] = ()
    readings: tuple[Reading, ...] = ()


def read_torch(system: System, target: Target) -> TorchSide:
    """The torch family of the target, and what stands in its way."""
    packages = installed_packages(system, target)
    torch, readings = _torch(system, target, packages)
    events = tuple(shadows(system, target))
    return TorchSide(torch=torch, packages=packages, events=events, readings=readings)


def _torch(
    system: System, target: Target, packages: tuple[Package, ...] | None
) -> tuple[Torch, tuple[Reading, ...]]:
    if packages is None:
        problem = target.problem or "the target's folders cannot be listed"
        return Torch(), (Reading(subject="torch", source="site-packages", problem=problem),)
    for folder in target.path:
        text = read_or_none(system, join(folder, "torch", "version.py"))
        if text is not None:
            source = join(folder, "torch", "version.py")
            torch = from_version_file(parse_version_file(text), folder, packages)
            return torch, (Reading(subject="torch", source=source, value=torch.version),)
    return _without_version_file(system, packages)


def _without_version_file(
    system: System, packages: tuple[Package, ...]
) -> tuple[Torch, tuple[Reading, ...]]:
    """No `torch/version.py` in any folder: not installed, or an install that was cut."""
    listed = next((p for p in packages if p.name in ("torch", "pytorch")), None)
    if listed is None:
        reading = Reading(subject="torch", source="site-packages", problem="not installed")
        return Torch(installed=False), (reading,)
    problem = f"{listed.name} {listed.version} is listed but torch/version.py is not there"
    torch = Torch(
        installed=True,
        version=listed.version,
        backend=backend_of(listed.version, None, None, known=_is_recorded_cpu(system, listed)),
        installer=listed.installer,
        location=listed.location,
    )
    return torch, (Reading(subject="torch", source="site-packages", problem=problem),)


def _is_recorded_cpu(system: System, listed: Package) -> bool:
    """Whether the RECORD of a torch names its CPU library and none for a GPU."""
    info = f"{listed.name}-{listed.version}.dist-info"
    record = read_or_none(system, join(listed.location or "", info, "RECORD")) or ""
    names = set(re.findall(r"^torch/lib/(?:lib)?torch_(\w+)\.", record, re.M))
    return "cpu" in names and not names & {"cuda", "hip", "xpu"}


def from_version_file(
    fields: Mapping[str, Any], folder: str, packages: tuple[Package, ...]
) -> Torch:
    """The torch whose `version.py` says so."""
    version, cuda, hip = fields.get("__version__"), fields.get("cuda"), fields.get("hip")
    backend = backend_of(version, cuda, hip, known="cuda" in fields)
    return Torch(
        installed=True,
        version=version,
        cuda=cuda,
        hip=hip,
        backend="xpu" if fields.get("xpu") else backend,
        debug=fields.get("debug"),
        installer=installer_of(version, folder, packages),
        location=folder,
    )


def installer_of(version: str | None, folder: str, packages: Iterable[Package]) -> str | None:
    """Who installed the torch of a folder: the listed distribution whose version it has."""
    listed = [p for p in packages if p.name == "torch" and p.location == folder]
    same = [p for p in listed if p.version == version]
    for package in (*same, *listed):
        return package.installer
    by_conda = any(p.name in ("pytorch", "libtorch") and p.installer == "conda" for p in packages)
    return "conda" if by_conda else None


def shadows(system: System, target: Target) -> Iterable[Event]:
    """Files of the working folder that would hide a module that `import torch` needs."""
    cwd = str(system.facts().get("cwd") or "")
    names = set(list_or_empty(system, cwd)) if cwd and cwd not in target.path else set()
    for module in SHADOWS:
        if f"{module}.py" in names:
            yield _shadow(module, join(cwd, f"{module}.py"))
        elif module in names and exists(system, join(cwd, module, "__init__.py")):
            yield _shadow(module, join(cwd, module) + separator(cwd))


def _shadow(module: str, path: str) -> Event:
    return Event(
        kind="module-shadowed", values={"module": module, "path": path}, source="cwd", text=path
    )


# --- torch's own answer, under --deep -------------------------------------------------------------


def asked_itself(system: System, target: Target, side: TorchSide) -> TorchSide:
    """With what the target's torch says of itself, where there is one."""
    if not side.torch.installed:
        return side
    answer = system.ask("read_torch", python=target.python, timeout=DEEP_SECONDS)
    problem = answer.get("problem") or answer.get("import_error")
    said = None if problem else f"torch {answer.get('version')}"
    reading = Reading(subject="torch", source="import torch", value=said, problem=problem)
    return replace(side, torch=with_answer(side.torch, answer), readings=(*side.readings, reading))


def with_answer(torch: Torch, answer: Mapping[str, Any]) -> Torch:
    """The torch of the files with what the imported torch said of itself."""
    if problem := answer.get("problem") or answer.get("import_error"):
        return replace(torch, import_error=str(problem))
    kernels = answer.get("kernels")
    return replace(
        torch,
        version=answer.get("version") or torch.version,
        cuda=answer.get("cuda") or torch.cuda,
        cuda_available=answer.get("cuda_available"),
        kernels=tuple(kernels) if kernels else torch.kernels,
        cudnn=answer.get("cudnn") or torch.cudnn,
    )
