"""`gpusetup resolve PACKAGE…`: torch is chosen with what is to stand on it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.install.joint.table import Joint
    from gpusetup.model.machine import Snapshot
    from gpusetup.model.resolution import Request, Resolution


def run_together(
    options: argparse.Namespace,
    snapshot: Snapshot,
    request: Request,
    catalog: Catalog,
    root: str,
    out: Console,
) -> int:
    """The set, by the user's own indexes or offline by our table; or why there is none."""
    from gpusetup.install.joint.places import users_places
    from gpusetup.install.joint.table import by_table
    from gpusetup.resolver.joint import Asked, by_name

    words, left_out = requirements_of(options.packages, snapshot)
    if left_out:
        out.talk(left_out)
    asked = Asked(machine=snapshot, request=request, catalog=catalog, words=by_name(words))
    if options.offline:
        joint = by_table(asked)
    else:
        from gpusetup.install.joint.choose import choose_together

        places = users_places(os.environ, Path.home())
        out.talk(f"asked: {', '.join(places.shown)} (`--offline` asks nobody)")
        joint = choose_together(asked, places, explain=options.explain)
    resolution = _resolution(joint, snapshot, request, catalog, root)
    _show(joint, resolution, snapshot, options, out)
    return Unsatisfiable.exit_code if joint.refused else 0


def requirements_of(words: list[str], snapshot: Snapshot) -> tuple[tuple[str, ...], str]:
    """The words as requirements, without torch itself, whose version is `--torch`, and a sentence
    about those that do not count here; UsageError for what is no package."""
    from gpusetup.install.packages import requested_packages
    from gpusetup.resolver.companions import environment_of

    asked = requested_packages(words, {}, environment_of(snapshot))
    family = [word for word in words if _is_companion(word)]
    return (*family, *asked.packages), asked.left_out_words


def _is_companion(word: str) -> bool:
    from gpusetup.resolver.joint import name_of

    return name_of(word) in ("torchvision", "torchaudio")


def _resolution(
    joint: Joint, snapshot: Snapshot, request: Request, catalog: Catalog, root: str
) -> Resolution:
    """The resolution of the torch that the set has."""
    from gpusetup.probe.unfinished import unfinished
    from gpusetup.resolver import resolve
    from gpusetup.resolver.offer import at_root

    exact = replace(request, torch=f"=={joint.build.torch}", backend=joint.build.backend)
    resolution = at_root(resolve(snapshot, exact, catalog), root)
    there = {one.name: (one.version or "").partition("+")[0] for one in joint.packages}
    if resolution.build is not None:
        own = {n: v for n in ("torchvision", "torchaudio") if (v := there.get(n))}
        resolution = replace(resolution, build=replace(resolution.build, **own))
    notes = (*unfinished(snapshot), *resolution.notes, *joint.notes)
    return replace(resolution, rejections=(), advice=None, notes=notes)


def _show(
    joint: Joint,
    resolution: Resolution,
    snapshot: Snapshot,
    options: argparse.Namespace,
    out: Console,
) -> None:
    from gpusetup.render.formats import named
    from gpusetup.render.together import FORMATS, family_of, pinned_words, together_text
    from gpusetup.resolver import to_answer

    if options.format != "text":
        if joint.refused:
            from gpusetup.install.joint.coming import refusal

            raise Unsatisfiable(*refusal(joint))
        text = FORMATS[options.format](joint, resolution, snapshot, options.installer or "uv")
        out.text(named(text, options.name))
        return
    packages = (*family_of(joint), *pinned_words(joint))
    answer = to_answer(resolution, snapshot, packages)
    answer = replace(
        answer, packages=joint.packages, held_back=joint.held_back, matrix=joint.matrix
    )
    if joint.refused:
        answer = replace(answer, commands={})
    out.answer(answer, together_text(answer, joint, snapshot, options.installer or "uv"))
