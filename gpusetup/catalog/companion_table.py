"""What stands on torch, and on which (`data/companions.json`): a row holds for the versions that it
names, with its source. The constraints that a package does not declare itself are known here alone.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from gpusetup.model.builds import TorchBuild
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import Capability, allows
from gpusetup.named_file import shipped


class Pair(Frozen):
    """The torch that some releases of a project take."""

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
    """One companion."""

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
        """Whether an index has wheels of some releases; else they are built, or lie on a page."""
        return (row.wheels or self.wheels) in ("index", "torch index")

    def way_out(self, build: TorchBuild, index: str = "") -> str:
        """What to take in its place beside a build. `index`: torch's own, of its backend."""
        cases = (build.os, "CUDA" if build.cuda else "no GPU", "CUDA")
        found = next((case for case in cases if case in self.instead), "")
        return self.instead.get(found, self.alternative).replace("{index}", index)


class CompanionTable(Frozen):
    as_of: str
    projects: tuple[Project, ...]

    def project(self, name: str) -> Project | None:
        """The companion of that name, spelled as an index normalises it."""
        return next((project for project in self.projects if project.name == name), None)


DATA = "companions.json"


@lru_cache(maxsize=1)
def companion_table() -> CompanionTable:
    """The table that comes with the package."""
    return from_json(shipped(DATA), CompanionTable, what="the table of companions")


# --- what it answers -----------------------------------------------------------------------------


def row_of(project: Project, version: str) -> Pair | None:
    """The row of one release; None where the table does not know it."""
    public = version.partition("+")[0]
    return next((row for row in project.rows if allows(row.versions, public)), None)


def takes_torch(project: Project, version: str, torch: str) -> bool | None:
    """Whether a release takes a torch; None if nothing tells.

    >>> codec = companion_table().project("torchcodec")
    >>> [takes_torch(codec, one, "2.15.0") for one in ("0.17.0", "0.9.1", "0.0.1")]
    [True, False, None]
    """
    row = row_of(project, version)
    return allows(row.torch, torch.partition("+")[0]) if row and row.torch else None


def releases_for(project: Project, torch: str) -> tuple[str, ...]:
    """The specifiers of the releases that take a torch, the newest first.

    >>> releases_for(companion_table().project("torchao"), "2.10.0")
    ('==0.16.*',)
    """
    public = torch.partition("+")[0]
    return tuple(row.versions for row in project.rows if row.torch and allows(row.torch, public))


def has_cuda(project: Project, row: Pair, own: str, usual: str) -> bool:
    """Whether a row's wheels load beside a torch of the CUDA major `own`; "": a torch of none."""
    majors = [usual] if row.cuda == "default" else row.cuda.split()
    if not own:
        return row.cuda != "default" or not usual or project.python_only
    return row.cuda == "label" or not any(majors) or own in majors


def without(project: Project, rows: Sequence[Pair]) -> tuple[str, ...]:
    """Rows turned round. The table goes from new to old: of a span between two releases everything
    newer goes too, unless everything older goes.

    >>> torchao = companion_table().project("torchao")
    >>> without(torchao, torchao.rows[:2])
    ('torchao<0.17', 'torchao!=0.16.*')
    """
    found = []
    for row in rows:
        lower, _, upper = row.versions.partition(",")
        older = project.rows[project.rows.index(row) + 1 :]
        end = upper if upper and all(one in rows for one in older) else lower
        sign = next(sign for sign in TURNED if end.startswith(sign))
        found.append(f"{project.name}{TURNED[sign]}{end.removeprefix(sign)}")
    return tuple(found)


TURNED = {"==": "!=", ">=": "<", "<=": ">", "<": ">=", ">": "<="}
