"""The steps for a machine that is only described (`--from`), as the user would type them there.

No index is asked for this.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.choose.commands import INSTALLERS, InstallerOptions
from gpusetup.choose.installed import installed_packages
from gpusetup.install.checks import check_described
from gpusetup.install.choose_task import Stops, choose_task, decision_of, order_of
from gpusetup.install.conda import by_conda
from gpusetup.install.options import InstallRequest
from gpusetup.install.task import Task
from gpusetup.model.builds import FAMILY
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.project.decide import afterwards, described_python
from gpusetup.project.read import read_ask


def describe(
    request: InstallRequest, talk: Callable[[str], None], machine: Snapshot
) -> tuple[InstallAnswer, Task]:
    """The answer with the commands for a described machine, and the installation task that they
    carry out."""
    before = _family_of(machine)
    installer = "conda" if by_conda(machine) else "uv"
    asks = tuple(map(read_ask, request.requirements))
    machine = described_python(asks, machine)
    decision = decision_of(request, machine, by_conda=installer == "conda")
    order = order_of(request, decision.wish, machine)
    task = choose_task(order, Stops(order, talk))
    if not task.is_done and installer == "uv":
        check_described(machine, task.elsewhere)
    coming, build = task.coming, task.build
    # Packages that change with torch have other names in conda, so name them only for uv.
    beside = (*coming.followers, *coming.pinned) if installer == "uv" else ()
    options = InstallerOptions(
        python=machine.python.executable,
        packages=(*coming.family, *coming.packages, *beside),
        index_root=request.root,
        conda_prefix=machine.conda.prefix,
        again=task.choice.action == "again",
    )
    label = f"+{build.backend}" if build.labelled else ""
    versions = build.family(coming.family)
    comes = {name: f"{version}{label}" for name, version in versions.items()}
    steps = () if task.is_done else INSTALLERS[installer](task.choice, options)
    answer = InstallAnswer(
        state="unchanged" if task.is_done else "planned",
        target=machine.python.prefix or machine.python.executable or str(request.machine or ""),
        before=before,
        after={**before, **comes},
        steps=tuple(DoneStep(argv=tuple(map(without_logins, step.argv))) for step in steps),
        why=task.why,
        newest=task.newest,
        notes=(*decision.notes, *afterwards(decision.later, machine)),
    )
    return answer, task


def _family_of(machine: Snapshot) -> dict[str, str]:
    """The versions of torch's packages that Python would import on the described machine."""
    packages, torch = installed_packages(machine), machine.torch
    versions = {name: packages[name].version for name in FAMILY if name in packages}
    if torch.installed and torch.version:
        versions["torch"] = torch.version
    return versions
