"""The base class of all plain values: immutable, with fixed fields, created and compared by field
names.

These classes are msgspec's. Defining one takes microseconds, while a frozen dataclass takes a
millisecond, which was half of the program's start-up time. msgspec also reads and writes JSON
without an intermediate step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import msgspec.structs

Kind = TypeVar("Kind")
Text = str | None
Number = int | None
Size = Annotated[int, msgspec.Meta(ge=0)] | None
Amount = float | None
Flag = bool | None
"""A fact in a record; None if it is unknown or does not apply."""

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform as dataclass_transform

    @dataclass_transform(frozen_default=True, kw_only_default=True)
    class Frozen:
        """A plain value that cannot be changed."""

        def __init_subclass__(cls, *, kw_only: bool = True) -> None: ...

    @dataclass_transform(kw_only_default=True)
    class Record:
        """A plain value whose fields may change, such as a journal that grows while it is being
        written."""

else:

    class _ByName(type(msgspec.Struct)):
        """The metaclass that makes every class accept its fields by name only, because subclasses
        do not inherit that setting of msgspec."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **config: Any):
            # By default, msgspec takes fields by position, which would make calls hard to read.
            config.setdefault("kw_only", True)
            return super().__new__(cls, name, bases, body, **config)

    class Frozen(msgspec.Struct, metaclass=_ByName, frozen=True, gc=False):
        """A plain frozen value. All its values existed before it, so it cannot be part of a
        reference cycle. Therefore the garbage collector skips it.

        >>> class Size(Frozen):
        ...     width: int
        ...     height: int = 1
        >>> replace(Size(width=2), height=3)
        Size(width=2, height=3)
        """

    class Record(msgspec.Struct, metaclass=_ByName):
        """A plain value that grows while it is being written, such as a recording or a journal."""


def replace(value: Kind, /, **changes: Any) -> Kind:
    """A copy of a value with some fields changed."""
    return msgspec.structs.replace(value, **changes)  # type: ignore[type-var]


def defaults(value: Any) -> Iterator[tuple[str, Any]]:
    """The names of a value's fields with their defaults, None for a field that has none. Does not
    evaluate annotations."""
    names = value.__struct_fields__
    default_values = value.__struct_defaults__
    # msgspec lists defaults only for the last fields, because the fields before them have none.
    no_defaults = [None] * (len(names) - len(default_values))
    return zip(names, (*no_defaults, *default_values), strict=True)


fields: Callable[[Any], tuple[msgspec.structs.FieldInfo, ...]] = cache(msgspec.structs.fields)
"""The fields of a class, in order; each has `name`, `default` and `type`. They are cached, because
msgspec evaluates the annotations on each call."""
