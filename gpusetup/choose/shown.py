"""The wish that a machine or somebody's text shows, and who installs into its environment. Pure.

A text often asks for what does not exist for its machine, which is why it was written: then the
wish is loosened, its backend first, its torch last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companions import releases_with
from gpusetup.choose.host import is_a_step_back
from gpusetup.choose.installed import COMPANIONS, installed_packages, public
from gpusetup.choose.wish import Wish
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot, Wanted
from gpusetup.model.versions import cuda_of, parsed


def wishes_shown(machine: Snapshot, catalog: Catalog) -> Iterator[Wish]:
    """What a machine or a text shows that is wanted, the strictest wish first."""
    if machine.origin != "report":
        yield shown_wish(machine, catalog)
        return
    if is_a_step_back(machine):
        machine = replace(machine, wanted=Wanted())
    shown = shown_wish(machine, catalog)
    strict = [
        replace(shown, backend=backend) for backend in backends_for_extension(machine, catalog)
    ]
    wishes = [
        *(strict or [shown]),
        *(replace(wish, torch=None) for wish in strict),
        replace(shown, backend="auto"),
        Wish(torch=installed_release(machine)),
        Wish(),
    ]
    is_any_backend = is_at_fault(shown, machine, catalog)
    for wish in dict.fromkeys(wishes):
        if wish.backend == "auto" or not is_any_backend:
            yield wish


def is_at_fault(shown: Wish, machine: Snapshot, catalog: Catalog) -> bool:
    """Whether the index that a text asks for is its fault: no catalog has such a build there."""
    wanted = (shown.torch or "").removeprefix("=="), shown.backend
    exists = any((row.torch, row.backend) == wanted for row in catalog.builds)
    return not exists and any(map(is_refusal_of_index, machine.events))


def is_refusal_of_index(event: Event) -> bool:
    """Whether the index that a text asks for has nothing for this machine."""
    has_nothing = event.kind == "no-matching-distribution" and not event.values.get("versions")
    return has_nothing or event.kind == "wrong-index"


def backends_for_extension(machine: Snapshot, catalog: Catalog) -> list[str]:
    """The backends that an extension build of one CUDA can use: of its major, the nearest first;
    below it before above it, because an extension needs nvcc of torch's major."""
    shown = cuda_shown(machine)
    if not shown or machine.wanted.backend:
        return []
    wanted = parsed(shown)
    of_same_major = []
    for backend in catalog.backends:
        cuda = cuda_of(backend)
        if cuda and parsed(cuda).major == wanted.major:
            of_same_major.append((parsed(cuda), backend))
    of_same_major.sort(key=lambda pair: (pair[0] > wanted, abs(pair[0].minor - wanted.minor)))
    return [backend for _, backend in of_same_major]


def cuda_shown(machine: Snapshot) -> str | None:
    """The CUDA that a text asks for; else nvcc's, where an extension does not fit a torch that is
    not shown."""
    if machine.wanted.cuda:
        return machine.wanted.cuda
    kinds = {event.kind for event in machine.events}
    is_extension_build = "cuda-toolkit-mismatch-extension-build" in kinds
    return machine.toolkit.nvcc if is_extension_build and not machine.torch.version else None


def shown_wish(machine: Snapshot, catalog: Catalog) -> Wish:
    """The wish that stands in the snapshot; of a text without one, the installed release."""
    torch = machine.wanted.torch
    if machine.origin == "report" and torch is None:
        torch = installed_release(machine) or torch_of_companion(machine, catalog)
    return Wish(torch=torch, backend=shown_backend(machine, catalog))


def shown_backend(machine: Snapshot, catalog: Catalog) -> str:
    """The backend that is wanted, or that a text's companions come from; `auto` for any."""
    cuda, torch = cuda_shown(machine), machine.torch
    of_cuda = f"cu{cuda.replace('.', '')}" if cuda else "auto"
    backend = machine.wanted.backend or of_cuda
    is_report = machine.origin == "report"
    if is_report and backend == "auto" and torch.backend in (None, "cpu"):
        # The index that torchvision or torchaudio comes from, if torch shows none.
        packages = installed_packages(machine)
        versions = [packages[name].version or "" for name in COMPANIONS if name in packages]
        labels = [version.partition("+")[2] for version in versions]
        backend = next(filter(cuda_of, labels), "auto")
    if backend not in catalog.backends:
        return "auto"
    # Who installed a CPU build beside a GPU and asks why it is not used wants another one.
    has_gpu = bool(machine.gpus or machine.driver.version)
    leaves_gpu_unused = backend == "cpu" and torch.backend == "cpu" and has_gpu
    # No build for CUDA serves a machine that has no NVIDIA GPU, whatever its owner asks for.
    is_useless = machine.gpus == () and cuda_of(backend) is not None
    return "auto" if is_report and (leaves_gpu_unused or is_useless) else backend


def installed_release(machine: Snapshot) -> str | None:
    """The installed torch as a specifier."""
    version = machine.torch.version
    return f"=={public(version)}" if version else None


def torch_of_companion(machine: Snapshot, catalog: Catalog) -> str | None:
    """The torch to which the torchvision or torchaudio of a text belongs."""
    packages = installed_packages(machine)
    name, _, version = (machine.wanted.companion or "").partition("==")
    versions = [(name, version)]
    versions += [(name, packages[name].version or "") for name in COMPANIONS if name in packages]
    for name, version in versions:
        if not version:
            continue
        with suppress(ValueError):  # what a stranger calls a version
            releases = releases_with(catalog, [(name, f"=={public(version)}")])
            if releases:
                return f"=={releases[-1]}"
    return None


def shown_installer(machine: Snapshot) -> str:
    """Who changes this environment: what installed torch, else what made it, else what is there."""
    manager, torch = machine.python.manager, machine.torch
    installed_by = (torch.installer or "").lower()
    if manager == "uv project" and installed_by != "conda":
        return "uv"
    if installed_by in ("uv", "pip", "conda"):
        return installed_by
    is_report = machine.origin == "report"
    if is_report and machine.failing.program == "uv":
        return "uv"
    # conda's torch has no label: over pip's, and over what no text shows, it would be a mixture.
    is_unlabelled = torch.version is not None and "+" not in torch.version
    if is_report and manager == "conda" and not is_unlabelled:
        return "pip"
    if manager in ("uv", "conda"):
        return manager
    return "uv" if machine.python.has_pip is False else "pip"
