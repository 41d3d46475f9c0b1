"""The request for a torch, of a person, a machine or a text; the build that fits it, and the
context that the rules are given."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gpusetup.evidence.context import RuleContext
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot, Wanted
from gpusetup.model.resolution import Request
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.resolver.companions import COMPANIONS, installed

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.model.documents import ResolveAnswer
    from gpusetup.resolver.least import Decision


def build_case(
    snapshot: Snapshot, catalog: Catalog, request: Request | None, *, other_host: bool = False
) -> tuple[RuleContext, ResolveAnswer]:
    """What the rules are given, and the resolution as a document."""
    from gpusetup.catalog.builds import with_catalog
    from gpusetup.resolver.companions import moved_with
    from gpusetup.resolver.decide import OF_A_BUILD, to_answer

    machine = with_catalog(snapshot, catalog)
    if request is None:
        request, decision = choose_request(machine, catalog)
    else:
        decision = decision_for(machine, catalog, request)
    resolution = decision.resolution
    answer = to_answer(resolution, machine, moved_with(machine, resolution.build))
    installer = choose_installer(machine)
    if installer == "conda" and (theirs := resolution.conda):
        # Recommended is what this environment's own installer installs.
        told = {name: getattr(theirs, name) for name in OF_A_BUILD}
        answer = replace(answer, index_url=None, **told)
    context = RuleContext(
        snapshot=machine,
        catalog=catalog,
        resolution=resolution,
        decision=decision,
        commands=answer.commands,
        installer=installer,
        request=request,
        other_host=other_host,
    )
    return context, answer


def decision_for(machine: Snapshot, catalog: Catalog, request: Request) -> Decision:
    """What `install` would do for a request, for the Python that is shown to be wanted."""
    from gpusetup.resolver.least import least_change

    if machine.wanted.python:
        machine = replace(machine, python=replace(machine.python, version=machine.wanted.python))
    return least_change(machine, request, catalog)


def choose_request(machine: Snapshot, catalog: Catalog) -> tuple[Request, Decision]:
    """What the machine or the text asks for, and what `install` would do for it.

    A text often asks for what does not exist for its machine, which is why it was written: then the
    request is loosened, its backend first, its torch last.
    """
    if machine.origin == "report" and _is_a_step_back(machine, machine.wanted.torch or ""):
        machine = replace(machine, wanted=Wanted())
    asked = _request_shown(machine, catalog)
    requests = [asked]
    if machine.origin == "report":
        near = [
            replace(asked, backend=backend) for backend in _backends_for_extension(machine, catalog)
        ]
        newest = [replace(request, torch=None) for request in near]
        own = Request(torch=_installed_torch(machine))
        requests = [*(near or requests), *newest, replace(asked, backend="auto"), own, Request()]
        pair = ((asked.torch or "").removeprefix("=="), asked.backend)
        refused = any(map(_index_refuses, machine.events))
        if refused and all((row.torch, row.backend) != pair for row in catalog.builds):
            # The index that the text asks for is at fault.
            requests = [request for request in requests if request.backend == "auto"]
    for request in dict.fromkeys(requests):
        decision = decision_for(machine, catalog, request)
        if decision.resolution.build is not None:
            break
    return request, decision


def _index_refuses(event: Event) -> bool:
    """Whether the index that a text asks for has nothing for this machine."""
    nothing = event.kind == "no-matching-distribution" and not event.values.get("versions")
    return nothing or event.kind == "wrong-index"


def _backends_for_extension(machine: Snapshot, catalog: Catalog) -> list[str]:
    """The backends that an extension build of one CUDA can use: of its major, the nearest first;
    below it before above it, because an extension needs nvcc of torch's major."""
    cuda_asked = _cuda(machine)
    if not cuda_asked or machine.wanted.backend:
        return []
    own = parsed(cuda_asked)
    known = ((parsed(cuda), backend) for backend in catalog.backends if (cuda := cuda_of(backend)))
    same_major = [pair for pair in known if pair[0].major == own.major]
    same_major.sort(key=lambda pair: (pair[0] > own, abs(pair[0].minor - own.minor)))
    return [backend for _, backend in same_major]


def _cuda(machine: Snapshot) -> str | None:
    """The CUDA that a text asks for; else nvcc's, where an extension does not fit a torch that is
    not shown."""
    build = any(e.kind == "cuda-toolkit-mismatch-extension-build" for e in machine.events)
    by_nvcc = machine.toolkit.nvcc if build and not machine.torch.version else None
    return machine.wanted.cuda or by_nvcc


def _request_shown(machine: Snapshot, catalog: Catalog) -> Request:
    """The request that stands in the snapshot, else in a text the installed release."""
    wanted, in_report = machine.wanted, machine.origin == "report"
    cuda = _cuda(machine)
    backend = wanted.backend or (f"cu{cuda.replace('.', '')}" if cuda else "auto")
    if in_report and backend == "auto" and machine.torch.backend in (None, "cpu"):
        # The index that torchvision or torchaudio comes from, if torch shows none.
        packages = installed(machine)
        companions = (packages[name] for name in COMPANIONS if name in packages)
        labels = ((companion.version or "").partition("+")[2] for companion in companions)
        backend = next(filter(cuda_of, labels), "auto")
    # Who installed a CPU build beside a GPU and asks why it is not used wants another one; no build
    # for CUDA serves a machine that has no NVIDIA GPU, whatever its owner asks for.
    unused = "cpu" == backend == machine.torch.backend and (machine.gpus or machine.driver.version)
    useless = machine.gpus == () and cuda_of(backend)
    if backend not in catalog.backends or (in_report and (unused or useless)):
        backend = "auto"
    torch = wanted.torch
    if in_report and torch is None:
        torch = _installed_torch(machine) or _torch_of_companion(machine, catalog)
    return Request(torch=torch, backend=backend)


LACKS_KERNELS = ("gpu-not-in-wheel", "no-kernel-image")
"""Events of a torch without kernels: what an old document asks for does not bring them."""


def _is_a_step_back(machine: Snapshot, pin: str) -> bool:
    """Whether a document asks for an older release than the one that lacks kernels."""
    lacks = any(event.kind in LACKS_KERNELS for event in machine.events)
    release = pin.removeprefix("==").removesuffix(".*")
    installed_release = (machine.torch.version or "").partition("+")[0]
    if not (lacks and installed_release and pin.startswith("==")):
        return False
    return parsed(release) < parsed(installed_release)


def _installed_torch(machine: Snapshot) -> str | None:
    version = machine.torch.version
    return f"=={version.partition('+')[0]}" if version else None


def _torch_of_companion(machine: Snapshot, catalog: Catalog) -> str | None:
    """The torch to which the torchvision or torchaudio of a text belongs."""
    from gpusetup.catalog.companions import releases_with

    packages = installed(machine)
    asked, _, asked_version = (machine.wanted.companion or "").partition("==")
    companions = [(name, packages[name].version or "") for name in COMPANIONS if name in packages]
    for name, version in ((asked, asked_version), *companions):
        with contextlib.suppress(ValueError):  # what a stranger calls a version
            pin = f"=={version.partition('+')[0]}"
            if version and (releases := releases_with(catalog, [(name, pin)])):
                return f"=={releases[-1]}"
    return None


def choose_installer(machine: Snapshot) -> str:
    """Who changes this environment: what installed torch, else what made it, else what is there."""
    manager, torch = machine.python.manager, machine.torch
    installed_by = (torch.installer or "").lower()
    if manager == "uv project" and installed_by != "conda":
        return "uv"
    if installed_by in ("uv", "pip", "conda"):
        return installed_by
    if machine.origin == "report" and machine.failing.program == "uv":
        return "uv"
    # conda's torch has no label: over pip's, and over what no text shows, it would be a mixture.
    if machine.origin == "report" and manager == "conda" and "+" in (torch.version or "+"):
        return "pip"
    if manager in ("uv", "conda"):
        return manager
    return "uv" if machine.python.has_pip is False else "pip"
