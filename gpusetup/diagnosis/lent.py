"""What changes in a fix if the machine is somebody else's.

In a lent notebook nobody installs a driver, restarts the host or reads its log; a new session loads
what was installed. On a cluster the administrators do that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.causes.layers import OF_THE_DRIVER
from gpusetup.causes.lenders import Lender, lender_of
from gpusetup.causes.record import RECORDS
from gpusetup.diagnosis.system import lines_without
from gpusetup.evidence.context import events, is_report
from gpusetup.evidence.places import IN_KUBERNETES
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.shell import lines

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext

INSTALLS = ("pip install ", "pip uninstall ", "gpusetup install")
ON_A_CLUSTER = Fix(
    text="Ask Slurm for a GPU (`#SBATCH --gres=gpu:1`) and look inside such a job. If it lists "
    "none either, report the node to the cluster's administrators",
    commands=lines("srun --gres=gpu:1 nvidia-smi -L"),
)


def on_a_lent_machine(context: RuleContext, finding: Finding) -> Finding:
    """The finding with what can be done in the notebook, or in the job, that a text is of."""
    fix = finding.fix
    if fix is None or finding.severity is not Severity.ERROR or not is_report(context):
        return finding
    if lender := lender_of(context):
        return replace(finding, fix=_there(context, lender, finding, fix))
    if RECORDS[finding.id].lacks == "gpu" and events(context, "slurm-job"):
        return replace(finding, fix=ON_A_CLUSTER)
    shared = events(context, "slurm-job", "shared-node") or IN_KUBERNETES(context)
    if not (fix.needs_root and shared):
        return finding
    text = f"Ask the cluster's administrators to do this: {fix.text}"
    return replace(
        finding, fix=lines_without(replace(fix, text=text), "reboot|modprobe|--gpu-reset")
    )


def _there(context: RuleContext, lender: Lender, finding: Finding, fix: Fix) -> Fix:
    record = RECORDS[finding.id]
    if record.lacks == "gpu":
        return Fix(text=lender.gives_a_gpu)
    why = f"The driver is {lender.name}'s, and you cannot update it there"
    if record.lacks == "driver" and context.driver.version and context.resolution.build:
        fix = paste.install_torch(context, f"{why}. ")
    elif record.lacks == "driver":
        return Fix(
            text=f"{why}: use the torch that the notebook came with, on a new machine "
            f"({lender.anew})"
        )
    elif record.place and record.place[0] in OF_THE_DRIVER:
        return Fix(
            text=f"The driver and the machine are {lender.name}'s: take another machine "
            f"({lender.anew}; files on this one are lost), and install no driver packages on it"
        )
    if any(word in line for line in fix.commands for word in INSTALLS):
        return replace(fix, text=f"{fix.text}. Then restart the session ({lender.restart})")
    return fix
