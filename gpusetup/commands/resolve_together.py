"""`gpusetup resolve PACKAGE…`: torch is chosen with what is to stand on it."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.install.joint.table import by_table
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.install.joint.table import Joint
    from gpusetup.model.resolution import Resolution
    from gpusetup.resolver.joint import Asked


def together(options: Namespace, asked: Asked, out: Console) -> tuple[Joint, Resolution]:
    """The set, by the user's own indexes or offline by our table, and its torch; or why there is
    none. UsageError for what is no package."""
    from gpusetup.install.packages import requested_packages
    from gpusetup.resolver.companions import environment_of
    from gpusetup.resolver.joint import by_name, name_of

    requested = requested_packages(options.packages, {}, environment_of(asked.machine))
    companions = ("torchvision", "torchaudio")
    family = [word for word in options.packages if name_of(word) in companions]
    if requested.left_out_words:
        out.talk(requested.left_out_words)
    asked = replace(asked, words=by_name((*family, *requested.packages)))
    if options.offline:
        joint = by_table(asked)
    else:
        from gpusetup.install.joint.choose import choose_together
        from gpusetup.install.joint.places import users_places

        places = users_places(os.environ, Path.home())
        out.talk(f"asked: {', '.join(places.shown)} (`--offline` uses no network)")
        joint = choose_together(asked, places, explain=options.explain)
    return joint, _resolution(joint, asked)


def _resolution(joint: Joint, asked: Asked) -> Resolution:
    """The resolution of the torch that the set has."""
    from gpusetup.resolver import resolve

    exact = replace(asked.request, torch=f"=={joint.build.torch}", backend=joint.build.backend)
    resolution = resolve(asked.machine, exact, asked.catalog)
    there = {one.name: (one.version or "").partition("+")[0] for one in joint.packages}
    if resolution.build is not None:
        own = {n: v for n in ("torchvision", "torchaudio") if (v := there.get(n))}
        resolution = replace(resolution, build=replace(resolution.build, **own))
    notes = (*resolution.notes, *joint.notes)
    return replace(resolution, rejections=(), advice=None, notes=notes)
