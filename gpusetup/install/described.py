"""The steps as one would type them for a machine that is only described (`--from`).

Nothing is asked of anybody here."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.install.conda import by_conda
from gpusetup.install.decide import Task, decide
from gpusetup.install.refusals import check_described
from gpusetup.install.request import InstallRequest, question_of
from gpusetup.installers import INSTALLERS, InstallerOptions
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import FAMILY
from gpusetup.resolver.companions import installed
from gpusetup.uv.logins import without_logins


def describe(
    request: InstallRequest, talk: Callable[[str], None], machine: Snapshot
) -> tuple[InstallAnswer, Task]:
    """What would be typed on the machine that is described, and why."""
    before = _family_of(machine)
    installer = "conda" if by_conda(machine) else "uv"
    question = question_of(request, machine, before, by_conda=installer == "conda")
    task = decide(question, talk)
    if not task.is_done and installer == "uv":
        check_described(machine, task.elsewhere)
    asked = task.asked
    followers = (*asked.followers, *asked.pinned) if installer == "uv" else ()  # conda's own names
    options = InstallerOptions(
        python=machine.python.executable,
        packages=(*asked.family, *asked.packages, *followers),
        index_root=request.root,
        conda_prefix=machine.conda.prefix,
        again=task.decision.how == "again",
    )
    label = f"+{task.build.backend}" if task.build.labelled else ""
    comes = {name: f"{version}{label}" for name, version in task.build.family(asked.family).items()}
    steps = () if task.is_done else INSTALLERS[installer](task.resolution, options)
    answer = InstallAnswer(
        state="unchanged" if task.is_done else "planned",
        target=machine.python.prefix or machine.python.executable or request.machine_from or "",
        before=before,
        after={**before, **comes},
        steps=tuple(DoneStep(argv=tuple(map(without_logins, step.argv))) for step in steps),
        why=task.why,
        newest=task.newest,
    )
    return answer, task


def _family_of(machine: Snapshot) -> dict[str, str]:
    """What would be imported: of two of one name the first, and torch as its own files say."""
    there, torch = installed(machine), machine.torch.version
    found = {name: there[name].version for name in FAMILY if name in there}
    return {**found, **({"torch": torch} if machine.torch.installed and torch else {})}
