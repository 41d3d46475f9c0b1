"""Slurm: what a check of a node leads to, and the files that call it.

slurmctld writes only `Prolog error` into the reason of a node whose prolog failed. The prolog
therefore leaves its reason in a file on the node, and the health program, which may run Slurm's
commands, puts it into the drain's reason. A node is drained after two checks in a row that failed,
and resumed after two that held, only where the node remembers that gpusetup drained it and the
reason is still the one that it gave. A node that somebody took out of service is left alone.
Source: slurm.conf(5), scontrol(1), Slurm's Prolog and Epilog Guide (22.05 to 25.05).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace

OURS = "gpusetup: "
"""How the reason begins of a node that gpusetup drained."""
SLURMS_OWN = "Prolog error"
IN_A_ROW = 2
LONGEST_REASON = 200
REASON_FILE, MEMORY_FILE = "prolog-reason", "health.json"


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
    gres: int | None = None
    """How many GPUs Slurm gives out there; None where it knows of none."""


class Memory(Frozen):
    """What the last checks of a node were."""

    failed: int = 0
    """So many in a row."""
    held: int = 0
    drained: str = ""
    """The reason that gpusetup gave when it drained the node; empty where it did not."""
    gres: int | None = None
    """How many GPUs Slurm gives out on the node, for the prolog, which may not ask."""


class Action(Frozen):
    """What is asked of slurmctld."""

    kind: Literal["none", "drain", "reason", "resume"]
    reason: str = ""


NOTHING = Action(kind="none")


def node_state(text: str) -> NodeState:
    """`scontrol show node NAME` in its usual form.

    >>> said = "   State=IDLE+DRAIN ThreadsPerCore=1\\n   Reason=gpusetup: hot [root@2026-11-20]"
    >>> node_state(said)
    NodeState(drained=True, reason='gpusetup: hot', out=False, gres=None)
    """
    state = re.search(r"\bState=(\S+)", text)
    reason = re.search(r"\bReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$", text, re.MULTILINE)
    flags = re.findall(r"[A-Z_]+", state[1].upper()) if state else []
    return NodeState(
        drained=any(flag.startswith("DRAIN") for flag in flags),
        reason=reason[1].strip() if reason else "",
        out=any(flag in OUT for flag in flags),
        gres=_gpus_given_out(text),
    )


def has_state(text: str) -> bool:
    """Whether scontrol's answer tells a node's state: nobody acts on one that it does not know."""
    return re.search(r"\bState=[A-Za-z]", text) is not None


def _gpus_given_out(text: str) -> int | None:
    """
    >>> _gpus_given_out("   Gres=gpu:a100:4(S:0-1),gpu:4,nic:2\\n"), _gpus_given_out("Gres=(null)")
    (8, None)
    """
    gres = re.search(r"\bGres=(\S+)", text)
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,4})(?![^,(])", gres[1] if gres else "")
    return sum(map(int, counts)) if counts else None


def names_gpus(conf: str) -> bool:
    """Whether a slurm.conf says that GPUs are given out.

    >>> names_gpus("  GresTypes=gpu,nic # all"), names_gpus("#GresTypes=gpu\\nGresTypes=nic\\n")
    (True, False)
    """
    types = re.findall(
        r"^[ \t]*GresTypes[ \t]*=[ \t]*([^\s#]+)", conf, re.MULTILINE | re.IGNORECASE
    )
    return any("gpu" in one.split(",") for one in types)


def decide(
    ok: bool, reason: str, state: NodeState, memory: Memory, prolog: str = ""
) -> tuple[Action, Memory]:
    """What follows from a check. `prolog`: the reason that the node's own prolog left.

    >>> decide(False, "ecc-error: GPU 3", NodeState(drained=False), Memory(failed=1))[0]
    Action(kind='drain', reason='gpusetup: ecc-error: GPU 3')
    """
    ours = memory.drained if state.drained and state.reason == memory.drained else ""
    now = Memory(
        failed=0 if ok else memory.failed + 1,
        held=memory.held + 1 if ok else 0,
        drained=ours,
        gres=state.gres,
    )
    if state.out:
        return NOTHING, now
    if state.drained and state.reason.startswith(SLURMS_OWN) and (prolog or not ok):
        why = in_short(reason if not ok else prolog)
        return Action(kind="reason", reason=why), replace(now, drained=why, held=0)
    if not ok and not state.drained and now.failed >= IN_A_ROW:
        why = in_short(reason)
        return Action(kind="drain", reason=why), replace(now, drained=why)
    if ok and ours and now.held >= IN_A_ROW:
        return Action(kind="resume"), replace(now, drained="")
    return NOTHING, now


def in_short(reason: str) -> str:
    """A reason as Slurm keeps it: one line, no quotes, of a length that `sinfo -R` shows.

    >>> in_short('a "b"\\n c')
    "gpusetup: a 'b' c"
    """
    line = " ".join(reason.replace('"', "'").split())
    line = "".join(char for char in line if char.isprintable())
    return f"{OURS}{line}"[:LONGEST_REASON].rstrip()


def asked(action: Action, node: str) -> tuple[str, ...]:
    """The `scontrol` words for an action.

    >>> asked(Action(kind="resume"), "gpu1")
    ('scontrol', 'update', 'NodeName=gpu1', 'State=RESUME')
    """
    update = ("scontrol", "update", f"NodeName={node}")
    if action.kind == "resume":
        return (*update, "State=RESUME")
    state = ("State=DRAIN",) if action.kind == "drain" else ()
    return (*update, *state, f"Reason={action.reason}")


# --- the files


NAMES = ("prolog.sh", "health.sh", "slurm.conf.gpusetup")
IN_CONF = re.compile(r"/[\w./+@:,=~-]*")
"""A path that slurm.conf can hold: its values end at a space, and `#` begins a comment."""


class File(Frozen):
    path: str
    """Below the prefix."""
    text: str
    executable: bool = True


def files(python: str, prefix: str, state: str, profile: str | None) -> tuple[File, ...]:
    """What `slurm install` writes: two programs for slurm.conf, and its lines.

    Raises UsageError for a prefix that slurm.conf cannot name.
    """
    if not IN_CONF.fullmatch(prefix):
        raise UsageError(
            f"slurm.conf cannot name files in {prefix!r}: it has no quotes for such characters",
            hint="a path of letters, digits and ./+@:,=~_- only, as `--prefix /etc/slurm/gpusetup`",
        )
    more = ("--profile", profile) if profile else ()
    call = {name: _call(python, name, state, more) for name in ("prolog", "health")}
    return (
        File(path="prolog.sh", text=_prolog(call["prolog"])),
        File(path="health.sh", text=_script("HealthCheckProgram: drains, resumes", call["health"])),
        File(path="slurm.conf.gpusetup", text=_conf(prefix), executable=False),
    )


def _call(python: str, name: str, state: str, more: Sequence[str]) -> str:
    return shlex.join(
        (python, "-I", "-m", "gpusetup", "fleet", "slurm", name, "--state", state, *more)
    )


def _script(what: str, call: str) -> str:
    return f"#!/bin/sh\n# {what} (written by `gpusetup fleet slurm install`).\nexec {call}\n"


def _prolog(call: str) -> str:
    """Only the answer no fails a job: a gpusetup that cannot run is no fault of the node."""
    return (
        "#!/bin/sh\n# Prolog: the job's GPUs only (written by `gpusetup fleet slurm install`).\n"
        "# Exit 1 is the answer that a GPU is not sound; whatever else ends it fails no job.\n"
        f"{call}\n[ $? -ne 1 ]\n"
    )


def _conf(prefix: str) -> str:
    rows: Mapping[str, str] = {
        "Prolog": f"{prefix}/prolog.sh",
        "HealthCheckProgram": f"{prefix}/health.sh",
        "HealthCheckInterval": "300",
        "HealthCheckNodeState": "ANY",
    }
    lines = "".join(f"{name}={value}\n" for name, value in rows.items())
    return f"# For slurm.conf on every node; then `scontrol reconfigure`.\n{lines}"
