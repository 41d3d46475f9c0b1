"""No such file, as uv, poetry, an index and conda say it themselves."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Event, Finding, Fix
from gpusetup.rules import ways
from gpusetup.rules.case import Case, error, events, shown, told
from gpusetup.rules.wheels import no_python_for, other_python, requirement, torch_of


def without_wheel(case: Case) -> Iterator[Finding]:
    """An installer that says itself which of Python and platform has no wheel."""
    python, system = events(case, "python-no-wheel"), events(case, "no-wheel-for-platform")
    others = tuple(event for event in (*system, *python) if _is_another(event))
    python, system = (tuple(e for e in heard if e not in others) for heard in (python, system))
    if others and not (python or system):
        yield _no_other(others)
    if python or (system and _is_of_python(case, system[0])):
        yield _no_python(case, (*python, *system))
    elif system:
        yield _no_system(case, system)


OURS = ("torch", "triton", "nvidia-", "pytorch")
"""How the names begin of what torch's index holds in its own right."""


def _is_another(event: Event) -> bool:
    """Whether a package that only came along has no file: torch's index holds some of those too."""
    name = requirement(event.values.get("requirement", ""))[0]
    return bool(name) and not name.startswith(OURS)


def _no_other(heard: tuple[Event, ...]) -> Finding:
    return error(
        "package-not-found",
        f"The installer finds no file of {heard[0].values['requirement']} for this Python and "
        "system where it looked",
        detail="uv takes a package from the first index that has its name; torch's index has some "
        "files of other packages, for few systems.",
        evidence=told(heard),
        fix=Fix(
            text="Give torch's index for torch alone: in pyproject.toml `explicit = true` under "
            '[[tool.uv.index]], and under [tool.uv.sources] torch = { index = "its name" } (the '
            "same for torchvision and torchaudio); with `uv pip`, --torch-backend does it",
        ),
    )


def _is_of_python(case: Case, event: Event) -> bool:
    """Whether the wheels that are there are for other Pythons, where the message leaves it open."""
    name, version, label = requirement(event.values.get("requirement", ""))
    left_open = not event.values.get("platform")
    return bool(left_open and version and no_python_for(case, torch_of(case, name, version), label))


def _no_python(case: Case, heard: tuple[Event, ...]) -> Finding:
    """Releases of one pin may lack the Python, others the system: another Python helps first."""
    asked = heard[0].values.get("requirement") or "torch"
    here = heard[0].values.get("python")
    name, version, label = requirement(asked)
    return error(
        "python-no-wheel",
        f"{asked} has no wheel for this Python{f' ({here})' if here else ''}",
        evidence=told(heard),
        fix=other_python(case, torch_of(case, name, version), label),
    )


def _no_system(case: Case, heard: tuple[Event, ...]) -> Finding:
    values = heard[0].values
    here, what = values.get("platform"), values.get("what") or "system"
    return error(
        "no-wheel-for-platform",
        f"{values.get('requirement') or 'torch'} has no wheel for this {what}"
        + (f" ({here})" if here else ""),
        evidence=told(heard),
        fix=ways.install_torch(case, "Ask for what exists. "),
    )


def pinned_beyond_this_python(case: Case) -> Iterator[Finding]:
    """A solver finds nothing for a pinned torch that has wheels, and none for this Python."""
    heard = events(case, "resolver-conflict")
    pin = case.snapshot.wanted.torch or ""
    if not heard or not pin.startswith("==") or events(case, "python-no-wheel"):
        return
    version = pin.removeprefix("==").partition("+")[0]
    if no_python_for(case, version, None):
        here = case.snapshot.python.version
        yield error(
            "python-no-wheel",
            f"torch {version} has no wheel for this Python ({here})",
            evidence=(*told(heard), shown(case, "python.version", f"Python {here}")),
            fix=other_python(case, version),
        )


def wrong_index(case: Case) -> Iterator[Finding]:
    """An index, or a local label, that is not there."""
    heard = events(case, "wrong-index")
    if heard:
        values = heard[0].values
        what = values.get("index") or values.get("requirement") or "the index"
        status = f" ({values['status']})" if values.get("status") else ""
        yield error(
            "wrong-index",
            f"{what} does not exist{status}",
            evidence=told(heard),
            fix=ways.install_torch(case, "Ask for what exists. "),
        )


def conda_not_found(case: Case) -> Iterator[Finding]:
    """conda has no such package in its channels: they end early on some systems."""
    heard = events(case, "conda-not-found")
    if heard:
        os = case.snapshot.os
        elsewhere = os.family == "macos" or (os.machine or "x86_64") != "x86_64"
        id = "no-wheel-for-platform" if elsewhere else "wrong-index"
        yield error(
            id,
            f"conda's channels have no {heard[0].values.get('package') or 'such package'} here",
            detail="The channel pytorch ended with torch 2.5; conda-forge goes on.",
            evidence=told(heard),
            fix=ways.install_torch(case, "Ask for what exists. "),
        )


RULES = (without_wheel, pinned_beyond_this_python, wrong_index, conda_not_found)
