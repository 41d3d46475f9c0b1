"""Which distributions that matter here are in the target, from the names of its files.

Nothing is imported: `*.dist-info` folders, `*.egg-info` and conda's `conda-meta`.
Each folder is listed once and only small files are opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
from gpusetup.system.system import System, exists, list_or_empty, read_or_none, unless_refused

_INFO = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*)(-py[\d.]+.*)?\.(dist-info|egg-info)$")
_LIBRARY = r'(?m)^"?([^,"\n]+\.(?:so|dll|dylib|pyd)(?:\.[\d.]+)?|torch/version\.py)"?,'


def installed_packages(system: System, target: Target) -> tuple[Package, ...] | None:
    """What is installed of the watched distributions, in the import order of their folders.

    None if no folder of the target could be listed. The same name may stand there twice.
    """
    folders = {folder: unless_refused(system.list, folder) for folder in target.path}
    conda = tuple(conda_packages(system, target.prefix))
    if all(names is None for names in folders.values()) and not conda:
        return None
    found = [
        package
        for folder, names in folders.items()
        for package in _in_folder(system, folder, names or ())
    ]
    return (*found, *conda)


def _in_folder(system: System, folder: str, names: Iterable[str]) -> Iterator[Package]:
    """The distributions that are watched, or that say which torch they take."""
    for info in names:
        match = _INFO.match(info)
        name = normalised(match["name"]) if match else ""

        def text(file: str, info: str = info) -> str | None:
            return read_or_none(system, join(folder, info, file))

        wheel = info.endswith(".dist-info")
        metadata = text("METADATA") if wheel and not name.startswith("nvidia-") else None
        requires = parse_required(metadata or "")
        if match is None or not (requires or is_watched(name)):
            continue
        installer, record = (text("INSTALLER") or "").strip().lower() or None, text("RECORD")
        # conda keeps libraries elsewhere than the RECORD of the wheel that it was built from says.
        checkable = wheel and installer != "conda" and record is not None
        # PEP 610, or editable: an index may have a stranger's project of the same name.
        direct = "__editable__" in (record or "") or text("direct_url.json") is not None
        yield Package(
            name=name,
            version=match["version"],
            installer=installer,
            location=folder,
            intact=is_whole(system, folder, record or "") if checkable else None,
            requires=requires,
            direct=direct if direct or requires else None,
        )


def is_whole(system: System, folder: str, record: str) -> bool:
    """Whether the libraries of a RECORD are there, and torch's own `version.py`; if an install
    was cut, or overwritten, they are not."""
    paths = re.findall(_LIBRARY, record)
    return all(exists(system, join(folder, *path.split("/"))) for path in paths)


# --- conda ---------------------------------------------------------------------------------------


def conda_packages(system: System, prefix: str) -> Iterator[Package]:
    """The watched packages of a conda environment, from the names of its `conda-meta` files."""
    for file in list_or_empty(system, join(prefix, "conda-meta")):
        parts = parse_conda_name(file)
        if parts and (parts[0] in CONDA_WATCHED or parts[0] in WATCHED):
            yield Package(
                name=parts[0],
                version=parts[1],
                installer="conda",
                build=parts[2],
                location=prefix,
            )
