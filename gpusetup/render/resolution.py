"""Shows the result of `resolve` as text: the build, the commands, and why other builds were not
chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpusetup.choose.host import python_tag
from gpusetup.choose.newest import NO_GPU
from gpusetup.model.builds import FAMILY, Advice, JointPackage, Rejection
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.model.shell import shell_line
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.render.machine import counted, joined, newest_line
from gpusetup.render.screen import (
    BUT,
    DIM,
    NO,
    OK,
    Screen,
    ScreenLine,
    command,
    facts,
    plural,
    remark,
    section,
    table,
    verdict,
)

WHEEL_VARIANTS = (
    "with wheel variants (PEP 817 and PEP 825, drafts in 2026) pip and uv would choose this build "
    "themselves; until your installer and your index have them, name the index as above"
)
TEST = ("gpusetup", "verify")
"""The command that tests whether torch works in the environment that is then active."""
NOT_ACTIVATED = (
    "If `conda activate` asks for `conda init`, run `conda init` once and open a new shell."
)
NO_TORCHVISION = "no release for this torch"
NO_TORCHAUDIO = "no known release for this torch"


def resolution_text(
    answer: ResolveAnswer, snapshot: Snapshot, *, installer: str = "uv", explain: bool = False
) -> Screen:
    """The screen of a resolution: the build, its commands for `installer`, and why other builds
    were not chosen.

    With `explain`, every rejection is shown; otherwise only those that a reader would ask about.
    """
    lines: list[str] = []
    if NO_GPU in answer.notes:
        # If no GPU was found, the result is a CPU build, so tell the user first that there is no
        # GPU.
        how_to_ask = ". For another machine: `--gpu NAME --driver VERSION`"
        lines += [verdict(BUT, NO_GPU.replace("no", "No", 1), how_to_ask), ""]
    lines += _chosen(answer, snapshot)

    held_back = []
    for package in answer.held_back:
        text = f"  {package.package} {package.at}: {package.by}"
        held_back.append(ScreenLine(text, hang=4))
    lines += section("Not newer, because", held_back)

    if answer.torch:
        steps = _install_steps(answer.commands.get(installer, ()), snapshot)
        lines += section(f"With {installer}", steps or [f"  {installer} has no build that fits"])

    rejections = answer.rejections if explain else interesting(answer)
    lines += section("Not chosen", _not_chosen(rejections, len(answer.rejections)))

    if answer.advice:
        lines += ["", remark("advice", _advice(answer.advice))]
    lines += [remark("note", note) for note in answer.notes if note != NO_GPU]
    if explain and answer.torch:
        lines.append(remark("note", WHEEL_VARIANTS))
    return Screen(lines)


def _install_steps(steps: Sequence[Sequence[str]], snapshot: Snapshot) -> list[ScreenLine]:
    """Lines with the commands that install the build, in the syntax of this machine's shell."""
    makes_environment = is_new_conda_environment(steps)
    # The last step activates the new environment, so verify then tests its torch.
    all_steps = (*steps, TEST) if makes_environment else steps
    lines = [command(shell_line(words, snapshot.os.family)) for words in all_steps]
    if makes_environment:
        lines.append(ScreenLine(f"  {NOT_ACTIVATED}", hang=2))
    return lines


def is_new_conda_environment(steps: Sequence[Sequence[str]]) -> bool:
    """Whether these steps create a new conda environment."""
    beginnings = [tuple(words[:2]) for words in steps]
    return ("conda", "create") in beginnings


def _not_chosen(rejections: Sequence[Rejection], count_of_all: int) -> Iterator[str]:
    """Yields the rejections to show, and a line about `--explain` if there are more."""
    if not rejections:
        return
    yield from _grouped(rejections)
    if len(rejections) < count_of_all:
        yield "  `--explain` shows every reason"


def _chosen(answer: ResolveAnswer, snapshot: Snapshot) -> Iterator[str]:
    """Yields the verdict and the facts about the chosen build, or about the machine if no build
    fits."""
    if not answer.torch:
        yield verdict(NO, "No torch build fits")
        yield from facts(_machine_facts(snapshot))
        return

    values: dict[str, str | None] = {}
    if answer.packages:
        yield verdict(OK, "These versions work together")
        yield from _members(answer.packages)
    else:
        yield verdict(OK, f"torch {answer.torch}", f" from {answer.backend}")
        values["index"] = answer.index_url
        values["torchvision"] = answer.torchvision or NO_TORCHVISION
        values["torchaudio"] = answer.torchaudio or NO_TORCHAUDIO
        values["Python"] = answer.python or "unknown"

    if answer.driver_floor:
        floor = answer.driver_floor
        values["driver"] = f"{_driver_text(snapshot)}; {floor} or newer is needed"
    served_gpus = []
    for served in answer.served:
        # If a build has no kernels for the GPU, it may contain PTX, which the driver compiles for
        # it.
        kind = "PTX" if served.by.startswith("compute_") else "kernels"
        capability = f"compute capability {served.compute_capability}"
        served_gpus.append(f"{served.gpu} ({capability}, {served.by} {kind})")
    values["runs on"] = ", ".join(counted(served_gpus))
    values["fallbacks"] = ", then ".join(choice.backend for choice in answer.fallbacks)
    values["newest"] = newest_line(answer.newest, answer)
    yield from facts(values)


def _machine_facts(snapshot: Snapshot) -> dict[str, str | None]:
    """Maps labels to the facts about the machine that decide which builds fit; shown if no build
    fits."""
    system = snapshot.os
    gpus = []
    for gpu in visible_gpus(snapshot):
        kind = gpu.compute_capability or gpu.target or "?"
        gpus.append(f"{gpu.name} ({kind})")
    has_driver = snapshot.driver.version or snapshot.driver.cuda
    return {
        "system": joined(system.family, system.machine, system.libc),
        "Python": python_tag(snapshot) or "unknown",
        "driver": _driver_text(snapshot) if has_driver else None,
        "GPU": ", ".join(counted(gpus)),
    }


def _driver_text(snapshot: Snapshot) -> str:
    """The driver version and its CUDA version as text, such as `580.95.05 (CUDA 13.0)`."""
    driver = snapshot.driver
    text = driver.version or "unknown version"
    if driver.cuda:
        text += f" (CUDA {driver.cuda})"
    return text


def _members(packages: Sequence[JointPackage]) -> Iterator[str]:
    """Yields a table of the requested packages and torch's family, with their versions and
    indexes."""
    members = [package for package in packages if package.asked or package.name in FAMILY]
    rows = []
    for package in members:
        version = package.version or package.limits or "any that fits"
        origin = package.index_url or ""
        # The package's metadata does not say which torch it needs, so this comes from our own
        # table.
        if not package.declared:
            origin += "  (from gpusetup's table of companions)"
        rows.append((package.name, version, (origin, DIM)))
    yield from table(("package", "version", ""), rows, left=(0, 1))

    dependencies = len(packages) - len(members)
    if dependencies:
        yield f"  and {dependencies} more that they require (`--json`)"


def _advice(advice: Advice) -> str:
    """A change of the machine or the request as text, with the build that it makes possible."""
    change = advice.to
    if advice.change == "driver":
        change = f"use NVIDIA driver {advice.to}"
        # A full version is the minimum; a branch such as 580 is the last branch that supports the
        # GPU.
        if "." in advice.to:
            change += " or newer"
    elif advice.change == "python":
        change = f"use a 64-bit Python {advice.to}"
    elif advice.change == "torch":
        change = f"ask for torch {advice.to}"
    elif advice.change == "backend":
        change = f"ask for {advice.to}"
    return f"{change} to get {advice.gives}"


NO_QUESTION = ("is not the ", "fits, but ")
"""Rejections whose reason begins with these words are not shown, because users do not ask about
them."""
OF_CPU = "is a CPU build"


def interesting(answer: ResolveAnswer) -> tuple[Rejection, ...]:
    """The rejections that explain why the newest torch, or another CUDA build of the chosen torch,
    was not chosen."""
    candidates = []
    for rejection in answer.rejections:
        if not rejection.reason.startswith(NO_QUESTION):
            candidates.append(rejection)

    chosen = parsed(answer.torch or "0")
    newest = max((chosen, *(parsed(rejection.torch) for rejection in candidates)))
    rejections = []
    for rejection in candidates:
        is_chosen_or_newest = parsed(rejection.torch) in (newest, chosen)
        # Leave out CPU builds if something fits, because users do not ask why the CPU build was not
        # chosen.
        is_of_interest = cuda_of(rejection.backend) or not answer.torch
        if is_chosen_or_newest and is_of_interest:
            rejections.append(rejection)
    return tuple(rejections)


def _grouped(rejections: Iterable[Rejection]) -> Iterator[str]:
    """Yields each reason with the builds of the newest release that it rejects. The reasons for CPU
    builds come last."""
    by_reason: dict[str, list[Rejection]] = {}
    for rejection in rejections:
        by_reason.setdefault(rejection.reason, []).append(rejection)

    for reason in sorted(by_reason, key=lambda reason: reason.startswith(OF_CPU)):
        rows = by_reason[reason]
        # The first rejection has the newest release, because they are sorted this way.
        newest = rows[0].torch
        builds = " ".join(row.backend for row in rows if row.torch == newest)
        other_releases = {row.torch for row in rows} - {newest}
        if other_releases:
            builds += f", and {plural(len(other_releases), 'other release')}"
        yield ScreenLine(f"  {reason}", hang=4)
        yield ScreenLine((f"    {newest:8} {builds}", DIM), hang=13)


def family(packages: Sequence[JointPackage]) -> tuple[str, ...]:
    """The names of torch's packages among these packages; all of torch's family if the list is
    empty."""
    if not packages:
        return FAMILY
    names = {package.name for package in packages}
    return tuple(name for name in FAMILY if name in names)
