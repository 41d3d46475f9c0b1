"""Packages that use torch, and the torch versions that they need (`data/companions.json`).

A row holds for the versions that it names, and has its source. The constraints that a package does
not declare itself are known here alone.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from gpusetup.model.builds import TorchBuild
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import Capability, allows
from gpusetup.named_file import shipped


class Pair(Frozen):
    """The torch versions that some releases of a project support."""

    versions: str
    """Of the project, as a specifier."""
    torch: str | None = None
    """A specifier; None: no torch is excluded."""
    cuda: str = ""
    """Majors that it is built for; `default`: as torch on the default index; `label`: as its own
    version says; "": it has no CUDA of its own."""
    wheels: str = ""
    """Where the wheels of these releases lie, if elsewhere than the project's others."""
    source: str = ""


class Project(Frozen):
    """One package that uses torch, with its rows."""

    name: str
    declares: bool
    """Whether its METADATA says which torch it takes."""
    wheels: str
    """Where they lie: `index`, `torch index`, `release` page; `source`: there are none."""
    on_torch_index: bool = False
    """Whether torch's own index has it too, built for the CUDA of each of its folders."""
    on: str
    """`linux-x86_64 windows-x86_64`: where it has builds."""
    gpu: bool = False
    """Whether it is of no use without an NVIDIA GPU."""
    python_only: bool = False
    """Whether it works, slower, where its libraries do not load."""
    capability: Capability | None = None
    """The oldest GPU that it serves."""
    alternative: str = ""
    """What to take where it does not fit."""
    instead: Mapping[str, str] = {}
    """The same on one system, without a GPU (`no GPU`), or where its CUDA is another (`CUDA`)."""
    source: str = ""
    rows: tuple[Pair, ...] = ()

    def has_wheels(self, row: Pair) -> bool:
        """Whether some releases have wheels on an index; otherwise you have to build them or
        download them from a page."""
        return (row.wheels or self.wheels) in ("index", "torch index")

    def way_out(self, build: TorchBuild, index: str = "") -> str:
        """What to use instead of this package with a build; `index` is PyTorch's index for the
        build's backend."""
        # The system decides before the GPU, and that before another CUDA.
        cases = (build.os, "CUDA" if build.cuda else "no GPU", "CUDA")
        text = self.alternative
        for case in cases:
            if case in self.instead:
                text = self.instead[case]
                break
        return text.replace("{index}", index)


class CompanionTable(Frozen):
    """All projects of the table, and its date."""

    as_of: str
    projects: tuple[Project, ...]

    def project(self, name: str) -> Project | None:
        """The project with a name that is normalised as on an index."""
        for project in self.projects:
            if project.name == name:
                return project
        return None


DATA = "companions.json"


@lru_cache(maxsize=1)
def companion_table() -> CompanionTable:
    """The table that comes with the package."""
    return from_json(shipped(DATA), CompanionTable, what="the table of companions")


# --- what it answers -----------------------------------------------------------------------------


def row_of(project: Project, version: str) -> Pair | None:
    """The row for a release; None if the table does not contain it."""
    public = version.partition("+")[0]
    for row in project.rows:
        if allows(row.versions, public):
            return row
    return None


def takes_torch(project: Project, version: str, torch: str) -> bool | None:
    """Whether a release works with a torch version; None if the table does not tell.

    >>> codec = companion_table().project("torchcodec")
    >>> [takes_torch(codec, version, "2.15.0") for version in ("0.17.0", "0.9.1", "0.0.1")]
    [True, False, None]
    """
    row = row_of(project, version)
    if row is None or not row.torch:
        return None
    public = torch.partition("+")[0]
    return allows(row.torch, public)


def releases_for(project: Project, torch: str) -> tuple[str, ...]:
    """The specifiers of the releases that work with a torch, the newest first.

    >>> releases_for(companion_table().project("torchao"), "2.10.0")
    ('==0.16.*',)
    """
    public = torch.partition("+")[0]
    specifiers = []
    for row in project.rows:
        if row.torch and allows(row.torch, public):
            specifiers.append(row.versions)
    return tuple(specifiers)


def has_cuda(project: Project, row: Pair, torch_major: str, usual_major: str) -> bool:
    """Whether a row's wheels load together with a torch for this CUDA major version ("" means a
    torch without CUDA).

    `usual_major` is the CUDA major of that torch on the default index, "" for a CPU build.
    """
    built_for_default = row.cuda == "default"
    if not torch_major:
        needs_cuda = built_for_default and bool(usual_major)
        return not needs_cuda or project.python_only
    # The release's own version says which CUDA it has, so that one of each can be chosen.
    if row.cuda == "label":
        return True
    majors = [usual_major] if built_for_default else row.cuda.split()
    has_no_cuda = not any(majors)
    return has_no_cuda or torch_major in majors


OPPOSITE = {"==": "!=", ">=": "<", "<=": ">", "<": ">=", ">": "<="}
"""A sign of a specifier -> the sign of everything else; `<=` is tried before `<`."""


def without(project: Project, rows: Sequence[Pair]) -> tuple[str, ...]:
    """Specifiers that exclude the releases of these rows.

    The table goes from new to old. Of a span between two releases everything newer is excluded too,
    unless everything older is.

    >>> torchao = companion_table().project("torchao")
    >>> without(torchao, torchao.rows[:2])
    ('torchao<0.17', 'torchao!=0.16.*')
    """
    specifiers = []
    for row in rows:
        lower, _, upper = row.versions.partition(",")
        row_number = project.rows.index(row)
        older_rows = project.rows[row_number + 1 :]
        excludes_all_older = all(older in rows for older in older_rows)
        end = upper if upper and excludes_all_older else lower
        sign = next(sign for sign in OPPOSITE if end.startswith(sign))
        version = end.removeprefix(sign)
        specifiers.append(f"{project.name}{OPPOSITE[sign]}{version}")
    return tuple(specifiers)
