"""`gpusetup install`: chooses a build, shows the commands, installs, tests, and restores the
previous packages if the test fails."""

from __future__ import annotations

import os
import sys

from gpusetup.commands.common import (
    BACKEND,
    DRIVER,
    FROM,
    GPU,
    INDEX,
    PYTHON,
    REQUIREMENTS,
    TORCH,
    Machine,
    gather,
)
from gpusetup.commands.question import CommandQuestion, HelpGroup, arguments, option, switch
from gpusetup.commands.reply import Reply
from gpusetup.errors import UsageError
from gpusetup.render.console import Console

SUMMARY = """Installs the PyTorch build that fits this machine into an environment, and tests it. It
shows all steps first and asks for confirmation. If the test fails, it restores the previous
packages."""

EXAMPLES = (
    "gpusetup install",
    "gpusetup install --venv .venv torchvision",
    "gpusetup install --torch 2.5.1 --backend cu124 --yes",
    "gpusetup install --dry-run --from rtx3050-laptop",
    "gpusetup install --project",
)


class Question(CommandQuestion):
    """What to install, where to install it, and which of the steps to run."""

    packages: tuple[str, ...] = arguments(
        "also install torchvision or torchaudio (in the version that matches torch), or any "
        "other package",
        metavar="PACKAGE",
    )
    requirements: tuple[str, ...] = REQUIREMENTS
    backend: str = BACKEND
    index: str | None = INDEX
    torch: str | None = TORCH._replace(one_of="version")
    upgrade: bool = switch("install the newest torch that fits", one_of="version")
    machine: Machine | None = FROM._replace(one_of="target")
    python: str | None = PYTHON._replace(one_of="target")
    venv: str | None = option(
        "install into this environment; create it if it does not exist",
        # Make the path absolute now: on Windows, `D:.venv` is relative to the current folder of
        # drive D, which can be different in another program.
        parse=lambda named: named and os.path.abspath(named),  # noqa: PTH100
        metavar="DIR",
        one_of="target",
    )
    project: bool = switch(
        "install nothing; print what to add to a uv project's pyproject.toml or to a SCRIPT.py"
    )
    dry_run: bool = switch("only show what would be done")
    yes: bool = switch("do not ask for confirmation", "-y", "--yes")
    no_verify: bool = switch("do not test the result")
    undo: bool = switch("undo the last installation")

    _other_host = HelpGroup("building an image for another host")
    gpu: tuple[str, ...] = GPU
    driver: str | None = DRIVER

    @property
    def root(self) -> str:
        """The root URL of torch's indexes, from `--index`, GPUSETUP_INDEX or the default. Raises
        UsageError if it is no such URL. Imports late, so that `--help` is quick."""
        from gpusetup.commands.words import index_root_of

        return index_root_of(self.index)

    @property
    def for_other_host(self) -> bool:
        """Whether the options describe the GPU or driver of another host."""
        return bool(self.gpu or self.driver)


def run(question: Question, out: Console) -> Reply:
    """Refuse what cannot be installed or confirmed, then run the flow that the options choose."""
    if question.machine and not (question.dry_run or question.project):
        raise UsageError(
            "`--from` describes another machine, and gpusetup can only install on this one",
            hint="to see the steps for that machine, add `--dry-run`",
        )
    if not (question.dry_run or question.yes or question.project or sys.stdin.isatty()):
        action = "undoes" if question.undo else "installs"
        raise UsageError(
            "Cannot ask for confirmation without a terminal",
            hint=f"`--yes` {action} without asking, `--dry-run` only shows the steps",
        )
    # Late, as in `Question.root`.
    from gpusetup.commands import install_flow as flow
    from gpusetup.commands.words import refuse_scripts

    if question.project:
        return flow.show_project(question, out)
    refuse_scripts(question.packages)
    if question.machine:
        return flow.show_described(question, gather(out, question.machine), out)
    return flow.undo(question, out) if question.undo else flow.install(question, out)
