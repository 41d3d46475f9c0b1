"""Screens for a terminal, by rich: what is wrong, what shows it, what to do, then the rest.

Foreign text goes through `plain` into `Text` objects, never into markup. Commands stand on lines of
their own and are never wrapped, so that they can be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.resolution import Advice
from gpusetup.model.units import GIB
from gpusetup.render.console import sentence
from gpusetup.render.language import plain

if TYPE_CHECKING:
    from gpusetup.model.documents import DoctorAnswer
    from gpusetup.model.shell import Line

MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "·"}
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
EVIDENCE_SHOWN = 6


def doctor_screen(answer: DoctorAnswer) -> RenderableType:
    """The whole answer of doctor."""
    root = next((finding for finding in answer.findings if finding.root), None)
    others = [finding for finding in answer.findings if finding is not root]
    parts: list[RenderableType] = list(verdict(answer, root))
    if root is not None:
        parts += in_full(root)
    if others:
        parts += [
            heading("Also found"),
            *(part for finding in others for part in in_short(finding)),
        ]
    parts += [heading("This machine"), machine_table(answer)]
    return Group(*parts)


def heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def indented(text: str, by: int = 2, style: str = "") -> Padding:
    return Padding(Text(plain(text), style=style), (0, 0, 0, by))


def command_line(text: str, by: int = 4) -> Text:
    """A command on a line of its own, as long as it is."""
    return Text(" " * by + plain(text), style="cyan", no_wrap=True, overflow="ignore")


# --- the verdict ---------------------------------------------------------------------------------


def verdict(answer: DoctorAnswer, root: Finding | None) -> Iterator[Text]:
    if root is not None:
        mark, style = MARKS[root.severity], STYLES[root.severity]
        yield Text.assemble((f"{mark} {root.id}", style), ": ", plain(root.title))
        if answer.next_reading:
            others = ", ".join(answer.other_causes)
            yield Text(f"  or {others}: what decides is")
            yield command_line(answer.next_reading)
    elif answer.cause == "ok":
        yield Text.assemble(
            ("✓ ok", "bold green"), ": ", plain(answer.proof or "nothing is to be mended")
        )
    elif answer.proof is not None:
        yield Text.assemble((f"! {answer.cause}", "bold yellow"), ": ", plain(answer.proof))
    elif answer.cause == "unknown":
        yield Text.assemble(
            ("? unknown", "bold yellow"),
            f": {unknown_of(answer)}",
        )
    else:
        # `--only` left the root out.
        yield Text(answer.cause, style="bold")


def unknown_of(answer: DoctorAnswer) -> str:
    """What is said where no cause was found, of the program that failed where one is known."""
    if answer.program is None or answer.program == "torch":
        return "nothing wrong was seen, and a working stack was not shown either"
    at = f" at {answer.stage}" if answer.stage else ""
    return f"this is about {answer.program}{at}; what was read does not say what is wrong"


def in_full(finding: Finding) -> Iterator[RenderableType]:
    """A finding with its evidence and its way out."""
    if finding.detail:
        yield indented(finding.detail)
    if finding.evidence:
        yield Text()
        yield from map(evidence_line, finding.evidence[:EVIDENCE_SHOWN])
    if finding.fix:
        yield heading("What to do")
        yield from way_out(finding.fix)


def evidence_line(one: Evidence) -> Padding:
    """What was seen, and who said so."""
    return Padding(Sourced(plain(one.text), plain(one.source)), (0, 0, 0, 2))


class Sourced:
    """A text and its source: beside it where both fit, else on a line of its own, not wrapped."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        beside = Text.assemble(self.text, (f"  ({self.source})", "dim"))
        if beside.cell_len <= options.max_width:
            yield beside
            return
        yield Text(self.text)
        room = options.max_width - len("  ()")
        below = f"  ({shortened(self.source, room)})"
        yield Text(below, style="dim", no_wrap=True, overflow="ignore")


class Named:
    """Names, dim, and beside each its value, wrapped in its own column.

    Two columns need no `rich.table`, whose import takes a twentieth of the time of a `doctor`.
    """

    def __init__(self, rows: Sequence[tuple[str, str]]) -> None:
        self.rows = rows
        self.width = max(len(name) for name, _ in rows) + 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width - self.width, 1)
        for name, value in self.rows:
            for line in Text(plain(value)).wrap(console, room, overflow="fold"):
                yield Text.assemble((name.ljust(self.width), "dim"), line)
                name = ""


def shortened(text: str, width: int) -> str:
    """A long path without its middle: who reads it needs its beginning and its end.

    >>> shortened("/home/me/project/.venv/lib/torch/version.py", 24)
    '/home/me/.../version.py'
    """
    if len(text) <= width or width < 8:
        return text
    left = (width - 3) // 2
    head, tail = text[:left], text[len(text) - (width - 3 - left) :]
    # At the borders of folders where that costs little.
    cut = max(head.rfind("/"), head.rfind("\\"))
    head = head[: cut + 1] if cut > left // 2 else head
    starts = [i for i in (tail.find("/"), tail.find("\\")) if i >= 0]
    start = min(starts, default=-1)
    tail = tail[start:] if 0 <= start < len(tail) // 2 else tail
    return f"{head}...{tail}"


def way_out(fix: Fix) -> Iterator[RenderableType]:
    yield indented(fix.text + needs(fix))
    if fix.commands:
        yield Text()
        yield from map(command_line, fix.commands)
    for title, commands in (*ways_beside(fix), *looks_of(fix)):
        yield Text()
        yield indented(title)
        yield from map(command_line, commands)


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


def in_short(finding: Finding) -> Iterator[RenderableType]:
    """One of the other findings: a line, and what to do."""
    mark, style = MARKS[finding.severity], STYLES[finding.severity]
    because = f" (because of {finding.explained_by})" if finding.explained_by else ""
    line = Text.assemble((f"{mark} {finding.id}", style), f": {plain(finding.title)}{because}")
    yield Padding(line, (0, 0, 0, 2))
    if finding.fix and not finding.explained_by:
        yield indented(finding.fix.text + needs(finding.fix), by=4, style="dim")
        yield from (command_line(command, by=6) for command in finding.fix.commands)
        yield from others_in_short(finding.fix)


def others_in_short(fix: Fix) -> Iterator[RenderableType]:
    """The other ways, where none stands before them; else what shows more."""
    titled = list(ways_beside(fix)) or list(looks_of(fix))
    for title, commands in () if fix.commands else titled:
        yield indented(title, by=4, style="dim")
        yield from (command_line(command, by=6) for command in commands)


# --- the machine ---------------------------------------------------------------------------------


def machine_table(answer: DoctorAnswer) -> Padding:
    return Padding(Named(tuple(machine_rows(answer))), (0, 0, 0, 2))


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
        yield from (("newest", line) for line in (newest_line(answer),) if line)
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
    return joined(f"torch {chosen.torch} from {chosen.backend}", *companions)


def newest_line(answer: DoctorAnswer) -> str | None:
    """The newest that fits, in one line, where it is another than the one prescribed."""
    newest, chosen = answer.newest, answer.resolution
    if newest is None or chosen is None or chosen.torch in (None, newest.torch):
        return None
    return f"torch {newest.torch} from {newest.backend}: `gpusetup install --upgrade`"


def _named_companions(pairs: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    return (f"{name} {version}" for name, version in pairs if version)


def _change(advice: Advice) -> str:
    """What to change; a JetPack is no number of a driver."""
    return advice.to if advice.to.startswith("JetPack") else f"{advice.change} {advice.to}"
