"""What a folder or a file asks for: torch and its family, packages, Python, indexes and sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen, Text

Kind = Literal["requirements", "pyproject", "setup", "environment", "dockerfile", "lock", "script"]

OF_A_FOLDER = (
    *("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"),
    *("environment.yml", "environment.yaml", "Dockerfile"),
)
"""The files of a folder that may say what a project asks for, in the order in which they count."""


class Requested(Frozen):
    """A requirement of a project, and where it stands."""

    name: str
    """The normalised name, such as `torch`."""
    text: str
    """The requirement with its extras, versions and marker: `torch>=2.6; sys_platform == 'linux'`.
    """
    place: str
    """The file with the line or the table, such as `requirements.txt, line 3`."""
    variant: Text = None
    """The extra or dependency group that contains it; None for the project's own dependencies."""

    @property
    def is_family(self) -> bool:
        return self.name in FAMILY


class Later(Frozen):
    """A line for which no index can be asked: a wheel's URL, `git+https://...` or `-e .`."""

    text: str
    """The line as it is installed, such as `git+https://github.com/...`, without its marker."""
    place: str
    name: Text = None
    """The package, if the line shows it."""
    marker: str = ""
    torch: Text = None
    """The torch that a wheel was built for, as a specifier."""
    backend: Text = None
    """The backend that a wheel was built for: `cu128`, or `cu12` for any CUDA 12."""
    variant: Text = None


class NamedIndex(Frozen):
    """A package index that a project names."""

    url: str
    place: str
    name: Text = None
    backend: Text = None
    """The backend in the URL of torch's own index, such as `cu128`; None for any other index."""


class Source(Frozen):
    """The index from which uv takes one package of a project (`[tool.uv.sources]`)."""

    package: str
    index: str
    variant: Text = None
    """The extra or group for which this source counts; None if it counts for all."""
    marker: str = ""


class Variant(Frozen):
    """An extra or a dependency group that contains torch or a companion."""

    name: str
    kind: Literal["extra", "group"] = "extra"
    family: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, str]:
        """The option and the name with which `uv sync` selects it, such as `--extra cpu`."""
        return (f"--{self.kind}", self.name)


class Ask(Frozen):
    """What a project asks for, as its files say it. Nothing of it was run."""

    path: str
    """The file as the user named it, or the file of the folder that was read."""
    kind: Kind
    requests: tuple[Requested, ...] = ()
    constraints: tuple[Requested, ...] = ()
    """Limits that install nothing by themselves, such as those in a file of `-c`."""
    python: Text = None
    """The Python versions that it supports (`>=3.9,<3.13`) or brings itself (`3.10`)."""
    brings_python: bool = False
    """Whether the file creates its own Python, as an environment.yml or an image does."""
    indexes: tuple[NamedIndex, ...] = ()
    sources: tuple[Source, ...] = ()
    variants: tuple[Variant, ...] = ()
    backend: Text = None
    """The backend that the file names by its CUDA (`pytorch-cuda=12.1`)."""
    left_out: tuple[str, ...] = ()
    """Packages that come with torch's own wheels (`nvidia-cudnn-cu13`), which are not asked for."""
    later: tuple[Later, ...] = ()
    """What is installed after torch, because no index has it."""
    unread: tuple[str, ...] = ()
    """Lines that were not understood, each once, with their place."""
    has_hashes: bool = False
    """Whether lines name the hashes of their files."""
    image: Text = None
    """The container image that brings a torch of its own, such as `pytorch/pytorch:2.4.1-...`."""
    image_torch: Text = None
    """The torch version of that image, if its name shows it."""
    tables: tuple[str, ...] = ()
    """uv's tables that the file already has; TOML allows each only once."""
    has_project: bool = False
    """Whether there is a `[project]` table, to which `uv add` can add."""
    is_poetry: bool = False

    def of(self, variant: str | None = None) -> tuple[Requested, ...]:
        """The project's own requirements, and those of one extra or group."""
        return tuple(one for one in self.requests if one.variant in (None, variant))

    @property
    def family(self) -> tuple[str, ...]:
        """Which of torch and its companions the project itself names, torch first."""
        return named_family(one.name for one in self.of())


def named_family(names: Iterable[str]) -> tuple[str, ...]:
    """torch and its companions among these names, torch first."""
    there = set(names)
    return tuple(name for name in FAMILY if name in there)
