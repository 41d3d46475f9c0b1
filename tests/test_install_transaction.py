"""What leaves is moved aside and comes back exactly, whatever lies around it."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_server import build_wheel

from gpusetup.install.target.layout import (
    Layout,
    covering_entries,
    distributions,
)
from gpusetup.install.target.owned import files_of

NAMES = st.sampled_from(["torch", "nvidia", "a", "b.py", "c.so"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def layout_at(prefix: Path) -> Layout:
    site = prefix / "lib/site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (prefix / "bin").mkdir(exist_ok=True)
    return Layout(
        python=sys.executable,
        version=sysconfig.get_python_version() + ".0",
        prefix=str(prefix),
        purelib=str(site),
        platlib=str(site),
        scripts=str(prefix / "bin"),
        data=str(prefix),
    )


def unpack(wheel: Path, layout: Layout) -> None:
    """A plain unpacking: the tests need files and a RECORD, no installer."""
    shutil.unpack_archive(wheel, layout.purelib, "zip")


def touched(root: Path, paths: set[str]) -> set[str]:
    """Make the files of a set that can be made; a name may be a folder in another's path."""
    made = set()
    for path in sorted(paths):
        file = root / path
        if file.is_dir() or any(parent.is_file() for parent in file.parents):
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
        made.add(str(file))
    return made


@settings(max_examples=75)
@given(mine=st.sets(PATHS, max_size=8), others=st.sets(PATHS, max_size=8))
def test_what_covers_a_set_of_files_holds_these_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, mine: set[str], others: set[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    there = touched(root, mine | others)
    wanted = {str(root / path) for path in mine} & there
    entries = covering_entries(wanted | {str(root / "not/there")}, [str(root)])
    held = {
        str(file)
        for entry in map(Path, entries)
        for file in ([entry] if entry.is_file() else entry.rglob("*"))
        if Path(file).is_file()
    }
    assert held == wanted
    assert str(root) not in entries
    for one in entries:
        assert not any(one != other and one.startswith(f"{other}/") for other in entries)


def test_a_record_that_leads_out_of_the_environment_moves_nothing_there(tmp_path: Path) -> None:
    layout = layout_at(tmp_path / "env")
    (tmp_path / "thesis.txt").write_text("years")
    unpack(build_wheel(tmp_path, "torch", "1.0"), layout)
    (one,) = distributions(layout)
    with Path(one.info, "RECORD").open("a") as file:
        file.write(f"../../../thesis.txt,,\n{tmp_path}/thesis.txt,,\n")
    assert str(tmp_path / "thesis.txt") not in files_of(one, layout)
