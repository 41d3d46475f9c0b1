"""The machines and texts that show a finding, and how doctor fixes it on each of them.

The pages of the findings are made of these cases: nothing on a page is written beside a record.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# The example machines and the table of machines that show a finding belong to the tests.
sys.path[:0] = [str(ROOT / "tests" / room) for room in ("", "diagnosis", "probe")]

from judging import HEALTHY, WINDOWS  # noqa: E402
from machines_named import snapshots  # noqa: E402
from maker_tapes import snapshot as read_tape  # noqa: E402
from messages_searched import SearchedMessage, headings_of, messages_of  # noqa: E402
from test_maker_stacks import BROKEN  # noqa: E402
from test_rules import CASES  # noqa: E402

from gpusetup.catalog.file import load_catalog  # noqa: E402
from gpusetup.causes.record import Cause  # noqa: E402
from gpusetup.diagnosis.diagnose import diagnose  # noqa: E402
from gpusetup.model.finding import Finding, Fix, command_lines  # noqa: E402
from gpusetup.model.frozen import replace  # noqa: E402
from gpusetup.model.machine import Container, Event, Package, Snapshot  # noqa: E402
from gpusetup.report.read import read_bytes  # noqa: E402

HOME = "/home/me"
SYSTEM_LINES = {
    "linux": "OS: Ubuntu 24.04.1 LTS (x86_64)",
    "windows": "OS: Microsoft Windows 11 Pro (10.0.26100 64-bit)",
}
"""The line of `python -m torch.utils.collect_env` that names the system."""
ONLY_ON_LINUX = re.compile(
    r"\b(?:bash|zsh|sh): |\bsudo\b|\.so\b|/dev/|/usr/|modprobe|NVRM|\bsrun:|slurmd"
    r"|NCCL(?! built in)|\bibv_"
    # Linux drivers have three numbers (570.133.07), Windows drivers two (572.16).
    r"|\b[Dd]river\b[^\n]{0,20}\b\d{3}\.\d{2,3}\.\d{2}\b"
)
"""What only a text from Linux has."""
ONLY_ON_WINDOWS = re.compile(r"WinError|Windows|\.dll\b|DLL load failed|Visual C\+\+")
"""What only a text from Windows has."""
ONLY_ON_A_MAC = re.compile(
    r"\bMPS device|macOS|\(arm64\)|device string: mps|attribute .mps|libSystem|\bdyld\b"
)
"""What only a text from a Mac has."""
ONLY_ELSEWHERE = {
    "linux": (ONLY_ON_WINDOWS, ONLY_ON_A_MAC),
    "windows": (ONLY_ON_LINUX, ONLY_ON_A_MAC),
    "": (),
}
"""A system -> what shows that a text is from another one; "": texts of any system."""


class Case(NamedTuple):
    """A finding on one machine or in one text."""

    place: str
    """Where the fix is typed, a key of `PLACES`."""
    machine: Snapshot
    finding: Finding

    @property
    def fix(self) -> Fix:
        return self.finding.fix or Fix(text="")

    @property
    def is_a_text(self) -> bool:
        """Whether only a message was read, and no machine."""
        return self.machine.origin == "report"


def cases_of(record: Cause) -> tuple[Case, ...]:
    """The finding on each kind of system whose fix differs, the most usual system first."""
    shown: list[Case] = []
    first_linux = _on_system(record, "linux") if _may_be_on(record, "linux") else None
    first_windows = _on_system(record, "windows") if _may_be_on(record, "windows") else None
    if first_linux:
        shown.append(first_linux)
    if first_windows and (
        _differs(first_windows, shown) or _has_another_text(first_windows, shown)
    ):
        shown.append(first_windows)
    if first_linux and not first_linux.is_a_text and not first_linux.machine.makers:
        for variant in _in_other_environments(first_linux):
            if _differs(variant, shown):
                shown.append(variant)
    if any(ONLY_ON_WINDOWS.search(line) for line in headings_of(record.id)[:1]):
        # The page's title is a message of Windows: its reader looks for Windows first.
        shown.sort(key=lambda case: case.place != "windows")
    elsewhere = None if shown else _on_another_system(record)
    if elsewhere:
        shown.append(elsewhere)
    return tuple(shown)


def _differs(case: Case, shown: list[Case]) -> bool:
    """Whether a case has commands that no case before it has."""
    if not shown:
        return True
    commands = _without_folders(case)
    return bool(commands) and all(commands != _without_folders(other) for other in shown)


def _has_another_text(case: Case, shown: list[Case]) -> bool:
    """Whether a case without commands still says something else, as "install it from the site"."""
    return not command_lines(case.fix) and all(case.fix.text != other.fix.text for other in shown)


def _without_folders(case: Case) -> tuple[str, ...]:
    """The commands, with the machine's own Python written as `python`."""
    python = case.machine.python.executable
    lines = command_lines(case.fix)
    return tuple(line.replace(python, "python") for line in lines) if python else lines


# --- where a finding is shown ---------------------------------------------------------------------


def _may_be_on(record: Cause, family: str) -> bool:
    """Whether a system can show the finding: some messages alone do not say where they are from."""
    if "windows" in record.id:
        return family == "windows"
    if record.id.startswith("jetson-"):
        return family == "linux"
    # NCCL and Fabric Manager exist on Linux only; that NCCL is missing elsewhere is a finding of
    # its own (above).
    is_linux_only = record.id.startswith("nccl-") or "fabric" in record.id
    return family == "linux" or not is_linux_only


def _on_system(record: Cause, family: str) -> Case | None:
    """The first case on one system that has commands, else the first case."""
    machines = _candidates(record, family)
    case = _first_with_commands(record, (m for m in machines if m.os.family == family))
    if case and case.machine.events:
        # The example of a page is the message in its title, not another one of the finding.
        of_title = _of_title(record, family)
        if of_title and (command_lines(of_title.fix) or command_lines(case.fix)):
            return of_title
    return case


def _of_title(record: Cause, family: str) -> Case | None:
    """The case of the message in the page's title; None if it is from another system."""
    titles = headings_of(record.id)[:1]
    for message in messages_of(record.id):
        is_from_elsewhere = any(part.search(message.text) for part in ONLY_ELSEWHERE[family])
        if message.line in titles and not is_from_elsewhere:
            case = case_of_message(record, message, family)
            if case is None or not command_lines(case.fix):
                return _checked(record, message, family) or case
            return case
    return None


def _checked(record: Cause, message: SearchedMessage, family: str) -> Case | None:
    """The finding in a text with the message and the check's command and output."""
    if record.check is None:
        return None
    command = record.check.command.partition("  # ")[0]
    system = SYSTEM_LINES[family]
    output = f"{message.text}\n{system}\n$ {command}\n{record.check.prints}\n"
    case = _first_with_commands(record, (read_bytes(output.encode()),))
    return case if case and command_lines(case.fix) else None


def _on_another_system(record: Cause) -> Case | None:
    """The same for a finding seen on neither Linux nor Windows, as on a Mac."""
    machines = (
        *_recorded(record),
        *_tabled(record),
        *_of_other_makers(record),
        *_texts(record, ""),
    )
    return _first_with_commands(record, machines)


def _first_with_commands(record: Cause, machines: Iterable[Snapshot]) -> Case | None:
    first: Case | None = None
    for machine in machines:
        finding = _found(machine, record.id)
        if finding is None:
            continue
        case = Case(_place_of(machine), machine, finding)
        if command_lines(case.fix):
            return case
        first = first or case
    return first


def _candidates(record: Cause, family: str) -> Iterator[Snapshot]:
    """Machines and texts that may show the finding, whole machines first."""
    yield from _recorded(record)
    yield from _of_other_makers(record)
    # No Mac is among the healthy machines, so a text alone shows what is a Mac's as well.
    if "apple-silicon" in record.explains:
        yield from _texts(record, family)
    for text in _words_of(record, family):
        yield _healthy_with(text, family)
    yield from _tabled(record)
    has_messages = next(_words_of(record, ""), None) is not None
    if not record.by_check and not has_messages:
        healthy = WINDOWS if family == "windows" else HEALTHY
        yield replace(healthy, events=(Event(kind=record.kinds[0]),))
    yield from _texts(record, family)


def _healthy_with(text: str, family: str) -> Snapshot:
    """A machine without a fault of its own on which a program printed the text."""
    healthy = WINDOWS if family == "windows" else HEALTHY
    return replace(healthy, events=read_bytes(text.encode()).events)


def case_of_message(record: Cause, message: SearchedMessage, family: str = "") -> Case | None:
    """The finding where a program printed this message; None if the message does not show it.

    Without a family, the system is the one that the message is from, or else Linux.
    """
    if not family:
        family = "windows" if ONLY_ON_WINDOWS.search(message.text) else "linux"
    text_alone = read_bytes(f"{message.text}\n{SYSTEM_LINES[family]}".encode())
    return _first_with_commands(record, (_healthy_with(message.text, family), text_alone))


def _recorded(record: Cause) -> Iterator[Snapshot]:
    """Machines of `tests/machines` that show it, those whose root it is first."""
    shown = [machine for machine in snapshots().values() if _found(machine, record.id)]

    def rarity(machine: Snapshot) -> tuple[bool, ...]:
        """Most readers have an x86 machine with Ubuntu or Windows, and one problem."""
        has_a_usual_system = machine.os.id == "ubuntu" or machine.os.family == "windows"
        return (
            _root_of(machine) != record.id,
            machine.os.machine != "x86_64",
            not has_a_usual_system,
            # Into the system's Python nothing is installed: its commands are of another problem.
            machine.python.externally_managed is True,
        )

    yield from sorted(shown, key=rarity)


def _tabled(record: Cause) -> Iterator[Snapshot]:
    """The machine of `tests/diagnosis/test_rules.py` that shows it."""
    yield from (ill for id, _, ill, _ in CASES if id == record.id)


def _of_other_makers(record: Cause) -> Iterator[Snapshot]:
    """The machines with an AMD, Intel or Apple GPU that show it."""
    yield from (machine for machine, id in _other_makers_machines() if id == record.id)


@cache
def _other_makers_machines() -> tuple[tuple[Snapshot, str], ...]:
    """Each machine of `tests/diagnosis/test_maker_stacks.py`, with the finding that it shows."""
    return tuple((read_tape(tape), id) for tape, id, _ in BROKEN)


def _texts(record: Cause, family: str) -> Iterator[Snapshot]:
    """What is read from its messages alone, with a line that names the system."""
    for text in _words_of(record, family):
        yield read_bytes(f"{text}\n{SYSTEM_LINES.get(family, '')}".encode())


def _words_of(record: Cause, family: str) -> Iterator[str]:
    """Its messages, and the examples of its record."""
    texts = (*(message.text for message in messages_of(record.id)), *record.examples)
    for text in texts:
        is_from_elsewhere = any(pattern.search(text) for pattern in ONLY_ELSEWHERE[family])
        if not is_from_elsewhere:
            yield text


def _found(machine: Snapshot, id: str) -> Finding | None:
    return next((finding for finding in _findings(machine) if finding.id == id), None)


def _root_of(machine: Snapshot) -> str:
    return next((finding.id for finding in _findings(machine) if finding.root), "")


def _findings(machine: Snapshot) -> tuple[Finding, ...]:
    return _diagnosed(machine, load_catalog().as_of)


DIAGNOSED: dict[tuple[int, str], tuple[Snapshot, tuple[Finding, ...]]] = {}
"""By the snapshot's identity, which the kept snapshot keeps unique, and the catalog's day."""


def _diagnosed(machine: Snapshot, catalog_day: str) -> tuple[Finding, ...]:
    """What doctor finds on a machine, asked once: each machine is a candidate of many findings."""
    key = (id(machine), catalog_day)
    if key not in DIAGNOSED:
        DIAGNOSED[key] = (machine, diagnose(machine, load_catalog()).findings)
    return DIAGNOSED[key][1]


# --- the same machine with another environment ----------------------------------------------------


def _in_other_environments(case: Case) -> Iterator[Case]:
    """The case where conda, a uv environment or a container holds torch, if it is shown there."""
    machine = case.machine
    if machine.container.kind not in (None, "none") or machine.os.jetson:
        return
    variants = {
        "conda": _in_conda(machine),
        "uv": _in_uv(machine),
        "container": replace(machine, container=Container(kind="docker", nvidia_requested=True)),
    }
    for place, variant in variants.items():
        if finding := _found(variant, case.finding.id):
            yield Case(place, variant, finding)


def _in_conda(machine: Snapshot) -> Snapshot:
    prefix = f"{HOME}/miniconda3/envs/train"
    python = replace(
        machine.python,
        manager="conda",
        prefix=prefix,
        executable=f"{prefix}/bin/python",
        externally_managed=False,
        site_writable=True,
    )
    torch = replace(machine.torch, installer="conda") if machine.torch.installed else machine.torch
    return replace(
        machine,
        python=python,
        torch=torch,
        conda=replace(machine.conda, prefix=prefix),
        packages=_installed_by("conda", machine),
    )


def _in_uv(machine: Snapshot) -> Snapshot:
    prefix = f"{HOME}/project/.venv"
    python = replace(
        machine.python,
        manager="uv",
        prefix=prefix,
        executable=f"{prefix}/bin/python",
        has_pip=False,
        externally_managed=False,
        site_writable=True,
    )
    torch = replace(machine.torch, installer="uv") if machine.torch.installed else machine.torch
    packages = _installed_by("uv", machine)
    return replace(machine, python=python, torch=torch, packages=packages)


def _installed_by(installer: str, machine: Snapshot) -> tuple[Package, ...] | None:
    if machine.packages is None:
        return None
    return tuple(replace(package, installer=installer) for package in machine.packages)


# --- words ----------------------------------------------------------------------------------------


SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}
PLACES = {
    **{family: f"On {name}" for family, name in SYSTEMS.items()},
    "wsl": "In WSL",
    "jetson": "On a Jetson",
    "conda": "With conda",
    "uv": "With uv",
    "container": "In a container",
    "": "On any system",
}


def place_in_words(case: Case) -> str:
    """The heading of a case."""
    return PLACES[case.place]


def _place_of(machine: Snapshot) -> str:
    if machine.container.kind not in (None, "none"):
        return "container"
    if machine.os.wsl:
        return "wsl"
    if machine.os.jetson:
        return "jetson"
    if machine.python.manager == "conda" and machine.origin != "report":
        return "conda"
    return machine.os.family or ""


def machine_in_words(machine: Snapshot) -> str:
    """The machine with the facts that its commands depend on; of a text only the facts.

    >>> machine_in_words(WINDOWS)
    'on Windows 11 with an NVIDIA GeForce RTX 3090, driver 581.29 and torch 2.14.1+cu130'
    """
    facts = []
    if machine.gpus:
        facts.append(_gpus_in_words(machine))
    if machine.driver.version:
        facts.append(f"driver {machine.driver.version}")
    if machine.torch.version:
        facts.append(f"torch {machine.torch.version}")
    *before, last = facts or [""]
    with_facts = f"with {', '.join(before)} and {last}" if before else f"with {last}"
    system = machine.os.name or SYSTEMS.get(machine.os.family or "", "any system")
    parts = (
        "" if machine.origin == "report" else f"on {system}",
        with_facts if facts else "",
    )
    return " ".join(part for part in parts if part)


def _gpus_in_words(machine: Snapshot) -> str:
    names = [gpu.name for gpu in machine.gpus or ()]
    if len(set(names)) > 1:
        return " and ".join(dict.fromkeys(names))
    if len(names) > 1:
        return f"{len(names)} x {names[0]}"
    article = "an" if names[0].startswith(("N", "A", "I", "O")) else "a"
    return f"{article} {names[0]}"
