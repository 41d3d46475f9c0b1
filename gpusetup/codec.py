"""Plain values <-> JSON, and JSON schemas from the same types. The home of `msgspec`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpusetup.errors import BadInput
from gpusetup.model import Capability

T = TypeVar("T")


def to_json(value: object, *, indent: int = 0) -> str:
    """The JSON text of a plain value; `indent=0` gives one line."""
    raw = msgspec.json.encode(value, enc_hook=_encode)
    return (msgspec.json.format(raw, indent=indent) if indent else raw).decode()


def to_plain(value: object) -> Any:
    """Dicts, lists, text and numbers only."""
    return msgspec.to_builtins(value, enc_hook=_encode)


def from_json(raw: bytes | str, kind: type[T], *, what: str) -> T:
    """Decode and check; a `BadInput` names the place (`$.gpus[0].name`).

    Fields that this version does not know are ignored, so that a newer minor field is no error.
    """
    try:
        return msgspec.json.decode(raw, type=kind, dec_hook=_decode)
    except UnicodeDecodeError as problem:
        raise BadInput(f"{what} is not UTF-8 text: {problem.reason}") from problem
    except msgspec.DecodeError as problem:
        raise BadInput(f"{what} cannot be read: {problem}") from problem


def from_plain(value: object, kind: type[T], *, what: str) -> T:
    """As `from_json`, for a value that is already dicts and lists."""
    try:
        return msgspec.convert(value, kind, dec_hook=_decode)
    except msgspec.ValidationError as problem:
        raise BadInput(f"{what} cannot be read: {problem}") from problem


def json_schema(kind: Any) -> dict[str, Any]:
    """The JSON schema (2020-12) of a plain type."""
    return msgspec.json.schema(kind, schema_hook=_schema)


def _encode(value: object) -> object:
    if isinstance(value, Capability):
        return str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _decode(kind: type, value: object) -> object:
    if kind is Capability and isinstance(value, str):
        return Capability.parse(value)
    raise msgspec.ValidationError(f"expected {kind.__name__}, got {value!r}")


def _schema(kind: type) -> dict[str, Any]:
    if kind is Capability:
        return {"type": "string", "pattern": r"^\d+\.\d+$"}
    raise TypeError(f"no JSON schema for {kind.__name__}")
