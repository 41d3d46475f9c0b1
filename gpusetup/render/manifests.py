"""Objects of Kubernetes as YAML documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

READ_AS_OTHER = re.compile(r"[\d.+-]|(?:y|n|yes|no|on|off|true|false|null|~)$", re.IGNORECASE)
"""Text that YAML 1.1, which kubectl reads, may take for a number or a truth."""


def manifests(objects: Iterable[Mapping[str, Any]]) -> str:
    """One document for each object; a text of several lines stays readable.

    >>> print(manifests([{"kind": "Job", "on": "yes", "n": "8", "text": "a\\nb\\n"}]), end="")
    ---
    kind: Job
    on: 'yes'
    n: '8'
    text: |
      a
      b
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 4096
    yaml.explicit_start = True
    text = StringIO()
    yaml.dump_all([_readable(one) for one in objects], text)
    return text.getvalue()


def _readable(value: Any) -> Any:
    from ruamel.yaml.scalarstring import LiteralScalarString, SingleQuotedScalarString

    if isinstance(value, Mapping):
        return {key: _readable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if "\n" in value:
        return LiteralScalarString(value)
    return SingleQuotedScalarString(value) if READ_AS_OTHER.match(value) else value
