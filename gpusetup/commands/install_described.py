"""The steps as one would type them: for a machine that is only described (`--from`), and for this
one where no index can be asked."""

from __future__ import annotations

import argparse
import os

from gpusetup.answers import DoneStep, InstallAnswer
from gpusetup.catalog import INDEX_ROOT
from gpusetup.catalog_file import load_catalog
from gpusetup.commands.common import gather
from gpusetup.commands.install_parts import after_of, request_of, resolved
from gpusetup.install import INSTALLERS
from gpusetup.install.log import without_logins
from gpusetup.install.plan import FAMILY, Asked, asked_for, venv_step
from gpusetup.install.prepare import Where, index_root_of
from gpusetup.install.wish import Wish
from gpusetup.model import Resolution, Snapshot
from gpusetup.render.console import Console
from gpusetup.render.install import described_text


def run_described(options: argparse.Namespace, out: Console) -> int:
    """The steps as one would type them on the machine that is described; nothing is asked."""
    snapshot = gather(options, out)
    before = _family_of(snapshot)
    asked = asked_for(options.packages, before)
    installer = "uv" if options.installer == "auto" else options.installer
    request = request_of(options, asked, by_conda=installer == "conda")
    resolution = resolved(snapshot, request)
    wish = Wish(
        python=snapshot.python.executable,
        packages=(*asked.family, *asked.packages),
        index_root=index_root_of(options.index_root, os.environ, INDEX_ROOT),
        wheelhouse=options.wheelhouse,
        conda_prefix=snapshot.conda.prefix,
    )
    steps = INSTALLERS[installer](resolution, wish)
    answer = InstallAnswer(
        state="planned",
        target=snapshot.python.prefix or snapshot.python.executable or options.machine_from,
        before=before,
        after=after_of(resolution, asked),
        steps=tuple(DoneStep(argv=tuple(map(without_logins, step.argv))) for step in steps),
    )
    out.answer(answer, described_text(answer, resolution, steps))
    return 0


def implied(options: argparse.Namespace, where: Where, resolution: Resolution, asked: Asked) -> str:
    """The steps that the catalog implies for a target whose index could not be asked."""
    installer = "uv" if options.installer == "auto" else options.installer
    wish = Wish(
        python=where.python,
        packages=(*asked.family, *asked.packages),
        index_root=index_root_of(options.index_root, os.environ, INDEX_ROOT),
    )
    steps = INSTALLERS[installer](resolution, wish)
    if where.venv is not None:
        base = where.layout.python
        steps = (venv_step("uv", where.venv, base, seed=installer == "pip"), *steps)
    installed = where.installed
    answer = InstallAnswer(
        state="planned",
        target=where.venv or where.layout.prefix,
        before={name: installed[name] for name in FAMILY if name in installed},
        after=after_of(resolution, asked),
        steps=(),
    )
    told = (
        f"The index was not asked, or gave no answer: what follows is what the catalog of "
        f"{load_catalog().as_of} implies.\n"
    )
    return told + described_text(answer, resolution, steps)


def _family_of(snapshot: Snapshot) -> dict[str, str]:
    found = {p.name: p.version for p in snapshot.packages or () if p.name in FAMILY}
    torch = snapshot.torch.version
    return {**({"torch": torch} if snapshot.torch.installed and torch else {}), **found}
