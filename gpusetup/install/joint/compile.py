"""uv is asked which versions go together: one question, its answer or its own sentence why not."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from gpusetup.errors import Unsatisfiable
from gpusetup.install.joint.places import Places
from gpusetup.install.settings.environment import with_links
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.resolver.situation import python_tag
from gpusetup.system.processes import run

SECONDS = 300.0
GLIBCS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minors of glibc that uv has a platform for."""
USUAL_MACOS = "15.0"
USUAL_GLIBC = "2.35"
"""What is taken if the machine's is not known: Ubuntu 22.04's."""


class Locked(Frozen):
    """One package of an answer."""

    name: str
    version: str
    index: str | None = None
    """None: uv takes it from a folder of this machine."""
    hashes: tuple[str, ...] = ()
    """sha256 of its wheels; none of a stand-in."""
    published: str | None = None
    """`2026-11-02`; None: the index does not say."""


class Answer(Frozen):
    """The packages that go together, or uv's sentence why none do."""

    packages: tuple[Locked, ...] = ()
    reason: str | None = None

    def version(self, name: str) -> str:
        """The public version of a package; "" if it is not in the set."""
        found = (one.version for one in self.packages if one.name == name)
        return next(found, "").partition("+")[0]

    def published(self, name: str) -> str | None:
        return next((one.published for one in self.packages if one.name == name), None)


class Uv:
    """uv with the user's own indexes, asked for one machine; each question once."""

    def __init__(self, places: Places, machine: Snapshot, folder: Path) -> None:
        self.places, self.folder = places, folder
        self.python = (python_tag(machine) or "3.12").rstrip("t")
        self._platform, self._macos = platform_of(machine), macos_of(machine)
        self.ask = cache(self._ask)

    def _ask(
        self,
        wants: tuple[str, ...],
        constraints: tuple[str, ...] = (),
        links: str | None = None,
        *,
        alone: bool = False,
    ) -> Answer:
        """What goes together. `links`: a folder of stand-ins; `alone`: without dependencies.

        Raises what `complaint` makes of an index that does not answer.
        """
        from gpusetup.install.complaints import complaint

        file = self.folder / f"constraints-{abs(hash(constraints))}.txt"
        file.write_text("\n".join((*constraints, "")), encoding="utf-8")
        argv: tuple[str, ...] = (
            *(self.places.uv, "pip", "compile", "--format", "pylock.toml", "--no-build", "--quiet"),
            *("--no-header", "--no-annotate", "--python-version", self.python),
            # Ours builds nothing: without it uv asks each Python of the machine for its version.
            *("--python", sys.executable, "--python-platform", self._platform),
            *("--constraints", str(file), *(("--no-deps",) if alone else ()), "-"),
        )
        environment = dict(self.places.environment)
        if links is not None:
            environment = with_links(environment, links)
        if self._macos:
            environment["MACOSX_DEPLOYMENT_TARGET"] = self._macos
        text = "\n".join((*wants, ""))
        said = run(argv, timeout=SECONDS, environment=environment, stdin=text)
        if said.ok:
            return _answer(said.stdout, Path(links).as_uri() if links else None)
        problem = complaint("uv finds no set of versions", said)
        if not isinstance(problem, Unsatisfiable):
            raise problem
        return Answer(reason=sentence(said.stderr))


def _answer(lock: str, links: str | None) -> Answer:
    from gpusetup.install.settings.uv_config import parse_toml

    return Answer(packages=tuple(_locked(row, links) for row in parse_toml(lock)["packages"]))


def _locked(row: Mapping[str, Any], links: str | None) -> Locked:
    wheels = row.get("wheels", ())
    urls = [str(one.get("url", "")) for one in wheels]
    here = bool(urls) and all(url.startswith("file:") for url in urls)
    real = not (links and any(url.startswith(links) for url in urls))
    times = [when for one in wheels if isinstance(when := one.get("upload-time"), datetime)]
    return Locked(
        name=row["name"],
        version=row.get("version", ""),
        index=None if here else row.get("index", ""),
        hashes=tuple(one["hashes"]["sha256"] for one in wheels if real and "hashes" in one),
        published=min(times).date().isoformat() if times else None,
    )


def sentence(text: str) -> str:
    """uv's own explanation, whole, without the frame around it.

    >>> sentence("  No solution found:\\n  ╰─▶ Because a==1 depends on b==2,\\n      it fails.")
    'Because a==1 depends on b==2, it fails.'
    """
    from gpusetup.install.complaints import plain_lines
    from gpusetup.install.credentials import without_logins

    plain = " ".join(re.sub("[\\u00d7╰─▶├│]", " ", plain_lines(without_logins(text))).split())
    return plain[max(0, plain.find("Because ")) :]


def platform_of(machine: Snapshot) -> str:
    """uv's name of a platform: `x86_64-manylinux_2_35`."""
    family, own = machine.os.family or "linux", machine.os.machine or "x86_64"
    if family == "windows":
        return f"{own}-pc-windows-msvc"
    if family == "macos":
        return f"{own}-apple-darwin"
    minor = int(glibc_of(machine).partition(".")[2] or 35)
    return f"{own}-manylinux_2_{next((one for one in GLIBCS if one <= minor), GLIBCS[-1])}"


def macos_of(machine: Snapshot) -> str | None:
    """The macOS that wheels are sought for; None on another system."""
    if machine.os.family != "macos":
        return None
    found = re.match(r"\d+(\.\d+)?", machine.os.version or "")
    return found[0] if found else USUAL_MACOS


def glibc_of(machine: Snapshot) -> str:
    found = re.fullmatch(r"glibc (\d+\.\d+)", machine.os.libc or "")
    return found[1] if found else USUAL_GLIBC


def listed(names: Sequence[str], uv: Uv) -> Answer:
    """Each package by itself, at its newest release for this Python and system."""
    found = (uv.ask((name,), alone=True) for name in names)
    return Answer(packages=tuple(one for answer in found for one in answer.packages))
