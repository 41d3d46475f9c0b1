"""Slurm: what a check of a node leads to, and the files that call it.

A node is drained after two checks in a row that failed, and resumed after two that held, only if
the node remembers that gpusetup drained it and the reason is still the one that it gave. A node
that somebody took out of service is left alone. slurmctld writes only `Prolog error` into the
reason of a node whose prolog failed: if the health program's own check fails too, it puts its
reason there.
Source: slurm.conf(5), scontrol(1), Slurm's Prolog and Epilog Guide (22.05 to 25.05).
"""

from __future__ import annotations

import re
import shlex
from typing import Literal

from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen

OURS = "gpusetup: "
"""How the reason begins of a node that gpusetup drained."""
SLURMS_OWN = "Prolog error"
IN_A_ROW = 2
LONGEST_REASON = 200
OUT = (
    *("DOWN", "FAIL", "FAILING", "FUTURE", "MAINT", "INVAL", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
    *("POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"),
)
"""States in which no job starts on a node, whoever decided it."""


class NodeState(Frozen):
    """A node as `scontrol show node` tells it."""

    drained: bool
    reason: str = ""
    out: bool = False
    """Out of service in another way: down, failing, in maintenance, without power."""
    gpus: int = 0
    """How many GPUs Slurm gives out there."""


class Memory(Frozen):
    """What the last checks of a node were."""

    failed: int = 0
    """So many in a row."""
    held: int = 0
    drained: str = ""
    """The reason that gpusetup gave when it drained the node; empty if it did not."""


class Action(Frozen):
    """What is asked of slurmctld."""

    kind: Literal["none", "drain", "reason", "resume"] = "none"
    reason: str = ""


def node_state(text: str) -> NodeState | None:
    """`scontrol show node NAME` in its usual form; None if it tells no state.

    >>> said = "   State=IDLE+DRAIN ThreadsPerCore=1\\n   Reason=gpusetup: hot [root@2026-11-20]"
    >>> node_state(said + "\\n   Gres=gpu:a100:4(S:0-1),gpu:4,nic:2\\n")
    NodeState(drained=True, reason='gpusetup: hot', out=False, gpus=8)
    """
    state = re.search(r"\bState=([A-Za-z]\S*)", text)
    if not state:
        return None
    reason = re.search(r"\bReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$", text, re.MULTILINE)
    gres = re.search(r"\bGres=(\S+)", text)
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,4})(?![^,(])", gres[1] if gres else "")
    flags = re.findall(r"[A-Z_]+", state[1].upper())
    return NodeState(
        drained=any(flag.startswith("DRAIN") for flag in flags),
        reason=reason[1].strip() if reason else "",
        out=any(flag in OUT for flag in flags),
        gpus=sum(map(int, counts)),
    )


def decide(ok: bool, reason: str, state: NodeState, memory: Memory) -> tuple[Action, Memory]:
    """What follows from a check.

    >>> decide(False, "ecc-error: GPU 3", NodeState(drained=False), Memory(failed=1))[0]
    Action(kind='drain', reason='gpusetup: ecc-error: GPU 3')
    """
    ours = memory.drained if state.drained and state.reason == memory.drained else ""
    failed, held = (0, memory.held + 1) if ok else (memory.failed + 1, 0)
    action = Action()
    if state.out:
        pass
    elif ok and ours and held >= IN_A_ROW:
        action, ours = Action(kind="resume"), ""
    elif not ok and state.drained and state.reason.startswith(SLURMS_OWN):
        action = Action(kind="reason", reason=in_short(reason))
    elif not ok and not state.drained and failed >= IN_A_ROW:
        action = Action(kind="drain", reason=in_short(reason))
    return action, Memory(failed=failed, held=held, drained=action.reason or ours)


def in_short(reason: str) -> str:
    """A reason as Slurm keeps it: one line, no quotes, of a length that `sinfo -R` shows.

    >>> in_short('a "b"\\n c')
    "gpusetup: a 'b' c"
    """
    line = " ".join(reason.replace('"', "'").split())
    line = "".join(char for char in line if char.isprintable())
    return f"{OURS}{line}"[:LONGEST_REASON].rstrip()


def scontrol_words(action: Action, node: str) -> tuple[str, ...]:
    """The `scontrol` words for an action.

    >>> scontrol_words(Action(kind="resume"), "gpu1")
    ('scontrol', 'update', 'NodeName=gpu1', 'State=RESUME')
    """
    state = {"resume": ("State=RESUME",), "drain": ("State=DRAIN",)}.get(action.kind, ())
    reason = (f"Reason={action.reason}",) if action.reason else ()
    return ("scontrol", "update", f"NodeName={node}", *state, *reason)


# --- the files


IN_CONF = re.compile(r"/[\w./+@:,=~-]*")
"""A path that slurm.conf can hold: its values end at a space, and `#` begins a comment."""
PROLOG = """\
#!/bin/sh
# Prolog: the job's GPUs only (written by `gpusetup fleet slurm install`).
# Exit 1 is the answer that a GPU is not sound; whatever else ends it fails no job.
{call}
[ $? -ne 1 ]
"""
HEALTH = """\
#!/bin/sh
# HealthCheckProgram: drains, resumes (written by `gpusetup fleet slurm install`).
exec {call}
"""
CONF = """\
# For slurm.conf on every node; then `scontrol reconfigure`.
Prolog={prefix}/prolog.sh
HealthCheckProgram={prefix}/health.sh
HealthCheckInterval=300
HealthCheckNodeState=ANY
"""


def files(python: str, prefix: str, state: str, profile: str | None) -> dict[str, str]:
    """What `slurm install` writes, by name: two programs for slurm.conf, and its lines.

    Raises UsageError for a prefix that slurm.conf cannot name.
    """
    if not IN_CONF.fullmatch(prefix):
        raise UsageError(
            f"slurm.conf cannot name files in {prefix!r}: it has no quotes for such characters",
            hint="a path of letters, digits and ./+@:,=~_- only, as `--prefix /etc/slurm/gpusetup`",
        )
    ours = (python, "-I", "-m", "gpusetup", "fleet", "slurm")
    more = ("--profile", profile) if profile else ()
    return {
        "prolog.sh": PROLOG.format(call=shlex.join((*ours, "prolog", *more))),
        "health.sh": HEALTH.format(call=shlex.join((*ours, "health", "--state", state, *more))),
        "slurm.conf.gpusetup": CONF.format(prefix=prefix),
    }
