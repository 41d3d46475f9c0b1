"""Which torch goes with versions of its companions that somebody named. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.catalog.companions import releases_with
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import UsageError
from gpusetup.resolver.situation import specifier


def torch_beside(beside: Sequence[tuple[str, str]], torch: str | None) -> str | None:
    """The torch that goes with the companions' versions that the words gave.

    UsageError where no torch has them, or not the one that is asked for.
    """
    if not beside:
        return torch
    catalog = load_catalog()
    label = next((v.partition("+")[2] for _, v in beside if "+" in v), "")
    fits = releases_with(catalog, [(n, v.partition("+")[0]) for n, v in beside])
    said = " ".join(f"{name}{version}" for name, version in beside)
    if not fits:
        one = releases_with(catalog, beside[:1]) if len(beside) > 1 else ()
        goes = f"{''.join(beside[0])} goes with torch {one[-1]}; " if one else ""
        raise UsageError(
            f"No torch goes with {said}",
            hint=f"{goes}without versions they follow torch's: `gpusetup install "
            f"{' '.join(name for name, _ in beside)}`",
        )
    wanted = specifier(torch)
    both = [one for one in fits if wanted is None or wanted.contains(one)]
    if not both:
        raise UsageError(
            f"{said} goes with torch {fits[-1]}, not with {torch}",
            hint=f"`--torch {fits[-1]}`, or leave the version of "
            f"{beside[0][0]} out: it follows torch's",
        )
    if len(both) == 1:
        return torch if torch and "+" in torch else f"{both[0]}{f'+{label}' if label else ''}"
    return f">={both[0]},<={both[-1]}"
