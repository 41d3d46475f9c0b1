"""What `install` would do to the torch of a machine: as little as cures it. Pure.

torch that serves the machine stays. A wrong build becomes the same version from the right index,
where that exists and fits; else the nearest newer version that fits; else the newest that fits.
From a build for one maker's GPUs it never goes to another maker's, nor to the CPU's, unless a
backend is named. `doctor` prescribes this, `install` does it, `resolve` says it of what is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.default_wheels import UNREAD
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.choice import in_scope, preference
from gpusetup.resolver.constraints import fits
from gpusetup.resolver.decide import resolve
from gpusetup.resolver.held import as_it_is, held_build, public, serves
from gpusetup.resolver.situation import (
    CONDA_CHANNELS,
    WHEELS,
    Situation,
    is_allowed,
    label_of,
    situation_of,
)

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
"""What becomes of torch: it stays; the same again, because its files are not all there; it changes,
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
    newest = resolve(machine, request, catalog)
    situation = situation_of(machine, request, catalog)
    held = held_build(machine, situation, catalog)
    decided = partial(Decision, newest=newest, held=held)
    if held is None:
        return decided(how="first" if newest.build else "nothing", resolution=newest)
    stays = partial(_kept, held, machine, situation, catalog)
    is_newest = newest.build is None or parsed(newest.build.torch) <= parsed(held.torch)
    is_asked = situation.backend in ("auto", held.backend) and is_allowed(held.torch, situation)
    if is_asked and (is_newest or not upgrade) and _is_good(held, machine, situation):
        return decided(how="again" if is_broken(machine) else "kept", resolution=stays())
    chosen = newest if upgrade else nearest(held.torch, machine, request, catalog)
    if chosen.build is None:
        return decided(how="nothing", resolution=chosen)
    is_named = request.backend != "auto" or label_of(request.torch) is not None
    if crosses(held.backend, chosen.build.backend) and not is_named:
        if upgrade and serves(held, machine, situation):
            return decided(how="kept", resolution=stays())
        left = stays() if situation.presence == "none" else chosen
        return decided(how="refused", resolution=left)
    before, after = parsed(held.torch), parsed(chosen.build.torch)
    how: How = "nearest-newer"
    if upgrade:
        how = "upgrade"
    elif before.public == after.public:
        how = "same-version"
    elif after < before or (newest.build and newest.build.torch == chosen.build.torch):
        how = "newest"
    return decided(how=how, resolution=chosen)


def _is_good(held: TorchBuild, machine: Snapshot, situation: Situation) -> bool:
    """Whether the installed torch does what it is asked for; a backend that is asked for by name is
    not judged against GPUs that are not here, or that nobody judges."""
    is_judged = situation.presence == "some" and not is_seen_only(maker_of(held.backend))
    if situation.backend == "cpu" or (situation.backend == held.backend and not is_judged):
        return True
    return serves(held, machine, situation)


def left_alone(machine: Snapshot, catalog: Catalog) -> Decision | None:
    """torch as it is, whether or not it serves: other packages are asked for. None without one."""
    request = Request(installer=_installer(machine))
    situation = situation_of(machine, request, catalog)
    held = held_build(machine, situation, catalog)
    if held is None:
        return None
    newest = resolve(machine, request, catalog)
    stays = _kept(held, machine, situation, catalog)
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


# --- what stays ----------------------------------------------------------------------------------


def is_broken(machine: Snapshot) -> bool:
    """Whether files of the installed torch are missing, or it was asked to import and did not."""
    cut = any(p.name == "torch" and p.intact is False for p in machine.packages or ())
    return cut or machine.torch.import_error is not None


def _kept(
    held: TorchBuild, machine: Snapshot, situation: Situation, catalog: Catalog
) -> Resolution:
    exact = Request(
        torch=f"=={public(held.torch)}", backend=held.backend, installer=_installer(machine)
    )
    known = resolve(machine, exact, catalog)
    if known.build is not None:
        return replace(known, fallbacks=())
    return as_it_is(held, situation)


def _installer(machine: Snapshot) -> str:
    """Whose channels the installed torch is of."""
    return "conda" if machine.torch.installer == "conda" else "auto"


# --- what comes in its place ---------------------------------------------------------------------


def nearest(held: str, machine: Snapshot, request: Request, catalog: Catalog) -> Resolution:
    """The same version on a backend that fits, else the nearest newer, else the newest that fits.

    `conda` of the answer is chosen by the same rule from conda's own channels.
    """
    situation = situation_of(machine, request, catalog)
    build = _nearest_build(held, situation, catalog)
    if build is None:
        return resolve(machine, request, catalog)
    label = label_of(request.torch)
    exact = replace(request, torch=f"=={build.torch}" + (f"+{label}" if label else ""))
    found = resolve(machine, exact, catalog)
    if situation.channels != WHEELS:
        return found
    by_conda = replace(situation, channels=CONDA_CHANNELS)
    return replace(found, conda=_nearest_build(held, by_conda, catalog))


def _nearest_build(held: str, situation: Situation, catalog: Catalog) -> TorchBuild | None:
    fitting = [build for build in in_scope(situation, catalog) if fits(build, situation)]
    torch = nearest_version(held, (build.torch for build in fitting))
    same = (build for build in fitting if build.torch == torch)
    return min(same, key=preference(situation), default=None)


def nearest_version(held: str, versions: Iterable[str]) -> str | None:
    """The version itself, else the next newer, else the newest of them all.

    >>> nearest_version("2.5.1", ["2.4.0", "2.6.0", "2.7.0"]), nearest_version("2.5.1", ["2.4.0"])
    ('2.6.0', '2.4.0')
    """
    known = sorted(set(versions), key=parsed)
    own = parsed(public(held))
    return next((one for one in known if parsed(one) >= own), known[-1] if known else None)


# --- in words ------------------------------------------------------------------------------------


SERVES = "torch fits this machine and stays"


def why(decision: Decision, situation: Situation, *, asked: str | None = None) -> str | None:
    """Why this torch, in a sentence; `asked` is what was said of its version."""
    build, held = decision.resolution.build, decision.held
    if build is None:
        return None
    if asked is not None and decision.moves:
        return f"asked for: {asked}"
    if decision.how == "first" and build.cuda is None and situation.presence == "none":
        return (
            f"{build.backend}, because no NVIDIA GPU is seen here; for an image of another host "
            "name it: `--gpu NAME --driver VERSION`, or `--backend cu...`"
        )
    was, backend = (public(held.torch), held.backend) if held is not None else ("", "")
    kept = SERVES
    if backend == UNREAD:
        kept = "nothing speaks against this torch: it stays"
    elif is_seen_only(maker_of(backend)):
        kept = f"{SERVES}; the catalog knows no newer build for {backend}"
    return {
        "kept": kept,
        "again": "files are missing: the same build again",
        "same-version": "the same version, from the index that fits this machine",
        "nearest-newer": f"no build of {was} fits: the nearest newer version that does",
        "newest": f"no build of {was} fits: the newest that does",
        "upgrade": "the newest that fits",
        "first": "the newest that fits",
    }.get(decision.how)
