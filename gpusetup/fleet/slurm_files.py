"""Writes the programs that Slurm runs on each node. Each is a short shell script around `fleet
check`.

A node is drained after two failed checks in a row, and resumed after two successful ones, but only
if its reason is still one that gpusetup set. A node that someone else took out of service is left
alone.

There is a limit: at most a given share of a partition is drained, because an outdated profile would
fail every node at once. Hardware faults have a separate share, which such a profile cannot use up.
slurmctld keeps the count, because it stores each node's reason. So the count survives reboots,
needs no shared folder, and is visible in `sinfo -R`. slurmctld also dates all reasons with the same
clock, so nodes that fail at the same moment agree on which of them are within the limit.

For a node whose prolog failed, slurmctld only writes `Prolog error` into the reason. If the health
program's own check fails too, it replaces that text with its own reason.
"""

from __future__ import annotations

import re
import shlex

from gpusetup.errors import UsageError
from gpusetup.fleet.node_check import HARDWARE_FAULTS
from gpusetup.model.frozen import Frozen

IN_CONF = re.compile(r"/[\w./+@:,=~-]*")
"""Matches paths that slurm.conf can contain: its values end at a space, and `#` begins a comment.
"""
DRAIN_LIMIT = re.compile(r"[0-9]{1,6}|(?:[0-9]{1,2}|100)%")
"""Matches a number of nodes, or a percentage of a partition's nodes."""
DEFAULT_DRAIN_LIMIT = "20%"
"""Usually only a few percent of a cluster are faulty, and even a rack of eight nodes among 64 is
only 13 %. If more nodes fail at once, the cause is usually a deliberate change."""

SETTINGS = """\
# Slurm sets no PATH for its programs.
PATH="${PATH:+$PATH:}"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"""

NODE = """\
export PATH LC_ALL=C SLURM_TIME_FORMAT=standard
node=${SLURMD_NODENAME:-$(hostname -s)}
export SLURMD_NODENAME="$node"  # the check names its record after it

# A field of this node's record, e.g. State or Reason.
field() { timeout 10 scontrol show node "$node" | sed -n "s/^ *$1=//p"; }

# For the log of slurmd, which keeps what a program prints, and for syslog.
report() {
    echo "gpusetup: $1"
    logger -t gpusetup -p daemon.err -- "$1" 2>/dev/null || :
}

# Whether this node, drained for the reason $1, would exceed the limit in one of its partitions;
# prints which limit. Nodes that failed checks took out of service count, those of an earlier date
# before this node. Faults of the hardware and other failed checks are counted apart.
exceeds_limit() {
    set -f  # a name may have letters that a shell would expand
    kind=$(kind_of "$1")
    if ! record=$(timeout 10 scontrol show node "$node"); then
        echo "Slurm does not say in which partitions it is"
        return 0
    fi
    for partition in $(echo "$record" | sed -n "s/^ *Partitions=//p" | tr , ' '); do
        timeout 10 sinfo -h -N -p "$partition" -o '%N|%T|%H|%E' |
        sort -t '|' -k 3,3 -k 1,1 |
        awk -F '|' -v node="$node" -v limit="$drain_at_most" -v partition="$partition" \\
            -v kind="$kind" -v hardware="^gpusetup: ($hardware_faults): " '
            $1 != "" { total++ }
            $2 ~ /drain|down|fail/ && $4 ~ /^(gpusetup: |Prolog error)/ {
                kind_of_node = ($4 ~ hardware) ? "hardware faults" : "failed checks"
                if ($4 ~ /^Prolog error/) kind_of_node = kind  # unknown: it counts as both
                if (kind_of_node != kind) next
                if ($1 == node) is_counted = 1
                else if (!is_counted) earlier++
            }
            END {
                if (!total) {
                    print "Slurm does not say which nodes of partition " partition " are drained"
                    exit 1
                }
                allowed = limit + 0
                if (limit ~ /%/) {
                    allowed = int(total * limit / 100)
                    if (limit + 0 > 0 && allowed < 1) allowed = 1  # one sick node of a few
                }
                if (earlier + 1 > allowed) {
                    print kind " already drained " earlier + 0 " of " total \\
                        " nodes in partition " partition " (--drain-at-most " limit ")"
                    exit 1
                }
            }' || return 0
    done
    return 1
}

# What the reason $1 counts as in the limit.
kind_of() {
    if echo "$1" | grep -qE "^($hardware_faults): "; then echo "hardware faults"
    else echo "failed checks"; fi
}

# Gives the node the reason $1, in letters that no terminal obeys.
drain_with_reason() {
    reason="gpusetup: $(printf %s "$1" | tr '"' "'" | tr -dc ' -~' | cut -c1-180)"
    scontrol update NodeName="$node" State=DRAIN Reason="$reason"
}

# Drains this node with the reason $1. Above the limit it stays in service, and this is reported.
drain_within_limit() {
    if ! limit=$(exceeds_limit "$1"); then
        drain_with_reason "$1" || { report "$node could not be drained ($1)"; return 1; }
        sleep 3  # slurmctld dates by the second: all drains of the same second have arrived
        limit=$(exceeds_limit "$1") || return 0
        # Others were faster. Undone only if the reason is still ours: an operator may have drained
        # the node since.
        case $(field Reason) in
            "$reason"*) scontrol update NodeName="$node" State=RESUME ;;
            *) return 0 ;;
        esac
    fi
    report "$node is NOT drained although its check failed ($1): $limit. If the driver was updated\\
 on all nodes, write the profile again; sick nodes are listed by \\`sinfo -R\\`"
    return 1
}
"""

PROLOG = """\
# Exit 1 is the answer that the node is not sound; whatever else ends it fails no job.

# slurmd names the GPUs of a job. It names none for shards, MPS, and GPUs without a device file in
# gres.conf: then the job's record is asked, on nodes with NVIDIA's driver only.
has_gpus() {
    [ -n "$SLURM_JOB_GPUS$SLURM_GPUS$SLURM_SHARDS_ON_NODE" ] && return 0
    [ -e /dev/nvidiactl ] || return 1
    timeout 10 scontrol -o show job "$SLURM_JOB_ID" | grep -qE 'gres[:/](gpu|mps|shard)'
}

has_gpus || exit 0
answer=$(check)
status=$?
[ $status -eq 0 ] && exit 0
echo "$answer" >&2
[ $status -eq 1 ] || { report "the check did not run (exit $status); the job starts" >&2; exit 0; }
# Out of service already: Slurm may only send the job elsewhere.
case $(field State) in *DRAIN*) exit 1 ;; esac
drain_within_limit "${answer#failed: }" >&2 && exit 1
exit 0
"""

HEALTH = """\
state=$(field State | cut -d' ' -f1)
[ -n "$state" ] || exit 3

# A node without a GPU, for Slurm and for Linux, is not checked.
case $(field Gres) in *gpu*) ;; *) [ -d /proc/driver/nvidia ] || exit 0 ;; esac
wanted=1
has_reason=yes
case $state in
    *DOWN* | *FAIL* | *FUTURE* | *INVAL* | *MAINT* | *REBOOT*) exit 0 ;;
    *DRAIN*)
        case $(field Reason) in
            gpusetup:\\ *) wanted=0 ;;  # ours: resumed if the check holds
            Prolog\\ error*) has_reason=no ;;  # gets its reason if the check fails
            *) exit 0 ;;  # somebody else's
        esac ;;
esac

# Two checks with the same answer, so that a moment's failure drains nothing.
for pause in 10 0; do
    answer=$(check)
    status=$?
    [ $status -gt 1 ] && { report "the check did not run (exit $status)"; exit 3; }
    [ $status -eq $wanted ] || exit 0
    sleep $pause
done
[ $wanted -eq 0 ] && exec scontrol update NodeName="$node" State=RESUME
if [ "$has_reason" = no ]; then
    drain_with_reason "${answer#failed: }"
else
    drain_within_limit "${answer#failed: }"
fi
"""

CONF = """\
# For slurm.conf on every node; then `scontrol reconfigure`.
Prolog={folder}/prolog.sh
HealthCheckProgram={folder}/health.sh
HealthCheckInterval=300
# CYCLE spreads the checks over the interval; without it all nodes are checked at once.
HealthCheckNodeState=ANY,CYCLE
# Slurm holds a batch job whose prolog failed until `scontrol release JOBID`. To start it on another
# node instead, add this to the SchedulerParameters that you have (one line, joined by commas):
# SchedulerParameters=nohold_on_prolog_fail
"""


class SlurmSetup(Frozen):
    """The settings of the programs that Slurm runs on each node."""

    folder: str
    """The folder of the programs, which has the same path on each node."""
    python: str
    """The path of the Python on the nodes in which gpusetup is installed."""
    profile: str | None = None
    drain_at_most: str = DEFAULT_DRAIN_LIMIT
    """A percentage of a partition, such as `20%`, or a number of nodes."""
    prometheus: str | None = None
    """A file on each node for the metrics of the health program's check."""
    scontrol_folder: str | None = None
    """The folder of Slurm's commands, if this machine has them."""
    slurm_conf: str | None = None
    """The path in SLURM_CONF, if Slurm's configuration is not in its usual place."""


def files(setup: SlurmSetup) -> dict[str, str]:
    """Maps file names to the contents of the files that `fleet slurm` writes: two programs, and
    lines to add to slurm.conf.

    Raises UsageError for a folder that slurm.conf cannot name.
    """
    if not IN_CONF.fullmatch(setup.folder):
        raise UsageError(
            f"slurm.conf cannot name files in {setup.folder!r}: it has no quotes for such "
            "characters",
            hint="a path of letters, digits and ./+@:,=~_- only, as /etc/slurm/gpusetup",
        )
    profile = ("--profile", setup.profile) if setup.profile else ()
    # Only the health program writes this file, because two programs would overwrite each other's
    # results.
    metrics = ("--prometheus", setup.prometheus) if setup.prometheus else ()
    prolog_title = "# Prolog of a job with GPUs"
    health_title = "# HealthCheckProgram: drains and resumes this node"
    return {
        "prolog.sh": _program(setup, prolog_title, profile) + PROLOG,
        "health.sh": _program(setup, health_title, (*profile, *metrics)) + HEALTH,
        "slurm.conf.gpusetup": CONF.format(folder=setup.folder),
    }


def _slurm_conf_lines(slurm_conf: str | None) -> tuple[str, ...]:
    """The shell lines that set SLURM_CONF; empty if Slurm's configuration is in its usual place."""
    if slurm_conf is None:
        return ()
    return (
        "# Where Slurm's configuration was when this file was written; slurmd may say another.",
        f'[ -n "$SLURM_CONF" ] || SLURM_CONF={shlex.quote(slurm_conf)}',
        "export SLURM_CONF",
    )


def _program(setup: SlurmSetup, title: str, check_options: tuple[str, ...]) -> str:
    """The beginning of a program: its settings, and the shell functions that both programs
    share."""
    check = shlex.join((setup.python, "-I", "-m", "gpusetup", "fleet", "check", *check_options))
    more_path = f":{shlex.quote(setup.scontrol_folder)}" if setup.scontrol_folder else ""
    lines = (
        "#!/bin/sh",
        f"{title} (written by `gpusetup fleet slurm`).",
        f"{SETTINGS}{more_path}",
        "# A share of the partition, or a number of nodes: more are never drained (0: none).",
        f"drain_at_most={shlex.quote(setup.drain_at_most)}",
        "# What a reason begins with that counts among faults of the hardware.",
        f"hardware_faults='{'|'.join(HARDWARE_FAULTS)}'",
        *_slurm_conf_lines(setup.slurm_conf),
        "# The Python with gpusetup. Is it elsewhere on this node? Change the path here, or run",
        "# `gpusetup fleet slurm DIR --node-python PATH` again.",
        f"check() {{ {check}; }}",
        NODE,
    )
    return "\n".join(lines)
