"""One kind of event: its name, the values it carries, and who prints it."""

from __future__ import annotations

from gpusetup.value import Value


class Kind(Value):
    """One row of the table."""

    name: str
    values: tuple[str, ...]
    """The names of the values it may carry; each may be absent."""
    said: str
    """What is printed, or by whom."""


def kinds(*rows: tuple[str, str, str]) -> tuple[Kind, ...]:
    return tuple(Kind(name=name, values=tuple(v.split()), said=said) for name, v, said in rows)
