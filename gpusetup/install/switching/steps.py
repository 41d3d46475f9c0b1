"""The commands that make an environment and unpack wheels beside it: data until they are run."""

from __future__ import annotations

import os

from gpusetup.install.switching.journal import STAGING, STORE
from gpusetup.model.finding import Step


def switch_step(program: str, python: str, prefix: str, *, hashed: bool) -> Step:
    """The command that fetches and unpacks the wheels: each by its address and its hash, into a
    folder of the environment `prefix` from which they are renamed to their places once they are
    compared. `hashed`: the index names a hash of every one."""
    stage = os.path.join(prefix, STORE, STAGING)
    root, lock = os.path.join(stage, "root"), os.path.join(stage, "pylock.toml")
    options: tuple[str, ...] = ("--quiet", "--no-deps", "--no-build")
    options += ("--preview-features", "pylock", *(("--require-hashes",) if hashed else ()))
    where = ("--python", python, "--prefix", root, "-r", lock)
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), os.path.join(stage, "tmp"))
    return Step(
        argv=(program, "pip", "install", *options, *where),
        title="fetch the wheels and unpack them beside the environment",
        environment={"PYTHONDONTWRITEBYTECODE": "1", **temporary},
        timeout_seconds=6 * 3600.0,
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
