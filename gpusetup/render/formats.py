"""A resolution as a file for a tool: requirements, uv, pixi, conda, a Dockerfile, a command.

Each is text that the tool in question reads as it stands. Where torch comes from its own index,
nothing else does: a mix of indexes lets a newer CPU build win.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.kernels import release
from gpusetup.errors import Unsatisfiable
from gpusetup.installers import INSTALLERS
from gpusetup.installers.conda import CHANNELS, conda_build, specs
from gpusetup.installers.options import FAMILY, InstallerOptions, chosen_build, pins
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import JointPackage, Resolution, TorchBuild
from gpusetup.model.shell import shell_line
from gpusetup.render.program import as_typed
from gpusetup.resolver.situation import python_tag

PLATFORMS = {
    ("linux", "x86_64"): ("linux-64", "linux", "x86_64"),
    ("linux", "aarch64"): ("linux-aarch64", "linux", "aarch64"),
    ("windows", "x86_64"): ("win-64", "win32", "AMD64"),
    ("macos", "aarch64"): ("osx-arm64", "darwin", "arm64"),
    ("macos", "x86_64"): ("osx-64", "darwin", "x86_64"),
}
"""System and machine -> conda's subdir, Python's `sys.platform` and `platform.machine()`."""


class Wanted(Frozen):
    """What is written: a resolution, and the packages that were chosen with it."""

    resolution: Resolution
    snapshot: Snapshot
    installer: str = "uv"
    packages: tuple[JointPackage, ...] = ()
    """The whole set, torch too; empty where torch was asked for alone."""
    hashes: Mapping[str, tuple[str, ...]] = {}

    @property
    def family(self) -> tuple[str, ...]:
        """What of torch's family is written."""
        there = {one.name for one in self.packages}
        return tuple(name for name in FAMILY if name in there) if there else FAMILY

    @property
    def others(self) -> tuple[JointPackage, ...]:
        return tuple(one for one in self.packages if one.name not in FAMILY)

    @property
    def words(self) -> tuple[str, ...]:
        """The other packages, as an installer takes them."""
        return tuple(map(requirement, self.others))

    @property
    def asked(self) -> tuple[str, ...]:
        """Torch's family and what was asked for by name, as an installer takes them."""
        return (*self.family, *(requirement(one) for one in self.others if one.asked))


def requirement(one: JointPackage) -> str:
    """`vllm==0.32.0`, `jax[cuda13]==0.12.0`."""
    name = f"{one.name}[{','.join(one.extras)}]" if one.extras else one.name
    return f"{name}=={one.version}" if one.version else f"{name}{one.limits or ''}"


def command(wanted: Wanted) -> str:
    """The steps as lines for the machine's shell."""
    from gpusetup.resolver import to_answer

    installer, resolution = wanted.installer, wanted.resolution
    (conda_build if installer == "conda" else chosen_build)(resolution)  # raises without a build
    answer = to_answer(resolution, wanted.snapshot, wanted.asked)
    system = wanted.snapshot.os.family
    return _lines(as_typed(shell_line(argv, system)) for argv in answer.commands[installer])


ONE_INDEX = "# Only torch's own index: a second one would let a newer CPU build win."
NO_HASHES = "# No hashes: those of torch's own index are not known here, and pip takes all or none."
PAGES = "# Only torch's family is looked for on these pages: no second index is asked for the rest."


def requirements(wanted: Wanted) -> str:
    """A requirements file for `pip install -r`, `uv pip install -r` and `uv pip compile`.

    For torch alone one index serves the whole file: its own carries what torch needs as well. A
    set has each package at its exact version, and hashes for all of them or for none: pip takes
    either. A second index would be searched for every package; a page of one package's is not.
    """
    first, index = head(wanted), wanted.resolution.index_url
    build = chosen_build(wanted.resolution)
    if not wanted.packages:
        return _lines((first, ONE_INDEX, f"--index-url {index}", *pins(build, wanted.family)))
    hashed = all(wanted.hashes.get(one.name) for one in wanted.packages)
    lines = [first, *(() if hashed else (NO_HASHES,)), PAGES]
    lines += [f"--find-links {(index or '').rstrip('/')}/{name}/" for name in wanted.family]
    for one in wanted.packages:
        marks = wanted.hashes.get(one.name, ()) if hashed else ()
        lines.append(" ".join((requirement(one), *(f"--hash=sha256:{mark}" for mark in marks))))
    return _lines(lines)


UV = """\
{head}
{environment}[project]
name = "torch-project"
version = "0.1.0"
requires-python = "=={python}.*"
dependencies = [
{dependencies}]

[tool.uv]
environments = ["{marker}"]

[tool.uv.sources]
{sources}
[[tool.uv.index]]
name = "{index}"
url = "{url}"
explicit = true
"""


def uv_project(wanted: Wanted) -> str:
    """A `pyproject.toml` for uv: torch's index is explicit, so nothing else comes from it."""
    build = chosen_build(wanted.resolution)
    python = _python(wanted.snapshot, build)
    index = f"pytorch-{build.backend}"
    exact = pins(build, wanted.family)
    named = f"# The environment: uv venv --python {python}\n" if python.endswith("t") else ""
    _, system, machine = PLATFORMS[build.os, build.machine]
    return UV.format(
        head=head(wanted),
        environment=named,
        python=python.rstrip("t"),
        dependencies=_lines(f'    "{word}",' for word in (*exact, *wanted.words)),
        marker=f"sys_platform == '{system}' and platform_machine == '{machine}'",
        sources=_lines(f'{pin.partition("==")[0]} = {{ index = "{index}" }}' for pin in exact),
        index=index,
        url=wanted.resolution.index_url,
    )


PIXI = """\
{head}
[workspace]
name = "torch-project"
channels = ["conda-forge"]
requires-pixi = ">={pixi}"
platforms = [{platform}]

[dependencies]
python = "{python}.*"

[pypi-dependencies]
{rows}"""


def pixi_project(wanted: Wanted) -> str:
    """A `pixi.toml`: Python from conda-forge, torch's wheels from torch's own index.

    The CUDA that the machine must have stands with its platform, as pixi has it since 0.71 (its
    `[system-requirements]` is deprecated); an older pixi says so by `requires-pixi`.
    """
    build, snapshot = chosen_build(wanted.resolution), wanted.snapshot
    index = wanted.resolution.index_url
    named = (pin.split("==") for pin in pins(build, wanted.family))
    rows = [f'{name} = {{ version = "=={own}", index = "{index}" }}' for name, own in named]
    rows += [f"{one.name} = {_pixi_value(one)}" for one in wanted.others]
    platform = f'"{PLATFORMS[build.os, build.machine][0]}"'
    if build.cuda:
        own = snapshot.driver.cuda  # no more than this driver has
        cuda = own if own and release(own) < release(build.cuda) else build.cuda
        platform = f'{{ platform = {platform}, cuda = "{cuda}" }}'
    return PIXI.format(
        head=head(wanted),
        pixi=load_catalog().milestone("pixi"),
        platform=platform,
        python=_ordinary(_python(snapshot, build), "this file names Python by its version alone"),
        rows=_lines(rows),
    )


def _pixi_value(one: JointPackage) -> str:
    version = f"=={one.version}" if one.version else one.limits or "*"
    extras = ", ".join(f'"{extra}"' for extra in one.extras)
    return f'{{ version = "{version}", extras = [{extras}] }}' if extras else f'"{version}"'


def conda_environment(wanted: Wanted) -> str:
    """An `environment.yml` for conda, mamba and micromamba."""
    build = conda_build(wanted.resolution)
    python = _ordinary(_python(wanted.snapshot, build), "conda's channels have no torch for it")
    by_pip = ("pip", "pip:") if wanted.words else ()
    return _lines(
        (
            f"# torch {build.torch} ({build.backend}) from {build.channel}; "
            f"catalog of {wanted.resolution.catalog_as_of}",
            "name: torch",
            "channels:",
            *(f"  - {name}" for name in (*CHANNELS[build.channel], "nodefaults")),
            "dependencies:",
            *(f"  - {spec}" for spec in (f"python={python}", *specs(build, wanted.family))),
            *(f"  - {word}" for word in by_pip),
            *(f"    - {word}" for word in wanted.words),
        )
    )


def dockerfile(wanted: Wanted) -> str:
    """A Dockerfile on a plain Python image: the wheels bring CUDA, the host brings the driver."""
    build = _linux_build(chosen_build(wanted.resolution))
    python = _ordinary(_python(wanted.snapshot, build), "there is no official image of it")
    linux = Resolution(build=build, index_url=wanted.resolution.index_url)
    root = wanted.resolution.index_root or INDEX_ROOT
    options = InstallerOptions(python="python", index_root=root, packages=wanted.family)
    install = ("python", "-m", "pip", "install", "--no-cache-dir")
    steps = (shlex.join((*install, *one.argv[4:])) for one in INSTALLERS["pip"](linux, options))
    tests = f"== '{build.cuda}'" if build.cuda else "is None"
    devices = "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    lines = (
        head(wanted),
        "# No CUDA image is needed. Run it with: docker run --gpus all ...",
        f"FROM python:{python}-slim-bookworm",
        "RUN " + " \\\n && ".join(steps),
        f"RUN {shlex.join((*install, *wanted.words))}" if wanted.words else "",
        f'RUN python -c "import torch; assert torch.version.cuda {tests}, torch.__version__"',
        devices if build.cuda else "",
    )
    return _lines(filter(None, lines))


FORMATS: Mapping[str, Callable[[Wanted], str]] = {
    "command": command,
    "requirements": requirements,
    "uv": uv_project,
    "pixi": pixi_project,
    "conda": conda_environment,
    "dockerfile": dockerfile,
}
"""What `--format` takes -> the text; `text` is the screen in `resolution.py`."""


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def head(wanted: Wanted) -> str:
    build = chosen_build(wanted.resolution)
    gpus = ", ".join(served.gpu for served in wanted.resolution.served)
    needs = f", NVIDIA driver {build.driver_floor} or newer" if build.driver_floor else ""
    text = f"torch {build.torch} from {build.backend}{f' for {gpus}' if gpus else ''}{needs}"
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return f"# {printable}; catalog of {wanted.resolution.catalog_as_of}"


def _python(snapshot: Snapshot, build: TorchBuild) -> str:
    usual = load_catalog().milestone("usual python")
    return python_tag(snapshot) or (usual if usual in build.pythons else build.pythons[-1])


def _ordinary(python: str, why_not: str) -> str:
    """The Python, unless it is a free-threaded one."""
    if python.endswith("t"):
        raise Unsatisfiable(
            f"No such file for the free-threaded Python {python}: {why_not}",
            hint=f"`--python {python[:-1]}`, or another `--format`",
        )
    return python


def _linux_build(build: TorchBuild) -> TorchBuild:
    """The same torch on the same backend in a Linux container of the same architecture."""
    found = load_catalog().row_of(build.torch, build.backend, "linux", build.machine)
    if build.channel != "pytorch" or found is None:
        raise Unsatisfiable(
            f"torch {build.torch} {build.backend} has no Linux wheel for {build.machine}",
            hint="name another `--torch` or `--backend`",
        )
    return found
