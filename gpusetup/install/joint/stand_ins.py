"""The folder of stand-ins for a joint question: torch's family of the build that is tried. They
hold nothing but METADATA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import companion_table, row_of
from gpusetup.catalog.companions import beside
from gpusetup.catalog.default_wheels import default_backend
from gpusetup.install.fetching.hollow_wheel import stand_in
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.model.resolution import TorchBuild

NEEDS = ("filelock", "typing-extensions>=4.10", "sympy", "networkx", "jinja2", "fsspec")
"""What every torch of the last years asks for besides its CUDA."""
StandIn = tuple[str, str, tuple[str, ...]]
"""Name, version, and what it requires."""


def write_stand_ins(folder: Path, build: TorchBuild, catalog: Catalog, *, listed: bool) -> None:
    """A folder for `--find-links`. `listed`: the user's indexes have torch."""
    folder.mkdir()
    for name, version, requires in _family(build, catalog, listed=listed):
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata = head + "".join(f"Requires-Dist: {need}\n" for need in requires)
        stand_in(Wheel(name=name, version=version, filename=filename, url=""), metadata, folder)


def _family(build: TorchBuild, catalog: Catalog, *, listed: bool) -> Iterator[StandIn]:
    """torch and its companions, but for a torch that the default index has as it is: that one's
    own METADATA says more."""
    same = default_backend(catalog, build.torch, build.os, build.machine) == build.backend
    label = f"+{build.backend}" if build.labelled else ""
    exact = f"torch=={build.torch}"
    if not label and listed:
        return
    if not (same and listed):  # what it really needs is on the same index, or on none
        yield "torch", f"{build.torch}{label}", NEEDS if listed else ()
    if build.torchvision:
        vision = (exact, "numpy", "pillow>=5.3.0,!=8.3.*")
        yield "torchvision", f"{build.torchvision}{label}", vision
    if known := beside(catalog, "torchaudio", build):
        audio = companion_table().project("torchaudio")
        row = row_of(audio, known) if audio else None
        needs_torch = f"torch{row.torch}" if row and row.torch else exact
        yield "torchaudio", f"{known}{label}", (needs_torch,)
