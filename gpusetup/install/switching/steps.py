"""The commands that make an environment and unpack wheels beside it: data until they are run."""

from __future__ import annotations

import os

from gpusetup.install.switching.journal import STAGING, STORE
from gpusetup.install.target.layout import Layout
from gpusetup.installers.options import as_links
from gpusetup.model.finding import Step


def switch_steps(layout: Layout, program: str, prefix: str) -> tuple[Step, ...]:
    """The command that unpacks the wheels: one, offline, each by its hash, into a folder of the
    environment `prefix` from which they are renamed to their places once they are compared."""
    stage = os.path.join(prefix, STORE, STAGING)
    root, links, wanted, cache = (
        os.path.join(stage, name) for name in ("root", "links", "wheels.txt", "cache")
    )
    asked = (
        "--no-index",
        "--no-deps",
        "--find-links",
        as_links(links),
        "--require-hashes",
        "-r",
        wanted,
    )
    ours = ("--no-config", "--offline", "--cache-dir", cache, "--link-mode", "hardlink")
    argv = (program, "pip", "install", *ours, "--python", layout.python, "--prefix", root, *asked)
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), os.path.join(stage, "tmp"))
    return (
        Step(
            argv=argv,
            title="unpack the checked wheels beside the environment",
            environment={"PYTHONDONTWRITEBYTECODE": "1", **temporary},
        ),
    )


def venv_step(program: str, folder: str, base: str) -> Step:
    """The command that makes an environment."""
    argv = (
        program,
        "venv",
        "--quiet",
        "--no-project",
        "--allow-existing",  # the store with the journal is in it already
        "--python",
        base,
        folder,
    )
    return Step(argv=argv, title="make the environment", timeout_seconds=120.0)
