"""A resolution as a text for a tool: commands, a requirements file, a conda environment.

Each is text that the tool in question reads as it stands. Where torch comes from its own index,
nothing else does: a mix of indexes lets a newer CPU build win.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.installers.conda import CHANNELS, conda_build, specs
from gpusetup.installers.options import FAMILY, chosen_build, pins
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import JointPackage, Resolution
from gpusetup.model.shell import shell_line
from gpusetup.render.program import as_typed
from gpusetup.resolver.situation import python_tag


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


def conda_environment(wanted: Wanted) -> str:
    """An `environment.yml` for conda, mamba and micromamba."""
    build = conda_build(wanted.resolution)
    usual = load_catalog().milestone("usual python")
    python = python_tag(wanted.snapshot) or (usual if usual in build.pythons else build.pythons[-1])
    if python.endswith("t"):
        raise Unsatisfiable(
            f"conda's channels have no torch for the free-threaded Python {python}",
            hint=f"`--python {python[:-1]}`, or another `--format`",
        )
    by_pip = ("pip", "pip:") if wanted.others else ()
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
            *(f"    - {word}" for word in map(requirement, wanted.others)),
        )
    )


FORMATS: Mapping[str, Callable[[Wanted], str]] = {
    "command": command,
    "requirements": requirements,
    "conda": conda_environment,
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
