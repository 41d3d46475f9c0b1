"""Slurm: the programs that it calls on a node, each a few lines of shell around `fleet check`.

A node is drained after two checks in a row that failed, and resumed after two that held, only if
the reason is still one that gpusetup gave. A node that somebody took out of service is left alone.
slurmctld writes only `Prolog error` into the reason of a node whose prolog failed: if the health
program's own check fails too, it puts its reason there.
Source: slurm.conf(5), scontrol(1), Slurm's Prolog and Epilog Guide (22.05 to 25.05).
"""

from __future__ import annotations

import re
import shlex

from gpusetup.errors import UsageError

IN_CONF = re.compile(r"/[\w./+@:,=~-]*")
"""A path that slurm.conf can hold: its values end at a space, and `#` begins a comment."""
PROLOG = """\
#!/bin/sh
# Prolog of a job with GPUs (written by `gpusetup fleet slurm`).
# Exit 1 is the answer that the node is not sound; whatever else ends it fails no job.
[ -n "$SLURM_JOB_GPUS" ] || exit 0
{call} >&2
[ $? -ne 1 ]
"""
HEALTH = """\
#!/bin/sh
# HealthCheckProgram: drains, resumes (written by `gpusetup fleet slurm`).
node=${{SLURMD_NODENAME:-$(hostname -s)}}
told=$(scontrol show node "$node") || exit 3
field() {{ printf '%s\\n' "$told" | sed -n "s/^ *$1=//p"; }}
state=$(field State | cut -d' ' -f1)

# A node without a GPU, for Slurm and for Linux, is not checked.
case $(field Gres) in *gpu*) ;; *) [ -d /proc/driver/nvidia ] || exit 0 ;; esac
wanted=1
case $state in
    '' | *DOWN* | *FAIL* | *FUTURE* | *INVAL* | *MAINT* | *REBOOT*) exit 0 ;;
    *DRAIN*)
        case $(field Reason) in
            gpusetup:\\ *) wanted=0 ;;  # ours: resumed if the check holds
            Prolog\\ error*) ;;  # gets its reason if the check fails
            *) exit 0 ;;  # somebody else's
        esac ;;
esac

for wait in 10 0; do
    said=$({call})
    [ $? -eq $wanted ] || exit 0
    sleep $wait
done
[ $wanted -eq 0 ] && exec scontrol update NodeName="$node" State=RESUME
reason=$(printf %s "${{said#failed: }}" | tr '"' "'" | tr -dc ' -~' | cut -c1-180)
exec scontrol update NodeName="$node" State=DRAIN Reason="gpusetup: $reason"
"""
CONF = """\
# For slurm.conf on every node; then `scontrol reconfigure`.
Prolog={prefix}/prolog.sh
HealthCheckProgram={prefix}/health.sh
HealthCheckInterval=300
HealthCheckNodeState=ANY
"""


def files(python: str, prefix: str, profile: str | None) -> dict[str, str]:
    """What `fleet slurm` writes, by name: two programs for slurm.conf, and its lines.

    Raises UsageError for a prefix that slurm.conf cannot name.
    """
    if not IN_CONF.fullmatch(prefix):
        raise UsageError(
            f"slurm.conf cannot name files in {prefix!r}: it has no quotes for such characters",
            hint="a path of letters, digits and ./+@:,=~_- only, as /etc/slurm/gpusetup",
        )
    more = ("--profile", profile) if profile else ()
    call = shlex.join((python, "-I", "-m", "gpusetup", "fleet", "check", *more))
    return {
        "prolog.sh": PROLOG.format(call=call),
        "health.sh": HEALTH.format(call=call),
        "slurm.conf.gpusetup": CONF.format(prefix=prefix),
    }
