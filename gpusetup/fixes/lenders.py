"""Services that lend notebooks and nodes: how to get a GPU there, restart, or take another machine.

The machine belongs to the service, so the user cannot install a driver on it, restart it or read
its kernel log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.evidence.context import events, is_report
from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


class Lender(Frozen):
    """One service, with the names of its menus for each action."""

    name: str
    gives_a_gpu: str
    restart: str
    """How to restart the program so that it loads the newly installed packages."""
    anew: str
    """How to get another machine. Files on the previous machine are lost."""
    source: str
    as_of: str


LENDERS = {
    one.name: one
    for one in (
        Lender(
            name="Google Colab",
            gives_a_gpu="Choose a runtime with a GPU (Runtime, Change runtime type). The session "
            "restarts",
            restart="Runtime, Restart session",
            anew="Runtime, Disconnect and delete runtime",
            source="googlecolab/colabtools#3792, #5197",
            as_of="2025-02-25",
        ),
        Lender(
            name="Kaggle",
            gives_a_gpu="Choose `GPU T4 x2` for the session (Settings, Accelerator): newer builds "
            "of torch have no kernels for the P100 (compute capability 6.0). The session restarts",
            restart="in the Run menu",
            anew="Run, Factory reset",
            source="Kaggle, Notebooks documentation; mlflow/mlflow#21612",
            as_of="2026-03-13",
        ),
        Lender(
            name="SageMaker",
            gives_a_gpu="Choose an instance with a GPU (ml.g or ml.p) and its GPU image",
            restart="Kernel, Restart Kernel",
            anew="stop the instance and start it again",
            source="oegedijk/explainerdashboard#245",
            as_of="2023-01-24",
        ),
    )
}


def has_a_scheduler(context: RuleContext) -> bool:
    """Whether a scheduler assigns GPUs to jobs here, so that a login node has none."""
    return bool(events(context, "slurm-job", "login-node"))


def is_lent(context: RuleContext) -> bool:
    """Whether a text comes from a service's notebook, whose driver the person cannot change."""
    return lender_of(context) is not None


def lender_of(context: RuleContext) -> Lender | None:
    """The service whose notebook a text comes from; None for a person's own machine."""
    if not is_report(context):
        return None
    for event in events(context, "gpu-not-chosen", "hosted-notebook"):
        service = event.values.get("service", "")
        if service in LENDERS:
            return LENDERS[service]
    return None
