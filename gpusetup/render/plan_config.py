"""What a plan made of a training config: what was read, assumed, and not understood."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model.documents import ConfigKey, ConfigRead
from gpusetup.render.language import DIM, Row, heading

MOST_UNKNOWN = 12


def config_lines(found: ConfigRead) -> Iterator[str]:
    """Three lists, each key with its line."""
    whose = f"a config of {found.trainer}" if found.trainer else "a config of no known trainer"
    yield heading(f"Read from {found.file}, {whose}")
    rows = [row for row in found.read if "[" not in row.key]
    width = max((len(_said(row)) for row in rows), default=0)
    for row in rows:
        head = f"{_said(row):{min(width, 50)}}  "
        yield Row((f"  {row.line:4}  ", DIM), head, (row.meaning, DIM), hang=8 + min(width, 50))
    if found.assumed:
        yield heading("Assumed, because the config does not say")
        yield from (Row(f"  {line}", hang=4) for line in found.assumed)
    if found.not_understood:
        shown = found.not_understood[:MOST_UNKNOWN]
        yield heading("Not understood (does one of them take memory? then say it by an option)")
        yield from (Row((f"  {row.line:4}  ", DIM), _said(row), hang=10) for row in shown)
        more = len(found.not_understood) - len(shown)
        if more:
            yield f"        and {more} more"


def _said(row: ConfigKey) -> str:
    return f"{row.key}: {row.value}" if row.value else row.key
