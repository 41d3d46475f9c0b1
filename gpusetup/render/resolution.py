"""Shows the result of `resolve` as text: the build, the commands, and why other builds were not
chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpusetup.choose.host import python_tag
from gpusetup.choose.newest import NO_GPU
from gpusetup.model.builds import FAMILY, JointPackage, Rejection
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.render.machine import advice_text, counted, host_facts, newest_line
from gpusetup.render.screen import (
    BUT,
    DIM,
    NO,
    OK,
    Screen,
    ScreenLine,
    command,
    facts,
    marked,
    plural,
    remark,
    section,
    table,
)

NO_RELEASE = "no known release for this torch"


def resolution_text(
    answer: ResolveAnswer, snapshot: Snapshot, *, installer: str = "uv", explain: bool = False
) -> Screen:
    """The screen of a resolution: the build, its commands for `installer`, and why other builds
    were not chosen: with `explain` every rejection, otherwise only those that a reader would ask
    about."""
    lines: list[str] = []
    if NO_GPU in answer.notes:
        # Without a GPU the result is a CPU build, so say first that there is no GPU.
        for_another_machine = ". To choose for another machine, add `--gpu NAME --driver VERSION`"
        capitalized = NO_GPU[:1].upper() + NO_GPU[1:]
        lines += [marked(BUT, capitalized, for_another_machine), ""]
    lines += _chosen(answer, snapshot)

    if answer.torch:
        steps = answer.commands.get(installer, ())
        # `conda create` makes an environment, which is then active, so verify tests its torch.
        is_new = any(words[:2] == ("conda", "create") for words in steps)
        all_steps = (*steps, ("gpusetup", "verify")) if is_new else steps
        commands = [command(shell_line(words, snapshot.os.family)) for words in all_steps]
        no_command = [f"  {installer} has no build that fits"]
        lines += section(f"With {installer}", commands or no_command)

    rejections = answer.rejections if explain else interesting(answer)
    not_chosen = [*_by_reason(rejections)]
    if not_chosen and len(rejections) < len(answer.rejections):
        not_chosen.append("  `--explain` shows every reason")
    lines += section("Not chosen", not_chosen)

    if answer.advice:
        lines += ["", remark("advice", advice_text(answer.advice))]
    lines += [remark("note", note) for note in answer.notes if note != NO_GPU]
    return Screen(lines)


def _chosen(answer: ResolveAnswer, snapshot: Snapshot) -> Iterator[str]:
    """Yields the verdict and the facts about the build or, if none fits, about the machine."""
    if not answer.torch:
        yield marked(NO, "No torch build fits")
        yield from facts({**host_facts(snapshot), "Python": python_tag(snapshot) or "unknown"})
        return

    values: dict[str, str | None] = {}
    if answer.packages:
        yield marked(OK, "These versions work together")
        yield from _members(answer.packages)
    else:
        yield marked(OK, f"torch {answer.torch}", f" from {answer.backend}")
        values["index"] = answer.index_url
        values["torchvision"] = answer.torchvision or NO_RELEASE
        values["torchaudio"] = answer.torchaudio or NO_RELEASE
        values["Python"] = answer.python or "unknown"

    if answer.driver_floor:
        driver = host_facts(snapshot)["driver"]
        values["driver"] = f"{driver}; {answer.driver_floor} or newer is needed"
    served_gpus = []
    for served in answer.served:
        # A build without kernels for the GPU may contain PTX, which the driver compiles for it.
        code_type = "PTX" if served.by.startswith("compute_") else "kernels"
        capability = f"compute capability {served.compute_capability}"
        served_gpus.append(f"{served.gpu} ({capability}, {served.by} {code_type})")
    values["runs on"] = ", ".join(counted(served_gpus))
    values["fallbacks"] = ", then ".join(fallback.backend for fallback in answer.fallbacks)
    values["newest"] = newest_line(answer.newest, answer)
    yield from facts(values)


def _members(packages: Sequence[JointPackage]) -> Iterator[str]:
    """Yields a table of the requested packages and torch's family: versions and indexes."""
    members = [package for package in packages if package.asked or package.name in FAMILY]
    rows = []
    for package in members:
        version = package.version or package.limits or "any that fits"
        rows.append((package.name, version, (package.index_url or "", DIM)))
    yield from table(("package", "version", ""), rows, left=(0, 1))


def interesting(answer: ResolveAnswer) -> tuple[Rejection, ...]:
    """The rejections that explain why the newest torch, or another CUDA build of the chosen torch,
    was not chosen; if nothing fits, those of the newest release."""
    chosen = parsed(answer.torch or "0")
    newest = max((chosen, *(parsed(rejection.torch) for rejection in answer.rejections)))
    of_releases = [row for row in answer.rejections if parsed(row.torch) in (newest, chosen)]
    # If something fits, users do not ask why the CPU build was not chosen.
    return tuple(row for row in of_releases if cuda_of(row.backend) or not answer.torch)


def _by_reason(rejections: Iterable[Rejection]) -> Iterator[str]:
    """Yields each reason with the builds of the newest release that it rejects. Reasons against CPU
    builds come last, because users have a GPU to use."""
    by_reason: dict[str, list[Rejection]] = {}
    for rejection in rejections:
        by_reason.setdefault(rejection.reason, []).append(rejection)

    for rows in sorted(by_reason.values(), key=lambda rows: rows[0].backend == "cpu"):
        # The first rejection has the newest release, because they are sorted this way.
        reason, newest = rows[0].reason, rows[0].torch
        builds = " ".join(row.backend for row in rows if row.torch == newest)
        other_releases = {row.torch for row in rows} - {newest}
        if other_releases:
            builds += f", and {plural(len(other_releases), 'other release')}"
        yield ScreenLine(f"  {reason}", hang=4)
        # Builds that do not fit into the row continue below the first build.
        first_columns = f"    {newest:8} "
        yield ScreenLine((first_columns + builds, DIM), hang=len(first_columns))
