"""The uv program, and how it runs: in the current folder, with the user's own settings."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpusetup.model.frozen import Frozen
from gpusetup.model.logins import split_login
from gpusetup.model.shell import own_line
from gpusetup.model.steps import Step
from gpusetup.system.own_cache import own_folder
from gpusetup.system.processes import run
from gpusetup.system.refusals import blocked_by_files

TORCH_INDEX_NAME = "gpusetup-torch"
"""torch's index in a question to uv. An index of the user with this name is unlikely."""
SETTINGS_SECONDS, VENV_SECONDS = 30.0, 120.0
"""The time limits for uv when it prints its settings, and when it creates an environment."""
NOT_PASSED_ON = (
    # gpusetup names the environment itself, and uv runs in the current folder.
    *("VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "UV_SYSTEM_PYTHON"),
    *("UV_PROJECT", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY"),
    # torch's index is a source, and its backend is already chosen.
    *("UV_NO_SOURCES", "UV_TORCH_BACKEND"),
    # gpusetup builds nothing, and compares each file with the hash in uv's answer.
    *("UV_NO_BINARY", "UV_NO_BINARY_PACKAGE", "UV_REQUIRE_HASHES"),
    # Bytecode would be a file that no wheel lists.
    "UV_COMPILE_BYTECODE",
    # This would empty the folder in which gpusetup keeps the journal of a new environment.
    "UV_VENV_CLEAR",
    # These change which Python starts and what it imports.
    *("PYTHONHOME", "PYTHONPATH"),
)
"""The user's variables that uv does not get. It gets all others."""


def uv_program() -> str:
    """The path of the uv program that came with gpusetup."""
    # The web page imports this module, but has no uv.
    import uv

    return str(uv.find_uv_bin())


def uv_environment(
    more: Mapping[str, str] = {}, *, login_of: str = "", drop: tuple[str, ...] = ()
) -> dict[str, str]:
    """The environment variables for uv: the user's, except NOT_PASSED_ON and `drop`, then ours, and
    `more`, which replaces any of them.

    `login_of` is the URL of torch's index, whose login uv finds under the index's name. A login is
    never written into a file or an argument, because other users may be able to read those.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in (*NOT_PASSED_ON, *drop)
    }
    _, login = split_login(login_of)
    if login:
        name = TORCH_INDEX_NAME.replace("-", "_").upper()
        environment[f"UV_INDEX_{name}_USERNAME"] = login[0]
        # Without a password, uv asks the keyring. An empty variable would be an empty password.
        if login[1]:
            environment[f"UV_INDEX_{name}_PASSWORD"] = login[1]
    return {
        **environment,
        # uv must never download a Python, because the packages are for the one that is named.
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
        **more,
    }


def with_torch_index(url: str) -> str:
    """The value of UV_INDEX with torch's index before the user's own indexes."""
    return f"{TORCH_INDEX_NAME}={split_login(url)[0]} {os.environ.get('UV_INDEX', '')}".strip()


class Settings(Frozen):
    """What gpusetup has to know of the settings with which `uv pip` runs in the current folder."""

    indexes: tuple[str, ...] = ()
    """The URLs of the user's indexes, without logins, if any are named."""
    only_index: str | None = None
    """The index that has every package but torch's, if no other is named."""
    has_no_index: bool = False
    is_offline: bool = False
    has_target: bool = False
    """Whether they name a folder that counts more than `--prefix`."""
    links_files: bool = False
    """Whether installed files are links into uv's cache."""


# An index in what uv prints, for example
#     given: Some(
#         "https://user:****@mirror.example/simple",
#     ),
#     expanded: false, ...
#     },
#     ),
#     explicit: false,
#     default: true,
INDEX = re.compile(
    r'given: Some\(\s*"(?P<url>https?://[^"\s]{1,2000})"[^{}]*\},\s*\),'
    r"\s*explicit: (?:true|false),\s*default: (?P<default>true|false)"
)


def read_settings() -> Settings:
    """The settings as uv itself prints them (`--show-settings`, in the notation of Rust). If it
    prints none, its answer to the question will say why."""
    # `compile` prints its settings and ends. The requirements would come from stdin (`-`).
    argv = (uv_program(), "pip", "compile", "--show-settings", "-")
    printed = run(argv, timeout=SETTINGS_SECONDS, environment=uv_environment(), stdin="\n").stdout
    indexes = list(INDEX.finditer(printed))
    urls = [split_login(index["url"])[0] for index in indexes]
    # One index, which replaces PyPI, and no folder of wheels (`--find-links`).
    is_only = [index["default"] for index in indexes] == ["true"] and "flat_index: []" in printed
    return Settings(
        indexes=tuple(dict.fromkeys(urls)),
        only_index=urls[0] if is_only else None,
        has_no_index="no_index: true" in printed,
        is_offline="connectivity: Offline" in printed,
        has_target="target: Some" in printed,
        links_files="link_mode: Symlink" in printed,
    )


def emptying_the_cache() -> str:
    """A phrase with the command that empties uv's cache, to free disk space."""
    return f"`{own_line(uv_program(), 'cache', 'clean')}` empties uv's cache"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A context manager that creates a folder in gpusetup's cache that only this user can enter,
    and deletes it after the block.

    The folder is not below TMPDIR, because uv searches a project's parent folders for a workspace,
    and in /tmp any user could put one.
    """
    questions = own_folder("questions")
    with blocked_by_files(f"{questions} cannot be written", "nothing was changed; make room there"):
        folder = tempfile.TemporaryDirectory(dir=questions, ignore_cleanup_errors=True)
    with folder as name:
        yield Path(name)


def venv_step(folder: str, base: str) -> Step:
    """The step that creates an environment in a folder that already contains gpusetup's store."""
    # Without `--no-project`, uv reads the working folder's project to choose a Python.
    options = ("--no-config", "--no-project", "--quiet", "--allow-existing")
    argv = (uv_program(), "venv", *options, "--python", base, folder)
    return Step(argv=argv, timeout_seconds=VENV_SECONDS)
