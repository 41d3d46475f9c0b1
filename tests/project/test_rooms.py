"""Which room of the package may import which: a room is a folder of `gpusetup/`, or a file in it.

docs/contributing/architecture.md shows the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "gpusetup"
FLOORS: tuple[tuple[str, ...], ...] = (
    ("verify", "child_scripts"),
    ("errors",),
    ("named_file",),
    ("model",),
    ("accelerators",),
    ("catalog", "messages", "system"),
    ("readings", "configs"),
    ("project",),
    ("choose",),
    ("probe", "evidence"),
    ("fixes",),
    ("causes",),
    ("report", "findings", "redaction"),
    ("diagnosis",),
    ("plan",),
    ("uv",),
    ("install",),
    ("tune", "monitor", "fleet"),
    ("render",),
    ("commands",),
    ("api",),
    ("assistants",),
    ("cli",),
    ("__main__",),
)
"""A room may import those of the floors above its own in this list, and none beside it."""
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}
PURE = {room for floor in FLOORS[3:15] for room in floor} - {"system", "probe", "project"}
"""The rooms that decide: they ask neither this machine, nor a network, nor a disk."""
ASKS = {"system", "probe", "uv", "install"}
ALONE = ("verify", "child_scripts")
"""What runs with the target's interpreter, without our package."""
IMPORT = re.compile(r"(?m)^ *(?:from|import) gpusetup(?:\.| import )(\w+)")


def imports() -> Iterator[tuple[str, str, str]]:
    """Each file that imports another room: its own room, its path, and that room."""
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for other in IMPORT.findall(path.read_text(encoding="utf-8")):
            # The version in `gpusetup/__init__.py` is for all.
            if other not in (room, "__version__"):
                yield room, path.relative_to(PACKAGE).as_posix(), other


def test_the_page_about_the_package_names_every_room_and_no_other() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders - {"data"} <= FLOOR.keys()
    page = (PACKAGE.parent / "docs/contributing/architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Rooms")[2].partition("\n## ")[0]
    first_cells = "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    assert {*re.findall(r"`(\w+)`", first_cells)} == folders


def test_a_room_imports_only_rooms_below_it() -> None:
    assert [one for one in imports() if FLOOR[one[2]] >= FLOOR[one[0]]] == []


def test_what_decides_asks_nobody() -> None:
    assert [one for one in imports() if one[0] in PURE and one[2] in ASKS] == []


@pytest.mark.parametrize("alone", ALONE)
def test_what_runs_in_the_target_needs_nothing_of_ours(alone: str) -> None:
    assert [one for one in imports() if one[0] == alone] == []
