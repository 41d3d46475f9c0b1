"""Which torch goes with versions of its companions that somebody named. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.catalog.companions import releases_with
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import UsageError
from gpusetup.resolver.situation import specifier


def torch_beside(beside: Sequence[tuple[str, str]], torch: str | None) -> str | None:
    """The torch that goes with the companions' versions that the words gave.

    UsageError if no torch has them, or not the one that is asked for.
    """
    if not beside:
        return torch
    fits = releases_with(load_catalog(), [(n, v.partition("+")[0]) for n, v in beside])
    wanted = specifier(torch)
    both = [one for one in fits if wanted is None or wanted.contains(one)]
    if not both:
        said = " ".join(f"{name}{version}" for name, version in beside)
        goes = f"torch {fits[-1]}, not with {torch}" if fits else "no torch"
        raise UsageError(
            f"{said} goes with {goes}",
            hint="do not name versions of its companions: they follow torch's",
        )
    label = next((f"+{v.partition('+')[2]}" for _, v in beside if "+" in v), "")
    if len(both) == 1:
        return torch if torch and "+" in torch else f"{both[0]}{label}"
    return f">={both[0]},<={both[-1]}"
