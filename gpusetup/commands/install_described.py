"""`gpusetup install --dry-run --from MACHINE`: the steps as one would type them there."""

from __future__ import annotations

import argparse
import os

from gpusetup.answers import DoneStep, InstallAnswer
from gpusetup.catalog import INDEX_ROOT
from gpusetup.commands.common import gather
from gpusetup.commands.install_parts import after_of, request_of, resolved
from gpusetup.install import INSTALLERS
from gpusetup.install.plan import FAMILY, asked_for
from gpusetup.install.prepare import index_root_of
from gpusetup.install.wish import Wish
from gpusetup.model import Snapshot
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
        steps=tuple(DoneStep(argv=step.argv) for step in steps),
    )
    out.answer(answer, described_text(answer, resolution, steps))
    return 0


def _family_of(snapshot: Snapshot) -> dict[str, str]:
    found = {p.name: p.version for p in snapshot.packages or () if p.name in FAMILY}
    torch = snapshot.torch.version
    return {**({"torch": torch} if snapshot.torch.installed and torch else {}), **found}
