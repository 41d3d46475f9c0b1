"""The packages that the command line names; a word that is no package is refused, with what it
probably stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from gpusetup.errors import UsageError
from gpusetup.install.credentials import without_logins
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import own_word

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from gpusetup.install.target.layout import Distribution

OWN_CUDA = "torch's wheels bring their own CUDA and cuDNN: "
NO_PACKAGES = (
    (
        r"(doctor|resolve|install|verify|plan|tune|monitor|snapshot|completion|help)",
        "a command of gpusetup",
        r"did you mean `gpusetup \1`?",
    ),
    (
        r"(upgrade|update|latest|newest)",
        "what to do, not its name",
        "did you mean `gpusetup install --upgrade`?",
    ),
    (
        r"(uninstall|remove|undo|rollback)",
        "what to do, not its name",
        "`gpusetup install --undo` puts back what the last installation replaced",
    ),
    (r"(v?(?P<v>\d+(?:\.\d+)+\S*))", "a version", r"did you mean `gpusetup install --torch \2`?"),
    (r"([<>=!~^].*)", "a specifier", r'did you mean `gpusetup install --torch "\1"`?'),
    (
        r"(cuda|gpu|gpus|nvidia|cuda-enabled)",
        "what a build is for",
        "`gpusetup install` takes the CUDA build that fits; `--backend 12.4` or `--gpu NAME` "
        "says which is meant",
    ),
    (
        r"(?:pytorch-)?(?:cuda)-?=?=?(\d+\.\d+)[\d.*]*",
        "a CUDA version",
        r"did you mean `gpusetup install --backend \1`?",
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
        f"{OWN_CUDA}`gpusetup install`, with `--backend 12.4` where a version is wanted",
    ),
    (
        r"((?:nvidia-)?drivers?(?:-\d+)?(?:-open|-server)?|nvidia-smi|nvidia-utils(?:-\d+)?)",
        "a part of the system, not a Python package",
        "`gpusetup doctor` names the driver for this system, and the commands",
    ),
    (
        r"(?:rtx|gtx|titan)[ _-]?\w*|sm_?\d+|\d{4}",
        "a GPU",
        r'did you mean `--gpu "\g<0>"`?',
    ),
    (
        r"(tensorflow-gpu)(?:[=<>].*)?",
        "a name that is no longer published",
        'did you mean `gpusetup install "tensorflow[and-cuda]"`?',
    ),
    (
        r"(?:py(?=torch=))?([\w.-]+)=([\w.*]+)",
        "in conda's words",
        r'did you mean `gpusetup install "\1==\2"`?',
    ),
    (
        r"pytorch([\s<>=!~\[;@].*)?",
        "conda's name of torch",
        r'did you mean `gpusetup install "torch\1"`?',
    ),
    (
        r"[^@]*\.(?:whl|tar\.gz|zip)",
        "a file; `install` expects names of packages",
        "`gpusetup install --offline DIR` installs from a folder of wheels",
    ),
    (
        r"[^@]*\.(?:txt|in|toml)",
        "a file; `install` expects names of packages",
        "did you mean `gpusetup install -r WORD`?",
    ),
    (
        r".*\.ya?ml",
        "a file; `install` expects names of packages",
        "`gpusetup install` first, then conda's own `env update -f WORD`",
    ),
    (
        r"(?:(?:git|hg|svn|bzr)\+|(?:https?|file|ssh)://|[./\\~]).*",
        "a folder or an address; `install` expects names of packages",
        "`gpusetup install` first, then `uv pip install WORD`",
    ),
    (
        r"\s*",
        "empty",
        'a variable that is not set? `"$NAME"` without a value is one',
    ),
)
"""Pattern -> what such a word is, and what to do; WORD stands for the word."""


def refuse_what_is_no_package(word: str) -> None:
    """A word that no index has, or that is somebody else's package there (`pytorch`).

    >>> refuse_what_is_no_package("torch==2.5.1")
    """
    from difflib import get_close_matches

    for pattern, what, way in NO_PACKAGES:
        if found := re.fullmatch(pattern, word, re.IGNORECASE):
            hint = found.expand(way).replace("WORD", own_word(word))
            raise UsageError(f"{word!r} is no package: it is {what}", hint=hint)
    name = re.split(r"[\s<>=!~\[;@]", word)[0]
    plain = re.sub(r"[-_.]", "", name.lower())
    if name.lower() not in FAMILY and (near := get_close_matches(plain, FAMILY, 1, 0.9)):
        meant = own_word(near[0] + word[len(name) :])
        raise UsageError(
            f"{name!r} is no package of torch's family",
            hint=f"did you mean `gpusetup install {meant}`?",
        )


COMPANIONS = FAMILY[1:]


class RequestedPackages(Frozen):
    """The words of the command line: `numpy transformers>=4 torch torchvision`."""

    family: tuple[str, ...]
    """Of the torch family, torch first."""
    packages: tuple[str, ...] = ()
    """Everything else, as requirements for the default index."""
    torch: str | None = None
    """A specifier that `torch==2.5.1` among the words gave."""
    beside: tuple[tuple[str, str], ...] = ()
    """Companions with the specifier that the words gave: `("torchvision", "==0.20.1")`."""
    named: tuple[str, ...] = ()
    """Of the torch family, as the words have it."""
    followers: tuple[str, ...] = ()
    """What is installed, takes another torch than the one to come, and is asked for anew."""
    pinned: tuple[str, ...] = ()
    """What must stay as it is: `torch==2.9.1+cu130`."""
    left_out: tuple[str, ...] = ()
    """Words that their own marker leaves out on this machine."""

    @property
    def left_out_words(self) -> str:
        """One sentence about them; empty where there are none."""
        words = ", ".join(self.left_out)
        return f"left out by its own marker on this machine: {words}" if words else ""


def requested_packages(
    words: Sequence[str],
    installed: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> RequestedPackages:
    """Sort the words; torch always, and where nothing else is named the companions that are there.

    `environment` are the markers' variables of the target: what they leave out is not asked for.

    >>> words = requested_packages(["torchvision", "numpy>=2"], {})
    >>> words.family, words.named, words.packages
    (('torch', 'torchvision'), ('torchvision',), ('numpy>=2',))
    >>> requested_packages([], {"torchaudio": "2.5.1"}).family
    ('torch', 'torchaudio')
    >>> words = requested_packages(["torch==2.5.1"], {"torchaudio": "2.6.0"})
    >>> words.family, words.torch
    (('torch', 'torchaudio'), '2.5.1')
    """
    from packaging.requirements import InvalidRequirement, Requirement

    torch: str | None = None
    family, packages, named = {"torch"}, [], []
    beside: list[tuple[str, str]] = []
    left_out: list[str] = []
    for word in words:
        refuse_what_is_no_package(without_logins(word))
        try:
            asked = Requirement(word)
        except InvalidRequirement as problem:
            raise UsageError(
                f"{without_logins(word)!r} is no package and no requirement",
                hint='such as `torchvision`, `transformers` or `"numpy>=2"`',
            ) from problem
        name = canonicalize_name(asked.name)
        if asked.marker and environment and not asked.marker.evaluate(dict(environment)):
            left_out.append(without_logins(word))
            continue
        _refuse_a_login(asked)
        if name in FAMILY:
            _refuse_more_than_a_version(without_logins(word), asked)
            family.add(name)
            named.append(name)
        else:
            packages.append(word)
            continue
        if name == "torch":
            torch = re.sub(EXACT, "", str(asked.specifier)) or None
        elif asked.specifier:
            beside.append((name, str(asked.specifier)))
    if family == {"torch"} and not packages:
        family.update(name for name in COMPANIONS if name in installed)
    return RequestedPackages(
        family=tuple(name for name in FAMILY if name in family),
        packages=tuple(packages),
        torch=torch,
        named=tuple(named),
        beside=tuple(beside),
        left_out=tuple(left_out),
    )


def _refuse_a_login(asked: Requirement) -> None:
    """`name @ https://me:password@host/x.whl`: it would stand in steps, plans and receipts."""
    if not asked.url or without_logins(asked.url) == asked.url:
        return
    host = urlsplit(asked.url).hostname or "its host"
    raise UsageError(
        f"{asked.name} is asked for by an address with a user name or a password in it",
        hint=f"put them into ~/.netrc for {host}, and name the address without them",
    )


EXACT = r"^==(?=\d+\.\d+\.\d+[^,]*$)"
"""What `torch==2.5.1` says more than `--torch 2.5.1`."""


def _refuse_more_than_a_version(word: str, asked: Requirement) -> None:
    """Of torch's family only a version can be asked; nothing that was said is dropped silently."""
    if asked.url:
        raise UsageError(
            f"{word!r}: which wheel of {asked.name} fits is found out here",
            hint="`--torch VERSION`, `--backend`, or a mirror by `--index URL`",
        )
    if asked.extras:
        raise UsageError(
            f"{word!r}: extras of {asked.name} are not installed",
            hint="name the extras' packages too",
        )


def torch_family(installed: Iterable[Distribution]) -> dict[str, str]:
    """The torch family among what is installed."""
    return {one.name: one.version for one in installed if one.name in FAMILY}
