"""Which distributions that matter here are in the target, from the names of its files.

Nothing is imported: `*.dist-info` folders, `*.egg-info`, `*.egg-link` and conda's `conda-meta`.
Each folder is listed once and only small files are opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Package
from gpusetup.probe.target import Target
from gpusetup.readings.packages import (
    CONDA_WATCHED,
    WATCHED,
    is_watched,
    normalised,
    parse_conda_name,
    parse_required,
)
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

_INFO = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*)(-py[\d.]+.*)?\.(dist-info|egg-info)$")
_LIBRARY = re.compile(r"\.(so|dll|dylib|pyd)(\.[\d.]+)?$")


def installed_packages(system: System, target: Target) -> tuple[Package, ...] | None:
    """What is installed of the watched distributions, in the import order of their folders.

    None where no folder of the target could be listed. The same name may stand there twice.
    """
    folders = {folder: _listed(system, folder) for folder in target.path}
    conda = conda_packages(system, target.prefix)
    if all(names is None for names in folders.values()) and not conda:
        return None
    found = [
        package
        for folder, names in folders.items()
        for package in _in_folder(system, folder, names or ())
    ]
    return (*found, *conda)


def _listed(system: System, folder: str) -> tuple[str, ...] | None:
    try:
        return system.list(folder)
    except OSError:
        return None


def _in_folder(system: System, folder: str, names: Iterable[str]) -> Iterable[Package]:
    for name in names:
        if name.endswith(".egg-link"):
            yield from _egg_link(system, folder, name)
        elif match := _INFO.match(name):
            yield from _distribution(system, folder, name, normalised(match["name"]), match)


def _distribution(
    system: System, folder: str, info: str, name: str, match: re.Match[str]
) -> Iterable[Package]:
    """One that is watched, or that says which torch it takes."""
    requires = () if name.startswith("nvidia-") else required_family(system, folder, info)
    if requires or is_watched(name):
        found = _package(system, folder, info, name, match["version"])
        direct = is_direct(system, folder, info) if requires else None
        yield replace(found, requires=requires, direct=direct)


def is_direct(system: System, folder: str, info: str) -> bool:
    """Whether a distribution was installed from a place of its own (PEP 610), or is editable.

    An index may have a stranger's project of the same name.
    """
    record = read_or_none(system, join(folder, info, "RECORD")) or ""
    return "__editable__" in record or exists(system, join(folder, info, "direct_url.json"))


def required_family(system: System, folder: str, info: str) -> tuple[str, ...]:
    """What a distribution's METADATA asks of the torch family."""
    if not info.endswith(".dist-info"):
        return ()
    return parse_required(read_or_none(system, join(folder, info, "METADATA")) or "")


def _package(system: System, folder: str, info: str, name: str, version: str) -> Package:
    text = read_or_none(system, join(folder, info, "INSTALLER")) or ""
    installer = text.strip().lower() or None
    # conda keeps libraries elsewhere than the RECORD of the wheel that it was built from says.
    recorded = info.endswith(".dist-info") and installer != "conda"
    return Package(
        name=name,
        version=version,
        installer=installer,
        location=folder,
        intact=is_intact(system, folder, info) if recorded else None,
    )


def _egg_link(system: System, folder: str, link: str) -> Iterable[Package]:
    name = normalised(link.removesuffix(".egg-link"))
    lines = (read_or_none(system, join(folder, link)) or "").splitlines()
    if lines and is_watched(name):
        yield Package(name=name, version="0", installer="develop", location=lines[0].strip())


def is_intact(system: System, folder: str, info: str) -> bool | None:
    """Whether the libraries that RECORD names are there; None where RECORD cannot be read."""
    record = read_or_none(system, join(folder, info, "RECORD"))
    if record is None:
        return None
    return not missing_libraries(system, folder, record)


def missing_libraries(system: System, folder: str, record: str) -> tuple[str, ...]:
    """The libraries of a RECORD that are not there (an install that was cut, or overwritten)."""
    wanted = recorded_libraries(record)
    return tuple(path for path in wanted if not exists(system, join(folder, *path.split("/"))))


def recorded_libraries(record: str) -> tuple[str, ...]:
    """The shared libraries that a RECORD names, and the package's own `version.py`.

    >>> recorded_libraries("torch/lib/libc10.so,sha256=x,1\\ntorch/nn/__init__.py,sha256=y,2\\n")
    ('torch/lib/libc10.so',)
    """
    paths = (line.partition(",")[0].strip('"') for line in record.splitlines())
    return tuple(path for path in paths if _LIBRARY.search(path) or path == "torch/version.py")


# --- conda ---------------------------------------------------------------------------------------


def conda_packages(system: System, prefix: str) -> tuple[Package, ...]:
    """The watched packages of a conda environment, from the names of its `conda-meta` files."""
    meta = join(prefix, "conda-meta")
    parsed = ((name, parse_conda_name(name)) for name in list_or_empty(system, meta))
    return tuple(
        _conda_package(system, prefix, join(meta, file), *parts)
        for file, parts in parsed
        if parts and (parts[0] in CONDA_WATCHED or parts[0] in WATCHED)
    )


def _conda_package(
    system: System, prefix: str, file: str, name: str, version: str, build: str
) -> Package:
    text = read_or_none(system, file) or ""
    return Package(
        name=name,
        version=version,
        installer="conda",
        build=build,
        channel=parse_channel(text),
        location=prefix,
    )


def parse_channel(text: str) -> str | None:
    """The channel's name in a `conda-meta` file, whose file list may have been cut off.

    >>> parse_channel('{"channel": "https://conda.anaconda.org/conda-forge/linux-64"}')
    'conda-forge'
    """
    match = re.search(r'"channel":\s*"([^"]+)"', text)
    if not match:
        return None
    parts = match[1].rstrip("/").split("/")
    platforms = ("linux", "win", "osx", "noarch")
    return parts[-2] if len(parts) > 1 and parts[-1].split("-")[0] in platforms else parts[-1]
