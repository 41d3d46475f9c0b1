"""A user's request: torch, backend, packages and installer. Also parses the request's words.

Pure. A text that is not a version matches no build; `check_wish` raises for the command line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companions import releases_with
from gpusetup.errors import UsageError
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen, Text, replace
from gpusetup.model.logins import without_logins
from gpusetup.model.shell import own_word
from gpusetup.model.versions import allows

NEWEST = "latest"
"""The usual word for the newest torch."""


class Wish(Frozen):
    """What a user requests for torch, or what a machine or a report shows that they want."""

    torch: Text = None
    """A version or specifier, such as `2.5.1`, `>=2.6,<2.9`, `2.5.1+cu124` or `latest`."""
    backend: str = "auto"
    """`auto`, or a folder of torch's index, such as `cpu` or `cu124`."""
    installer: str = "auto"
    """`conda` requests a build from conda's channels."""
    upgrade: bool = False
    """Whether to take the newest torch that fits, even if the installed one works."""
    packages: tuple[str, ...] = ()
    """Requirements for packages from the default index, such as `transformers>=4`."""
    offline: bool = False
    """Whether to choose packages by the companion table, without asking an index."""
    family: tuple[str, ...] = ()
    """The names among torch, torchvision and torchaudio that the request contains."""
    companions: tuple[tuple[str, str], ...] = ()
    """torchvision and torchaudio with their requested versions: `("torchvision", "==0.20.1")`."""
    from_project: bool = False
    """Whether the packages are those of a project's files, not words that a user typed."""

    @property
    def label(self) -> str | None:
        """The backend in the requested torch version: `cu124` of `2.5.1+cu124`, None of `2.5.1`."""
        return label_of(self.torch)

    @property
    def wanted_backend(self) -> str:
        """The requested backend, of `--torch 2.5.1+cu124` too; `auto` if any is accepted."""
        return self.label or self.backend

    @property
    def names_build(self) -> bool:
        """Whether a torch version or a backend was requested."""
        return self.torch is not None or self.backend != "auto"

    @property
    def wants_newest(self) -> bool:
        """Whether the newest torch that fits is requested, even if the installed one works."""
        # `--torch latest` and `--upgrade` mean the same.
        return self.upgrade or (self.torch or "").strip().lower() == NEWEST

    @property
    def is_about_torch(self) -> bool:
        """Whether the request is about torch itself, not only about packages that use it."""
        # `--upgrade` replaces the installed torch, even if only other packages are named with it.
        if self.names_build or self.upgrade or "torch" in self.family:
            return True
        return not (self.packages or self.family)

    @property
    def words(self) -> tuple[str, ...]:
        """The requested packages and companions as requirements, sorted by name, each once."""
        versions = dict(self.companions)
        members = [f"{name}{versions.get(name, '')}" for name in self.family if name != "torch"]
        # packaging writes `numpy >= 2` as `numpy>=2`, so both are the same.
        words = {str(Requirement(word)) for word in (*self.packages, *members)}
        return tuple(sorted(words, key=name_of))

    @property
    def of_torch_alone(self) -> Wish:
        """The fields of the request that decide on a torch build."""
        return Wish(torch=self.torch, backend=self.backend, installer=self.installer)


def specifier_text(text: str | None) -> str | None:
    """The torch versions that a text allows, as a specifier; None if it allows all versions.

    A bare version means exactly that version, but `2.5` means its newest patch release. A local
    label is ignored.

    >>> specifier_text("2.5"), specifier_text("torch==2.5.1+cu124"), specifier_text(">=2.6,<2.9")
    ('==2.5.*', '==2.5.1', '>=2.6,<2.9')
    """
    # Users paste `torch==2.5.1+cu124` from a requirements file.
    version = (text or "").strip().removeprefix("torch").strip().partition("+")[0]
    if not version or version == NEWEST:
        return None
    if not version[0].isdigit():
        return version
    # `2.5` and `2` name a release series, while `2.5.*` already is one.
    is_series = version.count(".") < 2 and "*" not in version
    return f"=={version}.*" if is_series else f"=={version}"


def label_of(text: str | None) -> str | None:
    """The backend in a requested torch version; None if it has none.

    >>> label_of("2.5.1+cu124"), label_of("2.5.1"), label_of("2.5.1+")
    ('cu124', None, None)
    """
    return (text or "").partition("+")[2].strip().lower() or None


@lru_cache(maxsize=4096)
def allows_torch(wanted: str | None, torch: str) -> bool:
    """Whether the request allows this torch version. Cached: it is called for every build."""
    versions = specifier_text(wanted)
    try:
        return versions is None or allows(versions, torch)
    except ValueError:  # a text that cannot be read matches no version
        return False


def check_wish(wish: Wish, catalog: Catalog) -> None:
    """Raise UsageError if a request is malformed or contradictory, or names an unknown backend."""
    try:
        # Any version is allowed by "".
        SpecifierSet(specifier_text(wish.torch) or "")
    except ValueError:
        raise UsageError(
            f"{wish.torch!r} is not a torch version",
            hint="for example `2.5.1` or `>=2.6,<2.9`; for a nightly build, `gpusetup resolve "
            "--torch nightly` prints the commands",
        ) from None
    if wish.label and wish.backend not in ("auto", wish.label):
        raise UsageError(
            f"`--torch {wish.torch}` asks for {wish.label} and `--backend` for {wish.backend}",
            hint="give only one of them",
        )
    backend = wish.wanted_backend
    if backend in ("auto", *catalog.backends):
        return
    # Only show the user's own word in a URL if it looks like a label.
    shown = backend if re.fullmatch(LABEL, backend) else "NAME"
    raise UsageError(
        f"gpusetup's catalog of {catalog.as_of} has no torch for {backend!r}",
        hint="use `auto`, which chooses a backend that fits, or a backend such as `cpu` or "
        f"`cu126`. {index_url(shown)}/torch/ lists what PyTorch's index has today",
    )


def backend_label(text: str) -> str:
    """The backend label on torch's index that a text means; other texts are returned in lower case,
    without spaces, dashes and underscores.

    >>> [backend_label(text) for text in ("12.4", "CU124", "cuda 12.4.1", "cuda-11.8", "ROCm 6.4")]
    ['cu124', 'cu124', 'cu124', 'cu118', 'rocm6.4']
    >>> backend_label("auto"), backend_label("124"), backend_label("12"), backend_label("xpu")
    ('auto', 'cu124', 'cu12', 'xpu')
    """
    plain = re.sub(r"[\s_-]+", "", text.lower())
    # A label is for a minor version, which has one digit: 12.4.1 is in the folder of 12.4.
    cuda = re.fullmatch(r"(?:cuda|cu)?(\d{1,2})\.?(\d)(?:\.\d+)*", plain)
    return f"cu{cuda[1]}{cuda[2]}" if cuda else plain


NO_PACKAGES = {
    r"(?:pytorch-)?cuda-?=?=?(\d+\.\d+)[\d.*]*|(cu\d{2,3}|cpu|rocm[\d.]*|xpu)": (
        r"did you mean `gpusetup install --backend \1\2`?"
    ),
    r"(?:cuda|gpu|nvidia|(?:nvidia-)?cuda-?toolkit|cudnn|nvcc|pytorch-cuda)(?:[=<>].*)?": (
        "torch's wheels include CUDA: `gpusetup install`, or `--backend 12.4` for a version"
    ),
    r"cpu-?only": "did you mean `gpusetup install --backend cpu`?",
    r"(?:rtx|gtx|titan)[ _-]?\w*|sm_?\d+|\d{4}": r'did you mean `--gpu "\g<0>"`?',
    # conda's spelling.
    r"(?:py(?=torch=))?([\w.-]+)=([\w.*]+)": r'did you mean `gpusetup install "\1==\2"`?',
    r"pytorch([\s<>=!~\[;@].*)?": r'did you mean `gpusetup install "torch\1"`?',
    r"[^@]*\.(?:txt|in)": "did you mean `gpusetup install -r WORD`?",
    r"(?:(?:git|hg|svn|bzr)\+|(?:https?|file|ssh)://|[./\\~]).*|[^@]*\.(?:whl|tar\.gz|zip)": (
        "`gpusetup install` first, then `uv pip install WORD`"
    ),
}
"""Maps the pattern of a word that is no package of an index to advice. WORD stands for the word."""

MISSPELLED = 0.9
"""How similar a misspelt word is to a name (difflib's ratio): one wrong letter in ten."""
LONGEST_SHOWN = 120
"""The maximum length of a word in a message, in characters; real requirements are shorter."""


def name_of(word: str) -> str:
    """The name of a requirement, normalised as on an index.

    >>> name_of("jax[cuda13]>=0.7")
    'jax'
    """
    return canonicalize_name(Requirement(word).name)


def refuse_what_is_no_package(word: str) -> None:
    """Raise UsageError for a word that is no package, or probably a misspelt one of torch's."""
    for pattern, advice in NO_PACKAGES.items():
        match = re.fullmatch(pattern, word, re.IGNORECASE)
        if match:
            hint = match.expand(advice).replace("WORD", own_word(word))
            raise UsageError(f"{word!r} is not a package", hint=hint)
    name = re.split(r"[\s<>=!~\[;@]", word)[0]
    # `torchvison` is, or may become, an unrelated and perhaps malicious package on an index.
    plain = re.sub(r"[-_.]", "", name.lower())
    similar = get_close_matches(plain, FAMILY, n=1, cutoff=MISSPELLED)
    if similar and name.lower() not in FAMILY:
        likely_word = own_word(similar[0] + word[len(name) :])
        raise UsageError(
            f"{name!r} is not one of torch's own packages",
            hint=f"did you mean `gpusetup install {likely_word}`?",
        )


def parse_words(words: Sequence[str], torch_option: str | None = None) -> Wish:
    """The request in the words of a command line and in its option `--torch`. A marker is left to
    the installer. Raises UsageError for a word that is not a package, and for two torch versions.

    >>> wish = parse_words(["torchvision", "numpy>=2", "torch==2.5.1"])
    >>> wish.family, wish.packages, wish.torch
    (('torchvision', 'torch'), ('numpy>=2',), '==2.5.1')
    """
    torch: str | None = None
    packages: list[str] = []
    family: list[str] = []
    companions: list[tuple[str, str]] = []
    for word in words:
        refuse_what_is_no_package(without_logins(word))
        try:
            requirement = Requirement(word)
        except (ValueError, RecursionError) as problem:
            # A marker may nest deeper than Python recurses, or hold a number that is too long.
            raise UsageError(
                f"{without_logins(word)[:LONGEST_SHOWN]!r} is not a valid package or requirement",
                hint='for example `torchvision`, `transformers` or `"numpy>=2"`',
            ) from problem
        # No index can be asked for an address: `torch @ https://...`.
        if requirement.url:
            raise UsageError(
                f"{requirement.name} is given as a URL",
                hint="run `gpusetup install` first, then `uv pip install` with the URL; to choose "
                "torch, use `--torch VERSION`, `--backend`, or a mirror with `--index URL`",
            )
        name, versions = canonicalize_name(requirement.name), str(requirement.specifier)
        if name not in FAMILY:
            packages.append(word)
            continue
        if requirement.extras:
            raise UsageError(
                f"{word!r}: gpusetup installs torch, torchvision and torchaudio without extras"
            )
        family.append(name)
        if name == "torch":
            torch = versions or None
        elif versions:
            companions.append((name, versions))
    if torch_option and torch and specifier_text(torch_option) != specifier_text(torch):
        raise UsageError(
            f"`--torch {torch_option}` and torch {torch} among the packages both give a version",
            hint="give only one of them",
        )
    return Wish(
        torch=torch_option or torch,
        packages=tuple(packages),
        family=tuple(family),
        companions=tuple(companions),
    )


def torch_of_companions(
    companions: Sequence[tuple[str, str]], torch: str | None, catalog: Catalog
) -> str | None:
    """The torch versions that belong to these versions of torchvision and torchaudio, and that the
    request for `torch` allows, as a specifier; None if there are none.

    `companions` are names with specifiers, without labels: `("torchvision", "==0.20.1")`.
    """
    releases = [one for one in releases_with(catalog, companions) if allows_torch(torch, one)]
    if not releases:
        return None
    if len(releases) == 1:
        return f"=={releases[0]}"
    # torchvision 0.20.* works with several torch versions, so the host decides among them.
    return f">={releases[0]},<={releases[-1]}"


def with_torch_of_companions(wish: Wish, catalog: Catalog) -> Wish:
    """The request with the torch that belongs to the requested torchvision and torchaudio versions.

    The backend in a companion's version counts if torch's names none and exactly one torch matches.
    Raises UsageError if the companions match no torch, or not the requested one.
    """
    if not wish.companions:
        return wish
    public = [(name, versions.partition("+")[0]) for name, versions in wish.companions]
    torch = torch_of_companions(public, wish.torch, catalog)
    if torch is None:
        words = " ".join(f"{name}{versions}" for name, versions in wish.companions)
        raise UsageError(
            f"no torch{f' {wish.torch}' if wish.torch else ''} works with {words}",
            hint="leave out these versions: gpusetup chooses the ones that match torch",
        )
    # `2.5.1+cu124` already is one version with its backend.
    if wish.label:
        return wish
    # `torchvision==0.20.1+cu124` also requests a backend. A range cannot have a label (PEP 440).
    label = next(filter(None, (label_of(versions) for _, versions in wish.companions)), None)
    is_exact = torch.startswith("==")
    return replace(wish, torch=f"{torch}+{label}" if label and is_exact else torch)
