"""Makes claims about single fields of the machine, and about other fields that follow from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from gpusetup.messages.search import Text
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.model.units import architecture_named
from gpusetup.report.facts import HINT, SURE, USUAL, Claim, Facts
from gpusetup.report.field_patterns import PATTERNS, FieldPattern

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
    return f"{major}.{rest_of_number // 10}"


def is_yes(value: str) -> bool:
    """Whether a program's answer means yes."""
    return value.lower() in ("true", "yes", "gpu", "cuda", "enabled", "available")


def libc_of(value: str) -> str:
    """The C library with its version; a bare version means glibc.

    >>> libc_of("2.35"), libc_of("musl-1.2.5")
    ('glibc 2.35', 'musl 1.2.5')
    """
    return f"glibc {value}" if value[0].isdigit() else value.replace("-", " ")


PARSERS: dict[str, Callable[[str], str | bool | int]] = {
    "torch.cuda_available": is_yes,
    "os.secure_boot": is_yes,
    "os.family": family_of,
    "os.machine": architecture_named,
    "driver.cuda": cuda_of,
    "python.bits": int,
    # Wheel tags leave out the dot: 312.
    "python.version": lambda value: value if "." in value else f"{value[0]}.{value[1:]}",
    "wanted.torch": "=={}".format,
    "torch.installer": lambda command: "pip" if "pip" in command else "conda",
    "torch.kernels": lambda words: " ".join(re.findall(r"(?:sm_|compute_|gfx)\d\w{1,4}", words)),
    "os.libc": libc_of,
}
"""The function that turns the matched words into the field's value, for fields that need one."""


def field_claims(text: Text) -> Facts:
    """The claims in a text about single fields, and the claims about other fields that follow from
    them."""
    for claim in claims(text, PATTERNS):
        subject, value, source, trust = claim
        if isinstance(value, str) and subject in PARSERS:
            value = PARSERS[subject](value)
        # The snapshot has no field for a platform's name, but other fields follow from it.
        if subject != "platform":
            yield Claim(subject, value, source, trust)
        for implied_subject, implied_value, implied_trust in implied(subject, str(value)):
            # An implied value is trusted no more than the claim that implies it.
            yield Claim(implied_subject, implied_value, source, min(trust, implied_trust))


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
        # A substring search is much faster than the pattern, and most texts contain no needle.
        if not text.has_any(row.needles):
            continue
        pattern = in_any_case(row.pattern)
        values: set[str | bool | int] = set()
        for offset, window in text.near(*row.needles):
            for match in pattern.finditer(window):
                # A pattern with a fixed value may have no group.
                group = 1 if row.value is None else 0
                value = (match[1] or "").strip() if row.value is None else row.value
                if value == "" or value in values or len(values) >= MAX_VALUES:
                    continue
                values.add(value)
                source = text.source(offset + match.start(group))
                yield Claim(row.subject, value, source, row.trust)


# macOS 10.0 to 10.15. Old programs read macOS 11 as 10.16.
INTEL_MACOS = lazy(r"\b10\.(?:\d|1[0-5])\b")
# The architecture in a platform's name: `Linux-6.8.0-x86_64-with-glibc2.39`.
PLATFORM_MACHINE = lazy(r"[-_](x86_64|amd64|aarch64|arm64|ppc64le|i686)(?=[-_]|$)", re.I)
# The C library at the end of a platform's name: `-with-glibc2.39`.
PLATFORM_LIBC = lazy(r"-with-glibc(\d\.\d{1,2})$")
# The kernel in a platform's name, between the system and the architecture: `6.8.0`.
PLATFORM_KERNEL = lazy(r"Linux-([\d.]+[\w.+-]*?)-(?:x86|aarch|arm|ppc)")


def implied(subject: str, value: str) -> Iterator[tuple[str, str | bool, int]]:
    """The fields, values and trust that follow from the name of a system, kernel or platform, or
    from ROCm's version.

    >>> name = "Linux-5.10.104-tegra-aarch64-with-glibc2.31"
    >>> [value for _, value, _ in implied("platform", name)][:3]
    ['linux', 'aarch64', 'glibc 2.31']
    """
    if subject == "torch.hip":
        yield "torch.backend", f"rocm{value}", USUAL
    if subject in ("os.name", "platform") and (family := family_of(value)):
        yield "os.family", family, SURE
        # Macs with Apple's own processors started with macOS 11.
        if family == "macos" and INTEL_MACOS.search(value):
            yield "os.machine", "x86_64", USUAL
    if subject == "platform":
        if machine := PLATFORM_MACHINE.search(value):
            yield "os.machine", architecture_named(machine[1]), USUAL
        if libc := PLATFORM_LIBC.search(value):
            yield "os.libc", f"glibc {libc[1]}", HINT
        if kernel := PLATFORM_KERNEL.match(value):
            yield "os.kernel", kernel[1], USUAL
            yield from _implied_by_kernel(kernel[1])
    if subject == "os.kernel":
        # The patterns only find the versions of Linux kernels.
        yield "os.family", "linux", USUAL
        yield from _implied_by_kernel(value)


def _implied_by_kernel(kernel: str) -> Iterator[tuple[str, str | bool, int]]:
    """WSL or a Jetson, which the kernel's name shows."""
    if "microsoft" in kernel.lower():
        yield "os.wsl", True, USUAL
    if "tegra" in kernel:
        releases = (release for start, release in L4T_BY_KERNEL if kernel.startswith(start))
        yield "os.jetson", next(releases, "tegra"), HINT
        yield "os.machine", "aarch64", USUAL
