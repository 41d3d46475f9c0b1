"""`install --variant LABEL`: one wheel variant of torch (PEP 817), by request only.

Released uv and pip pass over a file whose name has a label. It is fetched here by its digest, laid
down under the name of an ordinary wheel, and goes through the same plan, switch, proof and undo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.install.credentials import without_credentials
from gpusetup.install.decide import Task, target_machine
from gpusetup.install.fetching.variant_pages import offered
from gpusetup.install.fetching.variants import Judged, variant_of
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.job import Job
from gpusetup.install.joint.places import users_places
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.refresh.saved import known_catalog
from gpusetup.install.refusals import refuse
from gpusetup.install.request import InstallRequest
from gpusetup.install.target.find import Target
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, TorchBuild
from gpusetup.resolver.least import Decision, least_change

SHELF = "variant"
"""Where torch's own index has them, below its root."""


def refuse_beside_variant(request: InstallRequest, asked: RequestedPackages) -> None:
    """What is not asked together with one file of torch."""
    options = {
        "PACKAGE": bool(asked.packages or asked.named),
        "--torch": request.torch,
        "--upgrade": request.upgrade,
        "--installer conda": request.installer == "conda",
        "--download": request.download,
        "--wheelhouse": request.wheelhouse,
        "--build-from-source": request.build_from_source,
    }
    for option in (name for name, is_given in options.items() if is_given):
        raise UsageError(
            f"`--variant` and `{option}` exclude each other",
            hint="a variant is one file of torch: `gpusetup install --variant LABEL` alone, then "
            "the rest",
        )


def variant_task(
    request: InstallRequest,
    job: Job,
    target: Target,
    snapshot: Snapshot,
    asked: RequestedPackages,
) -> Task:
    """The task that brings the variant, and leaves the rest of torch's family as it is.

    Unsatisfiable where no index offers it, or it does not fit this machine.
    """
    catalog = known_catalog(snapshot, job.talk, request.index_root)
    machine = target_machine(request, snapshot, catalog, fresh=target.venv is not None)
    usual = least_change(machine, Request(backend=request.backend), catalog, upgrade=True)
    refuse(request, machine, usual, catalog)
    release = usual.newest.build
    assert release is not None
    index, version, row = _wanted(request, job, machine)
    resolution = replace(
        usual.newest,
        build=_build(release, version, row.label),
        fallbacks=(),
        rejections=(),
        notes=(
            f"unproven: the variant {row.label} of torch {version} has no row in the catalog; the "
            "proof afterwards says whether it serves, and `--undo` takes it back",
        ),
    )
    decision = Decision(how="upgrade", resolution=resolution, newest=resolution, held=usual.held)
    return Task(
        machine=machine,
        asked=replace(asked, family=(), files=(_wheel(index, version, row),)),
        decision=decision,
        other_host=request.for_other_host,
        why=f"the wheel variant {row.label} was asked for",
    )


def _wanted(request: InstallRequest, job: Job, machine: Snapshot) -> tuple[str, str, Judged]:
    """Index, version and row of the variant that is asked for."""
    found = [*_offered(request, job, machine)]
    named = [one for one in found if one[2].label == request.variant]
    fitting = [one for one in named if one[2].reason is None]
    if fitting:
        return fitting[0]
    labels = ", ".join(dict.fromkeys(row.label for _, _, row in found if row.reason is None))
    there = f"those that fit: {labels}" if labels else "none that fits is offered"
    hint = f"nothing was changed; {there} (`gpusetup resolve --variants` judges each)"
    if named:
        _, version, row = named[0]
        raise Unsatisfiable(
            f"torch {version} {row.label} does not fit this machine: {row.reason}", hint=hint
        )
    raise Unsatisfiable(f"No index offers a variant {request.variant!r} of torch", hint=hint)


def _offered(
    request: InstallRequest, job: Job, machine: Snapshot
) -> Iterator[tuple[str, str, Judged]]:
    places = users_places(job.environ, Path.home()).indexes
    for index in dict.fromkeys((f"{request.root.rstrip('/')}/{SHELF}", *places)):
        job.talk(f"asked for wheel variants: {without_credentials(index)}")
        version, rows = offered(job.fetcher.text, index, "torch", machine)
        yield from ((index, version, row) for row in rows)


def _wheel(index: str, version: str, row: Judged) -> Wheel:
    """The file under the name that installers read."""
    plain = variant_of(row.filename)
    assert plain is not None, "it was offered as one"
    return Wheel(
        name="torch",
        version=version,
        filename=plain[0],
        url=row.url,
        sha256=row.sha256,
        source=f"{without_credentials(index)}, variant {row.label}",
    )


def _build(release: TorchBuild, version: str, label: str) -> TorchBuild:
    """The variant as a row: its backend by its label where that is one, else this machine's."""
    is_backend = re.fullmatch(r"cpu|xpu|cu\d{2,4}|rocm[\d.]+", label)
    return replace(
        release,
        torch=version,
        backend=label if is_backend else release.backend,
        torchvision=None,
        torchaudio=None,
        labelled=False,
        status="unproven",
        note=None,
    )
