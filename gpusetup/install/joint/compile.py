"""uv is asked which versions go together: one question, its answer or its own sentence why not."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
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

    def of(self, name: str) -> Locked:
        """A package, its version public; an empty row if it is not in the set."""
        return next(
            (one for one in self.packages if one.name == name), Locked(name=name, version="")
        )

    def version(self, name: str) -> str:
        return self.of(name).version.partition("+")[0]


class Uv:
    """uv with the user's own indexes, asked for one machine; each question once."""

    def __init__(self, places: Places, machine: Snapshot, folder: Path) -> None:
        self.places, self.folder, self.machine = places, folder, machine
        self.python = (python_tag(machine) or "3.12").rstrip("t")
        self.ask = cache(self._ask)

    def _ask(
        self, wants: tuple[str, ...], limits: tuple[str, ...] = (), links: Path | None = None
    ) -> Answer:
        """What goes together; without limits and links each by itself. `links`: a folder of
        stand-ins.

        Raises what `complaint` makes of an index that does not answer.
        """
        from gpusetup.install.complaints import complaint
        from gpusetup.install.settings.uv_config import parse_toml

        file = self.folder / f"limits-{abs(hash(limits))}.txt"
        file.write_text("\n".join((*limits, "")), encoding="utf-8")
        platform, more = platform_of(self.machine)
        argv: tuple[str, ...] = (
            *(self.places.uv, "pip", "compile", "--format", "pylock.toml", "--no-build", "--quiet"),
            *("--no-header", "--no-annotate", "--python-version", self.python),
            # Ours builds nothing: without it uv asks each Python of the machine for its version.
            *("--python", sys.executable, "--python-platform", platform),
            *("--constraints", str(file), *(() if links else ("--no-deps",)), "-"),
        )
        environment = {**self.places.environment, **more}
        if links is not None:
            environment = {**with_links(environment, str(links)), **more}
        said = run(argv, timeout=SECONDS, environment=environment, stdin="\n".join((*wants, "")))
        if said.ok:
            own = links.as_uri() if links else "-"
            rows = parse_toml(said.stdout)["packages"]
            return Answer(packages=tuple(_locked(row, own) for row in rows))
        problem = complaint("uv finds no set of versions of versions", said)
        if not isinstance(problem, Unsatisfiable):
            raise problem
        return Answer(reason=sentence(problem.message))


def _locked(row: Mapping[str, Any], links: str) -> Locked:
    wheels = row.get("wheels", ())
    urls = [str(one.get("url", "")) for one in wheels]
    here = bool(urls) and all(url.startswith("file:") for url in urls)
    real = not any(url.startswith(links) for url in urls)
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
    plain = " ".join(re.sub("[\\u00d7╰─▶├│]", " ", text).split())
    return plain[max(0, plain.find("Because ")) :]


def platform_of(machine: Snapshot) -> tuple[str, dict[str, str]]:
    """uv's name of a platform, `x86_64-manylinux_2_35`, and what else tells it the system."""
    family, own = machine.os.family or "linux", machine.os.machine or "x86_64"
    if family == "windows":
        return f"{own}-pc-windows-msvc", {}
    if family == "macos":
        found = re.match(r"\d+(\.\d+)?", machine.os.version or "")
        return f"{own}-apple-darwin", {
            "MACOSX_DEPLOYMENT_TARGET": found[0] if found else USUAL_MACOS
        }
    minor = int(glibc_of(machine).partition(".")[2])
    return f"{own}-manylinux_2_{next((one for one in GLIBCS if one <= minor), GLIBCS[-1])}", {}


def glibc_of(machine: Snapshot) -> str:
    found = re.fullmatch(r"glibc (\d+\.\d+)", machine.os.libc or "")
    return found[1] if found else USUAL_GLIBC
