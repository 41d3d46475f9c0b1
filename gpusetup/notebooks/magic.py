"""`%load_ext gpusetup`, then `%gpusetup doctor`: a command in a child, whose words the cell shows.

The environment that is read is this kernel's, unless the line names another.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import sys
from collections.abc import Container, Iterator, Mapping
from typing import Any

from gpusetup.causes.gpu_models import NO_NVIDIA_GPU
from gpusetup.causes.lenders import LENDERS
from gpusetup.model import shell
from gpusetup.system.processes import beside, kill_group

LIVE = ("doctor", "verify", "install")
TARGETS = ("--python", "--venv", "--from", "--report", "--project")
"""Options that say what is read; without one it is this kernel's environment."""
CHANGES = ("--dry-run", "--yes", "-y", "--undo")
SIGNS = {
    "KAGGLE_KERNEL_RUN_TYPE": "Kaggle",
    "COLAB_GPU": "Google Colab",
    "COLAB_RELEASE_TAG": "Google Colab",
}
"""A variable -> who lends the machine. Kaggle's image is made from Colab's, and has its variables,
too (mlflow/mlflow#21612, clearml/clearml#515, oegedijk/explainerdashboard#245)."""


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext gpusetup` calls."""
    shell.register_magic_function(gpusetup, "line", "gpusetup")


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext gpusetup` calls."""
    shell.magics_manager.magics["line"].pop("gpusetup", None)


def gpusetup(line: str) -> None:
    """A command of gpusetup: `%gpusetup doctor`, `%gpusetup resolve`, `%gpusetup help`."""
    try:
        words = words_of(line)
    except ValueError as problem:
        print(f"error: the line cannot be read: {problem}")
        return
    child = beside((sys.executable, "-m", "gpusetup", *words))
    said = ""
    try:
        for raw in child.stdout or ():
            text = raw.decode("utf-8", "replace")
            said += text
            print(text, end="")
    finally:
        kill_group(child)
        child.wait()
    for note in notes(said, os.environ, loaded()):
        print(f"\n{note}")


def words_of(line: str) -> list[str]:
    """The line's words, with this kernel's Python as the target, and an installation that only
    shows its plan unless it says `--yes`. Raises ValueError for a quote without its end."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    if shell.OWN_SYSTEM == "windows":
        lexer.escape = ""  # a backslash is a path's
    words = list(lexer) or ["doctor"]
    said = {word.partition("=")[0] for word in words}
    if words[0] in LIVE and not said & set(TARGETS):
        words.append(f"--python={sys.executable}")
    if words[0] == "install" and not said & set(CHANGES):
        words.append("--dry-run")
    return words


def loaded() -> dict[str, tuple[str, str]]:
    """The packages of torch's family that this kernel imported -> loaded and installed version."""
    found = {}
    for name in ("torch", "torchvision", "torchaudio"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = (str(version), importlib.metadata.version(name))
    return found


def notes(
    said: str, environ: Container[str], loaded: Mapping[str, tuple[str, str]]
) -> Iterator[str]:
    """Sentences below an answer: how the lender of the machine gives a GPU, and when to restart."""
    lender = next((LENDERS[name] for sign, name in SIGNS.items() if sign in environ), None)
    if lender and NO_NVIDIA_GPU.id in said:
        yield f"{lender.name} gave this notebook no GPU. {lender.gives_a_gpu}"
    restart = lender.restart if lender else "Kernel, Restart Kernel"
    for name, (old, new) in loaded.items():
        if old != new:
            yield (
                f"This kernel still has {name} {old} loaded, installed is {new}. "
                f"Restart it: {restart}"
            )
