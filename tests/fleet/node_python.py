"""What stands in for nodes: a Python that gives recorded answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ANSWERS = """\
#!/bin/sh
# -I -m gpusetup COMMAND ...
here={folder}/$NODE
said=$4
test "$said" = fleet && said=node-check
test -f "$here/hang" && [ "$(cat "$here/hang")" = "$said" ] && exec sleep 600
test -f "$here/noise" && cat "$here/noise"
test -f "$here/$said" && cat "$here/$said"
exit 0
"""


def recorded_python(folder: Path) -> Path:
    """A program that answers `-I -m gpusetup COMMAND` with the file `folder/$NODE/COMMAND`."""
    program = folder / "python"
    program.write_text(ANSWERS.format(folder=folder), encoding="utf-8")
    program.chmod(0o755)
    return program


def record(folder: Path, node: str, answers: Mapping[str, Any]) -> Path:
    """What a node answers, by command; text as it is, all else as JSON."""
    here = folder / node
    here.mkdir(exist_ok=True)
    for name, answer in answers.items():
        text = answer if isinstance(answer, str) else json.dumps(answer, indent=1)
        (here / name).write_text(text + "\n", encoding="utf-8")
    return here
