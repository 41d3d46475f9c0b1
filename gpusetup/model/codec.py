"""Converts plain values to and from JSON, and creates JSON schemas from the same types. No other
module imports `msgspec.json`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import msgspec

from gpusetup.errors import BadInput
from gpusetup.model.hidden_marks import map_texts
from gpusetup.model.versions import Capability

T = TypeVar("T")

_READING_TYPES = Lock()
"""The lock for reading a class's fields: msgspec 0.22 crashes if two threads do that for the same
class for the first time."""


def to_json(value: object, *, indent: int = 0) -> str:
    """The JSON text of a plain value; `indent=0` gives one line."""
    try:
        raw = msgspec.json.encode(value, enc_hook=_encode)
    except UnicodeEncodeError:
        # JSON cannot contain the lone surrogates that Python uses for bytes of a path or variable
        # that are not valid UTF-8; a question mark stands for each.
        plain = map_texts(to_plain(value), lambda text: text.encode("utf-8", "replace").decode())
        raw = msgspec.json.encode(plain)
    if indent:
        raw = msgspec.json.format(raw, indent=indent)
    return raw.decode()


def to_plain(value: object) -> Any:
    """The value, converted to only dicts, lists, strings and numbers.

    >>> to_plain({"gpus": ("a", ("b",))})
    {'gpus': ['a', ['b']]}
    """
    builtins = msgspec.to_builtins(value, enc_hook=_encode)
    # An enum whose class is also `str` becomes a plain string.
    return map_texts(builtins, str)


def from_json(raw: bytes | str, kind: type[T], *, what: str) -> T:
    """Decode JSON and check it against a type. Raises BadInput, which names the position
    (`$.gpus[0].name`).

    Unknown fields are ignored, so that a file from a newer minor version can be read.
    """
    try:
        value: T = _decoder(kind).decode(raw)  # type: ignore[arg-type]
    except UnicodeDecodeError as problem:
        raise BadInput(f"{what} is not UTF-8 text: {problem.reason}") from problem
    except msgspec.DecodeError as problem:
        raise BadInput(f"{what} cannot be read: {problem}") from problem
    except RecursionError as problem:
        raise BadInput(f"{what} cannot be read: it is nested too deeply") from problem
    return value


def from_plain(value: object, kind: type[T], *, what: str) -> T:
    """Like `from_json`, for a value that already consists of dicts and lists."""
    # Not used here, but creating a decoder reads the types under the lock.
    _decoder(kind)  # type: ignore[arg-type]
    try:
        return msgspec.convert(value, kind, dec_hook=_decode)
    except msgspec.ValidationError as problem:
        raise BadInput(f"{what} cannot be read: {problem}") from problem


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type. Types that are needed at every start are in files without `from
    __future__ import annotations`: with it, every annotation is a string, which msgspec must
    compile here (2 ms for the catalog's types)."""
    with _READING_TYPES:
        return msgspec.json.Decoder(kind, dec_hook=_decode)


def json_schema(kind: Any) -> dict[str, Any]:
    """The JSON schema (2020-12) of a type, or of a tuple of alternative types."""
    if not isinstance(kind, tuple):
        return msgspec.json.schema(kind, schema_hook=_schema)
    alternatives, definitions = msgspec.json.schema_components(
        kind, schema_hook=_schema, ref_template="#/$defs/{name}"
    )
    return {"anyOf": list(alternatives), "$defs": definitions}


def _encode(value: object) -> object:
    """What JSON has for a value whose type msgspec does not know."""
    if isinstance(value, Capability):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _decode(kind: type, value: object) -> object:
    """The value of a type that msgspec does not know, from what JSON has for it."""
    if kind is Capability and isinstance(value, str):
        return Capability.parse(value)
    actual = type(value).__name__
    raise msgspec.ValidationError(f"expected {kind.__name__}, got {actual}")


def _schema(kind: type) -> dict[str, Any]:
    """The schema of a type that msgspec does not know."""
    if kind is Capability:
        return {"type": "string", "pattern": r"^\d+\.\d+$"}
    raise TypeError(f"no JSON schema for {kind.__name__}")
