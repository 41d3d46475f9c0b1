"""What changes in a fix if the machine is somebody else's.

In a lent notebook nobody installs a driver, restarts the host or reads its log; a new session loads
what was installed; a cell takes a command after `!`. On a cluster the administrators do that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.evidence.context import events, is_report
from gpusetup.findings.layers import Layer
from gpusetup.findings.lenders import Lender, lender_of
from gpusetup.findings.record import RECORDS
from gpusetup.fixes import paste
from gpusetup.model.finding import Alternative, Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line, in_a_cell, lines, more

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext

THE_LENDERS = (Layer.HARDWARE, Layer.DRIVER, Layer.READINESS)
"""The layers of what belongs to the lender."""
WITHOUT_A_GPU = ("driver-missing", "driver-not-loaded", "no-nvidia-gpu", "container-no-gpu")
"""What a session shows that was given no GPU."""
OLD_DRIVERS = ("driver-too-old", "ptx-unsupported-toolchain")
INSTALLS = ("pip install ", "pip uninstall ", "gpusetup install")


ASK_SLURM = lines("srun --gres=gpu:1 nvidia-smi -L")


def on_a_lent_machine(context: RuleContext, finding: Finding) -> Finding:
    """The finding with what can be done in the notebook, or in the job, that a text is of."""
    if finding.fix is None or finding.severity is not Severity.ERROR:
        return finding
    if lender := lender_of(context):
        return replace(finding, fix=_there(context, lender, finding, finding.fix))
    if is_report(context) and events(context, "slurm-job"):
        return replace(finding, fix=_on_a_cluster(context, finding, finding.fix))
    return finding


def _on_a_cluster(context: RuleContext, finding: Finding, fix: Fix) -> Fix:
    """Who writes from a job does not change the node: its administrators do."""
    if finding.id in WITHOUT_A_GPU:
        return Fix(
            text="Ask Slurm for a GPU (`#SBATCH --gres=gpu:1`) and look inside such a job. If it "
            "lists none either, report the node to the cluster's administrators",
            commands=ASK_SLURM,
        )
    if finding.id in OLD_DRIVERS and context.snapshot.driver.version and context.resolution.build:
        own = paste.install_torch(context, "The administrators own the driver: keep it. ")
        return replace(own, min_driver=fix.min_driver)
    place = RECORDS[finding.id].place
    if fix.needs_root and place and place[0] in THE_LENDERS:
        return replace(fix, text=f"Ask the cluster's administrators to do this: {fix.text}")
    return fix


def _there(context: RuleContext, lender: Lender, finding: Finding, fix: Fix) -> Fix:
    if finding.id in WITHOUT_A_GPU:
        return Fix(text=lender.gives_a_gpu)
    if finding.id in OLD_DRIVERS:
        return _for_its_driver(context, lender)
    place = RECORDS[finding.id].place
    if place and place[0] in THE_LENDERS:
        return Fix(
            text=f"The driver and the machine are {lender.name}'s: take another machine "
            f"({lender.anew}; what lies on this one is lost), and install no driver packages on it"
        )
    return _in_a_new_session(lender, fix)


def _for_its_driver(context: RuleContext, lender: Lender) -> Fix:
    """A torch that the lender's driver serves, where that driver is known; else its own torch."""
    why = f"The driver is {lender.name}'s, and nobody can update it there"
    if context.snapshot.driver.version and context.resolution.build:
        return _in_a_new_session(lender, paste.install_torch(context, f"{why}. "))
    return Fix(
        text=f"{why}: use the torch that the notebook came with, which this driver serves (take a "
        f"new machine, {lender.anew}, and install no other torch over it), or one for the CUDA "
        "that `!nvidia-smi` shows"
    )


def _in_a_new_session(lender: Lender, fix: Fix) -> Fix:
    installs = any(word in line for line in fix.commands for word in INSTALLS)
    if not installs:
        return fix
    return replace(fix, text=f"{fix.text}. Then start the session anew ({lender.restart})")


def in_cells(fix: Fix) -> Fix:
    """The commands of a fix as a notebook's cell takes them."""

    def each(titled: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
        return tuple(replace(one, commands=_cell(one.commands)) for one in titled)

    return replace(
        fix,
        commands=_cell(fix.commands),
        alternatives=each(fix.alternatives),
        looks=each(fix.looks),
    )


def _cell(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """A cell has nobody who answers the question of `gpusetup install`."""
    asks = ("gpusetup install",)
    return tuple(
        in_a_cell(more(line, ("--yes",), "linux") if line.startswith(asks) else line)
        for line in lines
    )
