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
from installing import state_of

from gpusetup.install.switching import transaction
from gpusetup.install.switching.files import rename
from gpusetup.install.switching.transaction import (
    Journal,
    begin,
    prepare,
    put_back,
    read_journal,
)
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


@settings(max_examples=50)
@given(
    former=st.sets(PATHS, max_size=6),
    coming=st.sets(PATHS, max_size=6),
    others=st.sets(PATHS, max_size=6),
    stopped_after=st.integers(0, 8),
)
def test_putting_back_is_exact_and_may_be_run_again(
    tmp_path_factory: pytest.TempPathFactory,
    former: set[str],
    coming: set[str],
    others: set[str],
    stopped_after: int,
) -> None:
    """Whatever lies around, and wherever the moving and the installing were stopped."""
    folder = tmp_path_factory.mktemp("env")
    layout = layout_at(folder / "env")
    site, store = Path(layout.purelib), folder / "env/.gpusetup"
    there = touched(site, former | others)
    wanted = {str(site / path) for path in former} & there
    before = state_of(folder / "env")
    away = covering_entries(
        wanted | {str(site / path) for path in coming if (site / path).is_file()}, layout.roots
    )
    moves = tuple(transaction.Move(path=path, kept=str(number)) for number, path in enumerate(away))
    fresh = {str(site / path) for path in coming if not (site / path).is_dir()}
    made = transaction._not_there_after(fresh, away)
    journal = Journal(moves=moves, made=made)
    begin(store, journal)
    for move in moves[:stopped_after]:
        rename(Path(move.path), store / "former" / move.kept)
    if stopped_after >= len(moves):
        touched(site, {path for path in coming if not (site / path).exists()})
    found = read_journal(store)
    assert found == journal
    put_back(store, found)
    assert state_of(folder / "env") == before
    assert not store.exists()
    assert read_journal(store) is None


def test_a_distribution_moves_aside_as_whole_folders(tmp_path: Path) -> None:
    layout = layout_at(tmp_path / "env")
    files = {"torch/__init__.py": "", "torch/lib/x.so": "x", "shared/torch.txt": "t"}
    unpack(build_wheel(tmp_path, "torch", "1.0", files=files), layout)
    unpack(build_wheel(tmp_path, "other", "1.0", files={"shared/other.txt": "o"}), layout)
    (Path(layout.purelib) / "torch/__pycache__").mkdir()
    (Path(layout.purelib) / "torch/__pycache__/__init__.cpython-311.pyc").write_bytes(b"")
    journal = prepare(layout, ["torch"], [], {})
    names = [str(Path(move.path).relative_to(layout.purelib)) for move in journal.moves]
    assert names == ["shared/torch.txt", "torch", "torch-1.0.dist-info"]


def test_a_record_that_leads_out_of_the_environment_moves_nothing_there(tmp_path: Path) -> None:
    layout = layout_at(tmp_path / "env")
    (tmp_path / "thesis.txt").write_text("years")
    unpack(build_wheel(tmp_path, "torch", "1.0"), layout)
    (one,) = distributions(layout)
    with Path(one.info, "RECORD").open("a") as file:
        file.write(f"../../../thesis.txt,,\n{tmp_path}/thesis.txt,,\n")
    assert str(tmp_path / "thesis.txt") not in files_of(one, layout)
