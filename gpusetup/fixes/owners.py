"""Who manages the environment in a text, and how to change torch there. All fixes use this module.

In an environment that a person created, pip changes torch. If an image, a notebook service, a
cluster's module, the system's package manager or a program's start script created it, torch must be
changed in another way. `owner_of` returns that owner with its instructions, and `fixes.needs`
checks it before each command that changes torch.
"""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext, events, is_report
from gpusetup.model.frozen import Frozen


class EnvironmentOwner(Frozen):
    """Who manages an environment, and how to change torch there."""

    because: str
    """A clause that states what shows the owner."""
    instructions: str
    """How to change torch there. If pip may be used too, this text introduces pip's commands."""
    excludes_pip: bool = True
    """Whether pip and `gpusetup install` are wrong there; if not, they follow the instructions."""

    @property
    def sentence(self) -> str:
        """What shows who manages the environment, then how torch is changed there."""
        return f"{self.because[:1].upper()}{self.because[1:]}. {self.instructions}"


def owner_of(context: RuleContext) -> EnvironmentOwner | None:
    """The owner of the environment in a text, the most specific one first; None if a person may
    change the environment.

    On a probed machine, its own readings show whether the environment may be changed.
    """
    if not is_report(context):
        return None
    return owner_of_image(context) or _program(context)


# --- services that lend notebooks and nodes -------------------------------------------------------


# Sources: googlecolab/colabtools#3792 and #5197, Kaggle's documentation of notebooks; read in March
# 2026.
LENDERS = {
    "Google Colab": "Choose a GPU runtime (Runtime, Change runtime type). The session restarts",
    "Kaggle": "Choose `GPU T4 x2` for the session (Settings, Accelerator): newer builds of torch "
    "do not support the P100. The session restarts",
}
"""A service that lends machines -> how to get one with a GPU. Its user cannot install a driver
there, restart the machine or read its kernel log."""


def lender_of(context: RuleContext) -> str | None:
    """The service whose notebook a text comes from; None for a person's own machine."""
    if not is_report(context):
        return None
    named = events(context, "gpu-not-chosen", "hosted-notebook")
    services = (event.values.get("service", "") for event in named)
    return next((service for service in services if service in LENDERS), None)


def has_a_scheduler(context: RuleContext) -> bool:
    """Whether a scheduler assigns GPUs to jobs here, so that a login node has none."""
    return bool(events(context, "slurm-job", "login-node"))


# --- what a text shows ----------------------------------------------------------------------------


def named_owner(context: RuleContext, owner: str) -> str:
    """The name of the first owner of this kind in a text, or the kind if unnamed; "" if none."""
    for event in events(context, "environment-owner"):
        if event.values.get("owner") == owner:
            return event.values.get("name") or owner
    return ""


# --- images and containers ------------------------------------------------------------------------


def owner_of_image(context: RuleContext) -> EnvironmentOwner | None:
    """The image that torch belongs to: a vendor's image with its own torch, or a program's image
    with the torch that it needs; None if the text shows no image."""
    vendors = [event.values.get("image", "") for event in events(context, "vendor-image")]
    # The image that runs, or else what it was built from.
    name = (
        named_owner(context, "image")
        or named_owner(context, "base-image")
        or next(iter(vendors), "")
    )
    if name:
        # `vllm/vllm-openai:v0.8.4` -> `vllm/vllm-openai`.
        repository = re.sub(r":[\w.-]+$", "", name)
    elif named_owner(context, "maker-image"):
        name, repository = "from NVIDIA (no index has its `a0` version of torch)", "the image"
    else:
        return None
    return EnvironmentOwner(
        because=f"torch is part of the image {name}",
        instructions="Keep the image's torch, which was chosen for this machine or program. Use "
        f"another tag of {repository} (a newer one for a newer GPU, one with an older CUDA for an "
        "older driver or GPU), or change the program. What pip installs in a running container is "
        "lost when the container is removed",
    )


INSTRUCTIONS_OF_PROGRAMS = {
    "ComfyUI portable": r"run `update\update_comfyui_and_python_dependencies.bat`, or unpack the "
    "newest portable release and move `models` and `custom_nodes` into it",
    "stable-diffusion-webui": "set TORCH_COMMAND, which its start script installs torch with, to "
    "the pip command in webui-user.bat (webui-user.sh), remove `--xformers` from COMMANDLINE_ARGS "
    "(its release fits only the old torch), delete `venv` and start again",
}
"""A program that creates its own environment -> how to change torch there."""
USUAL_INSTRUCTIONS = "update or reinstall the app from its menu, which installs the torch it needs"


def _program(context: RuleContext) -> EnvironmentOwner | None:
    """A program whose start script makes its environment and installs its torch; None if none."""
    name = named_owner(context, "program")
    if not name:
        return None
    instructions = INSTRUCTIONS_OF_PROGRAMS.get(name, USUAL_INSTRUCTIONS)
    return EnvironmentOwner(
        because=f"the environment belongs to {name}",
        instructions=f"First update it as {name} intends: {instructions}. Or, in its environment",
        excludes_pip=False,
    )
