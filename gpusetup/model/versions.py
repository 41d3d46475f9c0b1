"""Versions and compute capabilities that can be compared."""

from __future__ import annotations

from functools import lru_cache, total_ordering
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version


@lru_cache(maxsize=4096)
def parsed(version: str) -> Version:
    """The version as an object that can be compared; "0" if the text is not one, or has a number
    with more than 4,300 digits, which Python does not read. Results are cached, because the
    catalog's few versions are compared again and again.

    >>> parsed("550.144.03") < parsed("550.144.10"), str(parsed("x"))
    (True, '0')
    """
    from packaging.version import Version

    try:
        return Version(version)
    except ValueError:
        return Version("0")


@lru_cache(maxsize=4096)
def allows(specifier: str, version: str) -> bool:
    """Whether a specifier allows a version. Raises ValueError if the specifier is invalid.

    >>> allows(">=2.11.0", "2.15.0"), allows("==2.5.*", "2.6.0.dev1")
    (True, False)
    """
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(parsed(version))


@total_ordering
class Capability:
    """A compute capability: `Capability(8, 6)` prints as `8.6`, and its kernels are called `sm_86`.

    >>> Capability.parse("12.1").sm
    'sm_121'
    >>> Capability.parse("sm_90") > Capability(8, 9)
    True
    """

    __slots__ = ("major", "minor")

    def __init__(self, major: int, minor: int) -> None:
        self.major = major
        self.minor = minor

    @classmethod
    def parse(cls, text: str) -> Capability:
        """A compute capability from text such as `8.6`, `86`, `sm_86`, `sm_90a` or `compute_86`.
        Raises ValueError for anything else."""
        without_prefix = text.strip().lower().removeprefix("sm_").removeprefix("compute_")
        # Drop the suffix: `sm_90a` and `sm_100f` are variants of a target for GPUs of the same
        # capability.
        digits = without_prefix.rstrip("af")
        major, dot, minor = digits.partition(".")
        if not dot:
            major, minor = digits[:-1], digits[-1:]
        # `isdigit` also accepts digits of other scripts, which `int` may refuse.
        for number in (major, minor):
            if not (number.isascii() and number.isdigit()):
                raise ValueError(f"not a compute capability: {text!r}")
        return cls(int(major), int(minor))

    @property
    def sm(self) -> str:
        """The architecture of kernels for this capability, e.g. `sm_86`."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def __repr__(self) -> str:
        return f"Capability({self.major}, {self.minor})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capability):
            return NotImplemented
        return (self.major, self.minor) == (other.major, other.minor)

    def __lt__(self, other: Capability) -> bool:
        return (self.major, self.minor) < (other.major, other.minor)

    def __hash__(self) -> int:
        return hash((self.major, self.minor))


def cuda_of(backend: str) -> str | None:
    """The CUDA version in a wheel's label, e.g. `12.4` for `cu124`; None for other backends.

    >>> cuda_of("cu124"), cuda_of("cu92"), cuda_of("cpu"), cuda_of("rocm6.4")
    ('12.4', '9.2', None, None)
    """
    digits = backend.removeprefix("cu")
    has_prefix = digits != backend
    if not has_prefix or not digits.isdigit():
        return None
    # Every minor version of CUDA has a single digit.
    return f"{digits[:-1]}.{digits[-1]}"
