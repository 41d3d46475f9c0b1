"""A resolution as a requirements file.

Where torch comes from its own index, nothing else does: a mix lets a newer CPU build win.
"""

from __future__ import annotations

from gpusetup.installers.options import chosen_build, pins
from gpusetup.model.resolution import FAMILY, JointPackage, Resolution
from gpusetup.render.language import plain

Packages = tuple[JointPackage, ...]
"""A whole set, torch too; empty where torch was asked for alone."""


def family(packages: Packages) -> tuple[str, ...]:
    """What of torch's family is in the set."""
    there = {one.name for one in packages}
    return tuple(name for name in FAMILY if name in there) if there else FAMILY


def requirement(one: JointPackage) -> str:
    """`vllm==0.32.0`, `jax[cuda13]==0.12.0`."""
    name = f"{one.name}[{','.join(one.extras)}]" if one.extras else one.name
    return f"{name}=={one.version}" if one.version else f"{name}{one.limits or ''}"


ONE_INDEX = "# Only torch's own index: a second one would let a newer CPU build win."
PAGES = "# Only torch's family is looked for on these pages: no second index is asked for the rest."


def requirements(resolution: Resolution, packages: Packages) -> str:
    """A requirements file for `pip install -r`, `uv pip install -r` and `uv pip compile`.

    For torch alone one index serves the whole file: its own carries what torch needs as well. A
    set has each package at its exact version. A second index would be searched for every package; a
    page of one package's is not.
    """
    build, index = chosen_build(resolution), resolution.index_url or ""
    gpus = ", ".join(served.gpu for served in resolution.served)
    needs = f", NVIDIA driver {build.driver_floor} or newer" if build.driver_floor else ""
    what = f"torch {build.torch} from {build.backend}{f' for {gpus}' if gpus else ''}{needs}"
    first = f"# {' '.join(plain(what).split())}; catalog of {resolution.catalog_as_of}"
    if not packages:
        rows = (first, ONE_INDEX, f"--index-url {index}", *pins(build, FAMILY), "")
        return "\n".join(rows)
    pages = (f"--find-links {index.rstrip('/')}/{name}/" for name in family(packages))
    return "\n".join((first, PAGES, *pages, *map(requirement, packages), ""))
