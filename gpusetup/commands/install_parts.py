"""What the ways to install share: the request, its resolution, the plan, the question."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import Unsatisfiable, UsageError

if TYPE_CHECKING:
    from gpusetup.catalog import Catalog
    from gpusetup.install.log import Log
    from gpusetup.install.plan import Asked, Plan
    from gpusetup.install.prepare import Where
    from gpusetup.install.run import Job
    from gpusetup.model import Request, Resolution, Snapshot
    from gpusetup.render.console import Console


def new_job(options: argparse.Namespace, out: Console, log: Log, pip: str = sys.executable) -> Job:
    """What the phases share; `pip` is an interpreter of the target's version that has pip."""
    from gpusetup.install.fetch import Fetcher
    from gpusetup.install.run import Job, default_house
    from gpusetup.install.tools import in_image_build, logins, uv_program
    from gpusetup.render.progress import fetching

    return Job(
        log=log,
        fetcher=Fetcher(log.line, logins(os.environ, Path.home(), options.index_root)),
        house=default_house(os.environ),
        uv=uv_program(),
        environ=os.environ,
        fetching=lambda wheels: fetching(out.talk, wheels),
        say=out.talk,
        keep=not (options.no_keep or in_image_build()),
        pip=pip,
    )


def request_of(options: argparse.Namespace, asked: Asked, *, by_conda: bool = False) -> Request:
    from gpusetup.model import Request

    if options.torch and asked.torch and options.torch != asked.torch:
        raise UsageError(
            f"`{as_word(asked.torch)}` and `--torch {options.torch}` both name a version",
            hint="give one of them",
        )
    return Request(
        torch=torch_beside(asked, options.torch or asked.torch),
        backend=options.backend,
        installer="conda" if by_conda else "auto",
    )


def as_word(torch: str) -> str:
    """
    >>> as_word("2.5.1"), as_word(">=2.6")
    ('torch==2.5.1', 'torch>=2.6')
    """
    return f"torch=={torch}" if torch[:1].isdigit() else f"torch{torch}"


def torch_beside(asked: Asked, torch: str | None) -> str | None:
    """The torch that goes with the companions' versions that the words gave.

    UsageError where no torch has them, or not the one that is asked for.
    """
    from gpusetup.catalog_companions import releases_with
    from gpusetup.catalog_file import load_catalog
    from gpusetup.resolver.situation import specifier

    if not asked.beside:
        return torch
    catalog = load_catalog()
    label = next((v.partition("+")[2] for _, v in asked.beside if "+" in v), "")
    fits = releases_with(catalog, [(n, v.partition("+")[0]) for n, v in asked.beside])
    said = " ".join(f"{name}{version}" for name, version in asked.beside)
    if not fits:
        one = releases_with(catalog, asked.beside[:1]) if len(asked.beside) > 1 else ()
        goes = f"{''.join(asked.beside[0])} goes with torch {one[-1]}; " if one else ""
        raise UsageError(
            f"No torch goes with {said}",
            hint=f"{goes}without versions they follow torch's: `gpusetup install "
            f"{' '.join(name for name, _ in asked.beside)}`",
        )
    wanted = specifier(torch)
    both = [one for one in fits if wanted is None or wanted.allows(one)]
    if not both:
        raise UsageError(
            f"{said} goes with torch {fits[-1]}, not with {torch}",
            hint=f"`--torch {fits[-1]}`, or leave the version of "
            f"{asked.beside[0][0]} out: it follows torch's",
        )
    if len(both) == 1:
        return torch if torch and "+" in torch else f"{both[0]}{f'+{label}' if label else ''}"
    return f">={both[0]},<={both[-1]}"


def resolved(
    snapshot: Snapshot, request: Request, out: Console | None = None, root: str | None = None
) -> Resolution:
    """What fits, by the catalog and by what `resolve --refresh` last saw of this index."""
    from gpusetup.resolver import check_request, resolve

    catalog = known_catalog(snapshot, out, root)
    check_request(request, catalog)
    resolution = resolve(snapshot, request, catalog)
    if resolution.build is None:
        raise nothing_fits(resolution)
    return resolution


def nothing_fits(resolution: Resolution) -> Unsatisfiable:
    """Why: what was asked for, or what keeps the builds of that from this machine."""
    advice = resolution.advice
    asked = [r for r in resolution.rejections if not r.reason.startswith("is not the ")]
    reasons = [f"{r.torch} {r.backend}: {r.reason}" for r in asked[:5]]
    return Unsatisfiable(
        "No PyTorch build fits this machine"
        + "".join(f"\n  {why}" for why in (*resolution.notes, *reasons)),
        hint=f"another {advice.change} ({advice.to}) gives {advice.gives}" if advice else None,
    )


def known_catalog(snapshot: Snapshot, out: Console | None, root: str | None) -> Catalog:
    """The catalog, for this machine with what its index listed when it was last asked."""
    from gpusetup.catalog import INDEX_ROOT
    from gpusetup.catalog_file import load_catalog
    from gpusetup.install.prepare import index_root_of
    from gpusetup.install.refreshed import with_kept

    if snapshot.origin != "live" or out is None:
        return load_catalog()
    return with_kept(load_catalog(), index_root_of(root, os.environ, INDEX_ROOT), out.talk)


def after_of(resolution: Resolution, asked: Asked) -> dict[str, str]:
    from gpusetup.install.plan import versions_of

    build = resolution.build
    label = f"+{build.backend}" if build is not None and build.labelled else ""
    return {n: f"{v}{label}" for n, v in versions_of(resolution, asked.family).items()}


def planned(
    options: argparse.Namespace,
    job: Job,
    where: Where,
    resolution: Resolution,
    asked: Asked,
    snapshot: Snapshot,
) -> Plan:
    from gpusetup.catalog import INDEX_ROOT
    from gpusetup.install.prepare import check_room_before, index_root_of, make_plan

    plan = make_plan(
        job,
        where,
        resolution,
        asked,
        snapshot,
        backend=options.backend,
        installer="uv" if options.installer == "auto" else options.installer,
        index_root=job.house.as_uri()
        if job.wheels
        else index_root_of(options.index_root, os.environ, INDEX_ROOT),
        early=options.yes and not options.dry_run and not job.wheels,
    )
    check_room_before(job, plan)
    return plan


def tell_if_held(store: Path, out: Console) -> None:
    """Before anybody is asked: another gpusetup is at work there."""
    from gpusetup.install.lock import is_held
    from gpusetup.render.console import plain

    if is_held(store):
        out.talk(plain(f"Another gpusetup is changing {store.parent} right now."))


def refused(options: argparse.Namespace, out: Console, what: str = "changed") -> bool:
    """Ask, unless nobody is to be asked; whether the answer is no, which is told."""
    if options.yes or agreed():
        return False
    out.talk(f"Nothing was {what}.")
    return True


def agreed() -> bool:
    sys.stderr.write("Proceed? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
