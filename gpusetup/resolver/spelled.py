"""Values as people write them, read as what they mean; what is something else is refused with the
option that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.gpus import rows_or_none
from gpusetup.errors import UsageError
from gpusetup.model.shell import own_word
from gpusetup.model.versions import parsed

SYSTEMS: Mapping[str, str] = {
    "win": "windows",
    "nt": "windows",
    "darwin": "macos",
    "mac": "macos",
    "osx": "macos",
    "apple": "macos",
    **dict.fromkeys(
        (
            *("debian", "ubuntu", "mint", "linuxmint", "pop", "kali", "fedora", "rhel", "redhat"),
            *("centos", "rocky", "alma", "almalinux", "amzn", "suse", "opensuse", "sles", "arch"),
            *("manjaro", "nixos", "gentoo", "gnu", "wsl", "wsl2", "jetson"),
        ),
        "linux",
    ),
}
"""What people call a system -> its name here, versions left aside."""
ARCHITECTURES: Mapping[str, str] = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "x86-64": "x86_64",
    "x86": "x86_64",
    "intel": "x86_64",
    "amd": "x86_64",
    "64bit": "x86_64",
    "64": "x86_64",
    "arm64": "aarch64",
    "armv8": "aarch64",
    "arm": "aarch64",
    "grace": "aarch64",
    "sbsa": "aarch64",
}
FIRST_DRIVER = 60
"""No driver is older; CUDA's versions are all smaller numbers (Linux' first driver was 71.86)."""


def backend_label(text: str) -> str:
    """The label on torch's index that a text means; a text that is none stays as it is.

    >>> [backend_label(text) for text in ("12.4", "CU124", "cuda 12.4.1", "cuda-11.8", "ROCm 6.4")]
    ['cu124', 'cu124', 'cu124', 'cu118', 'rocm6.4']
    >>> backend_label("auto"), backend_label("124"), backend_label("12"), backend_label("xpu")
    ('auto', 'cu124', 'cu12', 'xpu')
    """
    plain = re.sub(r"[\s_-]+", "", text.lower())
    if found := re.fullmatch(r"(?:cuda|cu|v)?(\d{1,2})\.(\d)(?:\.\d+)*", plain):
        return f"cu{found[1]}{found[2]}"
    if found := re.fullmatch(r"(?:cuda|cu)?(\d{2,3})", plain):
        return f"cu{found[1]}"
    return plain


def system_named(text: str) -> str:
    """
    >>> system_named("Darwin"), system_named("linux"), system_named("Ubuntu 24.04")
    ('macos', 'linux', 'linux')
    >>> system_named("win11"), system_named("Windows 11"), system_named("beos")
    ('windows', 'windows', 'beos')
    """
    plain = text.strip().lower()
    first = re.split(r"[\s\d/_.-]", plain)[0]
    for name in (plain, first):
        if name in SYSTEMS or name in SYSTEMS.values():
            return SYSTEMS.get(name, name)
    return plain


def architecture_named(text: str) -> str:
    """
    >>> architecture_named("ARM64"), architecture_named("x86_64")
    ('aarch64', 'x86_64')
    """
    return ARCHITECTURES.get(text.lower(), text.lower())


def python_named(text: str) -> str:
    """
    >>> python_named("cp311"), python_named("python3.12"), python_named("3.13t"), python_named("x")
    ('3.11', '3.12', '3.13t', 'x')
    """
    plain = re.split(r"[/\\\\]", text.strip().lower())[-1].removesuffix(".exe")
    found = re.fullmatch(r"(?:cpython|python|cp|py)?[\s=-]*(\d)\.?(\d{1,2}(?:\.\d+)?t?)", plain)
    return f"{found[1]}.{found[2]}" if found else text


def glibc_named(text: str) -> str:
    """
    >>> glibc_named("2.35-0ubuntu3"), glibc_named("glibc 2.35"), glibc_named("GLIBC_2.28")
    ('2.35', '2.35', '2.28')
    """
    if text.strip().lower().startswith("musl"):
        raise UsageError(
            f"{text!r} is no glibc: torch has wheels for glibc only",
            hint="take a system or an image with glibc, such as `python:3.12-slim`",
        )
    found = re.fullmatch(
        r"(?:glibc|libc|ldd|manylinux)?[\s_-]*(\d)[._](\d+).*", text.strip().lower()
    )
    return f"{found[1]}.{found[2]}" if found else text


SIGNS: Mapping[str, str] = {"≥": ">=", "≤": "<=", "≠": "!=", "＝": "="}
QUOTES = "\"'`“”„‘’‚«»\u2032\u2033"
NAMED_TORCH = r"(?:py)?torch\s*(?=[\s<>=!~^@]|$)[\s@]*"


def torch_named(text: str) -> str:
    """A torch as pip, conda, poetry, npm and a word processor write it, as a specifier.

    >>> [torch_named(text) for text in ("v2.5.1", "=2.5.1", "“2.5.1”", "≥2.5", "2.5.x")]
    ['2.5.1', '2.5.1', '2.5.1', '>=2.5', '2.5.*']
    >>> torch_named("^2.5"), torch_named("~2.5.1"), torch_named("~2.5"), torch_named("2.5 - 2.7")
    ('>=2.5,<3', '~=2.5.1', '2.5.*', '>=2.5,<=2.7')
    >>> torch_named("torch==2.5.1+cu12.4"), torch_named("stable"), torch_named(">=2.6,<2.9")
    ('2.5.1+cu124', 'latest', '>=2.6,<2.9')
    """
    plain = text.strip().lstrip(f"{QUOTES} ").rstrip(f"{QUOTES} +").strip()
    for sign, usual in SIGNS.items():
        plain = plain.replace(sign, usual)
    plain = re.sub(r"=([<>])(?=\s*v?\d)", r"\1=", plain)
    plain = re.sub(NAMED_TORCH, "", plain, count=1, flags=re.IGNORECASE).strip()
    if plain.lower() in ("latest", "stable", "newest", "current", "*", "any", "release"):
        return "latest"
    plain = re.sub(r"^(\d[\d.]*)\s+-\s+(\d[\d.]*)$", r">=\1,<=\2", plain)
    clauses = [_clause(part) for part in re.split(r"\s*,\s*", plain)]
    if len(clauses) > 1:
        clauses = [f"=={one}" if one[:1].isdigit() else one for one in clauses]
    return ",".join(clauses)


def _clause(text: str) -> str:
    """One clause: `^2.5` stays within the major, `~2.5` within the minor."""
    text = re.sub(r"\.[xX](?=$|[.+])", ".*", text)
    if labelled := re.fullmatch(r"([^+]*)\+(\w[\w.-]*)", text):
        text = f"{labelled[1]}+{backend_label(labelled[2])}"
    if re.fullmatch(r"={1,3}\s*v?\d[\d.]*(\+\w[\w.]*)?", text):
        text = text.lstrip("= ")
    text = re.sub(r"(?<![\w.])v(?=\d)", "", text)
    if found := re.fullmatch(r"\^\s*(\d+)((?:\.\d+)*)", text):
        return f">={found[1]}{found[2]},<{int(found[1]) + 1}"
    if found := re.fullmatch(r"~\s*(\d+\.\d+)", text):
        return f"{found[1]}.*"
    if found := re.fullmatch(r"~>?\s*(\d+\.\d+\.\d+)", text):
        return f"~={found[1]}"
    return text


def check_torch(text: str | None, catalog: Catalog) -> None:
    """Raise UsageError for a torch that is another thing's version, or that no version can be.

    What is newer than the catalog is no error: it may have been released since.
    """
    plain = (text or "").strip().lower().removeprefix("==").partition("+")[0]
    if re.search(r"nightly|\bdev\b|preview|master|\bmain\b", plain):
        raise UsageError(
            f"`--torch {text}`: a nightly build is another each day, and cannot be named here",
            hint="`--torch latest` is the newest release; `gpusetup resolve --torch nightly` "
            "prints the command that takes the newest nightly, unproven",
        )
    cuda = re.fullmatch(r"(?:cuda|cu)?[\s_-]*(\d{2})\.?(\d)(?:\.\d+)?", plain)
    if cuda and f"cu{cuda[1]}{cuda[2]}" in catalog.backends:
        raise UsageError(
            f"{text!r} is a version of CUDA, not of torch",
            hint=f"did you mean `--cuda {cuda[1]}.{cuda[2]}`?",
        )
    if meant := _other_dots(plain, catalog):
        raise UsageError(f"There is no torch {text}", hint=f"did you mean `--torch {meant}`?")
    if text and _is_contradictory(text):
        raise UsageError(
            f"No version is {text!r}: its parts exclude each other", hint="leave one of them out"
        )


def _other_dots(text: str, catalog: Catalog) -> str | None:
    """The release that has the digits of `2.51`, or of `251`; None for a release, or its minor."""
    known = [row.torch for row in catalog.releases]
    if not re.fullmatch(r"\d+(\.\d+)*", text) or len(text.replace(".", "")) < 3:
        return None
    if any(one == text or one.startswith(f"{text}.") for one in known):
        return None
    same = (one for one in known if one.replace(".", "") == text.replace(".", ""))
    return next(same, None)


def _is_contradictory(text: str) -> bool:
    """Whether no version at all is allowed.

    >>> _is_contradictory("==2.5.1,<2.4"), _is_contradictory(">=2.9,<2.6"), _is_contradictory(">=2")
    (True, True, False)
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        clauses = SpecifierSet(text)
    except InvalidSpecifier:
        return False
    exact = [one.version for one in clauses if one.operator == "==" and one.version[-1:] != "*"]
    low = [one.version for one in clauses if one.operator in (">=", ">")]
    # A bound, and the nearest version above it, stand for all that it allows.
    tried = exact or [*low, *(f"{parsed(one).base_version}.0.1" for one in low)]
    return bool(tried) and not any(clauses.contains(one, prereleases=True) for one in tried)


def driver_named(text: str, catalog: Catalog, family: str | None = None) -> str:
    """The version of an NVIDIA driver; UsageError for another text, with what it may be.

    Windows' own number of a driver carries NVIDIA's in its last five digits.
    """
    plain = re.sub(r"^(nvidia|driver|version|[\s_-])*[rv]?(?=\d)", "", text.strip().lower())
    plain = re.sub(r"(\.[x*])+$", "", plain.replace(",", "."))
    if found := re.fullmatch(r"\d{2}\.\d{1,2}\.\d*(\d)\.(\d{2})(\d{2})", plain):
        return f"{found[1]}{found[2]}.{found[3]}"
    if cuda := _cuda_in(plain):
        raise UsageError(
            f"{text!r} is a version of CUDA, not of an NVIDIA driver",
            hint=_driver_of(cuda, catalog, family),
        )
    if not re.fullmatch(r"\d{2,3}(\.\d+){0,3}", plain):
        raise _no_driver(text, catalog)
    return plain


def _no_driver(text: str, catalog: Catalog) -> UsageError:
    gpus = rows_or_none(text, catalog.gpus)
    if not gpus:
        return UsageError(f"{text!r} is no NVIDIA driver version", hint="such as `580.95.05`")
    return UsageError(
        f"{text!r} is a GPU ({gpus[0].name}), not a driver's version",
        hint=f"`--gpu {own_word(text.strip())}` names a GPU, `--driver 580.95.05` a driver",
    )


def _cuda_in(text: str) -> str | None:
    """The CUDA version that a text is; None where it may be a driver's."""
    label = re.fullmatch(r"(?:cuda|cu)[\s_-]*(\d{1,2})\.?(\d)", text)
    if label:
        return f"{label[1]}.{label[2]}"
    bare = re.fullmatch(r"(\d{1,2})(?:\.(\d)\d*(?:\.\d+)?)?", text)
    if bare is None or int(bare[1]) >= FIRST_DRIVER:
        return None
    return f"{bare[1]}.{bare[2] or 0}"


def driver_of_branch(version: str, catalog: Catalog, family: str | None = None) -> str:
    """The first driver of a branch that came with a CUDA; a full version stays as it is.

    `580` alone is every driver of that branch: 580.65.06 and later.
    """
    if "." in version:
        return version
    rows = (row.on(family or "linux") for row in catalog.toolkits)
    first = [row for row in rows if row and row.partition(".")[0] == version]
    return min(first, key=parsed, default=version)


def _driver_of(cuda: str, catalog: Catalog, family: str | None) -> str:
    label = f"cu{cuda.replace('.', '')}"
    build = (
        f"`gpusetup resolve --cuda {cuda}` asks for a build of it"
        if label in catalog.backends
        else ""
    )
    driver = catalog.toolkit_driver(cuda, family or "linux")
    first = f"the first driver with CUDA {cuda} is `{driver}`" if driver else ""
    shown = "`nvidia-smi` prints the driver's own version as `Driver Version`"
    return "; ".join(part for part in (build, first, shown) if part)
