"""uv is asked which versions go together: one question, its answer or its reason."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock

from gpusetup.errors import GpuSetupError, Unsatisfiable
from gpusetup.install.settings.environment import with_links
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.system.processes import Output, run

SECONDS = 300.0
GLIBCS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minors of glibc that uv has a platform for."""
USUAL_MACOS = "15.0"
USUAL_GLIBC = "2.35"
"""What is taken where the machine's is not known: Ubuntu 22.04's."""


class Question(Frozen):
    """What uv is asked: requirements and constraints, for a platform and a Python."""

    wants: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    python: str
    platform: str
    macos: str | None = None
    """The version of macOS; uv takes an old one where it is not told."""
    links: str
    """The folder of stand-ins."""
    standing_in: tuple[str, ...] = ()
    """Their names: two folders with the same are the same."""


class Locked(Frozen):
    """One package of an answer."""

    name: str
    version: str
    index: str | None = None
    """None where uv takes it from a folder of this machine."""
    files: tuple[tuple[str, str], ...] = ()
    """Name and sha256 of its wheels."""


class Answer(Frozen):
    """What uv says: the packages that go together, or why none do."""

    packages: tuple[Locked, ...] = ()
    reason: str | None = None

    def version(self, name: str) -> str | None:
        return next((one.version for one in self.packages if one.name == name), None)


class Asker:
    """Asks uv in one environment of settings, each question once."""

    def __init__(self, uv: str, environment: Mapping[str, str]) -> None:
        self._uv, self._environment = uv, environment
        self._told: dict[Question, Answer] = {}
        self._asking: defaultdict[Question, Lock] = defaultdict(Lock)
        """By question: two that put the same one run uv once."""

    def ask(self, question: Question, prepare: Callable[[], None]) -> Answer:
        """The answer; `prepare` comes before uv is run. Raises what `complaint` makes of an index
        that does not answer."""
        key = replace(question, links="")
        with self._asking[key]:
            if key not in self._told:
                prepare()
                self._told[key] = _answer(self._run(question), question.wants)
            return self._told[key]

    def _run(self, question: Question) -> Output:
        argv: tuple[str, ...] = (
            *(self._uv, "pip", "compile", "--format", "pylock.toml", "--no-build", "--quiet"),
            *("--no-header", "--no-annotate", "--python-version", question.python),
            # Ours builds nothing: without it uv asks each Python of the machine for its version.
            *("--python", sys.executable),
            *("--python-platform", question.platform),
        )
        text = "\n".join((*question.wants, "")) + "\n"
        environment = with_links(self._environment, question.links)
        if question.macos:
            environment["MACOSX_DEPLOYMENT_TARGET"] = question.macos
        if question.constraints:
            name = f"constraints-{abs(hash(question.constraints))}.txt"
            file = Path(question.links) / name
            file.write_text("\n".join(question.constraints) + "\n", encoding="utf-8")
            argv += ("--constraints", str(file))
        return run((*argv, "-"), timeout=SECONDS, environment=environment, stdin=text)


def _answer(said: Output, wants: Sequence[str]) -> Answer:
    from gpusetup.install.complaints import complaint
    from gpusetup.install.settings.uv_config import parse_toml

    if said.ok:
        return Answer(packages=tuple(map(_locked, parse_toml(said.stdout).get("packages", ()))))
    problem: GpuSetupError = complaint("uv finds no set", said, wants)
    if not isinstance(problem, Unsatisfiable):
        raise problem
    return Answer(reason=reason_in(said.stderr))


def _locked(row: Mapping[str, object]) -> Locked:
    wheels: list[Mapping[str, object]] = [*(row.get("wheels") or ())]  # type: ignore[misc]
    urls = [str(one.get("url", "")) for one in wheels]
    named = zip(wheels, urls, strict=True)
    files = ((str(one.get("name") or url.rpartition("/")[2]), _sha(one)) for one, url in named)
    index, here = row.get("index"), bool(urls) and all(url.startswith("file:") for url in urls)
    return Locked(
        name=str(row["name"]),
        version=str(row.get("version", "")),
        index=None if here else str(index or ""),
        files=tuple(files),
    )


def _sha(wheel: Mapping[str, object]) -> str:
    hashes = wheel.get("hashes")
    return str(hashes.get("sha256", "")) if isinstance(hashes, dict) else ""


def reason_in(text: str) -> str:
    """Why uv finds no solution, in one sentence.

    >>> reason_in("cause: Because vllm==0.32.0 depends on torch==2.13.0 and you require "
    ...           "torch==2.15.0, we can conclude that your requirements are unsatisfiable.")
    'vllm 0.32.0 requires torch==2.13.0'
    >>> reason_in("Because only certifi<=2026.10.18 is available and vllm>=0.33.0 depends on "
    ...           "certifi>=2026.10.19, we can conclude")
    'vllm>=0.33.0 requires certifi>=2026.10.19, and the index has only certifi<=2026.10.18'
    >>> reason_in("Because a==1 depends on b{sys_platform == 'linux'}==2 and you require b==3")
    'a 1 requires b==2'
    >>> reason_in("Because b==2 has no usable wheels and you require b==2, we can conclude that")
    'b 2 has no wheel for this Python and system'
    >>> reason_in("Because c>=4 depends on d>=2 and a==1 depends on c>=4, we can conclude that "
    ...           "a==1 depends on d>=2. And because you require a==1 and d<2, we can conclude")
    'a 1 requires d>=2 (c>=4 does)'
    """
    from gpusetup.install.complaints import plain_lines
    from gpusetup.install.credentials import without_logins

    plain = " ".join(plain_lines(without_logins(text)).split())
    because = plain.partition("Because ")[2].partition(", we can conclude")[0] or plain
    because = re.sub(r"\{[^{}]*\}", "", because)  # the marker of a requirement
    if none := re.match(r"(\S+==\S+) has no \b.*\bwheels\b.* and you require \1$", because):
        return f"{_spoken(none[1])} has no wheel for this Python and system"
    if through := _by_one_step(re.sub(r"\{[^{}]*\}", "", plain)):
        return through
    only = re.search(r"only (\S+) is available", because)
    needs = re.search(r"([A-Za-z][\w.-]*\S*) depends on ([A-Za-z][^\s,]*)", because)
    if needs is None:
        return re.sub(r"\s+(hint|help):.*", "", because)[:LONGEST]
    who = _spoken(needs[1])
    there = f", and the index has only {only[1]}" if only else ""
    return f"{who} requires {needs[2]}{there}"


LONGEST = 240
ONE_STEP = re.compile(
    r"Because (.{1,2000}?), we can conclude that (\S+) depends on (\S+?)\. And because you require "
    r"(?!.*And because)"
)


def _by_one_step(plain: str) -> str | None:
    """What a package requires because something that it requires does; None where it is not so."""
    found = ONE_STEP.search(plain)
    pairs = re.findall(r"(\S+) depends on ([^\s,]+)", found[1]) if found else []
    for who, needs in pairs:
        if found and needs == found[3] and who != found[2]:
            return f"{_spoken(found[2])} requires {needs} ({_spoken(who)} does)"
    return None


def _spoken(word: str) -> str:
    """
    >>> _spoken("vllm==0.32.0"), _spoken("vllm>=0.33")
    ('vllm 0.32.0', 'vllm>=0.33')
    """
    return re.sub(r"^([\w.-]+)==(\S+)$", r"\1 \2", word)


def platform_of(machine: Snapshot) -> str:
    """uv's name of a platform: `x86_64-manylinux_2_35`."""
    family, own = machine.os.family or "linux", machine.os.machine or "x86_64"
    if family == "windows":
        return "x86_64-pc-windows-msvc" if own == "x86_64" else "aarch64-pc-windows-msvc"
    if family == "macos":
        return "aarch64-apple-darwin" if own == "aarch64" else "x86_64-apple-darwin"
    minor = int(glibc_of(machine).partition(".")[2] or 35)
    fitting = next((one for one in GLIBCS if one <= minor), GLIBCS[-1])
    return f"{own}-manylinux_2_{fitting}"


def macos_of(machine: Snapshot) -> str | None:
    """The macOS that wheels are sought for; None on another system."""
    if machine.os.family != "macos":
        return None
    found = re.fullmatch(r"\d+(\.\d+)?", ".".join((machine.os.version or "").split(".")[:2]))
    return found[0] if found else USUAL_MACOS


def glibc_of(machine: Snapshot) -> str:
    found = re.fullmatch(r"glibc (\d+\.\d+)", machine.os.libc or "")
    return found[1] if found else USUAL_GLIBC
