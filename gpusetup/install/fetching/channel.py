"""The newest build of a channel of torch's index that is no release: nightly, and test."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from packaging.tags import compatible_tags, cpython_tags, mac_platforms

from gpusetup.errors import Blocked
from gpusetup.install.complaints import complaint
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.choose import Page
from gpusetup.install.fetching.page import ACCEPT, parse_page
from gpusetup.install.fetching.wheels import Wheel, best
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed
from gpusetup.resolver.situation import python_tag
from gpusetup.system.processes import run

CHANNELS = ("nightly", "test")
USUAL_GLIBC, USUAL_MACOS = 28, (15, 0)
"""Where the machine's is not told."""


def notes(channel: str, version: str | None) -> tuple[str, ...]:
    """What is to be known of a build that no row of the catalog knows."""
    when = "each day" if channel == "nightly" else "soon"
    found = "" if version else "; offline: the newest that its index has when the command runs"
    return (
        f"unproven: a {channel} build has no row in the catalog, and another takes its place "
        f"{when}{found}; `gpusetup verify` proves it here",
    )


def newest(page: Page, index: str, tags: Sequence[str]) -> Wheel:
    """torch's newest wheel on the index of a channel that a Python of these tags takes.

    Blocked where the index has none, or is none.
    """
    url = f"{index.rstrip('/')}/torch/"
    shown, answer = without_credentials(url), page(url, ACCEPT)
    hint = "nothing was changed; another backend (`--backend`) may have one"
    if answer is None:
        raise Blocked(f"{shown}: there is no such page", hint=hint)
    try:
        listed = parse_page(*answer)
    except ValueError as problem:
        raise Blocked(f"{shown}: what came is no index page: {problem}", hint=hint) from problem
    fitting = (one for one in listed if best((one,), None, tags))
    found = max(fitting, key=lambda one: parsed(one.version), default=None)
    if found is None:
        raise Blocked(f"{shown}: has no wheel for {tags[0]}", hint=hint)
    return found


ASK_SECONDS = 120.0


def together_on(
    uv: str, python: str, family: Sequence[str], torch: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """The newest builds of the family that require each other: one of them may be a day late.

    `torch` is the newest of the channel; Unsatisfiable where none of its version go together.
    """
    least = {"torch": f"torch>={parsed(torch).base_version}.dev0"}
    words = [least.get(name, f"{name}>=0.dev0") for name in family]
    argv = (uv, "pip", "compile", "--python", python, "--no-build", "--no-header", "--no-annotate")
    said = run(
        (*argv, "--quiet", "-"),
        timeout=ASK_SECONDS,
        environment=environment,
        stdin="\n".join(words) + "\n",
    )
    if not said.ok:
        raise complaint(f"{', '.join(family)} of this channel do not go together", said)
    found = dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", said.stdout))
    return {name: found[name] for name in family}


def tags_of(machine: Snapshot) -> tuple[str, ...]:
    """The wheel tags of a machine that may be another, the best first.

    >>> from gpusetup.model.machine import Os, Python
    >>> windows = Snapshot(os=Os(family="windows", machine="x86_64"), python=Python(version="3.12"))
    >>> tags_of(windows)[0]
    'cp312-cp312-win_amd64'
    """
    said = python_tag(machine) or "3.12"
    major, minor = (int(part) for part in said.rstrip("t").split("."))
    own = machine.os.machine or "x86_64"
    libc = (machine.os.libc or "").rpartition(" ")[2].split(".")
    glibc = int(libc[1]) if len(libc) > 1 and libc[1].isdigit() else USUAL_GLIBC
    return _tags((major, minor), said.endswith("t"), machine.os.family or "linux", own, glibc)


@lru_cache
def _tags(
    python: tuple[int, int], free_threaded: bool, family: str, own: str, glibc: int
) -> tuple[str, ...]:
    platforms = {
        "windows": ["win_arm64" if own == "aarch64" else "win_amd64"],
        "macos": [*mac_platforms(USUAL_MACOS, "arm64" if own == "aarch64" else own)],
        "linux": [*(f"manylinux_2_{n}_{own}" for n in range(glibc, 16, -1)), f"linux_{own}"],
    }[family]
    abi = f"cp{python[0]}{python[1]}{'t' if free_threaded else ''}"
    found = (*cpython_tags(python, [abi], platforms), *compatible_tags(python, None, platforms))
    return tuple(dict.fromkeys(map(str, found)))
