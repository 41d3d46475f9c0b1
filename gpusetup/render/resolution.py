"""A resolution as text: the answer, the way to it, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusetup.choose.host import python_tag
from gpusetup.choose.notes import NO_GPU
from gpusetup.model.builds import FAMILY, Advice, JointPackage, Rejection
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.model.shell import shell_line
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.render.doctor import joined, newest_line
from gpusetup.render.screen import (
    BUT,
    DIM,
    NO,
    OK,
    Row,
    Screen,
    command,
    facts,
    plural,
    remark,
    section,
    table,
    verdict,
)


def resolution_text(
    answer: ResolveAnswer, snapshot: Snapshot, *, installer: str = "uv", explain: bool = False
) -> Screen:
    """The whole screen. Only the rows that a reader would ask about are explained, or all."""
    lines: list[str] = []
    if NO_GPU in answer.notes:
        other = ". For another machine: `--gpu NAME --driver VERSION`"
        lines += [verdict(BUT, NO_GPU.replace("no", "No", 1), other), ""]
    lines += _chosen(answer, snapshot)
    held = (f"  {one.package} {one.at}: {one.by}" for one in answer.held_back)
    lines += section("Not newer, because", (Row(line, hang=4) for line in held))
    if answer.torch:
        steps = answer.commands.get(installer, ())
        is_new = is_new_conda_environment(steps)
        steps = (*steps, TEST) if is_new else steps
        typed = [command(shell_line(argv, snapshot.os.family)) for argv in steps]
        typed += [Row(f"  {NOT_ACTIVATED}", hang=2)] if is_new else []
        lines += section(f"With {installer}", typed or [f"  {installer} has no build that fits"])
    why = answer.rejections if explain else interesting(answer)
    more = [] if len(why) == len(answer.rejections) else ["  `--explain` shows every reason"]
    lines += section("Not chosen", [*_grouped(why), *more] if why else ())
    if answer.advice:
        lines += ["", remark("advice", _advice(answer.advice))]
    lines += [remark("note", note) for note in answer.notes if note != NO_GPU]
    if explain and answer.torch:
        lines.append(remark("note", WHEEL_VARIANTS))
    return Screen(tuple(lines))


WHEEL_VARIANTS = (
    "with wheel variants (PEP 817 and PEP 825, drafts in 2026) pip and uv would choose this build "
    "themselves; until your installer and your index have them, name the index as above"
)
TEST = ("gpusetup", "verify")
"""What proves that torch works in the environment that is active by then."""


NOT_ACTIVATED = (
    "If `conda activate` asks for `conda init`, run `conda init` once and open a new shell."
)


NO_TORCHAUDIO = "no known release for this torch"


def is_new_conda_environment(steps: Sequence[Sequence[str]]) -> bool:
    """Whether conda's commands begin with a new environment."""
    return any(tuple(argv[:2]) == ("conda", "create") for argv in steps)


def _chosen(answer: ResolveAnswer, snapshot: Snapshot) -> Iterable[str]:
    """The verdict, and the facts below it."""
    driver, needed = snapshot.driver, answer.driver_floor
    cuda = f"(CUDA {driver.cuda})" if driver.cuda else None
    there = " ".join(filter(None, (driver.version or "unknown version", cuda)))
    told: dict[str, str | None] = {}
    if not answer.torch:
        yield verdict(NO, "No torch build fits")
        kinds = ((g.name, g.compute_capability or g.target or "?") for g in visible_gpus(snapshot))
        gpus = (f"{name} ({kind})" for name, kind in kinds)
        yield from facts(
            {
                "system": joined(snapshot.os.family, snapshot.os.machine, snapshot.os.libc),
                "Python": python_tag(snapshot) or "unknown",
                "driver": there if driver.version or cuda else None,
                "GPU": ", ".join(gpus),
            }
        )
        return
    if answer.packages:
        yield verdict(OK, "These go together")
        yield from _members(answer.packages)
    else:
        yield verdict(OK, f"torch {answer.torch}", f" from {answer.backend}")
        told = {
            "index": answer.index_url,
            "torchvision": answer.torchvision or "no release for this torch",
            "torchaudio": answer.torchaudio or NO_TORCHAUDIO,
            "Python": answer.python or "unknown",
        }
    served = (f"{one.gpu} ({one.compute_capability}, by {one.by})" for one in answer.served)
    told |= {
        "driver": f"{there}; {needed} or newer is needed" if needed else None,
        "runs on": ", ".join(served),
        "fallbacks": ", then ".join(choice.backend for choice in answer.fallbacks),
        "newest": newest_line(answer.newest, answer),
    }
    yield from facts(told)


def _members(packages: Sequence[JointPackage]) -> Iterable[str]:
    """What was asked for and torch's family, each with its version and where it comes from."""
    shown = [one for one in packages if one.asked or one.name in FAMILY]
    rows = []
    for one in shown:
        told = "" if one.declared else "  (by the table of companions)"
        where = f"{one.index_url or ''}{told}"
        rows.append((one.name, one.version or one.limits or "any that fits", (where, DIM)))
    yield from table(("package", "version", ""), rows, left=(0, 1))
    if rest := len(packages) - len(shown):
        yield f"  and {rest} more that they require (`--json`)"


def _advice(advice: Advice) -> str:
    words = {
        # A floor is a release; a branch, as 580, is the last that drives the GPU.
        "driver": f"use NVIDIA driver {advice.to}{' or newer' if '.' in advice.to else ''}",
        "python": f"use a 64-bit Python {advice.to}",
        "torch": f"ask for torch {advice.to}",
        "backend": f"ask for {advice.to}",
    }
    return f"{words.get(advice.change, advice.to)}: gives {advice.gives}"


NO_QUESTION = ("is not the ", "fits, but ")
"""How the reasons begin that nobody asks about."""
OF_CPU = "is a CPU build"


def interesting(answer: ResolveAnswer) -> tuple[Rejection, ...]:
    """The rejections that answer "why not the newest" and "why not another CUDA of it"."""
    asked = [r for r in answer.rejections if not r.reason.startswith(NO_QUESTION)]
    chosen = parsed(answer.torch or "0")
    newest = max((chosen, *(parsed(row.torch) for row in asked)))
    rows = (row for row in asked if parsed(row.torch) in (newest, chosen))
    return tuple(row for row in rows if cuda_of(row.backend) or not answer.torch)


def _grouped(rejections: Iterable[Rejection]) -> Iterable[str]:
    """Each reason with the newest build that it holds for; CPU builds last."""
    reasons: dict[str, list[Rejection]] = {}
    for row in rejections:
        reasons.setdefault(row.reason, []).append(row)
    for reason, rows in sorted(reasons.items(), key=lambda row: row[0].startswith(OF_CPU)):
        newest, more = rows[0].torch, len({row.torch for row in rows}) - 1
        backends = " ".join(row.backend for row in rows if row.torch == newest)
        rest = f", and {plural(more, 'other release')}" if more else ""
        yield Row(f"  {reason}", hang=4)
        yield Row((f"    {newest:8} {backends}{rest}", DIM), hang=13)


def family(packages: Sequence[JointPackage]) -> tuple[str, ...]:
    """What of torch's family is in the set."""
    there = {one.name for one in packages}
    return tuple(name for name in FAMILY if name in there) if there else FAMILY
