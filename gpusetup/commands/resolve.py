"""`gpusetup resolve`: which build fits this machine, or a described one, and why not the others."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.commands.common import (
    add_backend_options,
    add_file_options,
    add_machine_options,
    gather,
    read_listed,
    told,
)
from gpusetup.commands.resolve_channel import CHANNELS, channel_answer, refuse_more
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution
from gpusetup.render.console import Console
from gpusetup.resolver.spelled import (
    architecture_named,
    python_named,
    system_named,
    torch_named,
)

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.install.joint.table import Joint
    from gpusetup.model.documents import ResolveAnswer
    from gpusetup.model.resolution import HeldBack
    from gpusetup.render.formats import Wanted
    from gpusetup.resolver.described import Description
    from gpusetup.resolver.least import Decision

SUMMARY = (
    "Says which PyTorch build fits this machine, or a described one, and why not the others. "
    "What you do not give comes from this machine."
)
EXAMPLES = (
    "gpusetup resolve",
    'gpusetup resolve --os linux --driver 580.95.05 --gpu "GTX 1080 Ti" --python 3.11',
    "gpusetup resolve --from rtx3050-laptop --torch 2.5.1 --format requirements",
    'gpusetup resolve vllm --gpu "A100 80GB" --driver 580.95.05 --os linux --explain',
)
FORMATS = ("text", "command", "requirements", "uv", "pixi", "conda", "dockerfile")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="packages that use torch: `vllm`, 'jax[cuda13]'; torch is chosen with it, and your "
        "own package index is asked",
    )
    add_machine_options(parser, python=False)
    group = parser.add_argument_group("another machine than this one")
    group.add_argument("--driver", metavar="VERSION", help="its NVIDIA driver: 580.95.05")
    group.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="a GPU's name or sm_86; repeatable",
    )
    group.add_argument("--os", type=system_named, choices=("linux", "windows", "macos"))
    group.add_argument("--machine", type=architecture_named, choices=("x86_64", "aarch64"))
    group.add_argument(
        "--python",
        dest="python_version",
        type=python_named,
        metavar="3.11",
        help="its Python, or 3.13t",
    )
    group.add_argument("--glibc", metavar="2.35", help="its C library (Linux)")
    add_file_options(parser)
    wish = parser.add_argument_group("request")
    wish.add_argument(
        "--torch",
        type=torch_named,
        metavar="SPEC",
        help="2.5.1, a specifier such as '>=2.6,<2.9', or nightly",
    )
    add_backend_options(wish)
    wish.add_argument("--installer", choices=("uv", "pip", "conda"))
    wish.add_argument("--format", choices=FORMATS, default="text", help="what to print (text)")
    wish.add_argument("--explain", action="store_true", help="give the reason for every row")
    wish.add_argument(
        "--offline",
        action="store_true",
        help="with PACKAGE: use no network, answer from the table of companions",
    )
    wish.add_argument(
        "--refresh",
        action="store_true",
        help="ask the live index for builds newer than the catalog",
    )
    wish.add_argument(
        "--index",
        dest="index_root",
        metavar="URL",
        help="a mirror of https://download.pytorch.org/whl to ask and to print (or GPUSETUP_INDEX)",
    )


def run(options: Namespace, out: Console) -> int:
    read_listed(options, out)
    _torch_of_words(options)
    _check_format(options)
    import os

    from gpusetup.catalog.builds import with_catalog
    from gpusetup.install.credentials import without_credentials
    from gpusetup.install.settings.index_root import index_root_of
    from gpusetup.render.formats import Wanted
    from gpusetup.resolver import check_request, to_answer
    from gpusetup.resolver.described import described
    from gpusetup.resolver.joint import Asked
    from gpusetup.resolver.offer import at_root, newest_of

    root = index_root_of(options.index_root, os.environ, INDEX_ROOT)
    catalog = _catalog(options, root, out)
    channel = options.torch if options.torch in CHANNELS else None
    installer = "conda" if options.format == "conda" else options.installer or "auto"
    torch = None if channel else options.torch
    request = Request(torch=torch, backend=options.backend, installer=installer)
    check_request(request, catalog)
    given = _description(options)
    snapshot = described(_machine(options, given, out), given, catalog)
    snapshot = with_catalog(snapshot, catalog)
    shown = without_credentials(root)
    asked = Asked(machine=snapshot, request=request, catalog=catalog)
    if channel:
        return _show(channel_answer(channel, asked, shown), snapshot, options, out)
    joint, newest = None, None
    if options.packages:
        from gpusetup.commands.resolve_together import together

        joint, resolution = together(options, asked, out)
    else:
        decision = _decision(snapshot, request, given, catalog)
        resolution = decision.resolution
        newest = newest_of(replace(decision, newest=at_root(decision.newest, shown)), snapshot)
    resolution = at_root(resolution, shown)
    resolution = replace(resolution, notes=_notes(resolution, snapshot, options, root))
    wanted = Wanted(
        resolution=resolution,
        snapshot=snapshot,
        installer=options.installer or "uv",
        packages=joint.packages if joint else (),
        hashes=joint.hashes if joint else {},
    )
    if options.format != "text":
        return _file(wanted, joint, options, out)
    if joint:
        answer = to_answer(resolution, snapshot, wanted.asked)
        same = ("packages", "held_back", "matrix")
        answer = replace(answer, **{name: getattr(joint, name) for name in same})
        answer = replace(answer, commands={}) if joint.refused else answer
    else:
        packages, said = _beside(resolution, snapshot)
        resolution = replace(resolution, notes=(*resolution.notes, *said))
        answer = replace(to_answer(resolution, snapshot, packages), newest=newest)
    return _show(answer, snapshot, options, out, joint.refused if joint else ())


def _torch_of_words(options: Namespace) -> None:
    """A torch among the words is what `--torch` asks for."""
    from gpusetup.install.packages import requested_packages

    if not options.packages:
        return
    asked = requested_packages(options.packages, {})
    if options.torch and asked.torch and options.torch != asked.torch:
        raise UsageError(f"`--torch {options.torch}` and torch {asked.torch} exclude each other")
    options.torch = options.torch or asked.torch
    if not asked.packages and {*asked.named} <= {"torch"}:
        options.packages = []


def _decision(
    snapshot: Snapshot, request: Request, given: Description, catalog: Catalog
) -> Decision:
    """The least change to the torch that was read, as doctor and `install` say it; of a described
    machine, which has none, the newest that fits."""
    from gpusetup.diagnosis.request import chosen_request, decision_for
    from gpusetup.model.machine import Torch
    from gpusetup.resolver.described import Description

    if given != Description():
        snapshot = replace(snapshot, torch=Torch(installed=False))
    elif request.torch is None and request.backend == "auto":
        wanted, _ = chosen_request(snapshot, catalog)
        request = replace(wanted, installer=request.installer)
    decision = decision_for(snapshot, catalog, request)
    taken = decision.resolution
    there = {(one.torch, one.backend) for one in (taken.build, *taken.fallbacks) if one}
    # The reasons are of what was asked, not of the version that stays.
    asked = decision.newest.rejections if taken.build else taken.rejections
    rows = tuple(row for row in asked if (row.torch, row.backend) not in there)
    return replace(decision, resolution=replace(taken, rejections=rows))


def _show(
    answer: ResolveAnswer,
    snapshot: Snapshot,
    options: Namespace,
    out: Console,
    refused: tuple[HeldBack, ...] = (),
) -> int:
    from gpusetup.render.resolution import resolution_text

    how = {"installer": options.installer or "uv", "explain": options.explain}
    out.answer(answer, lambda: resolution_text(answer, snapshot, **how, refused=refused))
    return 0 if answer.torch and not refused else Unsatisfiable.exit_code


def _beside(resolution: Resolution, snapshot: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """torch's family and what of the environment must move with it; and what is to be said."""
    from gpusetup.resolver.companions import FAMILY, pinned, pinned_in_words

    build = resolution.build
    if build is None or snapshot.python.executable is None:
        return FAMILY, ()
    followers = tuple(one.name for one in pinned(snapshot, build) if one.can_follow)
    return (*FAMILY, *followers), pinned_in_words(snapshot, build)


def _file(wanted: Wanted, joint: Joint | None, options: Namespace, out: Console) -> int:
    from gpusetup.install.joint.coming import refusal
    from gpusetup.render.formats import FORMATS as WRITERS

    if wanted.resolution.build is None:
        raise Unsatisfiable(
            "No torch build fits", hint="`gpusetup resolve` without `--format` says why"
        )
    if joint and joint.refused:
        raise Unsatisfiable(*refusal(joint))
    out.text(WRITERS[options.format](wanted))
    return 0


def _machine(options: Namespace, given: Description, out: Console) -> Snapshot:
    """This machine, or its system alone where the rest is described: no driver is waited for."""
    if options.machine_from or not given.is_whole:
        return gather(options, out)
    from gpusetup.probe.host import read_os

    return told(read_os, out)


def _description(options: Namespace) -> Description:
    from gpusetup.resolver.described import Description

    return Description(
        driver=options.driver,
        gpus=tuple(options.gpu),
        os=options.os,
        machine=options.machine,
        python=options.python_version,
        glibc=options.glibc,
    )


def _check_format(options: Namespace) -> None:
    file, installer = options.format, options.installer
    if options.torch in CHANNELS:
        refuse_more(options, options.torch)
    if file == "text":
        return
    if options.json:
        raise UsageError(f"`--json` and `--format {file}` exclude each other")
    if file == "conda" and installer in ("uv", "pip"):
        raise UsageError(f"`--format conda` and `--installer {installer}` exclude each other")
    if installer == "conda" and file not in ("conda", "command"):
        raise UsageError(f"`--format {file}` is made of wheels, not of conda packages")


def _notes(
    resolution: Resolution, snapshot: Snapshot, options: Namespace, root: str
) -> tuple[str, ...]:
    from datetime import date

    from gpusetup.install.credentials import without_credentials
    from gpusetup.probe.unfinished import unfinished
    from gpusetup.resolver.notes import age_note

    hidden = "the index's user and password are left out of what is shown"
    told = (
        *unfinished(snapshot),
        *resolution.notes,
        _branch(options, snapshot),
        age_note(resolution.catalog_as_of, date.today().isoformat()),
        hidden if root != without_credentials(root) else None,
    )
    return tuple(filter(None, told))


def _branch(options: Namespace, snapshot: Snapshot) -> str | None:
    """A driver that was given as a branch only: which one of it is meant."""
    version = snapshot.driver.version or ""
    if not options.driver or "." not in version or re.search(r"\d[.,]\d", options.driver):
        return None
    return f"driver {options.driver} is taken as {version}, the first of its branch with a CUDA"


def _catalog(options: Namespace, root: str, out: Console) -> Catalog:
    """The catalog; with `--refresh` what the index lists now."""
    from gpusetup.catalog.file import load_catalog
    from gpusetup.install.refresh import refreshed

    catalog = load_catalog()
    return refreshed(catalog, root, out.talk, options.backend) if options.refresh else catalog
