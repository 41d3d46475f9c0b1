"""Which torch is asked for: by a person, by what a machine shows, by what a text is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.resolver.companions import COMPANIONS, installed

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.resolver.least import Decision


REFUSALS = frozenset(["wrong-index", "no-matching-distribution", "no-wheel-for-platform"])
"""The events that say what an index or a platform has not."""


def decision_for(machine: Snapshot, catalog: Catalog, request: Request) -> Decision:
    """What `install` would do for a request, for the Python that is shown to be wanted."""
    from gpusetup.resolver.least import least_change

    if machine.wanted.python:
        machine = replace(machine, python=replace(machine.python, version=machine.wanted.python))
    return least_change(machine, request, catalog)


def chosen_request(machine: Snapshot, catalog: Catalog) -> tuple[Request, Decision]:
    """What the machine or the text asks for, and what `install` would do for it.

    A text often asks for what does not exist for its machine, which is why it was written: then the
    request is loosened, its backend first, its torch last.
    """
    machine = on_its_platform(machine, catalog)
    requests = wanted_requests(machine, catalog)
    for request in requests[:-1]:
        decision = decision_for(machine, catalog, request)
        if decision.resolution.build is not None:
            return request, decision
    return requests[-1], decision_for(machine, catalog, requests[-1])


def wanted_requests(machine: Snapshot, catalog: Catalog) -> tuple[Request, ...]:
    """From what is asked to what is left of it; a backend that never existed is no request."""
    asked = wanted_request(machine, catalog)
    if machine.origin != "report":
        return (asked,)
    same_major = tuple(replace(asked, backend=b) for b in backends_for(machine, catalog))
    newest = tuple(replace(request, torch=None) for request in same_major)
    looser = (
        *(same_major or (asked,)),
        *newest,
        replace(asked, backend="auto"),
        installed_request(machine),
        Request(),
    )
    refused = shown_refused(machine) and not is_known(asked, catalog)
    kept = tuple(r for r in looser if r is not None and (r.backend == "auto" or not refused))
    return tuple(r for index, r in enumerate(kept) if r not in kept[:index])


def backends_for(machine: Snapshot, catalog: Catalog) -> tuple[str, ...]:
    """The backends that an extension build of one CUDA can use: of its major, the nearest first.

    Below it before above it: an extension needs nvcc of torch's major, at best of its minor.
    """
    wanted = machine.wanted.cuda
    if not wanted or machine.wanted.backend:
        return ()
    own = parsed(wanted)
    known = [(parsed(cuda), b) for b in catalog.backends if (cuda := cuda_of(b)) is not None]
    same = sorted((cuda, b) for cuda, b in known if cuda.major == own.major)
    below = [b for cuda, b in same if cuda.release[:2] <= own.release[:2]]
    return (*reversed(below), *(b for _, b in same if b not in below))


def is_known(asked: Request, catalog: Catalog) -> bool:
    """Whether that release was built for that backend: then the index is not at fault."""
    torch = (asked.torch or "").removeprefix("==")
    return any(row.torch == torch and row.backend == asked.backend for row in catalog.builds)


def shown_refused(machine: Snapshot) -> bool:
    """Whether the text shows that the index it asks for has nothing for this machine."""
    return any(
        event.kind == "wrong-index"
        or (event.kind == "no-matching-distribution" and not event.values.get("versions"))
        for event in machine.events
    )


def shows_nvidia(machine: Snapshot) -> bool:
    return machine.origin == "report" and bool(machine.gpus or machine.driver.version)


def wanted_request(machine: Snapshot, catalog: Catalog) -> Request:
    """The request that stands in the snapshot, else in a text the installed release."""
    wanted = machine.wanted
    backend = (
        wanted.backend
        or (f"cu{wanted.cuda.replace('.', '')}" if wanted.cuda else None)
        or tag_beside(machine)
        or "auto"
    )
    if backend == "cpu" and machine.torch.backend == "cpu" and shows_nvidia(machine):
        # Who installed a CPU build beside a GPU and asks why it is not used wants another one.
        backend = "auto"
    if cuda_of(backend) and machine.origin == "report" and machine.gpus == ():
        # No build for CUDA serves a machine that has no NVIDIA GPU, whatever its owner asks for.
        backend = "auto"
    torch = wanted.torch
    if torch is None and (own := installed_request(machine)) is not None:
        torch = own.torch
    if torch is None:
        torch = torch_beside(machine, catalog)
    known = backend == "auto" or backend in catalog.backends
    return Request(torch=torch, backend=backend if known else "auto")


def tag_beside(machine: Snapshot) -> str | None:
    """The index that a text's torchvision or torchaudio comes from, where its torch shows none."""
    if machine.origin != "report" or machine.torch.backend not in (None, "cpu"):
        return None
    there = installed(machine)
    labels = ((there[name].version or "").partition("+")[2] for name in COMPANIONS if name in there)
    return next((label for label in labels if cuda_of(label)), None)


def torch_beside(machine: Snapshot, catalog: Catalog) -> str | None:
    """The torch to which the torchvision or torchaudio of a text belongs."""
    if machine.origin != "report":
        return None
    there = installed(machine)
    held = ((name, there[name].version or "") for name in COMPANIONS if name in there)
    name, _, version = (machine.wanted.companion or "").partition("==")
    for beside, of in ((name, version), *held):
        for row in reversed(catalog.releases):
            if (
                of
                and {"torchvision": row.torchvision, "torchaudio": row.torchaudio}.get(beside)
                == of.partition("+")[0]
            ):
                return f"=={row.torch}"
    return None


def installed_request(machine: Snapshot) -> Request | None:
    """A text about an installed torch asks for that release, on a backend that serves."""
    version = machine.torch.version
    if machine.origin != "report" or not version:
        return None
    return Request(torch=f"=={version.partition('+')[0]}")


def on_its_platform(machine: Snapshot, catalog: Catalog) -> Snapshot:
    """A text in which an installer has no wheel for "this platform", which it does not name.

    Where x86_64 has that wheel and aarch64 has none, it was written on aarch64.
    """
    refused = any(event.kind == "no-wheel-for-platform" for event in machine.events)
    if not refused or machine.os.machine is not None or machine.os.family not in (None, "linux"):
        return machine
    asked = wanted_request(machine, catalog)
    has = {
        row.machine
        for row in catalog.builds
        if row.os == "linux"
        and row.backend == asked.backend
        and row.torch == (asked.torch or "").strip("= ").partition("+")[0]
    }
    if has != {"x86_64"}:
        return machine
    return replace(machine, os=replace(machine.os, family="linux", machine="aarch64"))
