"""Versions and compute capabilities, compared as numbers."""

from __future__ import annotations

from functools import cached_property, lru_cache, total_ordering
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging import version as packaging_version

MOST = 60
"""Characters of a version that is judged here."""


class Version:
    """A version text as `packaging` compares it; "0" where the text is no version.

    Nearly all that are compared are numbers, some with a wheel's label (`2.5.1+cu124`): those are
    judged here, because to import packaging's parser takes as long as to judge a text.

    >>> Version("550.144.03") < Version("550.144.10"), Version("2.10.0") > Version("2.9.1+cpu")
    (True, True)
    >>> Version("2.5") == Version("2.5.0"), Version("2.6.0rc1") < Version("2.6"), str(Version("x"))
    (True, True, '0')
    """

    def __init__(self, text: str) -> None:
        self._text = text or "0"
        numbers = _numbers_of(self._text) or _numbers_of(str(self.in_full))
        self._key = numbers and (_without_zeros(numbers[0]), numbers[1])
        self.release = numbers[0] if numbers else self.in_full.release
        """Its numbers, `(2, 5, 1)`."""
        self.is_plain = numbers is not None and not numbers[1]
        """Whether it is numbers and nothing else."""

    @cached_property
    def in_full(self) -> packaging_version.Version:
        """packaging's own."""
        from packaging.version import InvalidVersion, Version

        try:
            return Version(self._text)
        except InvalidVersion:
            return Version("0")

    @property
    def major(self) -> int:
        return self.release[0]

    @property
    def base_version(self) -> str:
        """Without what is before or after its release, and without its label."""
        return ".".join(map(str, self.release)) if self._key else self.in_full.base_version

    @property
    def public(self) -> str:
        """Without its label."""
        return self.base_version if self._key else self.in_full.public

    @property
    def local(self) -> str | None:
        """Its label."""
        return self._key[1] or None if self._key else self.in_full.local

    @property
    def is_prerelease(self) -> bool:
        return self._key is None and self.in_full.is_prerelease

    def __str__(self) -> str:
        return str(self.in_full)

    def __repr__(self) -> str:
        return f"Version({self._text!r})"

    def __hash__(self) -> int:
        return hash(self._key or self.in_full)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        if self._key and other._key:
            return self._key == other._key
        return self.in_full == other.in_full

    def __lt__(self, other: Version) -> bool:
        if self._key and other._key:
            return self._key < other._key
        return self.in_full < other.in_full

    def __le__(self, other: Version) -> bool:
        return not other < self

    def __gt__(self, other: Version) -> bool:
        return other < self

    def __ge__(self, other: Version) -> bool:
        return not self < other


def _numbers_of(text: str) -> tuple[tuple[int, ...], str] | None:
    """The numbers and the label; None where there is more, or a label of several parts.

    >>> _numbers_of("2.5.1+cu124"), _numbers_of("2.5.1"), _numbers_of("2.6.0rc1+cpu")
    (((2, 5, 1), 'cu124'), ((2, 5, 1), ''), None)
    """
    public, sign, label = text.partition("+")
    parts = public.split(".")
    if len(text) > MOST or not text.isascii() or not all(map(str.isdigit, parts)):
        return None
    if sign and not (label.isalnum() and label.islower() and label[0].isalpha()):
        return None
    return tuple(map(int, parts)), label


def _without_zeros(release: tuple[int, ...]) -> tuple[int, ...]:
    """`2.5.0` is 2.5."""
    last = len(release)
    while last > 1 and not release[last - 1]:
        last -= 1
    return release[:last]


@lru_cache(maxsize=4096)
def parsed(version: str) -> Version:
    """The comparable form of a version text; "0" where the text is no version.

    With a memory: a catalog's few versions are compared with every machine's.

    >>> parsed("550.144.03") < parsed("550.144.10")
    True
    """
    return Version(version)


@total_ordering
class Capability:
    """A compute capability: `Capability(8, 6)` prints as `8.6`, its kernels are `sm_86`.

    >>> Capability.parse("12.1").sm
    'sm_121'
    >>> Capability.parse("sm_90") > Capability(8, 9)
    True
    """

    __slots__ = ("major", "minor")

    def __init__(self, major: int, minor: int) -> None:
        object.__setattr__(self, "major", major)
        object.__setattr__(self, "minor", minor)

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Read `8.6`, `86`, `sm_86`, `sm_90a`, `compute_86`; ValueError on anything else."""
        digits = text.strip().lower().removeprefix("sm_").removeprefix("compute_").rstrip("af")
        major, dot, minor = digits.partition(".")
        if not dot:
            major, minor = digits[:-1], digits[-1:]
        if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
            raise ValueError(f"not a compute capability: {text!r}")
        return cls(int(major), int(minor))

    @property
    def sm(self) -> str:
        return f"sm_{self.major}{self.minor}"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Capability is frozen")

    def __reduce__(self) -> tuple[type[Capability], tuple[int, int]]:
        return (Capability, (self.major, self.minor))

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
    """The CUDA version of a wheel tag.

    >>> cuda_of("cu124"), cuda_of("cu92"), cuda_of("cpu"), cuda_of("rocm6.4")
    ('12.4', '9.2', None, None)
    """
    digits = backend.removeprefix("cu")
    if digits == backend or not digits.isdigit():
        return None
    return f"{digits[:-1]}.{digits[-1]}"
