"""The packages that the command line and its files name; a word that is no package is refused, with
what it probably stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from gpusetup import named_file
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.model.resolution import FAMILY
from gpusetup.model.shell import own_word
from gpusetup.uv.logins import without_logins

NO_PACKAGES = {
    r"(doctor|resolve|install|verify|plan|tune|monitor)": r"did you mean `gpusetup \1`?",
    r"v?(\d+(?:\.\d+)+\S*)": r"did you mean `gpusetup install --torch \1`?",
    r"([<>=!~^].*)": r'did you mean `gpusetup install --torch "\1"`?',
    r"(?:pytorch-)?cuda-?=?=?(\d+\.\d+)[\d.*]*": r"did you mean `gpusetup install --backend \1`?",
    r"(cu\d{2,3}|cpu|rocm[\d.]*|xpu)": r"did you mean `gpusetup install --backend \1`?",
    r"cpu-?only": "did you mean `gpusetup install --backend cpu`?",
    r"(?:cuda|gpu|nvidia|(?:nvidia-)?cuda-?toolkit|cudnn|nvcc|pytorch-cuda)(?:[=<>].*)?": (
        "torch's wheels bring their own CUDA: `gpusetup install`, or `--backend 12.4` for a version"
    ),
    r"(?:nvidia-)?drivers?(?:-\d+)?(?:-open|-server)?|nvidia-smi": (
        "it belongs to the system: `gpusetup doctor` names the driver and the commands to install "
        "it"
    ),
    r"(?:rtx|gtx|titan)[ _-]?\w*|sm_?\d+|\d{4}": r'did you mean `--gpu "\g<0>"`?',
    r"(?:py(?=torch=))?([\w.-]+)=([\w.*]+)": r'did you mean `gpusetup install "\1==\2"`?',
    r"pytorch([\s<>=!~\[;@].*)?": r'did you mean `gpusetup install "torch\1"`?',
    r"[^@]*\.(?:whl|tar\.gz|zip)": (
        "`gpusetup install --offline DIR` installs from a folder of wheels"
    ),
    r"\[[\w.-]+\]": (
        "a project is no list of requirements: `uv pip compile pyproject.toml -o requirements.txt` "
        "writes one"
    ),
    r"[^@]*\.(?:txt|in)": "did you mean `gpusetup install -r WORD`?",
    r"(?:(?:git|hg|svn|bzr)\+|(?:https?|file|ssh)://|[./\\~]).*": (
        "`gpusetup install` first, then `uv pip install WORD`"
    ),
}
"""Pattern of a word that no index has, or that is somebody else's package there -> what to do; WORD
stands for the word."""


def refuse_what_is_no_package(word: str) -> None:
    """A word that no index has, or that is somebody else's package there (`pytorch`).

    >>> refuse_what_is_no_package("torch==2.5.1")
    """
    from difflib import get_close_matches

    for pattern, way in NO_PACKAGES.items():
        if found := re.fullmatch(pattern, word, re.IGNORECASE):
            hint = found.expand(way).replace("WORD", own_word(word))
            raise UsageError(f"{word!r} is no package", hint=hint)
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
    for word in words:
        refuse_what_is_no_package(without_logins(word))
        try:
            asked = Requirement(word)
        except (InvalidRequirement, RecursionError) as problem:
            # A marker of thousands of brackets is nested more deeply than Python recurses.
            raise UsageError(
                f"{shortened(without_logins(word))!r} is no package and no requirement",
                hint='such as `torchvision`, `transformers` or `"numpy>=2"`',
            ) from problem
        name = canonicalize_name(asked.name)
        if asked.marker and environment and not asked.marker.evaluate(dict(environment)):
            continue
        if asked.url:
            raise UsageError(
                f"{asked.name} is given by its address",
                hint="`gpusetup install` first, then `uv pip install` it; torch's own wheel comes "
                "by `--torch VERSION`, `--backend`, or a mirror: `--index URL`",
            )
        if name in FAMILY:
            if asked.extras:
                raise UsageError(
                    f"{word!r}: gpusetup installs torch, torchvision and torchaudio without extras"
                )
            family.add(name)
            named.append(name)
        else:
            packages.append(word)
        if name == "torch":
            torch = re.sub(EXACT, "", str(asked.specifier)) or None
        elif name in FAMILY and asked.specifier:
            beside.append((name, str(asked.specifier)))
    if family == {"torch"} and not packages:
        family.update(name for name in COMPANIONS if name in installed)
    return RequestedPackages(
        family=tuple(name for name in FAMILY if name in family),
        packages=tuple(packages),
        torch=torch,
        named=tuple(named),
        beside=tuple(beside),
    )


LONGEST_SHOWN = 120
"""Characters of a word in a message; no requirement that people write is longer."""


def shortened(word: str) -> str:
    """A word as a message quotes it.

    >>> shortened("numpy>=2")
    'numpy>=2'
    """
    return word if len(word) <= LONGEST_SHOWN else f"{word[:LONGEST_SHOWN]}..."


EXACT = r"^==(?=\d+\.\d+\.\d+[^,]*$)"
"""What `torch==2.5.1` says more than `--torch 2.5.1`."""


# --- requirements.txt -----------------------------------------------------------------------------

MOST_BYTES = 1 << 20
ELSEWHERE = re.compile(r"-(-requirement|-editable|-constraint|[rec])\b")
"""How a line begins that names another file or folder."""


def words_of_files(
    files: Iterable[str], talk: Callable[[str], None], *, installs: bool
) -> Iterator[str]:
    """Everything that `-r FILE` names: a list of requirements.

    BadInput for what cannot be read; UsageError for what cannot be asked here.
    """
    for path in map(Path, files):
        text = named_file.read_text_once(path, MOST_BYTES)
        if installs and re.search(r"--(hash|require-hashes)", text):
            raise UsageError(
                f"{path} names hashes, but gpusetup may choose files with other hashes",
                hint="install torch first by `gpusetup install`, then run `uv pip install "
                "--require-hashes -r` with this file",
            )
        for line in lines_of(text):
            said = f"{path}: `{without_logins(line)}` is not taken"
            if ELSEWHERE.match(line):
                raise UsageError(
                    said,
                    hint="pass that file with its own `-r`; write constraints into the file of "
                    "requirements",
                )
            if not line.startswith("-"):
                yield line.partition(" --")[0].strip()
            elif not line.startswith("--require-hashes"):
                talk(f"{said}: your own settings of uv or pip count")


def lines_of(text: str) -> Iterator[str]:
    """The lines without comments; one that ends with a backslash goes on with the next.

    >>> list(lines_of("a  # b\\n\\n# d\\nc"))
    ['a', 'c']
    """
    for line in text.replace("\r\n", "\n").replace("\\\n", " ").splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        if plain:
            yield plain
