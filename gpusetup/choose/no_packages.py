"""Words that are not packages: no index has them, or another project uses the name."""

from __future__ import annotations

import re

from gpusetup.errors import UsageError
from gpusetup.model.builds import FAMILY
from gpusetup.model.shell import own_word

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
        "a project is not a list of requirements: to write one, run `uv pip compile "
        "pyproject.toml -o requirements.txt`"
    ),
    r"[^@]*\.(?:txt|in)": "did you mean `gpusetup install -r WORD`?",
    r"(?:(?:git|hg|svn|bzr)\+|(?:https?|file|ssh)://|[./\\~]).*": (
        "`gpusetup install` first, then `uv pip install WORD`"
    ),
}
"""Maps the pattern of a word that no index has, or that names an unrelated package, to advice. WORD
stands for the word."""

MISSPELLED = 0.9
"""How similar a word must be to a name to count as a misspelling (difflib's ratio): about one wrong
letter in ten."""
LONGEST_SHOWN = 120
"""The maximum length of a word in a message, in characters; real requirements are shorter."""


def refuse_what_is_no_package(word: str) -> None:
    """Raise UsageError for a word that is not a package, or that is probably a misspelling of one
    of torch's packages.

    >>> refuse_what_is_no_package("torch==2.5.1")
    """
    from difflib import get_close_matches

    for pattern, advice in NO_PACKAGES.items():
        match = re.fullmatch(pattern, word, re.IGNORECASE)
        if match:
            hint = match.expand(advice).replace("WORD", own_word(word))
            raise UsageError(f"{word!r} is not a package", hint=hint)
    name = re.split(r"[\s<>=!~\[;@]", word)[0]
    # `torchvison` is, or may become, an unrelated and perhaps malicious package on an index.
    plain = re.sub(r"[-_.]", "", name.lower())
    similar = get_close_matches(plain, FAMILY, 1, MISSPELLED)
    if similar and name.lower() not in FAMILY:
        likely_word = own_word(similar[0] + word[len(name) :])
        raise UsageError(
            f"{name!r} is not a package of torch's family",
            hint=f"did you mean `gpusetup install {likely_word}`?",
        )


def shortened(word: str) -> str:
    """The word, cut to 120 characters for a message.

    >>> shortened("numpy>=2")
    'numpy>=2'
    """
    return word if len(word) <= LONGEST_SHOWN else f"{word[:LONGEST_SHOWN]}..."
