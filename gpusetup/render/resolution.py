"""A resolution as text: the answer, the way to it, and why not the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from gpusetup.installers.options import FAMILY
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.model.resolution import Cell, HeldBack, JointPackage, Rejection
from gpusetup.model.shell import shell_line
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.render.language import (
    BUT,
    COMMAND,
    DIM,
    HINT,
    NO,
    OK,
    Row,
    Screen,
    command,
    labelled,
    remark,
    section,
    table,
    verdict,
)
from gpusetup.render.text import newest_line
from gpusetup.resolver.notes import NO_GPU
from gpusetup.resolver.situation import python_tag

LABEL = 13
"""The width of the labels on the left."""
MOST_ROWS = 3
"""More builds than this, all of the same backends, stand in one line."""


def resolution_text(
    answer: ResolveAnswer,
    snapshot: Snapshot,
    *,
    installer: str = "uv",
    explain: bool = False,
    refused: Iterable[HeldBack] = (),
) -> Screen:
    """The whole screen. Only the rows that a reader would ask about are explained, or all; of a set
    `refused` are the old releases with which alone it would go together."""
    lines: list[str] = []
    if NO_GPU in answer.notes:
        other = ". For another machine's: `--gpu NAME --driver VERSION`"
        lines += [verdict(BUT, NO_GPU.replace("no", "No", 1), other), ""]
    if old := {one.package: one.at for one in refused}:
        lines += [verdict(NO, "no", ": only an old release goes together here:")]
        lines += _members(answer.packages)
    elif answer.torch:
        lines += _answer(answer, snapshot)
    else:
        lines += _no_answer(snapshot)
    held = (f"  {one.package} stays at {one.at}: {one.by}" for one in answer.held_back)
    lines += section("Not newer, because", (Row(line, hang=4) for line in held))
    lines += section("Which goes with which torch", _matrix(answer.matrix))
    if answer.torch and not old:
        steps = answer.commands.get(installer, ())
        typed = [command(shell_line(argv, snapshot.os.family)) for argv in steps]
        none = [f"  {installer} has no build that fits"]
        lines += section(f"With {installer}", typed or none)
    why = answer.rejections if explain else interesting(answer)
    more = [] if len(why) == len(answer.rejections) else ["  `--explain` shows every row"]
    lines += section("Not chosen", [*_grouped(why), *more] if why else ())
    if answer.advice:
        lines += ["", remark("advice", _advice(answer))]
    if old:
        asked = [one.name for one in answer.packages if one.asked]
        names = " ".join(f"'{n}=={old[n]}'" if n in old else n for n in asked)
        by_version = (f"gpusetup resolve {names}", COMMAND)
        lines += ["", Row(("hint", HINT), ": asked for by its version it is taken: ", by_version)]
    lines += [remark("note", note) for note in answer.notes if note != NO_GPU]
    return Screen(lines)


def _answer(answer: ResolveAnswer, snapshot: Snapshot) -> Iterable[str]:
    if answer.packages:
        yield verdict(OK, "These go together")
        yield from _members(answer.packages)
    else:
        yield verdict(OK, f"torch {answer.torch}", f" from {answer.backend}")
        if answer.index_url:
            yield _line("index", answer.index_url)
        yield _line("torchvision", answer.torchvision or "none for it")
        yield _line("torchaudio", answer.torchaudio or "none is known for it")
        yield _line("Python", answer.python or "unknown")
    if answer.driver_floor:
        yield _line("driver", f"{_driver(snapshot)}; {answer.driver_floor} or newer is needed")
    for served in answer.served:
        yield _line("serves", f"{served.gpu} ({served.compute_capability}) by {served.by}")
    if answer.fallbacks:
        yield _line("fallbacks", ", then ".join(choice.backend for choice in answer.fallbacks))
    if line := newest_line(answer.newest, answer):
        yield _line("newest", line)


def _members(packages: Iterable[JointPackage]) -> Iterable[str]:
    """What was asked for and torch's family, each with its version and where it comes from."""
    known = tuple(packages)
    shown = [one for one in known if one.asked or one.name in FAMILY]
    rows = [(one.name, one.version or one.limits or "any that fits", _where(one)) for one in shown]
    yield from table(("package", "version", ""), rows, left=(0, 1))
    if len(shown) < len(known):
        rest = len(known) - len(shown)
        yield f"  and {rest} more that they require (`--json`, `--format requirements`)"


def _where(one: JointPackage) -> tuple[str, str]:
    told = "" if one.declared else "  (by the table of companions)"
    return f"{one.file or one.index_url or ''}{told}", DIM


def _matrix(cells: Iterable[Cell]) -> Iterable[Row]:
    """Packages down, torch across; the reason of each empty cell below."""
    found = {(cell.package, cell.torch): cell for cell in cells}
    torches = tuple(dict.fromkeys(torch for _, torch in found))
    rows = [
        (package, *(found[package, torch].version or "-" for torch in torches))
        for package in dict.fromkeys(package for package, _ in found)
    ]
    yield from table(("torch", *torches), rows, left=range(len(torches) + 1)) if rows else ()
    for cell in found.values():
        if cell.version is None:
            yield Row(f"  - {cell.package} with torch {cell.torch}: {cell.reason}", hang=4)


def _driver(snapshot: Snapshot) -> str:
    driver = snapshot.driver
    cuda = f"(CUDA {driver.cuda})" if driver.cuda else ""
    return " ".join(filter(None, (driver.version or "unknown version", cuda)))


def _no_answer(snapshot: Snapshot) -> Iterable[str]:
    yield verdict(NO, "No torch build fits")
    os, driver = snapshot.os, snapshot.driver
    yield _line("system", " ".join(filter(None, (os.family, os.machine, os.libc))) or "unknown")
    yield _line("Python", python_tag(snapshot) or "unknown")
    if driver.version or driver.cuda:
        yield _line("driver", _driver(snapshot))
    for gpu in visible_gpus(snapshot):
        yield _line("GPU", f"{gpu.name} ({gpu.compute_capability or 'unknown capability'})")


def _advice(answer: ResolveAnswer) -> str:
    advice = answer.advice
    assert advice is not None
    words = {
        "driver": f"update the NVIDIA driver to {advice.to} or newer",
        "python": f"use Python {advice.to}",
        "gpu": f"run {advice.to} (CUDA_VISIBLE_DEVICES)",
        "torch": f"ask for torch {advice.to}",
        "backend": f"ask for {advice.to}",
    }
    if advice.to.startswith("JetPack"):
        return f"flash {advice.to} or newer (SDK Manager): gives {advice.gives}"
    return f"{words.get(advice.change, advice.to)}: gives {advice.gives}"


NO_QUESTION = ("is not the ", "fits, but ")
"""How the reasons begin that nobody asks about."""


def interesting(answer: ResolveAnswer) -> tuple[Rejection, ...]:
    """The rejections that answer "why not the newest" and "why not another CUDA of it"."""
    asked = [r for r in answer.rejections if not r.reason.startswith(NO_QUESTION)]
    if answer.torch is None:
        newest = max((parsed(r.torch) for r in asked), default=None)
        rows = [r for r in asked if parsed(r.torch) == newest]
        return tuple(r for r in rows if cuda_of(r.backend)) or tuple(rows)
    chosen = parsed(answer.torch)
    newest = max((v for r in asked if (v := parsed(r.torch)) > chosen), default=None)
    return tuple(r for r in asked if cuda_of(r.backend) and parsed(r.torch) in (newest, chosen))


def _grouped(rejections: Iterable[Rejection]) -> Iterable[str]:
    """The rows by reason: the reason once, the builds it holds for below it."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for row in rejections:
        reasons.setdefault(row.reason, {}).setdefault(row.torch, []).append(row.backend)
    for reason, builds in sorted(reasons.items(), key=lambda group: _only_cpu(group[1])):
        yield Row(f"  {reason}", hang=4)
        rows = ((" ".join(backends), torch) for torch, backends in builds.items())
        for backends, same in itertools.groupby(rows, lambda row: row[0]):
            yield from _rows([torch for _, torch in same], backends)


def _only_cpu(builds: Mapping[str, Iterable[str]]) -> bool:
    """CPU builds are what nobody asks about: they stand last."""
    return all(set(backends) == {"cpu"} for backends in builds.values())


def _rows(versions: list[str], backends: str) -> Iterable[str]:
    """Builds of the same backends, one below the other; many of them in one line."""
    if len(versions) > MOST_ROWS:
        yield Row((f"    {versions[0]} to {versions[-1]}: {backends}", DIM), hang=6)
        return
    for torch in versions:
        yield Row((f"    {torch:8} {backends}", DIM), hang=13)


def _line(label: str, value: str) -> str:
    return labelled(label, value, LABEL)
