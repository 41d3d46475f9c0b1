"""`install --torch nightly`: the newest build of a channel that fits, with what goes with it.

No row of the catalog knows such a build: the backend is that of the newest release that fits, the
versions are what the channel's index has, and only the proof afterwards says whether it serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusetup.errors import UsageError
from gpusetup.install.decide import Task, target_machine
from gpusetup.install.fetching.channel import CHANNELS, newest, notes, together_on
from gpusetup.install.job import Job
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.refresh.saved import known_catalog
from gpusetup.install.refusals import refuse
from gpusetup.install.request import InstallRequest
from gpusetup.install.settings.environment import asking_environment, beside_channel
from gpusetup.install.target.find import Target
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.companions import family_there
from gpusetup.resolver.least import Decision, least_change


def is_channel(request: InstallRequest) -> bool:
    return request.torch in CHANNELS


def refuse_more(request: InstallRequest, asked: RequestedPackages) -> None:
    """What a build that is another tomorrow cannot be asked together with."""
    if asked.packages:
        raise UsageError(
            f"Packages are released for releases of torch: none is fitted to a {request.torch} one",
            hint=f"`gpusetup install --torch {request.torch}` alone, then the package by itself",
        )
    options = {
        "--installer conda": request.installer == "conda",
        "--download": request.download,
        "--wheelhouse": request.wheelhouse,
    }
    for option, is_given in options.items():
        if is_given:
            raise UsageError(
                f"`--torch {request.torch}` and `{option}` exclude each other",
                hint=f"a {request.torch} build comes from its own index, and is gone after weeks",
            )


def channel_task(
    request: InstallRequest,
    job: Job,
    target: Target,
    snapshot: Snapshot,
    asked: RequestedPackages,
) -> tuple[InstallRequest, Task]:
    """The task, and the request with the channel's root.

    Unsatisfiable where no backend fits, or nothing of the channel goes together; Blocked where its
    index has nothing for this Python.
    """
    channel = request.torch or ""
    catalog = known_catalog(snapshot, job.talk, request.index_root)
    machine = target_machine(request, snapshot, catalog, fresh=target.venv is not None)
    wanted = Request(backend=request.backend)
    usual = least_change(machine, wanted, catalog, upgrade=True)
    refuse(request, machine, usual, catalog)
    release = usual.newest.build
    assert release is not None
    root = f"{request.root.rstrip('/')}/{channel}"
    names = (*family_there(machine), *asked.family)
    family = tuple(name for name in FAMILY if name in names)
    found = _versions(job, target, f"{root}/{release.backend}", family)
    there = target.venv is None and all(target.installed.get(n) == v for n, v in found.items())
    resolution = replace(
        usual.newest,
        build=_build(release, found),
        index_url=f"{root}/{release.backend}",
        fallbacks=(),
        rejections=(),
        notes=notes(channel, found["torch"]),
    )
    decision = Decision(
        how="kept" if there else "upgrade",
        resolution=resolution,
        newest=resolution,
        held=usual.held,
    )
    task = Task(
        machine=machine,
        asked=replace(asked, family=() if there else family),
        decision=decision,
        other_host=request.for_other_host,
        why=f"the newest of {channel} that fits: unproven",
    )
    return replace(request, index_root=root), task


def _versions(job: Job, target: Target, index: str, family: Sequence[str]) -> dict[str, str]:
    """What the channel has of the family, each beside the others."""
    from gpusetup.install.fetching.wheels import target_tags

    torch = newest(job.fetcher.text, index, target_tags(target.layout)).version
    if len(family) == 1:
        return {"torch": torch}
    environment = asking_environment(job.environ, Path.home(), target.layout.prefix)
    environment |= beside_channel(environment, index)
    return together_on(job.uv, target.layout.python, family, torch, environment)


def _build(release: TorchBuild, found: dict[str, str]) -> TorchBuild:
    """The channel's build as a row: the platform and backend are the release's."""
    public = {name: parsed(version).public for name, version in found.items()}
    return replace(
        release,
        torch=public["torch"],
        torchvision=public.get("torchvision"),
        torchaudio=public.get("torchaudio"),
        labelled="+" in found["torch"],
        status="unproven",
        note=None,
    )
