"""The installed packages that gpusetup watches, read from file names in the environment.

Nothing is imported: the sources are the names of `*.dist-info` and `*.egg-info` folders, and
conda's `conda-meta`. Each folder is listed once, and only small files are opened.
"""

from __future__ import annotations

import re

from gpusetup.model.machine import Package
from gpusetup.probe.target import TargetPython
from gpusetup.readings.packages import (
    CONDA_WATCHED,
    WATCHED,
    is_watched,
    normalised,
    parse_required,
)
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists, list_or_empty, read_or_none, unless_refused

INFO_FOLDER = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*)(-py[\d.]+.*)?\.(dist-info|egg-info)$")
"""A folder such as `torch-2.9.1+cu128.dist-info` or `six-1.16.0-py3.11.egg-info`."""
CONDA_FILE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+)\.json")
"""A file in conda-meta, such as `pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0.json`."""
LIBRARY_IN_RECORD = re.compile(
    # A compiled library with or without a version, such as `torch/lib/libtorch.so` or
    # `libz.so.1.3`.
    r'(?m)^"?([^,"\n]+\.(?:so|dll|dylib|pyd)(?:\.[\d.]+)?'
    r'|torch/version\.py)"?,'
)
"""The path in a row of a RECORD, which may be quoted."""


def installed_packages(system: System, target: TargetPython) -> tuple[Package, ...] | None:
    """The watched distributions that are installed, in the order in which Python searches their
    folders.

    None if no folder of the target could be listed. A name may appear twice.
    """
    packages: list[Package] = []
    has_listed_folder = False
    # The interpreter's path may contain a folder twice, so list each folder once.
    for folder in dict.fromkeys(target.import_path):
        names = unless_refused(system.list, folder)
        if names is not None:
            has_listed_folder = True
            for info in filter(None, map(INFO_FOLDER.match, names)):
                package = _package(system, folder, info)
                if package is not None:
                    packages.append(package)
    for file in list_or_empty(system, join(target.prefix, "conda-meta")):
        parts = CONDA_FILE.fullmatch(file)
        if parts and (parts["name"] in CONDA_WATCHED or parts["name"] in WATCHED):
            package = Package(
                name=parts["name"],
                version=parts["version"],
                installer="conda",
                build=parts["build"],
                location=target.prefix,
            )
            packages.append(package)
    return tuple(packages) if packages or has_listed_folder else None


def _package(system: System, folder: str, info: re.Match[str]) -> Package | None:
    """The distribution described by an info folder; None if gpusetup does not need it."""

    def text(file: str) -> str | None:
        return read_or_none(system, join(folder, info.string, file))

    name = normalised(info["name"])
    is_wheel = info.string.endswith(".dist-info")
    # Skip NVIDIA's libraries: there are many, and they do not need torch.
    metadata = text("METADATA") if is_wheel and not name.startswith("nvidia-") else None
    requires = parse_required(metadata or "")
    if not requires and not is_watched(name):
        return None
    installer = (text("INSTALLER") or "").strip().lower() or None
    record = text("RECORD")
    intact = None
    # Do not check conda packages: their RECORD may come from the original wheel, while conda keeps
    # the libraries elsewhere.
    if is_wheel and installer != "conda" and record is not None:
        # After an interrupted or overwritten installation, some of these files are missing.
        paths = LIBRARY_IN_RECORD.findall(record)
        intact = all(exists(system, join(folder, *path.split("/"))) for path in paths)
    # A package that was installed from a folder or URL (PEP 610, or an editable install) is not the
    # one on an index, where another project may have the same name.
    is_direct = "__editable__" in (record or "") or text("direct_url.json") is not None
    return Package(
        name=name,
        version=info["version"],
        installer=installer,
        location=folder,
        intact=intact,
        requires=requires,
        # That it came from an index is only noted for a package that needs torch.
        direct=is_direct if is_direct or requires else None,
    )
