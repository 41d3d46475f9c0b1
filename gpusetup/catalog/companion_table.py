"""Packages that use torch, and the torch versions that they need (`data/companions.json`).

Each row is valid for the versions that it names, and states its source. If a package does not
declare a requirement itself, this table is the only place that has it.
"""

from collections.abc import Mapping
from functools import lru_cache

from gpusetup.model.builds import TorchBuild
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import Capability, allows
from gpusetup.named_file import shipped


class Pair(Frozen):
    """The torch versions that some releases of a project support."""

    versions: str
    """The project's versions, as a specifier."""
    torch: str | None = None
    """The supported torch versions, as a specifier; None if all are supported."""
    cuda: str = ""
    """The CUDA major versions that these releases are built for. `default` means the CUDA version
    of torch on the default index, and "" means that the package itself does not use CUDA."""
    wheels: str = ""
    """Where to find the wheels of these releases, if they are not in the same place as the
    project's other wheels."""
    source: str = ""


class Project(Frozen):
    """One package that uses torch, with its rows."""

    name: str
    declares: bool
    """Whether its METADATA declares which torch it needs."""
    wheels: str
    """Where its wheels are: `index`, `torch index` or `release` page; `source` if there are
    none."""
    wheels_page: str = ""
    """The page with its wheels, if no index has them and its installer downloads from that page."""
    on_torch_index: bool = False
    """Whether torch's own index also has the package, built for each CUDA version."""
    on: str
    """The platforms that have builds, such as `linux-x86_64 windows-x86_64`."""
    gpu: bool = False
    """Whether it is useless without an NVIDIA GPU."""
    python_only: bool = False
    """Whether the package also works without its compiled libraries, only more slowly."""
    capability: Capability | None = None
    """The oldest GPU that it supports, as a compute capability."""
    alternative: str = ""
    """What to use if no release fits."""
    instead: Mapping[str, str] = {}
    """What to use instead in special cases: on one system, without a GPU (`no GPU`), or with
    another CUDA version (`CUDA`)."""
    source: str = ""
    rows: tuple[Pair, ...] = ()

    def has_wheels(self, row: Pair) -> bool:
        """Whether some releases have wheels on an index. If not, users must build them or download
        them from a page."""
        return (row.wheels or self.wheels) in ("index", "torch index")

    def way_out(self, build: TorchBuild, index: str = "") -> str:
        """What to use instead of this package with a build; `index` is the URL of PyTorch's index
        for the build's backend."""
        # An entry for the system takes precedence over the one for machines without a GPU, and that
        # one over the one for another CUDA version.
        cases = (build.os, "CUDA" if build.cuda else "no GPU", "CUDA")
        texts = (self.instead[case] for case in cases if case in self.instead)
        return next(texts, self.alternative).replace("{index}", index)


class CompanionTable(Frozen):
    """All projects of the table, and its date."""

    as_of: str
    projects: tuple[Project, ...]

    def project(self, name: str) -> Project | None:
        """The project with this name, which must be normalised as on a package index; None if the
        table lacks it."""
        return next((project for project in self.projects if project.name == name), None)


@lru_cache(maxsize=1)
def companion_table() -> CompanionTable:
    """The table that comes with this gpusetup."""
    return from_json(shipped("companions.json"), CompanionTable, what="the table of companions")


# --- looking up a release -------------------------------------------------------------------------


def row_of(project: Project, version: str) -> Pair | None:
    """The row for a release; None if the table does not contain it."""
    public = version.partition("+")[0]
    return next((row for row in project.rows if allows(row.versions, public)), None)


def releases_for(project: Project, torch: str) -> tuple[str, ...]:
    """Returns the specifiers of the releases that work with a torch version, newest first.

    >>> releases_for(companion_table().project("torchao"), "2.10.0")
    ('==0.16.*',)
    """
    public = torch.partition("+")[0]
    return tuple(row.versions for row in project.rows if row.torch and allows(row.torch, public))


def has_cuda(project: Project, row: Pair, torch_major: str, usual_major: str) -> bool:
    """Whether a row's wheels can be loaded together with a torch for this CUDA major version (""
    means a torch without CUDA). `usual_major` is the CUDA major version of that torch on the
    default index; "" for a CPU build."""
    built_for_default = row.cuda == "default"
    if not torch_major:
        # Only wheels for the CUDA of the default index are known to fail without it, unless the
        # package also works without its compiled libraries.
        return project.python_only or not (built_for_default and usual_major)
    majors = [usual_major] if built_for_default else row.cuda.split()
    # Wheels that use no CUDA fit every torch.
    return not any(majors) or torch_major in majors
