"""Options of other tools and everyday wishes that are no option here: what to do instead.

A row's sentence is printed as it stands; `{value}` is what followed the option.
"""

from __future__ import annotations

import re
from collections.abc import Container

from gpusetup.install.settings.index_root import root_and_backend
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import own_word


class Foreign(Frozen):
    """What some options of others mean in some of our commands."""

    names: str
    """Without dashes."""
    commands: str = ""
    """Those it is about; all, where empty."""
    way: str


ENVIRONMENT = (
    "the environment is chosen by `--venv DIR` (made where it is not there) or `--python PATH`"
)
QUIET = (
    "what is said besides the answer goes to stderr: `2>/dev/null` hides it, the exit code tells"
)

ROWS = (
    Foreign(
        names="cpu cpuonly cpu-only no-cuda nogpu no-gpu",
        commands="install resolve",
        way="did you mean `--backend cpu`?",
    ),
    Foreign(names="cpu no-cuda", commands="verify", way="did you mean `--device cpu`?"),
    Foreign(names="requirement", commands="install resolve", way="did you mean `-r {value}`?"),
    Foreign(
        names="c channel override-channels",
        commands="install resolve",
        way="conda's channels are chosen here: `--installer conda`",
    ),
    Foreign(
        names="pre prerelease nightly",
        commands="install resolve",
        way="`gpusetup resolve --torch nightly` prints the command that takes the newest nightly; "
        "`--torch latest` is the newest release",
    ),
    Foreign(names="user system break-system-packages", commands="install", way=ENVIRONMENT),
    Foreign(
        names="no-cache-dir no-cache n-cache",
        commands="install",
        way="wheels that were fetched and checked are used again; their hashes are compared each "
        "time, so nothing is to be switched off",
    ),
    Foreign(
        names="no-deps",
        commands="install",
        way="what torch requires comes along, and nothing else that is there is moved",
    ),
    Foreign(
        names="constraint constraints",
        commands="install",
        way='give versions as `--torch ">=2.6,<2.9"` or `"NAME>=1"`',
    ),
    Foreign(names="q qq quiet silent s no-progress progress", way=QUIET),
    Foreign(
        names="fix repair apply auto-fix install yes y",
        commands="doctor",
        way="doctor changes nothing: it prints the commands; `gpusetup install` installs the torch "
        "that fits",
    ),
    Foreign(
        names="cuda cuda-version backend",
        commands="doctor",
        way="doctor judges what is installed; `gpusetup resolve --cuda {value}` says which build "
        "of that CUDA fits",
    ),
    Foreign(
        names="gpus a all",
        commands="doctor",
        way="doctor reads every GPU and shows every finding; `--list` lists the findings there "
        "are, `--for-gpu NAME` judges for another host",
    ),
    Foreign(
        names="driver os machine glibc",
        commands="install",
        way="`--for-gpu NAME` and `--for-driver VERSION` describe another host",
    ),
    Foreign(
        names="l loop lms loop-ms",
        commands="monitor",
        way="did you mean `--interval SECONDS`?",
    ),
    Foreign(
        names="seconds duration t",
        commands="monitor",
        way="the seconds stand after the command: `gpusetup monitor {value}`",
    ),
)


def instead(name: str, value: str | None, command: str) -> str | None:
    """What to do in place of an option of others; None where no row knows it.

    >>> instead("--cpu", None, "install")
    'did you mean `--backend cpu`?'
    >>> instead("--requirement", "my reqs.txt", "install")
    "did you mean `-r 'my reqs.txt'`?"
    """
    plain = name.lower().lstrip("-").replace("_", "-")
    for row in ROWS:
        if plain in row.names.split() and (not row.commands or command in row.commands.split()):
            return row.way.format(value=own_word(value) if value else "VALUE")
    return None


INDEX_NAMES = (
    *("i", "index", "index-url", "extra-index-url", "default-index"),
    *("f", "find-links", "index-root"),
)


def index_meant(name: str, value: str | None, options: Container[str]) -> str | None:
    """pip's way to a build, `--index-url ROOT/cu124`, in our words.

    >>> index_meant("--index-url", "https://download.pytorch.org/whl/cu124", ("--index-root",))
    'did you mean `--backend cu124`?'
    """
    plain = name.lower().lstrip("-")
    if plain not in INDEX_NAMES or not value or "--index-root" not in options:
        return None
    if words := root_and_backend(value):
        return f"did you mean `{' '.join(words)}`?"
    if re.search(r"/whl/?$", value):
        return f"did you mean `--index-root {own_word(value)}`?"
    if "://" in value:
        return (
            "packages come from the default index that uv and pip are told of "
            "(UV_DEFAULT_INDEX, pip.conf); `--index-root URL` is a mirror of torch's index"
        )
    return None


VALUES = {
    "md": "markdown",
    "html": "markdown",
    "gfm": "markdown",
    "github": "markdown",
    "txt": "text",
    "plain": "text",
    "table": "text",
    "pip": "requirements",
    "req": "requirements",
    "reqs": "requirements",
    "requirements.txt": "requirements",
    "environment.yml": "conda",
    "environment.yaml": "conda",
    "environment": "conda",
    "mamba": "conda",
    "micromamba": "conda",
    "miniconda": "conda",
    "anaconda": "conda",
    "pixi.toml": "pixi",
    "pyproject": "uv",
    "pyproject.toml": "uv",
    "toml": "uv",
    "docker": "dockerfile",
    "containerfile": "dockerfile",
    "sh": "command",
    "shell": "command",
    "bash": "command",
    "cmd": "command",
    "full": "standard",
    "deep": "standard",
    "thorough": "standard",
    "fast": "quick",
    "short": "quick",
    "long": "stress",
    "burn": "stress",
    "yml": "yaml",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "zero": "zero3",
    "deepspeed": "zero3",
    "fsdp2": "fsdp",
    "single-gpu": "single",
}
"""A value as others call it -> ours, where the option takes it."""


def value_meant(option: str, word: str, known: Container[str]) -> str | None:
    """What a value that an option does not take may mean, as a sentence.

    >>> value_meant("--format", "json", ("text",)), value_meant("--format", "md", ("markdown",))
    ('`--json` prints it', 'did you mean `markdown`?')
    """
    plain = word.lower()
    if option == "--format" and plain in ("json", "jsonl"):
        return "`--json` prints it"
    meant = plain if plain in known else VALUES.get(plain)
    return f"did you mean `{meant}`?" if meant is not None and meant in known else None
