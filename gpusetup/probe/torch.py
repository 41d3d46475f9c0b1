"""The torch that the environment would import, read from its files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Package, Reading, Snapshot, Torch
from gpusetup.probe.packages import installed_packages
from gpusetup.probe.target import TargetPython
from gpusetup.readings.packages import backend_of
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
"""Modules that `import torch` imports; a file of that name in the working folder hides one."""


def read_torch(system: System, target: TargetPython | None) -> Snapshot:
    """torch and its companions in the target, and events for files that would hide a module that
    torch imports."""
    if target is None:
        return Snapshot()
    packages = installed_packages(system, target)
    snapshot = _torch(system, target, packages)
    shadowing_files = tuple(shadowed_modules(system, target))
    return replace(snapshot, packages=packages, events=shadowing_files)


def _torch(system: System, target: TargetPython, packages: tuple[Package, ...] | None) -> Snapshot:
    """torch from its own version file or, if that is missing, from the list of packages."""
    if packages is None:
        problem = target.problem or "gpusetup cannot list the environment's folders"
        return missing("torch", "site-packages", problem)
    for folder in target.import_path:
        source = join(folder, "torch", "version.py")
        text = read_or_none(system, source)
        if text is not None:
            torch = from_version_file(text, folder, packages)
            reading = Reading(subject="torch", source=source, value=torch.version)
            return Snapshot(torch=torch, readings=(reading,))

    # No folder has `torch/version.py`: torch is not installed, or its installation was interrupted,
    # and it is listed although its files are missing.
    for package in packages:
        if package.name in ("torch", "pytorch"):
            problem = (
                f"{package.name} {package.version} is listed but torch/version.py is not there"
            )
            torch = Torch(
                installed=True,
                version=package.version,
                backend=backend_of(package.version, None, None),
                installer=package.installer,
                location=package.location,
            )
            return replace(missing("torch", "site-packages", problem), torch=torch)
    absent = missing("torch", "site-packages", "not installed")
    return replace(absent, torch=Torch(installed=False))


def from_version_file(text: str, folder: str, packages: tuple[Package, ...]) -> Torch:
    """The torch in a folder, from the constants in its `version.py`: `__version__ = '2.5.1+cu124'`,
    `cuda: Optional[str] = '12.4'`."""
    constant = r"^(\w+)\s*(?::[^=]*)?=\s*(None|True|False|'[^'\n]*'|\"[^\"\n]*\")"
    fields = {name: ast.literal_eval(value) for name, value in re.findall(constant, text, re.M)}
    version, cuda, hip = (fields.get(name) for name in ("__version__", "cuda", "hip"))
    by_pip = [item for item in packages if item.name == "torch" and item.location == folder]
    # An interrupted upgrade leaves two packages. The one with torch's own version comes first.
    by_pip.sort(key=lambda package: package.version != version)
    # conda's package has another name, and its files are in the environment's own folder.
    of_conda = ("pytorch", "libtorch")
    by_conda = [item for item in packages if item.name in of_conda and item.installer == "conda"]
    backend = backend_of(version, cuda, hip)
    # A CPU build has this field too, with the value None; an old torch lacks the field.
    if not backend and "cuda" in fields:
        backend = "cpu"
    if fields.get("xpu"):
        backend = "xpu"
    return Torch(
        installed=True,
        version=version,
        backend=backend,
        installer=next((package.installer for package in (*by_pip, *by_conda)), None),
        location=folder,
        cuda=cuda,
        hip=hip,
    )


def shadowed_modules(system: System, target: TargetPython) -> Iterable[Event]:
    """Events for files in the working folder that would hide a module that `import torch` needs."""
    cwd = str(system.facts().get("cwd") or "")
    # If the working folder is on the interpreter's import path, its files are the installed modules
    # themselves and hide nothing.
    if not cwd or cwd in target.import_path:
        return
    names = list_or_empty(system, cwd)
    for module in IMPORTED_BY_TORCH:
        path = ""
        if f"{module}.py" in names:
            path = join(cwd, f"{module}.py")
        # A folder without this file hides nothing, because installed modules take precedence.
        elif module in names and exists(system, join(cwd, module, "__init__.py")):
            path = join(cwd, module) + separator(cwd)
        if path:
            values = {"module": module, "path": path}
            yield Event(kind="module-shadowed", values=values, source="cwd", text=path)


TORCH_LIBRARY = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn\w*|nvJitLink|cusparse|cusolver|nccl|nvrtc|cufft|curand|"
    r"cupti|stdc\+\+|gomp|mkl_rt)\.so"
)
"""Libraries that torch contains itself. A copy that the loader finds first replaces torch's."""


def library_events(system: System, target: TargetPython | None) -> Iterable[Event]:
    """Events for libraries in `LD_LIBRARY_PATH` that the loader finds before torch's own, and for
    the toolkit's stub of libcuda there."""
    if system.family != "linux":
        return
    # The system's Python has the prefix /usr. The libraries of the whole system are below it too,
    # so the prefix shows nothing.
    own = "" if target is None or target.prefix == "/usr" else target.prefix
    for folder in filter(None, system.environ().get("LD_LIBRARY_PATH", "").split(":")):
        names = list_or_empty(system, folder.rstrip("/") or "/")
        libraries_by_kind = {}
        # Programs can link to the toolkit's stub of libcuda, but it cannot start the driver.
        if "/stubs" in folder and any(name.startswith("libcuda.so") for name in names):
            libraries_by_kind["libcuda-stub"] = "libcuda.so"
        libraries = sorted({match[0] for match in map(TORCH_LIBRARY.match, names) if match})
        # The environment's own libraries, such as conda's, fit its torch.
        if libraries and not (own and is_below(folder, own)):
            libraries_by_kind["foreign-library"] = " ".join(libraries)
        for kind, text in libraries_by_kind.items():
            values = {"folder": folder, "libraries": text, "variable": "LD_LIBRARY_PATH"}
            where = join(folder, text)
            yield Event(kind=kind, values=values, source="LD_LIBRARY_PATH", text=where)


# --- the Visual C++ runtime of Windows, which torch's DLLs need -----------------------------------

CPP_LIBRARY = "msvcp140.dll"
"""The C++ part of the runtime; Python comes with the C part only (vcruntime140.dll)."""
ALWAYS_THERE = "kernel32.dll"
"""A file that Windows always has. If it seems to be missing too, the folder cannot be read, and a
missing runtime is not proven."""


def runtime_events(system: System, target: TargetPython | None) -> tuple[Event, ...]:
    """An event if the C++ runtime is missing, because torch's DLLs cannot be loaded without it."""
    if system.family != "windows" or target is None:
        return ()
    environ = system.environ()
    root = environ.get("SystemRoot") or environ.get("SYSTEMROOT") or "C:\\Windows"
    system_folder = join(root, "System32")
    # conda has a package for it (vc14_runtime).
    folders = (system_folder, target.prefix, join(target.prefix, "Library\\bin"))
    is_readable = exists(system, join(system_folder, ALWAYS_THERE))
    if not is_readable or any(exists(system, join(folder, CPP_LIBRARY)) for folder in folders):
        return ()
    values = {"dll": CPP_LIBRARY, "searched": system_folder}
    text = f"no {CPP_LIBRARY} in {system_folder}"
    return (Event(kind="windows-dll-missing", values=values, source=system_folder, text=text),)
