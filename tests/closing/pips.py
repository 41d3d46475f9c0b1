"""pip and uv: what an install leaves, by their own documentation.

A requirement that is satisfied is left alone (a local label does not matter to `torch==2.5.1`),
dependencies come with it unless `--no-deps`, dependents of what changes are not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement

from closing import facts
from closing.facts import DEFAULT_INDEX
from closing.seen import importing
from closing.shells import Refused
from closing.surroundings import caches_cleared, must_have_room
from closing.wheels import Wheel, best, label_of, requirement
from closing.world import CONDA, FAMILY, World, named, packages_of
from gpusetup.model.machine import Package

FLAGS = {
    "--no-deps", "--force-reinstall", "--reinstall", "--no-cache-dir", "--no-build-isolation",
    "--upgrade", "-U", "--no-index", "-y", "--yes", "--break-system-packages", "-q", "--pre",
    "--no-cache",
}  # fmt: skip
VALUED = {
    "--index-url", "-i", "--extra-index-url", "--index", "--default-index", "--find-links", "-f",
    "--python", "-p", "-r", "--requirement", "--reinstall-package", "--upgrade-package", "-P",
    "--torch-backend",
}  # fmt: skip
UV_ONLY = {"--index", "--default-index", "--reinstall", "--reinstall-package", "--no-cache",
           "--torch-backend", "--python", "-p"}  # fmt: skip
PIP_ONLY = {"--no-cache-dir", "-y", "--yes"}


@dataclass(frozen=True)
class Asked:
    """The words of one install or uninstall."""

    by: str
    flags: frozenset[str]
    values: dict[str, tuple[str, ...]]
    names: tuple[str, ...]

    @property
    def anew(self) -> bool:
        return bool(self.flags & {"--force-reinstall", "--reinstall"})


def asked(by: str, words: Sequence[str]) -> Asked:
    """The words sorted out; Refused for one that this program does not know."""
    flags: set[str] = set()
    values: dict[str, tuple[str, ...]] = {}
    names: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in (PIP_ONLY if by == "uv" else UV_ONLY):
            raise Refused(f"{by} knows no {name}")
        if name in VALUED:
            if not joined and not rest:
                raise Refused(f"{by}: {name} takes a value")
            values[name] = (*values.get(name, ()), value if joined else rest.pop(0))
        elif word in FLAGS:
            flags.add(word)
        elif word.startswith("-"):
            raise Refused(f"{by} knows no {word}")
        else:
            names.append(word)
    return Asked(by, frozenset(flags), values, tuple(names))


def pip_or_uv(world: World, by: str, verb: str, words: Sequence[str]) -> World:
    """`pip VERB …` or `uv pip VERB …` in the world's target interpreter."""
    python = world.snapshot.python
    if by == "pip" and python.has_pip is False:
        raise Refused("No module named pip")
    if verb in ("list", "show", "check", "freeze", "cache"):
        return caches_cleared(world) if "purge" in words else world
    if python.externally_managed and "--break-system-packages" not in words:
        raise Refused("error: externally-managed-environment")
    if python.site_writable is False:
        raise Refused("Permission denied: site-packages")
    done = asked(by, words)
    if verb == "uninstall":
        return removed(world, done)
    if verb != "install":
        raise Refused(f"{by} knows no {verb}")
    if any(word.startswith("torch==") for word in words):
        must_have_room(world)
    return installed(world, done)


def removed(world: World, asked: Asked) -> World:
    """One distribution of each name goes, the last installed; conda's cannot."""
    kept = list(packages_of(world))
    for name in asked.names:
        mine = [p for p in named(kept, name) if p.installer not in CONDA]
        if not mine:
            if asked.by == "pip" and named(kept, name):
                raise Refused(f"Cannot uninstall {name}: conda installed it")
            continue
        kept.remove(mine[-1])
    world = without_leftovers(world.showing(packages=tuple(kept)), asked.names)
    return importing(world) if set(asked.names) & {"torch"} else world


def without_leftovers(world: World, names: Iterable[str]) -> World:
    """Events about the files of a package end with these files."""
    gone = set(names)
    kept = tuple(
        e
        for e in world.snapshot.events
        if not (e.kind == "torch-half-installed" and "torch" in gone)
    )  # fmt: skip
    return world.showing(events=kept)


# --- install --------------------------------------------------------------------------------------


def index_of(asked: Asked) -> str:
    """The one index that is asked; a folder of links counts as what it is."""
    links = asked.values.get("--find-links") or asked.values.get("-f")
    if links:
        return links[-1]
    urls = [
        url
        for name in ("--index-url", "-i", "--index", "--default-index", "--extra-index-url")
        for url in asked.values.get(name, ())
    ]
    return label_of(urls[0]) if urls else DEFAULT_INDEX


JETSON_WHEELS = {
    "36": ("2.5.0a0+872d972e41.nv24.8", "cu126"),
    "35": ("2.1.0a0+41361538.nv23.6", "cu114"),
}
"""L4T release -> NVIDIA's own torch for it, and the CUDA of that JetPack."""

JETSON_FOLDERS = ("developer.download.nvidia.com/compute/redist/jp/", "pypi.jetson-ai-lab")


def installed(world: World, asked: Asked) -> World:
    """All that is asked for, then what it requires."""
    if not asked.names and "-r" not in asked.values:
        raise Refused(f"{asked.by} install: you must give at least one requirement")
    index = index_of(asked)
    anew = set(asked.values.get("--reinstall-package", ()))
    todo = together([requirement(t) for t in asked.names if not t.startswith("git+")])
    changed: set[str] = set()
    for wanted in todo:
        force = asked.anew or wanted.name in anew
        upgrade = bool(asked.flags & {"--upgrade", "-U"})
        world, wheel = _one(world, wanted, index, asked, force=force, upgrade=upgrade)
        changed |= {wanted.name} if wheel else set()
        if "--no-deps" not in asked.flags:
            world = _with_dependencies(world, wanted, wheel, index, asked)
    return importing(world) if changed & {"torch"} or "--no-deps" not in asked.flags else world


def together(wanted: list[Requirement]) -> list[Requirement]:
    """pip resolves what one command names together: beside a torch the release made for it."""
    torch = next((str(w.specifier).lstrip("=") for w in wanted if w.name == "torch"), "")
    public = torch.partition("+")[0]
    if not public:
        return wanted
    return [_beside(one, public) for one in wanted]


def _beside(wanted: Requirement, torch: str) -> Requirement:
    pins = facts.PINS.get(wanted.name, {})
    known = [v for v, needs in pins.items() if needs == torch and wanted.specifier.contains(v)]
    if pins and not known:
        raise Refused(f"ResolutionImpossible: {wanted} and torch {torch}")
    return requirement(f"{wanted.name}=={known[-1]}") if pins else wanted


def _one(
    world: World, wanted: Requirement, index: str, asked: Asked, *, force: bool, upgrade: bool
) -> tuple[World, Wheel | None]:
    """One requirement; no wheel where what is there satisfies it."""
    there = distributions(world, wanted.name)
    met = bool(there) and wanted.specifier.contains(there[0].version, prereleases=True)
    if met and not force and not upgrade:
        return world, None
    if any(folder in index for folder in JETSON_FOLDERS):
        wheel = jetson_wheel(world, wanted)
    else:
        wheel = best(world, wanted, index)
    return put(world, wheel, asked.by), wheel


def distributions(world: World, name: str) -> list[Package]:
    """What pip and Python see under a name: conda's own records are none, but stand in for them."""
    found = named(packages_of(world), name)
    own = [p for p in found if p.installer not in CONDA]
    return own or [p for p in found if p.location == world.snapshot.python.site_packages]


def put(world: World, wheel: Wheel, by: str) -> World:
    """The wheel in place of every distribution of its name; conda's own record stays."""
    site = world.snapshot.python.site_packages
    old = [p for p in named(packages_of(world), wheel.name)
           if p.installer not in CONDA or p.location == site]  # fmt: skip
    kept = tuple(p for p in packages_of(world) if p not in old)
    new = Package(
        name=wheel.name,
        version=wheel.version,
        installer=by,
        channel=wheel.backend,
        location=world.snapshot.python.site_packages,
        intact=True,
        requires=(f"torch{wheel.torch}",) if wheel.torch else (),
    )
    return without_leftovers(world.showing(packages=(*kept, new)), (wheel.name,))


def _with_dependencies(
    world: World, wanted: Requirement, wheel: Wheel | None, index: str, asked: Asked
) -> World:
    """What the installed distribution requires: a companion its torch, torch its libraries."""
    needs = wheel.torch if wheel else required_torch(world, wanted.name)
    if wanted.name != "torch" and needs:
        torch = requirement(f"torch{needs}")
        world, _ = _one(world, torch, index, asked, force=False, upgrade=False)
    return with_libraries(world, asked) if wanted.name == "torch" else world


def required_torch(world: World, name: str) -> str | None:
    """The torch that an installed distribution requires, by the index it came from."""
    from closing.consistent import torch_of

    there = named(packages_of(world), name)
    return torch_of(there[-1]) if there else None


def with_libraries(world: World, asked: Asked) -> World:
    """torch's own CUDA libraries: those of its major come, cut ones stay (pip sees no cut)."""
    return world


def jetson_wheel(world: World, wanted: Requirement) -> Wheel:
    """NVIDIA's own folder for a JetPack: its wheels are for the system's Python only."""
    if wanted.name not in FAMILY or not world.os.jetson:
        raise Refused(f"No matching distribution found for {wanted}")
    release = (world.os.jetson or "").lstrip("R").partition(".")[0]
    python = {"36": "3.10", "35": "3.8"}.get(release)
    have = ".".join((world.snapshot.python.version or "").split(".")[:2])
    if python != have:
        raise Refused(f"No matching distribution found for {wanted}: it is for Python {python}")
    if wanted.name != "torch":
        raise Refused(f"No matching distribution found for {wanted}: the folder has torch alone")
    version, backend = JETSON_WHEELS[release]
    return Wheel("torch", version, backend)
