"""Doctor's screen: what is wrong, what shows it, what to do, then the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpusetup.causes.record import RECORDS
from gpusetup.model.finding import Evidence, Finding, Fix, Severity, typed
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.resolution import Advice
from gpusetup.model.units import GIB
from gpusetup.render.console import sentence
from gpusetup.render.language import (
    DIM,
    HEADING,
    MARKS,
    OK,
    WARNING,
    Row,
    Screen,
    command,
    labelled,
    marked,
    section,
)

if TYPE_CHECKING:
    from gpusetup.model.documents import DoctorAnswer, ResolveAnswer
    from gpusetup.model.resolution import Offer
    from gpusetup.model.shell import Line

EVIDENCE_SHOWN = 6


def doctor_screen(answer: DoctorAnswer) -> Screen:
    """The whole answer of doctor."""
    return Screen((*judged(answer).lines, *section("This machine", machine_lines(answer))))


def judged(answer: DoctorAnswer) -> Screen:
    """What is wrong, what shows it, what to do: all that is said above the machine."""
    root = answering(answer)
    others = [one for one in answer.findings if one is not root]
    lines: list[str] = list(verdict(answer, root))
    if root is not None:
        lines += in_full(root, answer.snapshot)
    lines += section("Also found", (line for finding in others for line in in_short(finding)))
    return Screen(lines)


def answering(answer: DoctorAnswer) -> Finding | None:
    """What the answer is about: the root, else the warning that is the whole answer."""
    root = next((finding for finding in answer.findings if finding.root), None)
    told = answer.symptom if answer.cause == "unknown" else answer.cause
    return root or next((one for one in answer.findings if told in _names(one)), None)


def _names(finding: Finding) -> tuple[str, str]:
    """The finding's id, and the shared cause of which it is a case."""
    record = RECORDS.get(finding.id)
    return finding.id, record.kind_of if record else ""


def titled(answer: DoctorAnswer, root: Finding) -> str:
    """The root's title, with its id where the answer's cause is the shared one of several."""
    is_a_case = root.id not in (answer.cause, answer.symptom)
    return f"{root.title} ({root.id})" if is_a_case else root.title


# --- the verdict ---------------------------------------------------------------------------------


def verdict(answer: DoctorAnswer, root: Finding | None) -> Iterator[Row]:
    if answer.cause == "unknown":
        yield marked(("?", WARNING), "unknown", unknown_of(answer))
    elif root is not None:
        # What is the answer without being a root failed outside the GPU's stack: it failed.
        grave = root.severity if root.root else Severity.ERROR
        yield marked(MARKS[grave], answer.cause, titled(answer, root))
    elif answer.cause == "ok":
        yield marked(OK, "ok", answer.proof or "nothing to fix")
    elif answer.proof is not None:
        yield marked(("!", WARNING), answer.cause, answer.proof)
    else:
        # `--only` left the root out.
        yield Row((answer.cause, HEADING))
    if answer.next_reading:
        yield Row(f"  {left_open(answer)}To find out, run:", hang=2)
        yield command(answer.next_reading, 4)


def left_open(answer: DoctorAnswer) -> str:
    """What else it may be, as a sentence before the reading that decides."""
    if not answer.other_causes:
        return ""
    also = "" if answer.cause == "unknown" else "also "
    return f"It could {also}be {', '.join(answer.other_causes)}. "


def unknown_of(answer: DoctorAnswer) -> str:
    """What is said where no cause was found, of the program that failed where one is known."""
    from gpusetup.causes.programs import PROGRAM_SEES_NO_GPU
    from gpusetup.causes.running import REPORT_EMPTY

    if any(one.id == REPORT_EMPTY.id for one in answer.findings):
        return "the text is empty, so that there is nothing to judge"
    seen = answering(answer)
    if seen is not None:
        of = answer.program
        about = of not in (None, "torch") and seen.id != PROGRAM_SEES_NO_GPU.id
        who = f"{of}: " if about and str(of) not in seen.title else ""
        return f"{who}{seen.title}; why is not shown"
    if answer.program is None or answer.program == "torch":
        if answer.snapshot.origin == "report":
            if not answer.next_reading:
                return (
                    "the text shows nothing of a GPU or its software that fails; post the whole "
                    "error: the lines above its last one, the command and the versions"
                )
            return "what was read shows neither what is wrong nor a working stack"
        return "nothing wrong was seen, and a working stack was not shown either"
    at = f" at {answer.stage}" if answer.stage else ""
    return f"this is about {answer.program}{at}; not enough information to tell what is wrong"


def in_full(finding: Finding, machine: Snapshot) -> Iterator[str]:
    """A finding with its evidence and its way out."""
    if finding.detail:
        yield from ("", Row(f"  {finding.detail}", hang=2))
    if finding.evidence:
        yield ""
        yield from map(evidence_line, finding.evidence[:EVIDENCE_SHOWN])
    if finding.fix:
        yield from section("What to do", way_out(finding.fix, _of_its_target(machine, finding.fix)))


TARGET_FIRST = (
    "Do this in the environment of the program that failed (activate it, or call its own Python), "
    "never in the system's Python"
)
UNDONE_BY_UV = (
    "The next `uv sync` takes out what `uv pip` installs: add it to the project (`uv add`), or run "
    "the program by `uv run --no-sync` from then on"
)
CHANGES_PACKAGES = (
    r"gpusetup install(?!.* --(?:python|venv|project)\b)|(?:python\d? -m |uv )?pip3? (?:un)?install"
    r"|(?:conda|mamba) (?:un)?install"
)
"""How a line begins that changes the packages of whatever environment it is typed in."""


def _of_its_target(machine: Snapshot, fix: Fix) -> str:
    """What is said before lines that change packages, where a text does not show of which Python,
    or shows a project of uv's."""
    if machine.python.manager == "uv project":
        undone = any(line.startswith("uv pip install") for line in typed(fix))
        return UNDONE_BY_UV if undone else ""
    known = machine.python.executable or machine.torch.location or machine.container.kind
    if machine.origin != "report" or known:
        return ""
    changes = any(re.match(CHANGES_PACKAGES, line) for line in typed(fix))
    return TARGET_FIRST if changes else ""


def evidence_line(one: Evidence) -> Row:
    """What was seen, and who said so."""
    return Row(f"  {one.text}", hang=4, source=one.source)


def way_out(fix: Fix, before: str = "") -> Iterator[str]:
    """What is to be done; `before` its commands, a sentence."""
    yield Row(f"  {fix.text}{needs(fix)}", hang=2)
    if before:
        yield from ("", Row(f"  {before}", hang=2))
    if fix.commands:
        yield ""
        yield from (command(line, 4) for line in fix.commands)
    for title, commands in (*ways_beside(fix), *looks_of(fix)):
        yield ""
        yield Row(f"  {title}", hang=2)
        yield from (command(line, 4) for line in commands)


def ways_beside(fix: Fix) -> Iterator[tuple[str, tuple[Line, ...]]]:
    """The other ways, each with its title; the first is the way where none stands before it.

    >>> from gpusetup.model.finding import Alternative
    >>> here = Alternative(title="on the host", commands=())
    >>> [title for title, _ in ways_beside(Fix(text="", alternatives=(here, here)))]
    ['On the host', 'Or on the host']
    """
    for number, other in enumerate(fix.alternatives):
        first = number == 0 and not fix.commands
        title = sentence(other.title) if first else f"Or {other.title}"
        yield f"{title}:" if other.commands else title, other.commands


def looks_of(fix: Fix) -> Iterator[tuple[str, tuple[Line, ...]]]:
    yield from ((f"{sentence(look.title)}:", look.commands) for look in fix.looks)


def needs(fix: Fix) -> str:
    """
    >>> needs(Fix(text="", needs_root=True, needs_reboot=True))
    ' (needs administrator rights and a reboot)'
    """
    words = [
        word
        for word, needed in (
            ("administrator rights", fix.needs_root),
            ("a reboot", fix.needs_reboot),
        )
        if needed
    ]
    return f" (needs {' and '.join(words)})" if words else ""


def in_short(finding: Finding) -> Iterator[Row]:
    """One of the other findings: a line, and what to do."""
    because = f" (because of {finding.explained_by})" if finding.explained_by else ""
    yield marked(MARKS[finding.severity], finding.id, f"{finding.title}{because}", indent=2)
    if finding.fix and not finding.explained_by:
        yield _beside(finding.fix.text + needs(finding.fix))
        yield from (command(line, 6) for line in finding.fix.commands)
        yield from others_in_short(finding.fix)


def others_in_short(fix: Fix) -> Iterator[Row]:
    """The other ways, where none stands before them; else what shows more."""
    titled = list(ways_beside(fix)) or list(looks_of(fix))
    for title, commands in () if fix.commands else titled:
        yield _beside(title)
        yield from (command(line, 6) for line in commands)


def _beside(text: str) -> Row:
    return Row(("    ", ""), (text, DIM), hang=4)


# --- the machine ---------------------------------------------------------------------------------


def machine_lines(answer: DoctorAnswer) -> Iterator[Row]:
    rows = tuple(machine_rows(answer))
    column = max(len(name) for name, _ in rows) + 2
    return (labelled(name, value, column) for name, value in rows)


def machine_rows(answer: DoctorAnswer) -> Iterator[tuple[str, str]]:
    """What was read, a line each; what is not known says so."""
    machine = answer.snapshot
    yield (
        "system",
        joined(machine.os.name or machine.os.family, machine.os.machine, machine.os.libc),
    )
    yield "driver", joined(machine.driver.version, _labelled("CUDA ", machine.driver.cuda))
    yield from (("GPU", gpu_line(gpu)) for gpu in machine.gpus or ())
    if not machine.gpus:
        yield "GPU", "none" if machine.gpus == () else "unknown"
    yield "torch", torch_line(machine)
    yield "Python", joined(machine.python.version, machine.python.manager)
    yield "target", joined(machine.python.executable, _labelled("by ", machine.python.chosen_by))
    if machine.container.kind not in (None, "none"):
        yield "container", str(machine.container.kind)
    if machine.origin != "report" or machine.gpus or machine.driver.version:
        yield "fits here", fits_line(answer)
        yield from (
            ("newest", line) for line in (newest_line(answer.newest, answer.resolution),) if line
        )
    yield "catalog", answer.catalog_as_of


def joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part) or "unknown"


def _labelled(label: str, value: str | None) -> str | None:
    return f"{label}{value}" if value else None


def gpu_line(gpu: Gpu) -> str:
    """
    >>> gpu_line(Gpu(name="NVIDIA L4", memory_total_bytes=24 << 30, visible=False))
    'NVIDIA L4, 24.0 GiB, hidden'
    """
    size = f"{gpu.memory_total_bytes / GIB:.1f} GiB" if gpu.memory_total_bytes else None
    sm = gpu.compute_capability.sm if gpu.compute_capability else None
    state = "lost" if gpu.lost else "hidden" if gpu.visible is False else None
    return joined(gpu.name, size, sm, state)


def torch_line(machine: Snapshot) -> str:
    torch = machine.torch
    if torch.installed is False:
        return "not installed"
    labelled = "+" in (torch.version or "")
    backend = None if labelled else torch.backend
    return joined(torch.version, backend, _labelled("by ", torch.installer))


def fits_line(answer: DoctorAnswer) -> str:
    """The build that the resolver chose, or why none."""
    chosen = answer.resolution
    if chosen is None or chosen.torch is None:
        advice = chosen.advice if chosen else None
        return f"no build; {_change(advice)} gives {advice.gives}" if advice else "no build"
    companions = _named_companions(
        (("torchvision", chosen.torchvision), ("torchaudio", chosen.torchaudio))
    )
    return joined(built(chosen), *companions)


def built(build: ResolveAnswer | Offer) -> str:
    """A build in words, with the least driver that serves it."""
    needs = f" (driver {build.driver_floor} or newer)" if build.driver_floor else ""
    return f"torch {build.torch} from {build.backend}{needs}"


def newest_line(newest: Offer | None, chosen: ResolveAnswer | None) -> str | None:
    """The newest that fits, in one line, where it is another than the one prescribed."""
    if newest is None or chosen is None or chosen.torch in (None, newest.torch):
        return None
    return f"{built(newest)}: `gpusetup install --upgrade`"


def _named_companions(pairs: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    return (f"{name} {version}" for name, version in pairs if version)


def _change(advice: Advice) -> str:
    """What to change; a JetPack is no number of a driver."""
    return advice.to if advice.to.startswith("JetPack") else f"{advice.change} {advice.to}"
