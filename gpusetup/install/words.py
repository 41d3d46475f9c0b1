"""The words of `install` that name no package: what they are, and what was probably meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches

from gpusetup.errors import UsageError

FAMILY = ("torch", "torchvision", "torchaudio")
OWN_CUDA = "torch's wheels bring their own CUDA and cuDNN: "
NO_PACKAGES = (
    (
        r"(doctor|resolve|install|verify|plan|tune|monitor|snapshot|completion|help)",
        "a command of gpusetup",
        r"did you mean `gpusetup \1`?",
    ),
    (
        r"(upgrade|update|latest|newest)",
        "what is to be done, not its name",
        "did you mean `gpusetup install --upgrade`?",
    ),
    (
        r"(uninstall|remove|undo|rollback)",
        "what is to be done, not its name",
        "`gpusetup install --undo` puts back what the last installation replaced",
    ),
    (r"(v?(?P<v>\d+(?:\.\d+)+\S*))", "a version", r"did you mean `gpusetup install --torch \2`?"),
    (r"([<>=!~^].*)", "a specifier", r"did you mean `gpusetup install --torch '\1'`?"),
    (
        r"(cuda|gpu|gpus|nvidia|cuda-enabled)",
        "what a build is for",
        "`gpusetup install` takes the CUDA build that fits; `--cuda 12.4` or `--for-gpu NAME` "
        "says which is meant",
    ),
    (
        r"(?:pytorch-)?(?:cuda)-?=?=?(\d+\.\d+)[\d.*]*",
        "a CUDA version",
        r"did you mean `gpusetup install --cuda \1`?",
    ),
    (
        r"(cu\d{2,3}|cuda[\d.]+|cpu|rocm[\d.]*|xpu)",
        "a backend",
        r"did you mean `gpusetup install --backend \1`?",
    ),
    (r"(cpuonly|cpu-only)", "conda's word", "did you mean `gpusetup install --backend cpu`?"),
    (
        r"((?:nvidia-)?cuda-?toolkit|cudnn|nvcc|cuda-runtime|pytorch-cuda)(?:[=<>].*)?",
        "not needed for torch",
        f"{OWN_CUDA}`gpusetup install`, with `--cuda 12.4` where a version is wanted",
    ),
    (
        r"((?:nvidia-)?drivers?(?:-\d+)?(?:-open|-server)?|nvidia-smi|nvidia-utils(?:-\d+)?)",
        "a part of the system, which no Python package brings",
        "`gpusetup doctor` names the driver for this system, and the commands",
    ),
    (
        r"(tensorflow-gpu)(?:[=<>].*)?",
        "a name that is no longer published",
        "did you mean `gpusetup install 'tensorflow[and-cuda]'`?",
    ),
    (
        r"(?:py(?=torch=))?([\w.-]+)=([\w.*]+)",
        "in conda's words",
        r"did you mean `gpusetup install '\1==\2'`?",
    ),
    (
        r"pytorch([\s<>=!~\[;@].*)?",
        "conda's name of torch",
        r"did you mean `gpusetup install 'torch\1'`?",
    ),
)
"""Pattern -> what such a word is, and what to do."""


def refuse_what_is_no_package(word: str) -> None:
    """A word that no index has, or that is somebody else's package there (`pytorch`).

    >>> refuse_what_is_no_package("torch==2.5.1")
    """
    for pattern, what, way in NO_PACKAGES:
        if found := re.fullmatch(pattern, word, re.IGNORECASE):
            raise UsageError(f"{word!r} is no package: it is {what}", hint=found.expand(way))
    _refuse_a_place(word)
    name = re.split(r"[\s<>=!~\[;@]", word)[0]
    plain = re.sub(r"[-_.]", "", name.lower())
    if name.lower() not in FAMILY and (near := get_close_matches(plain, FAMILY, 1, 0.9)):
        meant = shlex.quote(near[0] + word[len(name) :])
        raise UsageError(
            f"{name!r} is no package of torch's family",
            hint=f"did you mean `gpusetup install {meant}`?",
        )


def _refuse_a_place(word: str) -> None:
    """A folder, a file or an address: what is fetched and checked here has a name on an index."""
    if re.search(r"\.(whl|tar\.gz|zip)$", word) and "@" not in word:
        raise UsageError(
            f"{word!r} is a file; `install` takes the names of packages",
            hint="`gpusetup install --wheelhouse DIR` installs from a folder of wheels",
        )
    if re.search(r"\.(txt|in|toml|ya?ml)$", word):
        raise UsageError(
            f"{word!r} is a file; `install` takes the names of packages",
            hint=f"`gpusetup install` first, then `uv pip install -r {shlex.quote(word)}`",
        )
    if re.match(r"(git|hg|svn|bzr)\+|(https?|file|ssh)://", word) or word[:1] in "./\\~":
        what = "an address" if "://" in word else "a folder"
        raise UsageError(
            f"{word!r} is {what}; `install` takes the names of packages",
            hint=f"`gpusetup install` first, then `uv pip install {shlex.quote(word)}`",
        )


def what_is_missing(text: str, packages: Sequence[str]) -> str | None:
    """What to do where uv or pip found no wheel of a package, or no such package.

    >>> what_is_missing("all versions of flash-attn have no usable wheels", ["flash-attn"])[:54]
    'nothing was changed; flash-attn has no wheel for this '
    """
    for name in (re.split(r"[\s<>=!~\[;@]", word)[0] for word in packages):
        if re.search(rf"\b{re.escape(name)}\b[^.]*? no (usable )?wheels", text):
            return (
                f"nothing was changed; {name} has no wheel for this Python and torch: after "
                f"`gpusetup install`, `uv pip install --no-build-isolation {name}` builds it"
            )
    return None


BACKEND = r"(cu\d{2,3}|cpu|xpu|rocm\d[\d.]*)"


def root_and_backend(url: str) -> tuple[str, ...] | None:
    """The options for an index with a backend at its end; None where it has none.

    >>> root_and_backend("https://mirror.example/whl/cu124/")
    ('--index-root', 'https://mirror.example/whl', '--backend', 'cu124')
    """
    from gpusetup.catalog import INDEX_ROOT

    found = re.fullmatch(rf"(.*://.+?)/{BACKEND}(/torch\w*)?/*", url.strip(), re.IGNORECASE)
    if found is None:
        return None
    own = found[1].removeprefix("http://").removeprefix("https://")
    usual = own.rstrip("/") == INDEX_ROOT.partition("://")[2]
    root = () if usual else ("--index-root", shlex.quote(found[1]))
    return (*root, "--backend", found[2].lower())
