"""What goes wrong in an environment: each fault a function from a healthy world to a broken one."""

from __future__ import annotations

from collections.abc import Callable

from closing.compose import package, relabelled, with_packages
from closing.seen import importing
from closing.world import World, named
from gpusetup.catalog.file import load_catalog
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Conda, Disk, Event, Package

Fault = Callable[[World], World]


def cpu_build(world: World) -> World:
    return relabelled(world, "cpu")


def cpu_build_alone(world: World) -> World:
    """torch alone became a CPU build: its companions stayed."""
    return relabelled(world, "cpu", "torch")


def rocm_build(world: World) -> World:
    return relabelled(world, "rocm6.4")


def xpu_build(world: World) -> World:
    return relabelled(world, "xpu")


def torchvision_left(world: World) -> World:
    """torch was updated, torchvision stayed."""
    return _older(world, "torchvision")


def torchaudio_left(world: World) -> World:
    return _older(world, "torchaudio")


def companions_left(world: World) -> World:
    return _older(_older(world, "torchvision"), "torchaudio")


def torchvision_of_cpu(world: World) -> World:
    return relabelled(world, "cpu", "torchvision")


def _older(world: World, name: str) -> World:
    """The companion of the release before this torch's."""
    own = named(world.snapshot.packages or (), "torch")[0].version
    public, _, label = own.partition("+")
    releases = load_catalog().releases
    place = next(n for n, row in enumerate(releases) if row.torch == public)
    version = next(v for row in reversed(releases[:place]) if (v := getattr(row, name))
                   and v[:4] != (getattr(releases[place], name) or "")[:4])  # fmt: skip
    site = world.snapshot.python.site_packages
    return with_packages(world, package(name, f"{version}+{label}", _by(world), site))


def _by(world: World) -> str:
    return "pip" if world.snapshot.python.has_pip else "uv"


def without_room(world: World) -> World:
    """A CPU build, and disks on which no other fits until the caches are cleared."""
    places = ("site-packages", "uv-cache", "pip-cache")
    disks = tuple(Disk(subject=one, path=f"/home/user/{one}", free_bytes=500 << 20, writable=True)
                  for one in places)  # fmt: skip
    return cpu_build(world).showing(disks=disks)


def cut_without_room(world: World) -> World:
    return torch_cut(world).showing(disks=without_room(world).snapshot.disks)


def tmp_without_room(world: World) -> World:
    """A CPU build, and a small /tmp beside disks with room."""
    disks = (Disk(subject="tmp", path="/tmp", free_bytes=200 << 20, writable=True),
             Disk(subject="pip-cache", path="/home/user/.cache/pip", free_bytes=99 << 30,
                  writable=True))  # fmt: skip
    return cpu_build(world).showing(disks=(*world.snapshot.disks, *disks))


def torch_missing(world: World) -> World:
    return importing(world.showing(packages=named(world.snapshot.packages or (), "numpy")))


def torch_gone_companions_left(world: World) -> World:
    kept = tuple(p for p in world.snapshot.packages or () if p.name != "torch")
    return importing(world.showing(packages=kept))


def torch_cut(world: World) -> World:
    """An install was killed: some of torch's files are missing."""
    cut = tuple(replace(p, intact=False) if p.name == "torch" else p
                for p in world.snapshot.packages or ())  # fmt: skip
    return world.showing(packages=cut)


def installed_twice(world: World) -> World:
    """A second torch over the first one, in the same folder."""
    site = world.snapshot.python.site_packages
    other = package("torch", "2.4.0+cpu", _by(world), site)
    return importing(world.showing(packages=(other, *(world.snapshot.packages or ()))))


CONDA_ENV = "/home/user/miniforge3/envs/ml"


def _in_conda(world: World, *packages: Package) -> World:
    """The target is a conda environment with these packages."""
    python = replace(
        world.snapshot.python, version="3.11.9", executable=f"{CONDA_ENV}/bin/python",
        prefix=CONDA_ENV, manager="conda", site_packages=CONDA_SITE, has_pip=True,
    )  # fmt: skip
    conda = Conda(prefix=CONDA_ENV)
    return importing(world.showing(python=python, conda=conda, packages=packages))


CONDA_SITE = f"{CONDA_ENV}/lib/python3.11/site-packages"


def _conda_stack(build: str, *names: tuple[str, str]) -> tuple[Package, ...]:
    """Each once as a distribution in site-packages, once in conda's own record."""
    rows = [(name, version, CONDA_SITE) for name, version in names]
    rows += [("pytorch" if n == "torch" else n, v, CONDA_ENV) for n, v in names]
    return tuple(
        Package(name=name, version=version, installer="conda", channel="pytorch", build=build,
                location=place)
        for name, version, place in rows
    )  # fmt: skip


def conda_and_pip(world: World) -> World:
    """pip's torch over conda's, in one environment; pip took conda's other distributions away."""
    moved = tuple(
        replace(p, location=CONDA_SITE, installer="pip") for p in world.snapshot.packages or ()
    )
    stack = _conda_stack("py3.11_cuda12.1_0", ("torch", "2.3.0"), ("torchvision", "0.18.0"))
    by_conda = tuple(p for p in stack if p.name != "torchvision" or p.location == CONDA_ENV)
    return _in_conda(world, *by_conda, *moved)


def conda_cpu_build(world: World) -> World:
    return _in_conda(world, *_conda_stack("py3.11_cpu_0", ("torch", "2.3.1"),
                                          ("torchvision", "0.18.1")))  # fmt: skip


def conda_empty(world: World) -> World:
    return _in_conda(world)


def cpu_build_beside_xformers(world: World) -> World:
    """xformers 0.0.28.post3 requires torch 2.5.1 (its Requires-Dist)."""
    return _beside_xformers(world, "cpu")


def torch_cut_beside_xformers(world: World) -> World:
    return torch_cut(_beside_xformers(world, "cu124"))


def _beside_xformers(world: World, label: str) -> World:
    site, by = world.snapshot.python.site_packages, _by(world)
    versions = {"torch": "2.5.1", "torchvision": "0.20.1", "torchaudio": "2.5.1"}
    family = tuple(package(n, f"{v}+{label}", by, site) for n, v in versions.items())
    python = replace(world.snapshot.python, version="3.11.9")
    pinned = package("xformers", "0.0.28.post3", by, site)
    return with_packages(world.showing(python=python), *family, pinned)


def numpy_2(world: World) -> World:
    site = world.snapshot.python.site_packages
    return with_packages(world, package("numpy", "2.3.1", _by(world), site))


def library_cut(world: World) -> World:
    site = world.snapshot.python.site_packages
    cut = replace(package("nvidia-cudnn-cu12", "9.10.2.21", _by(world), site), intact=False)
    return with_packages(world, cut)


def install_interrupted(world: World) -> World:
    values = {"prefix": world.snapshot.python.prefix or ""}
    said = Event(kind="install-unfinished", values=values, source="journal", text="a journal")
    return world.showing(events=(said,))


def of_the_system(world: World) -> World:
    """The distribution's own Python, without torch."""
    python = replace(
        world.snapshot.python, executable="/usr/bin/python3", prefix="/usr", manager="system",
        externally_managed=True, has_pip=False,
    )  # fmt: skip
    return torch_missing(world.showing(python=python))


def not_writable(world: World) -> World:
    python = replace(world.snapshot.python, site_writable=False)
    return torch_missing(world.showing(python=python))


def python_of_32_bits(world: World) -> World:
    return torch_missing(world.showing(python=replace(world.snapshot.python, bits=32)))


def python_too_old(world: World) -> World:
    return torch_missing(world.showing(python=replace(world.snapshot.python, version="3.6.9")))


def python_too_new(world: World) -> World:
    return torch_missing(world.showing(python=replace(world.snapshot.python, version="3.17.0")))
