"""The folder of stand-ins for a joint question: torch's family of each build that is tried, and
wheels that lie on release pages. They hold nothing but METADATA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import Project, ReleaseWheel, companion_table, row_of
from gpusetup.catalog.companions import beside
from gpusetup.catalog.default_wheels import default_backend
from gpusetup.install.fetching.hollow_wheel import stand_in
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.model.frozen import Frozen
from gpusetup.model.resolution import TorchBuild

NEEDS = ("filelock", "typing-extensions>=4.10", "sympy", "networkx", "jinja2", "fsspec")
"""What every torch of the last years asks for besides its CUDA."""


class StandIn(Frozen):
    """A wheel by name only."""

    name: str
    version: str
    requires: tuple[str, ...] = ()


def write_stand_ins(
    folder: Path, builds: Sequence[TorchBuild], catalog: Catalog, python: str, *, listed: bool
) -> str:
    """A folder for `--find-links`. `listed`: the user's indexes have torch."""
    folder.mkdir(exist_ok=True)
    family = (one for build in builds for one in _family(build, catalog, listed=listed))
    majors = {build.cuda_major for build in builds}
    pages = (
        _of_page(project, wheel)
        for project in companion_table().projects
        for wheel in project.releases
        if on_page(wheel, builds[0], python) and wheel.cuda in majors
    )
    for one in (*family, *pages):
        filename = f"{one.name.replace('-', '_')}-{one.version}-py3-none-any.whl"
        head = f"Metadata-Version: 2.1\nName: {one.name}\nVersion: {one.version}\n"
        metadata = head + "".join(f"Requires-Dist: {need}\n" for need in one.requires)
        wheel = Wheel(name=one.name, version=one.version, filename=filename, url="")
        stand_in(wheel, metadata, folder)
    return str(folder)


def _family(build: TorchBuild, catalog: Catalog, *, listed: bool) -> Iterator[StandIn]:
    """torch and its companions, but for a torch that the default index has as it is: that one's
    own METADATA says more."""
    same = default_backend(catalog, build.torch, build.os, build.machine) == build.backend
    label = f"+{build.backend}" if build.labelled else ""
    if not label and listed:
        return
    if not (same and listed):
        needs = NEEDS if listed else ()  # what it really needs is on the same index, or nowhere
        yield StandIn(name="torch", version=f"{build.torch}{label}", requires=needs)
    exact = f"torch=={build.torch}"
    if build.torchvision:
        vision = (exact, "numpy", "pillow>=5.3.0,!=8.3.*")
        yield StandIn(name="torchvision", version=f"{build.torchvision}{label}", requires=vision)
    if known := beside(catalog, "torchaudio", build):
        audio = companion_table().project("torchaudio")
        row = row_of(audio, known) if audio else None
        needs_torch = f"torch{row.torch}" if row and row.torch else exact
        yield StandIn(name="torchaudio", version=f"{known}{label}", requires=(needs_torch,))


def on_page(wheel: ReleaseWheel, build: TorchBuild, python: str) -> bool:
    """Whether a release page has the wheel for this Python and platform."""
    platform = f"{build.os}-{build.machine}"
    return python in wheel.pythons.split() and platform in wheel.on.split()


def _of_page(project: Project, wheel: ReleaseWheel) -> StandIn:
    label = wheel.filename("3.0").partition("+")[2].partition("-")[0].lower()
    version = f"{wheel.version}+{label}" if label else wheel.version
    needs = (f"torch=={wheel.torch}.*", *wheel.requires)
    return StandIn(name=project.name, version=version, requires=needs)


def page_file(project: Project, version: str, python: str) -> str | None:
    """The URL of the wheel on the release page that a stand-in was for."""
    for wheel in project.releases:
        if project.page and _of_page(project, wheel).version == version:
            return project.page.format(version=wheel.version) + wheel.filename(python)
    return None


def plain_name(filename: str, version: str | None = None) -> tuple[str, str]:
    """A wheel's name with another version, its own without the label where none is given; and it.

    >>> plain_name("flash_attn-2.8.3+cu12torch2.8-cp312-cp312-linux_x86_64.whl")
    ('flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl', '2.8.3')
    """
    name, own, tags = filename.split("-", 2)
    version = version or own.partition("+")[0]
    return f"{name}-{version}-{tags}", version
