"""Converts plain values to and from JSON, and makes JSON schemas from the same types. The only
module that imports `msgspec`."""

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
"""msgspec 0.22 crashes if two threads read the fields of one class for the first time."""


def to_json(value: object, *, indent: int = 0) -> str:
    """The JSON text of a plain value; `indent=0` gives one line."""
    try:
        raw = msgspec.json.encode(value, enc_hook=_encode)
    except UnicodeEncodeError:
        # A path or variable that was no UTF-8 has lone surrogates in Python.
        plain = map_texts(to_plain(value), _without_surrogates)
        raw = msgspec.json.encode(plain)
    if indent:
        raw = msgspec.json.format(raw, indent=indent)
    return raw.decode()


def _without_surrogates(text: str) -> str:
    """The text with a question mark for each byte that was not valid UTF-8."""
    return text.encode("utf-8", "replace").decode()


def to_plain(value: object) -> Any:
    """The value as dicts, lists, strings and numbers only.

    >>> to_plain({"gpus": ("a", ("b",))})
    {'gpus': ['a', ['b']]}
    """
    builtins = msgspec.to_builtins(value, enc_hook=_encode)
    # An enum that is also a text becomes the text alone.
    return map_texts(builtins, str)


def from_json(raw: bytes | str, kind: type[T], *, what: str) -> T:
    """Decode JSON and check it against a type. Raises BadInput, which names the position
    (`$.gpus[0].name`).

    Fields that this version does not know are ignored, so that a newer minor field is no error.
    """
    try:
        value: T = _decoder(kind).decode(raw)
    except UnicodeDecodeError as problem:
        raise BadInput(f"{what} is not UTF-8 text: {problem.reason}") from problem
    except msgspec.DecodeError as problem:
        raise BadInput(f"{what} cannot be read: {problem}") from problem
    except RecursionError as problem:
        raise BadInput(f"{what} cannot be read: it is nested too deeply") from problem
    return value


def from_plain(value: object, kind: type[T], *, what: str) -> T:
    """Like `from_json`, for a value that already consists of dicts and lists."""
    # The decoder is not needed here, but making it reads the types under the lock.
    _decoder(kind)
    try:
        return msgspec.convert(value, kind, dec_hook=_decode)
    except msgspec.ValidationError as problem:
        raise BadInput(f"{what} cannot be read: {problem}") from problem


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder for a type; only one thread at a time creates a new one."""
    with _READING_TYPES:
        return _made_decoder(kind)


@cache
def _made_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder for a type, created once.

    Types that a start reads are in files without `from __future__ import annotations`: with it each
    annotation is a text, and msgspec compiles every one of them (2 ms for the catalog's).
    """
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
    """A value of a type that msgspec does not know, as a string or dict that it can encode."""
    if isinstance(value, Capability):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _decode(kind: type, value: object) -> object:
    """A value of a type that msgspec does not know, decoded from its JSON form."""
    if kind is Capability and isinstance(value, str):
        return Capability.parse(value)
    actual = type(value).__name__
    raise msgspec.ValidationError(f"expected {kind.__name__}, got {actual}")


def _schema(kind: type) -> dict[str, Any]:
    """The JSON schema of a type that msgspec does not know."""
    if kind is Capability:
        return {"type": "string", "pattern": r"^\d+\.\d+$"}
    raise TypeError(f"no JSON schema for {kind.__name__}")
