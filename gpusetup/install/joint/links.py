"""The folder of stand-ins for a joint question: torch's family of each candidate build, and wheels
that lie on release pages. They hold nothing but METADATA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import (
    Project,
    ReleaseWheel,
    companion_table,
    row_of,
)
from gpusetup.catalog.companions import beside
from gpusetup.catalog.default_wheels import default_backend
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

    @property
    def filename(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def metadata(self) -> str:
        head = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n"
        return head + "".join(f"Requires-Dist: {need}\n" for need in self.requires)


def stand_ins_of(
    builds: Sequence[TorchBuild],
    projects: Sequence[Project],
    catalog: Catalog,
    python: str,
    *,
    listed: bool = True,
) -> tuple[StandIn, ...]:
    """Everything that stands in: each is named once. `listed`: the user's indexes have torch."""
    found = [one for build in builds for one in _family(build, catalog, listed=listed)]
    majors = {(b.cuda or "").partition(".")[0] for b in builds}
    pages = [
        _of_page(project, wheel)
        for project in projects
        for wheel in project.releases
        if on_page(wheel, builds[0], python) and wheel.cuda in majors
    ]
    return tuple({one.filename: one for one in (*found, *pages)}.values())


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
        version = f"{known}{label}"
        yield StandIn(name="torchaudio", version=version, requires=(needs_torch,))


def on_page(wheel: ReleaseWheel, build: TorchBuild, python: str) -> bool:
    """Whether a release page has the wheel for this Python and platform."""
    platform = f"{build.os}-{build.machine}"
    return python in wheel.pythons.split() and platform in wheel.on.split()


def _of_page(project: Project, wheel: ReleaseWheel) -> StandIn:
    label = wheel.filename("3.0").partition("+")[2].partition("-")[0].lower()
    version = f"{wheel.version}+{label}" if label else wheel.version
    needs = (f"torch=={wheel.torch}.*", *wheel.requires)
    return StandIn(name=project.name, version=version, requires=needs)


def write_links(folder: Path, rows: Sequence[StandIn]) -> None:
    """The files, for `--find-links`."""
    from gpusetup.install.fetching.hollow_wheel import stand_in

    for one in rows:
        wheel = Wheel(name=one.name, version=one.version, filename=one.filename, url="")
        stand_in(wheel, one.metadata, folder)


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
