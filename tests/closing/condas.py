"""conda: what an install or a remove leaves, by the channels' rows of the catalog."""

from __future__ import annotations

from collections.abc import Sequence

from closing.seen import importing
from closing.shells import Refused
from closing.world import CONDA, World, named, packages_of


def conda(world: World, verb: str, words: Sequence[str]) -> World:
    if world.snapshot.conda.prefix is None:
        raise Refused("conda: command not found")
    if verb not in ("remove", "uninstall"):
        raise Refused(f"the simulator does not know conda {verb}")
    return _removed(world, tuple(word for word in words if not word.startswith("-")))


def _removed(world: World, specs: tuple[str, ...]) -> World:
    """conda's own of that name go, with the files in site-packages that they brought."""
    gone = set(specs)
    if "pytorch" in gone:
        gone |= {"torch", "pytorch-cuda", "pytorch-gpu"}
    missing = [s for s in specs if not [p for p in named(packages_of(world), s, "torch") if p]]
    if missing:
        raise Refused(f"PackagesNotFoundError: {', '.join(missing)}")
    kept = tuple(p for p in packages_of(world) if not (p.name in gone and p.installer in CONDA))
    return importing(world.showing(packages=kept))
