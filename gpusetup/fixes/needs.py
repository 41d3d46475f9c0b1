"""What must be known before a command changes something, and whether it is known.

Each row stands for one fact: the installed torch, a node's container engine, the Python that must
stay, a boot screen that must be reachable. `judge` compares the rows with the readings. If a block
of commands needs a fact that is unknown or false, the block is not shown. The fix keeps its text,
and doctor asks for the row's command.
"""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext
from gpusetup.fixes import owners
from gpusetup.fixes.need_readings import (
    GPUS_ON_THE_BUS,
    NODES_ENGINE,
    PROGRAMS_PYTHON,
    TORCHS_KERNELS,
    TORCHS_VERSION,
    Reading,
    abi_of_the_missing_symbol,
    always,
    build_for_the_other_card,
    cluster_without_docker,
    compiled_for_the_torch_that_is_there,
    engine_of_the_node,
    host_of_a_lender,
    kernels_of_torch,
    maker_of_the_gpu_that_is_there,
    marker_of_another_system,
    never,
    no_administrator,
    no_boot_screen,
    pin_of_another_package,
    python_of_another_program,
    python_of_the_program,
    python_that_must_stay,
    reboot_was_tried,
    reinstall_was_tried,
    torch_that_is_there,
)
from gpusetup.model.finding import Alternative, Fix, Need, command_lines, map_blocks
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import Lines


class NeedRow(Frozen):
    """One fact that some commands need."""

    what: str
    lines: str
    """A pattern for the command lines that need the fact."""
    read: Reading = always
    denied: Reading = never
    asks: str = ""
    """The command whose output shows the fact, if it is unknown."""
    instead: str = ""
    """What to do instead if the fact is false."""
    keeps_text: bool = False
    """Whether the fix's text still applies if the fact is false, and only its commands do not."""
    first: Reading = never
    """What must be done before the commands, because otherwise their effect does not last."""
    then: Reading = never
    """What must be done after the commands."""


INSTALLS_TORCH = (
    r"^gpusetup install\b(?!.* (?:vllm|sglang|lmdeploy|xformers|flash-attn|--venv)\b)"
    r"|^(?:(?!\.venv-)\S*python\S* -m )?(?:uv )?pip3? install\b"
    r".*(?<![\w/.-])torch(?:==\S+)?(?![\w.-])"
    r"|^(?:conda|mamba) install\b.* (?:pytorch|torch)\b|^uv add\b.* torch\b"
)
"""A command that replaces the installed torch. With `--venv`, or in a folder `.venv-…`, the
environment is new and has no torch yet."""

TORCH = "torch"
"""The need to know which torch is there."""

NEEDS: tuple[NeedRow, ...] = (
    NeedRow(
        what="GPU",
        lines=INSTALLS_TORCH,
        read=maker_of_the_gpu_that_is_there,
        asks=GPUS_ON_THE_BUS,
        first=build_for_the_other_card,
    ),
    NeedRow(
        what=TORCH,
        lines=INSTALLS_TORCH,
        read=torch_that_is_there,
        asks=TORCHS_VERSION,
    ),
    NeedRow(
        what="Python of the program",
        lines=rf"{INSTALLS_TORCH}|^gpusetup install (?!.*--python)",
        read=python_of_the_program,
        denied=python_of_another_program,
        asks=PROGRAMS_PYTHON,
        instead="Find the program's own Python first (its folder has a `venv`, `env`, `runtime` "
        "or `python_embeded`), run the command below with it to see its torch, and install "
        "there: `gpusetup install --python PATH`",
    ),
    NeedRow(
        what="remedy",
        lines=INSTALLS_TORCH,
        denied=reinstall_was_tried,
        instead="Reinstalling the same torch changes nothing",
    ),
    NeedRow(
        what="reboot",
        lines=r"^sudo reboot$",
        denied=reboot_was_tried,
        instead="Another restart changes nothing",
    ),
    NeedRow(
        what="host",
        lines=r"^sudo (?:reboot|shutdown|modprobe|systemctl|apt|dnf)\b|nvidia-smi .*--gpu-reset",
        denied=host_of_a_lender,
        instead="The host belongs to the provider: report the message to the provider, stop this "
        "instance, and start one on another host",
    ),
    NeedRow(
        what="container program",
        lines=r"^(?:sudo )?docker run\b",
        denied=cluster_without_docker,
        keeps_text=True,
        instead="Clusters do not offer docker: use the cluster's own container program, for "
        "example `apptainer exec --nv docker://IMAGE COMMAND`",
    ),
    NeedRow(
        what="rights",
        lines=r"^(?:sudo|su) ",
        denied=no_administrator,
        keeps_text=True,
        instead="Ask the administrators of the machine for this",
    ),
    NeedRow(
        what="torch's list of kernels",
        lines=r"TORCH_CUDA_ARCH_LIST|--no-binary",
        read=kernels_of_torch,
        asks=TORCHS_KERNELS,
    ),
    NeedRow(what="marker", lines=INSTALLS_TORCH, first=marker_of_another_system),
    NeedRow(what="pins", lines=INSTALLS_TORCH, first=pin_of_another_package),
    NeedRow(
        what="compiled packages",
        lines=INSTALLS_TORCH,
        then=compiled_for_the_torch_that_is_there,
    ),
    NeedRow(
        what="C++ ABI",
        lines=r"pip install .*--no-deps --force-reinstall",
        then=abi_of_the_missing_symbol,
    ),
    NeedRow(
        what="container engine",
        lines=r"nvidia-ctk runtime configure|systemctl restart (?:docker|containerd|crio)",
        read=engine_of_the_node,
        asks=NODES_ENGINE,
    ),
    NeedRow(
        what="boot screen",
        lines=r"mokutil --import|modprobe nvidia|dkms autoinstall",
        denied=no_boot_screen,
        instead="Install the distribution's own signed kernel modules, which need no key (Ubuntu: "
        "`linux-modules-nvidia-BRANCH-FLAVOUR`, for example linux-modules-nvidia-535-azure), or "
        "use a machine without Secure Boot (Azure: security type Standard)",
    ),
    NeedRow(
        what="Python",
        lines=r"^uv venv --python|--python 3\.\d|^conda create\b.*python=",
        denied=python_that_must_stay,
        instead="No wheel of torch for that Python has kernels for this GPU. Build torch from "
        "source for it, move to a release of the program for a newer Python, or use another GPU",
    ),
)
"""All facts that commands may need, in the order in which doctor asks for them."""


def unread_torch(context: RuleContext) -> tuple[Need, ...]:
    """The need of a fix that has no command until the installed torch is known."""
    return _unread(context, TORCH)


def unread_engine(context: RuleContext) -> tuple[Need, ...]:
    """The need of a fix for a node whose container engine is not known."""
    return _unread(context, "container engine")


def _unread(context: RuleContext, what: str) -> tuple[Need, ...]:
    """The need in a tuple if nothing shows whether it is met, otherwise ()."""
    row, *_ = (row for row in NEEDS if row.what == what)
    need = _state(context, row)
    return (need,) if need.state == "unread" else ()


def judge(context: RuleContext, fix: Fix) -> Fix:
    """The fix without the command blocks whose needs are unknown or not met.

    Ownership comes first: if something else manages the environment, the fix is that owner's, and
    only its needs count.
    """
    owner = owners.owner_of(context)
    if owner is not None and owner.is_closed:
        fix = _by_the_owner(owner, fix)
    needs: dict[str, Need] = {need.what: need for need in fix.needs}
    denied: list[NeedRow] = []

    def keep_if_known(block: Alternative) -> Alternative | None:
        """The commands if all facts that they need were read; otherwise None. Notes each need."""
        is_known = True
        for row in NEEDS:
            if not _needs(row, block.commands):
                continue
            need = needs.setdefault(row.what, _state(context, row))
            if need.state == "denied" and row not in denied:
                denied.append(row)
            is_known = is_known and need.state == "read"
        return block if is_known else None

    # Commands that only look something up change nothing, so they are always shown.
    judged = replace(map_blocks(replace(fix, looks=()), keep_if_known), looks=fix.looks)
    if not needs:
        return fix
    rows = [row for row in NEEDS if row.what in needs]
    firsts = "".join(row.first(context) for row in rows)
    thens = "".join(row.then(context) for row in rows)
    text = f"{firsts}{fix.text}{thens}"
    for row in denied:
        text = _text_where_denied(row, needs[row.what], text)
    judged = replace(judged, text=text, needs=tuple(needs.values()))
    if owner is not None and not owner.is_closed and _changes_torch(fix) and not denied:
        judged = _after_the_owners_way(owner, judged)
    # If the host cannot be changed, the fix needs neither administrator rights nor a reboot there.
    if any(row.what == "host" for row in denied):
        judged = replace(judged, needs_root=False, needs_reboot=False)
    return judged


BY_GPUSETUP = ": `gpusetup install` installs and tests it"
"""The words with which `paste.install_torch` introduces its command."""


def _after_the_owners_way(owner: owners.EnvironmentOwner, fix: Fix) -> Fix:
    """The fix with the owner's instructions first. pip's commands follow, under the owner's title
    if it has one.

    gpusetup is not installed in an image, so its Dockerfile gets only pip's commands.
    """
    text = f"{owner.sentence}: {fix.text}"
    if not owner.commands_are_for:
        return replace(fix, text=text)

    def with_title(way: Alternative) -> Alternative:
        """The alternative, under the owner's title if it installs torch."""
        installs = _any_line(INSTALLS_TORCH, way.commands)
        return replace(way, title=owner.commands_are_for) if installs else way

    return replace(
        fix,
        text=text.replace(BY_GPUSETUP, ""),
        commands=(),
        alternatives=tuple(map(with_title, fix.alternatives)),
    )


CHANGES_PACKAGES = rf"{INSTALLS_TORCH}|^(?:\S*python\S* -m )?(?:uv )?pip3? (?:un)?install\b"


def _by_the_owner(owner: owners.EnvironmentOwner, fix: Fix) -> Fix:
    """The fix with the owner's instructions in place of each installation command."""
    if not (_changes_torch(fix) or (owner.holds_all_packages and _changes_packages(fix))):
        return fix
    installs = CHANGES_PACKAGES if owner.holds_all_packages else INSTALLS_TORCH

    def unless_it_installs(block: Alternative) -> Alternative | None:
        """The commands; None if they install something that the owner provides."""
        return None if _any_line(installs, block.commands) else block

    kept = map_blocks(fix, unless_it_installs)
    others = tuple(need for need in fix.needs if need.what != TORCH)
    because = Need(what="owner of the environment", state="denied", because=owner.because)
    return replace(
        kept,
        text=owner.sentence,
        commands=kept.commands or owner.commands,
        needs=(*others, because),
    )


def _changes_torch(fix: Fix) -> bool:
    """Whether a fix installs torch, or would if it were known which torch is there."""
    needs_of_fix = [need.what for need in fix.needs]
    return TORCH in needs_of_fix or _any_line(INSTALLS_TORCH, command_lines(fix))


def _changes_packages(fix: Fix) -> bool:
    """Whether a fix installs or removes any package with pip or uv."""
    return _any_line(CHANGES_PACKAGES, command_lines(fix))


def _any_line(form: str, commands: Lines | tuple[str, ...]) -> bool:
    """Whether a line matches this pattern; a notebook's leading `!` is ignored."""
    pattern = re.compile(form)
    lines_without_mark = [line.removeprefix("!") for line in commands]
    return any(map(pattern.search, lines_without_mark))


def _needs(row: NeedRow, lines: Lines) -> bool:
    """Whether one of these commands needs the fact of a row."""
    return _any_line(row.lines, lines)


def _state(context: RuleContext, row: NeedRow) -> Need:
    """Whether a needed fact is known (`read`), unknown (`unread`) or false (`denied`)."""
    if because := row.denied(context):
        return Need(what=row.what, state="denied", because=because)
    if because := row.read(context):
        return Need(what=row.what, state="read", because=because)
    return Need(what=row.what, state="unread", reading=row.asks or None)


def _text_where_denied(row: NeedRow, need: Need, text: str) -> str:
    """The reason and what to do instead, before the fix's text or in its place."""
    because = need.because[:1].upper() + need.because[1:]
    remaining_text = text if row.keeps_text else ""
    return ". ".join(filter(None, (because, row.instead, remaining_text)))
