"""Decides what happens to the installed torch: the smallest change that makes it work.

    1. A torch that works on the machine and is what was requested stays.
    2. A wrong build becomes the same version from the right index, if that exists and fits.
    3. Otherwise it becomes the nearest newer version that fits, otherwise the newest that fits.
    4. A build for one maker's GPUs is never replaced by another maker's or a CPU build, unless a
       backend is named.

`doctor` recommends this change, `install` makes it, and `resolve` reports it for the installed
torch.
"""

from __future__ import annotations

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companions import UNREAD
from gpusetup.catalog.kernels import served
from gpusetup.choose.choice import Action, Choice, crosses
from gpusetup.choose.constraints import nearest
from gpusetup.choose.host import BuildQuestion, Host, question_of
from gpusetup.choose.installed import installed_build, public, serves
from gpusetup.choose.newest import newest_fitting
from gpusetup.choose.wish import Wish
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed


def least_change(wish: Wish, host: Host, catalog: Catalog, *, stays: bool = False) -> Choice:
    """The choice that changes the installed torch as little as possible, with the reason.

    With `stays`, an installed torch stays, whether it works or not, because only other packages
    were requested.
    """
    machine = host.machine
    by_conda = stays and machine.torch.installer == "conda"
    question = question_of(replace(wish, installer="conda") if by_conda else wish, host, catalog)
    newest = newest_fitting(question)
    installed = installed_build(machine, question)
    choice, reason = newest, None
    if installed is not None and stays:
        choice = replace(as_installed(installed, question), action="kept")
        reason = "torch stays unchanged: you did not ask for a change"
    elif installed is not None:
        choice = change_of(installed, newest, question, wish, machine)
    choice = replace(choice, installed=installed, newest=newest, wish=wish)
    return replace(choice, reason=reason or reason_of(choice, question))


def change_of(
    installed: TorchBuild, newest: Choice, question: BuildQuestion, wish: Wish, machine: Snapshot
) -> Choice:
    """The smallest change that works, by the rules above."""
    before = parsed(installed.torch)
    is_newer = newest.build is not None and parsed(newest.build.torch) > before
    is_wanted = question.backend in ("auto", installed.backend) and question.takes(installed.torch)
    if is_wanted and not (wish.wants_newest and is_newer) and is_good(installed, machine, question):
        # The requested torch is installed, but some of its files may be missing.
        packages = [package for package in machine.packages or () if package.name == "torch"]
        is_incomplete = any(package.intact is False for package in packages)
        is_damaged = is_incomplete or machine.torch.import_error is not None
        action: Action = "again" if is_damaged else "kept"
        return replace(as_installed(installed, question), action=action)
    choice = newest
    # For other makers' GPUs, only the newest builds are known well enough.
    if not (wish.wants_newest or question.maker):
        choice = nearest_fitting(installed.torch, question)
    build = choice.build
    if build is None:
        return replace(choice, action="nothing")
    # A user who names a backend accepts that the current GPU maker loses support.
    is_crossing = crosses(installed.backend, build.backend) and question.maker is None
    if is_crossing and wish.wanted_backend == "auto":
        as_it_is = as_installed(installed, question)
        # With `--upgrade`, a torch that works stays if there is no newer one for its GPUs.
        if wish.wants_newest and serves(installed, machine, question):
            return replace(as_it_is, action="kept")
        # Without an NVIDIA GPU, there is no sign that another build would work better.
        stays = question.host.presence == "none"
        return replace(as_it_is if stays else choice, action="refused")
    if question.maker:
        return replace(choice, action="newest")
    if wish.wants_newest:
        return replace(choice, action="upgrade")
    after = parsed(build.torch)
    # The label may differ, because the purpose is to get the same version from another index.
    if before.public == after.public:
        return replace(choice, action="same-version")
    is_newest = newest.build is not None and newest.build.torch == build.torch
    return replace(choice, action="newest" if is_newest or after < before else "nearest-newer")


def is_good(installed: TorchBuild, machine: Snapshot, question: BuildQuestion) -> bool:
    """Whether the installed torch works on this host, as far as gpusetup can judge."""
    # A user who requests the CPU build accepts that the GPUs are not used.
    if question.backend == "cpu":
        return True
    is_judged = question.host.presence == "some" and not is_seen_only(maker_of(installed.backend))
    # If the GPUs for this backend are absent or cannot be judged, trust a user who names it.
    if question.backend == installed.backend and not (is_judged or question.maker):
        return True
    return serves(installed, machine, question)


def as_installed(installed: TorchBuild, question: BuildQuestion) -> Choice:
    """The installed build as a choice."""
    host = question.host
    return Choice(
        build=installed,
        served=served(installed, host.gpus, host.driver_cuda),
        catalog_as_of=question.catalog.as_of,
    )


def nearest_fitting(torch: str, question: BuildQuestion) -> Choice:
    """The choice of the same version for a backend that fits, otherwise of the nearest newer
    version, otherwise of the newest that fits."""
    build = nearest(public(torch), question)
    if build is None:
        return newest_fitting(question)
    # If the requested torch names its backend (`2.5.1+cu124`), the new request names one too.
    label = f"+{question.backend}" if question.wish.label else ""
    exact = replace(question.wish, torch=f"=={build.torch}{label}")
    return newest_fitting(replace(question, wish=exact))


REASONS: dict[str, str] = {
    "kept": "the installed torch fits this machine, so it stays",
    "again": "files are missing: the same build again",
    "upgrade": "the newest that fits",
    "same-version": "the same version, from the index that fits this machine",
    "nearest-newer": "no build of {torch} fits: the nearest newer version that does",
    "newest": "no build of {torch} fits: the newest that does",
}


def reason_of(choice: Choice, question: BuildQuestion) -> str | None:
    """Why this torch is installed or kept, in a sentence; None if there is nothing to say."""
    build, installed, torch = choice.build, choice.installed, question.wish.torch
    if build is None:
        return None
    if torch is not None and choice.moves:
        # Several bounds of a project are joined with those that its companions imply.
        if choice.wish.from_project and "," in torch:
            return "it is inside the bounds of the project's files"
        return f"asked for: {torch}"
    # This choice may surprise users, for example on a login node or while they build an image.
    is_cpu = build.cuda is None and question.maker is None
    if choice.action == "first" and is_cpu and question.host.presence == "none":
        return (
            f"{build.backend}, because no NVIDIA GPU was found here. To build an image for another "
            "host, describe that host with `--gpu NAME --driver VERSION`, or use `--backend cu...`"
        )
    if installed is None or (question.maker and choice.action == "newest"):
        return "the newest that fits"
    if choice.action == "kept" and installed.backend == UNREAD:
        return "nothing speaks against this torch: it stays"
    sentence = REASONS.get(choice.action)
    return sentence.format(torch=public(installed.torch)) if sentence else None
