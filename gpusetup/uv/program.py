"""The uv program, gpusetup's own uv cache, and the environment variables with which uv runs."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gpusetup.model.shell import own_line
from gpusetup.model.steps import Step
from gpusetup.system.own_cache import own_folder, own_path
from gpusetup.system.refusals import blocked_by_files
from gpusetup.uv.certificates import has_system_store

LIMITS = {"UV_HTTP_TIMEOUT": "6", "UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_RETRIES": "1"}
"""uv's timeout in seconds and number of retries for a question, so that an unreachable host is
reported within 15 s."""
ASK_SECONDS = 30.0
"""The time limit in seconds for a question that needs no network."""
ALONE = ("--no-config",)
"""Keeps uv from reading any configuration file, in any folder."""
LEFTOVER_SECONDS = 86_400.0
"""One day, in seconds. A question takes only minutes, so an older private folder was left by a run
that was killed."""

PASSED_ON = (
    # The paths of programs, certificates and files with the user's logins.
    *("HOME", "USER", "LOGNAME", "PATH", "NETRC", "XDG_DATA_HOME", "UV_CREDENTIALS_DIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT"),
    # The user's proxies.
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    # A Python from a cluster's module or from conda may need these to start.
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
    *("LANG", "LC_ALL", "LC_CTYPE"),
    # On Windows, no program starts without these.
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "PROGRAMDATA"),
    *("USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA"),
)
"""The only environment variables of the user that uv gets unchanged."""
FOR_A_KEYRING = (
    *("DBUS_", "XDG_RUNTIME_DIR", "DISPLAY", "KEYRING_", "PYTHON_KEYRING_", "AWS_"),
    *("GOOGLE_", "CLOUDSDK_", "AZURE_", "ARTIFACTS_", "GNUPGHOME"),
)
"""The first letters of variables that a keyring program may need, if the user has one."""


def uv_program() -> str:
    """The path of the uv program that came with gpusetup."""
    import uv

    return str(uv.find_uv_bin())


def own_cache() -> Path:
    """The folder of gpusetup's own uv cache. The user's cache is not used, because it is not
    trusted."""
    return own_folder("uv")


def emptying_the_cache() -> str:
    """A phrase with the command that empties gpusetup's own uv cache, to free disk space."""
    folder = str(own_path("uv"))
    return f"`{own_line(uv_program(), 'cache', 'clean', '--cache-dir', folder)}` empties our cache"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A context manager that creates a folder in gpusetup's cache that only this user can enter,
    and deletes it after the block.

    The folder is not below TMPDIR, because uv searches the parent folders and in /tmp any user
    could put a file that decides where packages come from. Nor can it be in uv's cache, because uv
    refuses that.
    """
    questions = own_folder("questions")
    with blocked_by_files(f"{questions} cannot be written", "nothing was changed; make room there"):
        _drop_leftovers(questions)
        name = tempfile.mkdtemp(dir=questions)
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)


def _drop_leftovers(questions: Path) -> None:
    """Remove the private folders of runs that were killed more than a day ago."""
    oldest = time.time() - LEFTOVER_SECONDS
    for folder in questions.iterdir():
        # Another run may be removing the same folder.
        with suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def clean_environment(more: Mapping[str, str] = {}, *, keyring: bool = False) -> dict[str, str]:
    """The environment variables for uv: a few of the user's, `more`, and those that gpusetup sets.

    It contains none of the variables for uv, pip or Python. `more` contains settings that were read
    as data.
    """
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if keyring:
        for name, value in os.environ.items():
            if name.startswith(FOR_A_KEYRING):
                environment[name] = value
    if has_system_store():
        environment["UV_SYSTEM_CERTS"] = "1"
    return {
        **environment,
        **LIMITS,
        **more,
        "UV_CACHE_DIR": str(own_cache()),
        # uv must never download a Python, because the packages are for the environment's own.
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
    }


# --- other commands for uv ------------------------------------------------------------------------


def venv_step(folder: str, base: str) -> Step:
    """The step that creates an environment in a folder that already contains gpusetup's store."""
    # Without `--no-project`, uv reads the working folder's project to choose a Python.
    options = (*ALONE, "--no-project", "--quiet", "--allow-existing")
    argv = (uv_program(), "venv", *options, "--python", base, folder)
    return Step(argv=argv, title="make the environment", timeout_seconds=120.0)


def forget_step(packages: tuple[str, ...]) -> Step:
    """The step that removes packages from uv's cache, so that they are downloaded again."""
    program = uv_program()
    argv = (program, "cache", "clean", *ALONE, *packages)
    return Step(argv=argv, title="")
