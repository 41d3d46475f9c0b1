"""What must be known before a command changes something, and whether it is known.

Each row of `NEEDS` stands for one fact: the installed torch, a node's container engine, the Python
that must stay, a boot screen that must be reachable. If a block of commands needs a fact that is
unknown or false, `judge` leaves the block out. If the fact is unknown, the fix keeps its text, and
doctor asks for the row's command; if it is false, the row says what to do instead.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

from gpusetup.catalog.jetpack import board_of
from gpusetup.evidence import checks
from gpusetup.evidence.context import RuleContext, events, is_report
from gpusetup.fixes import owners
from gpusetup.model.finding import Alternative, Fix, Need, command_lines, map_blocks
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import Lines

Reading = Callable[[RuleContext], str]
"""A function that returns in words what was read; "" if nothing was read."""


QUOTED_CHARACTERS = 40
"""The beginning of a message that is enough to recognize it."""


def if_shown(sentence: str, kind: str) -> Reading:
    """A reading: the sentence with the values of the first event of this kind; "" if there is none.

    `{message}` in the sentence is replaced by the beginning of the event's text.
    """

    def read(context: RuleContext) -> str:
        for event in events(context, kind):
            message = (event.text or "")[:QUOTED_CHARACTERS].strip()
            # A value that the event lacks is left empty.
            return sentence.format_map(defaultdict(str, {**event.values, "message": message}))
        return ""

    return read


# --- which torch is there -------------------------------------------------------------------------

INSTALLING = (
    *("no-matching-distribution", "python-no-wheel", "wheel-not-supported", "wrong-index"),
    *("no-wheel-for-platform", "conda-not-found", "resolver-conflict", "torch-missing"),
    *("build-isolation-no-torch", "download-hash-mismatch", "download-network-error"),
    *("conda-cuda-virtual-missing", "externally-managed", "pip-cache-disk-full"),
)
"""Events of a person who is about to install torch, so that the installed torch does not matter."""
SHOW_WHICH_TORCH = (
    *("torch-not-compiled-with-cuda", "gpu-not-in-wheel", "no-nvidia-driver"),
    *("no-xpu", "hip-kernel-missing"),
)
"""Events in which torch itself says what it lacks."""


def torch_that_is_there(context: RuleContext) -> str:
    """The installed torch, as exactly as a command that changes it must know it; "" if it is not
    known.

    What shows the torch itself comes first, then what shows that it does not matter (none is
    installed, or another one is requested), then a message in which torch says what it lacks.
    """
    torch, wanted = context.torch, context.snapshot.wanted
    if board := board_of(context.snapshot):
        return f"{board}, whose JetPack decides"
    # A probed machine's torch is known. For a described host, the answer is only what would fit it.
    if not is_report(context) or context.other_host:
        return torch.version or "no torch is installed"
    for event in events(context, "hosted-notebook"):
        return f"the torch of {event.values.get('service', '')}"
    if torch.backend or torch.version:
        return f"torch {torch.version or torch.backend}"
    if torch.kernels:
        return f"torch with kernels for {' '.join(torch.kernels)}"
    if torch.installed is False or events(context, *INSTALLING):
        return "no torch is installed yet"
    if requested := wanted.torch or wanted.backend or wanted.companion:
        return f"torch {requested} is requested"
    for event in events(context, *SHOW_WHICH_TORCH):
        return event.text or event.kind
    return ""


def kernels_of_torch(context: RuleContext) -> str:
    """What shows that torch has kernels for the GPU; "" if nothing does.

    Without such kernels, rebuilding an extension changes nothing.
    """
    # Other findings also rebuild extensions, for example after an update of torch.
    if not events(context, "no-kernel-image"):
        return "no kernel is missing"
    if context.torch.kernels is not None:
        return f"torch has kernels for {' '.join(context.torch.kernels)}"
    return "torch computes here" if events(context, "gpu-computes") else ""


# --- which GPU, Python and engine -----------------------------------------------------------------


def python_of_the_program(context: RuleContext) -> str:
    """The Python of a program that comes with its environment, which a command must name; "" if
    the text names such a program but no Python or installer."""
    python = context.snapshot.python
    if python.executable:
        return python.executable
    is_unnamed = owners.named_owner(context, "program") and not python.manager
    return "" if is_unnamed else "no other environment is named"


def engine_of_the_node(context: RuleContext) -> str:
    """The container engine of the node; "" if pods run there and the text names no engine."""
    for event in events(context, "container-engine"):
        return f"the node's engine is {event.values['engine']}"
    return "" if context.snapshot.container.kind == "kubernetes" else "this host's own engine"


# --- the table ------------------------------------------------------------------------------------


class NeedRow(Frozen):
    """One fact that some commands need."""

    what: str
    """The fact in words, for the sentence with which doctor asks for it."""
    lines: str
    """A pattern for the command lines that need the fact."""
    read: Reading | None = None
    """Shows that the fact is known; None for a fact that is never asked for."""
    denied: Reading | None = None
    """Shows that the fact is false; None if nothing can."""
    asks: str = ""
    """The command whose output shows the fact, if it is unknown."""
    instead: str = ""
    """What to do instead if the fact is false."""


INSTALLS_TORCH = (
    r"^gpusetup install\b(?!.* (?:vllm|sglang|lmdeploy|xformers|flash-attn|--venv)\b)"
    r"|^(?:(?!\.venv-)\S*python\S* -m )?(?:uv )?pip3? install\b"
    r".*(?<![\w/.-])torch(?:==\S+)?(?![\w.-])"
    r"|^(?:conda|mamba) install\b.* (?:pytorch|torch)\b|^uv add\b.* torch\b"
)
"""A command that replaces the installed torch. With `--venv`, or in a folder `.venv-…`, the
environment is new and has no torch yet."""
CHANGES_PACKAGES = rf"{INSTALLS_TORCH}|^(?:\S*python\S* -m )?(?:uv )?pip3? (?:un)?install\b"
TORCH, ENGINE = "torch", "container engine"
"""The needs to know which torch is there, and which container engine a node has."""

NEEDS: tuple[NeedRow, ...] = (
    NeedRow(
        what=TORCH,
        lines=INSTALLS_TORCH,
        read=torch_that_is_there,
        asks=checks.CUDA_OF_TORCH,
    ),
    NeedRow(
        what="Python of the program",
        lines=rf"{INSTALLS_TORCH}|^gpusetup install (?!.*--python)",
        read=python_of_the_program,
        asks=checks.WHICH_TORCH,
    ),
    NeedRow(
        what="host",
        lines=r"^sudo (?:reboot|shutdown|modprobe|systemctl|apt|dnf)\b|nvidia-smi .*--gpu-reset",
        denied=if_shown("you cannot change the host from here ({message})", "host-of-a-lender"),
        instead="The host belongs to the provider. Report the message to them, stop this instance, "
        "and start one on another host",
    ),
    NeedRow(
        what="torch's list of kernels",
        lines=r"TORCH_CUDA_ARCH_LIST|--no-binary",
        read=kernels_of_torch,
        asks=checks.TORCHS_KERNELS,
    ),
    NeedRow(
        what=ENGINE,
        lines=r"nvidia-ctk runtime configure|systemctl restart (?:docker|containerd|crio)",
        read=engine_of_the_node,
        asks="kubectl get nodes -o wide  # its last column is CONTAINER-RUNTIME",
    ),
    NeedRow(
        what="boot screen",
        lines=r"mokutil --import|modprobe nvidia|dkms autoinstall",
        denied=if_shown(
            "the screen that enrols a key appears before the system starts, so you cannot reach it",
            "cloud-machine",
        ),
        instead="Install the distribution's own signed kernel modules, which need no key (Ubuntu: "
        "`linux-modules-nvidia-BRANCH-FLAVOUR`, for example linux-modules-nvidia-535-azure), or "
        "use a machine without Secure Boot (Azure: security type Standard)",
    ),
    NeedRow(
        what="Python",
        lines=r"^uv venv --python|--python 3\.\d|^conda create\b.*python=",
        denied=if_shown("the program is bound to Python {python}", "python-bound"),
        instead="No wheel of torch for that Python has kernels for this GPU. Build torch from "
        "source for it, move to a release of the program for a newer Python, or use another GPU",
    ),
)
"""All facts that commands may need, in the order in which doctor asks for them."""


def unread(context: RuleContext, what: str) -> tuple[Need, ...]:
    """The need of a fix that has no command until this fact is known; () if it is known."""
    need = next(_state(context, row) for row in NEEDS if row.what == what)
    return (need,) if need.state == "unread" else ()


def _state(context: RuleContext, row: NeedRow) -> Need:
    """Whether a needed fact is known (`read`), unknown (`unread`) or false (`denied`)."""
    if row.denied and (because := row.denied(context)):
        return Need(what=row.what, state="denied", because=because)
    because = row.read(context) if row.read else "nothing more is needed"
    if because:
        return Need(what=row.what, state="read", because=because)
    return Need(what=row.what, state="unread", reading=row.asks or None)


def any_line(form: str, commands: Lines) -> bool:
    """Whether a line matches this pattern; a notebook's leading `!` is ignored."""
    return any(re.search(form, line.removeprefix("!")) for line in commands)


# --- the judgement --------------------------------------------------------------------------------


def judge(context: RuleContext, fix: Fix) -> Fix:
    """The fix without the command blocks whose needs are unknown or not met.

    Ownership comes first: if something else manages the environment, the fix is that owner's, and
    only its needs count.
    """
    owner = owners.owner_of(context)
    if owner is not None and owner.excludes_pip:
        fix = _by_the_owner(owner, fix)
    # A fix may already have needs: its function knew that a fact is unknown (`unread`).
    needs: dict[str, Need] = {need.what: need for need in fix.needs}

    def keep_if_known(block: Alternative) -> Alternative | None:
        """The commands if all facts that they need were read; otherwise None. Notes each need."""
        rows = [row for row in NEEDS if any_line(row.lines, block.commands)]
        for row in rows:
            needs.setdefault(row.what, _state(context, row))
        return block if all(needs[row.what].state == "read" for row in rows) else None

    # Commands that only look something up change nothing, so they are always shown.
    judged = replace(map_blocks(replace(fix, looks=()), keep_if_known), looks=fix.looks)
    if not needs:
        return fix
    text = fix.text
    denied = [row for row in NEEDS if row.what in needs and needs[row.what].state == "denied"]
    if denied:
        # The text says one thing to do instead, which is that of the last row.
        because, instead = needs[denied[-1].what].because, denied[-1].instead
        text = f"{because[:1].upper()}{because[1:]}. {instead}"
    if owner is not None and not owner.excludes_pip and _changes_torch(fix) and not denied:
        text = f"{owner.sentence}: {text}"
    return replace(judged, text=text, needs=tuple(needs.values()))


def _by_the_owner(owner: owners.EnvironmentOwner, fix: Fix) -> Fix:
    """The fix with the owner's instructions in place of each command that installs torch. A fix
    without such a command stays."""
    if not _changes_torch(fix):
        return fix
    kept = map_blocks(
        fix, lambda block: None if any_line(INSTALLS_TORCH, block.commands) else block
    )
    because = Need(what="owner of the environment", state="denied", because=owner.because)
    return replace(
        kept,
        text=owner.sentence,
        # Which torch is there no longer matters.
        needs=(*(need for need in fix.needs if need.what != TORCH), because),
    )


def _changes_torch(fix: Fix) -> bool:
    """Whether a fix installs torch, or would if it were known which torch is there."""
    is_needed = TORCH in [need.what for need in fix.needs]
    return is_needed or any_line(INSTALLS_TORCH, command_lines(fix))
