"""What `install` would do to the torch of a machine: as little as cures it. Pure.

torch that serves the machine stays. A wrong build becomes the same version from the right index,
if that exists and fits; else the nearest newer version that fits; else the newest that fits.
From a build for one maker's GPUs it never goes to another maker's, nor to the CPU's, unless a
backend is named. `doctor` prescribes this, `install` does it, `resolve` says it of what is there.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companions import UNREAD
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.constraints import nearest
from gpusetup.resolver.decide import resolve
from gpusetup.resolver.held import as_it_is, held_build, public, serves
from gpusetup.resolver.situation import CONDA_CHANNELS, WHEELS, Situation, label_of, situation_of

How = Literal[
    "kept",
    "again",
    "same-version",
    "nearest-newer",
    "newest",
    "upgrade",
    "first",
    "refused",
    "nothing",
]
"""What becomes of torch: it stays; the same again, because files are missing; it changes,
and by which rule; it was not there; it would go to another maker's GPUs or to the CPU, which nobody
asked for; nothing fits."""


class Decision(Frozen):
    """What `install` would do, and what the newest would be."""

    how: How
    resolution: Resolution
    """What the environment holds afterwards; of a refusal what naming the backend would give."""
    newest: Resolution
    held: TorchBuild | None = None
    """The torch that is installed, as a build."""

    @property
    def moves(self) -> bool:
        """Whether torch itself is exchanged or comes."""
        return self.how not in ("kept", "refused", "nothing")


def least_change(
    machine: Snapshot, request: Request, catalog: Catalog, *, upgrade: bool = False
) -> Decision:
    """The decision for a machine and a request; `upgrade` asks for the newest that fits."""
    upgrade = upgrade or (request.torch or "").strip().lower() == "latest"
    newest, host = resolve(machine, request, catalog), situation_of(machine, request, catalog)
    held = held_build(machine, host)
    decided = partial(Decision, newest=newest, held=held)
    if held is None:
        return decided(how="first" if newest.build else "nothing", resolution=newest)
    is_newest = newest.build is None or parsed(newest.build.torch) <= parsed(held.torch)
    is_asked = host.backend in ("auto", held.backend) and host.takes(held.torch)
    if is_asked and (is_newest or not upgrade) and _is_good(held, machine, host):
        how: How = "again" if _is_broken(machine) else "kept"
        return decided(how=how, resolution=_kept(held, machine, host))
    chosen = newest if upgrade else _nearest(held.torch, machine, request, host)
    if chosen.build is None:
        return decided(how="nothing", resolution=chosen)
    is_named = request.backend != "auto" or label_of(request.torch) is not None
    if crosses(held.backend, chosen.build.backend) and not is_named:
        keeps = upgrade and serves(held, machine, host)
        stays = keeps or host.presence == "none"
        left = _kept(held, machine, host) if stays else chosen
        return decided(how="kept" if keeps else "refused", resolution=left)
    before, after = parsed(held.torch), parsed(chosen.build.torch)
    how = "nearest-newer"
    if upgrade:
        how = "upgrade"
    elif before.public == after.public:
        how = "same-version"
    elif after < before or (newest.build and newest.build.torch == chosen.build.torch):
        how = "newest"
    return decided(how=how, resolution=chosen)


def _is_good(held: TorchBuild, machine: Snapshot, host: Situation) -> bool:
    """Whether the installed torch does what it is asked for; a backend that is asked for by name is
    not judged against GPUs that are not here, or that nobody judges."""
    is_judged = host.presence == "some" and not is_seen_only(maker_of(held.backend))
    if host.backend == "cpu" or (host.backend == held.backend and not is_judged):
        return True
    return serves(held, machine, host)


def left_alone(machine: Snapshot, catalog: Catalog) -> Decision | None:
    """torch as it is, whether or not it serves: other packages are asked for. None without one."""
    request = Request(installer=_installer(machine))
    host = situation_of(machine, request, catalog)
    held = held_build(machine, host)
    if held is None:
        return None
    newest, stays = resolve(machine, request, catalog), _kept(held, machine, host)
    return Decision(how="kept", resolution=stays, newest=newest, held=held)


def crosses(held: str | None, chosen: str | None) -> bool:
    """Whether a change leaves the GPUs of one maker for another's, or for the CPU.

    >>> crosses("cu130", "cpu"), crosses("rocm6.4", "cu130"), crosses("cpu", "cu130")
    (True, True, False)
    >>> crosses("unknown", "cpu"), crosses("unknown", "cu130")
    (True, False)
    """
    maker = maker_of(held)
    if held == UNREAD:
        return maker_of(chosen) is None
    return maker is not None and maker_of(chosen) != maker


def _is_broken(machine: Snapshot) -> bool:
    """Whether files of the installed torch are missing, or it was asked to import and did not."""
    cut = any(p.name == "torch" and p.intact is False for p in machine.packages or ())
    return cut or machine.torch.import_error is not None


def _kept(held: TorchBuild, machine: Snapshot, host: Situation) -> Resolution:
    """What stays, as the channels have it that it is from."""
    torch, installer = f"=={public(held.torch)}", _installer(machine)
    exact = Request(torch=torch, backend=held.backend, installer=installer)
    known = resolve(machine, exact, host.catalog)
    return replace(known, fallbacks=()) if known.build else as_it_is(held, host)


def _installer(machine: Snapshot) -> str:
    """Whose channels the installed torch is of."""
    return "conda" if machine.torch.installer == "conda" else "auto"


def _nearest(held: str, machine: Snapshot, request: Request, host: Situation) -> Resolution:
    """The same version on a backend that fits, else the nearest newer, else the newest that fits.

    `conda` of the answer is chosen by the same rule from conda's own channels.
    """
    build = nearest(public(held), host)
    label = f"+{host.backend}" if label_of(request.torch) else ""
    if build is not None:
        request = replace(request, torch=f"=={build.torch}{label}")
    found = resolve(machine, request, host.catalog)
    if build is None or host.channels != WHEELS:
        return found
    return replace(found, conda=nearest(public(held), replace(host, channels=CONDA_CHANNELS)))


# --- in words ------------------------------------------------------------------------------------


SERVES = "torch fits this machine and stays"


def why(decision: Decision, host: Situation, *, asked: str | None = None) -> str | None:
    """Why this torch, in a sentence; `asked` is what was said of its version."""
    build, held = decision.resolution.build, decision.held
    if build is None:
        return None
    if asked is not None and decision.moves:
        return f"asked for: {asked}"
    if decision.how == "first" and build.cuda is None and host.presence == "none":
        return (
            f"{build.backend}, because no NVIDIA GPU is seen here; for an image of another host "
            "name it: `--gpu NAME --driver VERSION`, or `--backend cu...`"
        )
    if held is None or decision.how == "upgrade":
        return "the newest that fits"
    no_build = f"no build of {public(held.torch)} fits: the"
    unread = "nothing speaks against this torch: it stays"
    return {
        "kept": unread if held.backend == UNREAD else SERVES,
        "again": "files are missing: the same build again",
        "same-version": "the same version, from the index that fits this machine",
        "nearest-newer": f"{no_build} nearest newer version that does",
        "newest": f"{no_build} newest that does",
    }.get(decision.how)
