"""A resolution as a file for a tool: requirements, a conda environment.

Each is text that the tool in question reads as it stands. Where torch comes from its own index,
nothing else does: a mix of indexes lets a newer CPU build win.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.installers.conda import CHANNELS, conda_build, specs
from gpusetup.installers.options import FAMILY, chosen_build, pins
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import JointPackage, Resolution
from gpusetup.render.language import plain
from gpusetup.resolver.situation import python_tag

Packages = tuple[JointPackage, ...]
"""A whole set, torch too; empty where torch was asked for alone."""


def family(packages: Packages) -> tuple[str, ...]:
    """What of torch's family is in the set."""
    there = {one.name for one in packages}
    return tuple(name for name in FAMILY if name in there) if there else FAMILY


def others(packages: Packages) -> Packages:
    return tuple(one for one in packages if one.name not in FAMILY)


def requirement(one: JointPackage) -> str:
    """`vllm==0.32.0`, `jax[cuda13]==0.12.0`."""
    name = f"{one.name}[{','.join(one.extras)}]" if one.extras else one.name
    return f"{name}=={one.version}" if one.version else f"{name}{one.limits or ''}"


ONE_INDEX = "# Only torch's own index: a second one would let a newer CPU build win."
NO_HASHES = "# No hashes: those of torch's own index are not known here, and pip takes all or none."
PAGES = "# Only torch's family is looked for on these pages: no second index is asked for the rest."


def requirements(
    resolution: Resolution, packages: Packages, hashes: Mapping[str, tuple[str, ...]]
) -> str:
    """A requirements file for `pip install -r`, `uv pip install -r` and `uv pip compile`.

    For torch alone one index serves the whole file: its own carries what torch needs as well. A
    set has each package at its exact version, and hashes for all of them or for none: pip takes
    either. A second index would be searched for every package; a page of one package's is not.
    """
    build, index = chosen_build(resolution), resolution.index_url or ""
    gpus = ", ".join(served.gpu for served in resolution.served)
    needs = f", NVIDIA driver {build.driver_floor} or newer" if build.driver_floor else ""
    what = f"torch {build.torch} from {build.backend}{f' for {gpus}' if gpus else ''}{needs}"
    first = f"# {plain(what).replace(chr(10), '?')}; catalog of {resolution.catalog_as_of}"
    if not packages:
        return _lines((first, ONE_INDEX, f"--index-url {index}", *pins(build, FAMILY)))
    hashed = all(hashes.get(one.name) for one in packages)
    lines = [first, *(() if hashed else (NO_HASHES,)), PAGES]
    lines += [f"--find-links {index.rstrip('/')}/{name}/" for name in family(packages)]
    for one in packages:
        marks = hashes.get(one.name, ()) if hashed else ()
        lines.append(" ".join((requirement(one), *(f"--hash=sha256:{mark}" for mark in marks))))
    return _lines(lines)


def conda_environment(resolution: Resolution, snapshot: Snapshot, packages: Packages) -> str:
    """An `environment.yml` for conda, mamba and micromamba."""
    build = conda_build(resolution)
    usual = load_catalog().milestone("usual python")
    python = python_tag(snapshot) or (usual if usual in build.pythons else build.pythons[-1])
    if python.endswith("t"):
        raise Unsatisfiable(
            f"conda's channels have no torch for the free-threaded Python {python}",
            hint=f"`--python {python[:-1]}`, or another `--format`",
        )
    by_pip = [f"    - {requirement(one)}" for one in others(packages)]
    return _lines(
        (
            f"# torch {build.torch} ({build.backend}) from {build.channel}; "
            f"catalog of {resolution.catalog_as_of}",
            "name: torch",
            "channels:",
            *(f"  - {name}" for name in (*CHANNELS[build.channel], "nodefaults")),
            "dependencies:",
            *(f"  - {spec}" for spec in (f"python={python}", *specs(build, family(packages)))),
            *(["  - pip", "  - pip:", *by_pip] if by_pip else ()),
        )
    )


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
