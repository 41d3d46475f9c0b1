"""Makes claims about single fields of the machine, and about other fields that follow from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpusetup.messages.search import Text
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.model.units import architecture_named
from gpusetup.report import fields
from gpusetup.report.facts import HINT, SURE, USUAL, Claim, Facts
from gpusetup.report.field_patterns import PATTERNS, FieldPattern

# --- the value that the words of a field mean -----------------------------------------------------

SYSTEMS = (
    ("windows", r"\bWin(?:dows|32)\b"),
    ("macos", r"\bmac ?OS\b|Darwin|OS ?X"),
    ("linux", r"linux|ubuntu|debian|fedora|centos|red hat|rhel|rocky|alma|arch\b|manjaro|suse|mint"
              r"|pop!?_os|gentoo|kali|amazon|oracle|nixos|endeavour|zorin|elementary|wsl"),
)  # fmt: skip
"""The family of an operating system and a pattern for the names of its systems. The first match
counts."""
L4T_BY_KERNEL = (("4.9.", "R32"), ("5.10.", "R35"), ("5.15.", "R36"), ("6.8.", "R38"))
"""The beginning of a Jetson's kernel version and the major version of its L4T release (source:
NVIDIA's Jetson Linux archive)."""


def family_of(value: str) -> str:
    """The family of an operating system by its name (`linux`, `windows`, `macos`); empty if
    unknown.

    >>> family_of("Ubuntu 22.04.3 LTS (x86_64)"), family_of("Mac OSX 10.12.6"), family_of("?")
    ('linux', 'macos', '')
    """
    for family, names in SYSTEMS:
        if re.search(names, value, re.I):
            return family
    return ""


def cuda_of(number: str) -> str:
    """A CUDA version such as `11.4`. The CUDA API's number, 11040, is converted.

    >>> cuda_of("11040"), cuda_of("9020"), cuda_of("12.4")
    ('11.4', '9.2', '12.4')
    """
    if not number.isdigit():
        return number
    major, rest_of_number = divmod(int(number), 1000)
    minor = rest_of_number // 10
    return f"{major}.{minor}"


YES = ("true", "yes", "gpu", "cuda", "enabled", "available")


def is_yes(value: str) -> bool:
    """Whether a program's answer means yes."""
    answer = value.lower()
    return answer in YES


def python_of(value: str) -> str:
    """A Python version with a dot after the major version, which wheel tags leave out.

    >>> python_of("312"), python_of("3.12.1")
    ('3.12', '3.12.1')
    """
    if "." in value:
        return value
    major, minor = value[0], value[1:]
    return f"{major}.{minor}"


def exact_requirement(version: str) -> str:
    """A requirement of exactly this version."""
    return f"=={version}"


def installer_of(command: str) -> str:
    """The installer used by a typed command, `pip` or `conda` (also for mamba)."""
    return "pip" if "pip" in command else "conda"


def kernels_of(words: str) -> str:
    """The GPU architectures in torch's output, separated by spaces.

    >>> kernels_of("'sm_80', 'sm_90'")
    'sm_80 sm_90'
    """
    architectures = re.findall(r"(?:sm_|compute_|gfx)\d\w{1,4}", words)
    return " ".join(architectures)


def libc_of(value: str) -> str:
    """The C library with its version; a bare version means glibc.

    >>> libc_of("2.35"), libc_of("musl-1.2.5")
    ('glibc 2.35', 'musl 1.2.5')
    """
    if value[0].isdigit():
        return f"glibc {value}"
    return value.replace("-", " ")


PARSERS: dict[str, Callable[[str], str | bool | int]] = {
    fields.TORCH_CUDA_AVAILABLE: is_yes,
    fields.OS_SECURE_BOOT: is_yes,
    fields.OS_FAMILY: family_of,
    fields.OS_MACHINE: architecture_named,
    fields.DRIVER_CUDA: cuda_of,
    fields.PYTHON_BITS: int,
    fields.PYTHON_VERSION: python_of,
    fields.WANTED_TORCH: exact_requirement,
    fields.TORCH_INSTALLER: installer_of,
    fields.TORCH_KERNELS: kernels_of,
    fields.OS_LIBC: libc_of,
}
"""The function that turns the matched words into the field's value, for fields that need one."""


# --- what the text says ---------------------------------------------------------------------------


def field_claims(text: Text) -> Facts:
    """The claims in a text about single fields, and the claims about other fields that follow from
    them."""
    for claim in claims(text, PATTERNS):
        subject, value, source, trust = claim
        if isinstance(value, str) and subject in PARSERS:
            parse = PARSERS[subject]
            value = parse(value)
        # The snapshot has no field for a platform's name, but other fields follow from it.
        if subject != fields.PLATFORM:
            yield Claim(subject, value, source, trust)
        for implied_field in implied(subject, str(value)):
            # An implied value is trusted no more than the claim that implies it.
            implied_trust = min(trust, implied_field.trust)
            yield Claim(implied_field.subject, implied_field.value, source, implied_trust)


MAX_VALUES = 4
"""The most different values that are read for one pattern."""


def claims(text: Text, patterns: Iterable[FieldPattern]) -> Iterator[Claim]:
    """The claims that these patterns find in a text; each different value once per pattern.

    >>> from gpusetup.report.cleaning import text_of
    >>> row = FieldPattern("python.version", "python ", r"Python (\\d\\.\\d+\\.\\d+)")
    >>> next(claims(text_of("Python 3.13.5"), [row])).value
    '3.13.5'
    """
    for row in patterns:
        # A substring search is much faster than the pattern, and most texts contain none of the
        # needles.
        if text.has_any(row.needles):
            yield from _claims_of_row(text, row)


def _claims_of_row(text: Text, row: FieldPattern) -> Iterator[Claim]:
    """The claims that one pattern finds; empty values are left out."""
    pattern = in_any_case(row.pattern)
    values: set[str | bool | int] = {""}
    for offset, window in text.near(*row.needles):
        for match in pattern.finditer(window):
            value = _value_of(match, row)
            # `values` contains "" from the start, so empty values are skipped too.
            if value in values or len(values) > MAX_VALUES:
                continue
            values.add(value)
            # A pattern with a fixed value may have no group.
            has_group = row.value is None
            value_start = match.start(1) if has_group else match.start()
            source = text.source(offset + value_start)
            yield Claim(row.subject, value, source, row.trust)


def _value_of(match: re.Match[str], row: FieldPattern) -> str | bool | int:
    """The fixed value of the pattern, or else the match's first group."""
    if row.value is not None:
        return row.value
    words = match[1] or ""
    return words.strip()


# --- what a field implies of others ---------------------------------------------------------------


class ImpliedField(NamedTuple):
    """A field whose value follows from another field."""

    subject: str
    value: str | bool
    trust: int


# macOS 10.0 to 10.15. Old programs read macOS 11 as 10.16.
INTEL_MACOS = lazy(r"\b10\.(?:\d|1[0-5])\b")
# The architecture in a platform's name: `Linux-6.8.0-x86_64-with-glibc2.39`.
PLATFORM_MACHINE = lazy(r"[-_](x86_64|amd64|aarch64|arm64|ppc64le|i686)(?=[-_]|$)", re.I)
# The C library at the end of a platform's name: `-with-glibc2.39`.
PLATFORM_LIBC = lazy(r"-with-glibc(\d\.\d{1,2})$")
# The kernel in a platform's name, between the system and the architecture: `6.8.0`.
PLATFORM_KERNEL = lazy(r"Linux-([\d.]+[\w.+-]*?)-(?:x86|aarch|arm|ppc)")


def implied(subject: str, value: str) -> Iterator[ImpliedField]:
    """Fields that follow from the name of a system, kernel or platform, or from ROCm's version.

    >>> name = "Linux-5.10.104-tegra-aarch64-with-glibc2.31"
    >>> [value for _, value, _ in implied("platform", name)][:3]
    ['linux', 'aarch64', 'glibc 2.31']
    """
    if subject == fields.TORCH_HIP:
        yield ImpliedField(fields.TORCH_BACKEND, f"rocm{value}", USUAL)
    if subject in (fields.OS_NAME, fields.PLATFORM):
        yield from _implied_by_system(value)
    if subject == fields.PLATFORM:
        yield from _implied_by_platform(value)
    if subject == fields.OS_KERNEL:
        # The patterns only find the versions of Linux kernels.
        yield ImpliedField(fields.OS_FAMILY, "linux", USUAL)
        yield from _implied_by_kernel(value)


def _implied_by_system(name: str) -> Iterator[ImpliedField]:
    """The family of a system, and the architecture of an old macOS."""
    family = family_of(name)
    if not family:
        return
    yield ImpliedField(fields.OS_FAMILY, family, SURE)
    # Macs with Apple's own processors started with macOS 11.
    if family == "macos" and INTEL_MACOS.search(name):
        yield ImpliedField(fields.OS_MACHINE, "x86_64", USUAL)


def _implied_by_platform(name: str) -> Iterator[ImpliedField]:
    """The architecture, C library and kernel in a platform's name."""
    machine = PLATFORM_MACHINE.search(name)
    if machine:
        yield ImpliedField(fields.OS_MACHINE, architecture_named(machine[1]), USUAL)
    libc = PLATFORM_LIBC.search(name)
    if libc:
        yield ImpliedField(fields.OS_LIBC, f"glibc {libc[1]}", HINT)
    kernel = PLATFORM_KERNEL.match(name)
    if kernel:
        yield ImpliedField(fields.OS_KERNEL, kernel[1], USUAL)
        yield from _implied_by_kernel(kernel[1])


def _implied_by_kernel(kernel: str) -> Iterator[ImpliedField]:
    """Claims for WSL or a Jetson, which the kernel's name shows."""
    if "microsoft" in kernel.lower():
        yield ImpliedField(fields.OS_WSL, True, USUAL)
    if "tegra" in kernel:
        yield ImpliedField(fields.OS_JETSON, _l4t_release(kernel), HINT)
        yield ImpliedField(fields.OS_MACHINE, "aarch64", USUAL)


def _l4t_release(kernel: str) -> str:
    """The L4T release of a Jetson's kernel, e.g. `R36`; `tegra` if it is unknown."""
    for start, release in L4T_BY_KERNEL:
        if kernel.startswith(start):
            return release
    return "tegra"
