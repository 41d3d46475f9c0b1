"""What `resolve --refresh` saw: every CUDA that the index lists, and kept for `install`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from described_machines import machine
from index_server import IndexServer, build_wheel, index_server

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.catalog.file import load_catalog
from gpusetup.cli import main
from gpusetup.install.refresh.live_catalog import ListedBuilds, ask_root, merged
from gpusetup.install.refresh.saved import keep, with_saved
from gpusetup.install.refresh.saved_file import saved_file
from gpusetup.model.resolution import Request
from gpusetup.resolver import resolve

CATALOG = load_catalog()
LINUX = "cp311-cp311-manylinux_2_28_x86_64"
TODAY = date.today().isoformat()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with index_server(tmp_path / "index") as server:
        yield server


def listed(index: IndexServer, folder: Path, *versions: str) -> None:
    """Wheels on the page of their backend and, as on torch's own index, on that of all."""
    for version in versions:
        backend = version.partition("+")[2]
        wheel = build_wheel(folder / "live", "torch", version, tag=LINUX)
        index.add(f"whl/{backend}", wheel)
        index.add("whl", wheel)


def asked(index: IndexServer) -> ListedBuilds:
    return ask_root(CATALOG, index.index_root, lambda _: None)


def test_a_label_that_nobody_knows_is_seen_and_asked_for(
    index: IndexServer, tmp_path: Path
) -> None:
    listed(index, tmp_path, "2.16.0+cu130", "2.16.0+cu136")
    found = asked(index)
    assert set(found.answered) == {"cu130", "cu136"}
    fresh = merged(CATALOG, found.rows, frozenset(found.answered), TODAY)
    build = fresh.row_of("2.16.0", "cu136", "linux", "x86_64")
    assert build is not None and build.status == "inferred"
    chosen = resolve(machine("T4", driver="615.71.09"), Request(backend="cu136"), fresh)
    assert chosen.build is not None and chosen.build.backend == "cu136"


def test_a_cuda_major_that_nobody_knows_waits_for_a_driver_that_serves_it(
    index: IndexServer, tmp_path: Path
) -> None:
    listed(index, tmp_path, "2.16.0+cu130", "2.16.0+cu140")
    found = asked(index)
    fresh = merged(CATALOG, found.rows, frozenset(found.answered), TODAY)
    answer = resolve(machine("T4", driver="615.71.09"), Request(), fresh)
    assert answer.build is not None and answer.build.backend == "cu130"
    (why,) = [r.reason for r in answer.rejections if r.backend == "cu140"]
    assert "needs a driver for CUDA 14.0, which is newer than the catalog" in why
    assert "found one for 13.4" in why


def test_a_label_that_is_asked_for_by_name_is_asked_of_the_live_index(
    index: IndexServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = build_wheel(tmp_path / "live", "torch", "2.16.0+cu140", tag=LINUX)
    index.add("whl/cu140", wheel)  # and on no page of all
    listed(index, tmp_path, "2.16.0+cu130")
    there = ("--gpu", "T4", "--driver", "615.71.09", "--os", "linux", "--machine", "x86_64")
    words = ("resolve", *there, "--python", "3.11", "--index-root", index.index_root)
    assert main([*words, "--backend", "cu140"]) == 2
    said = capsys.readouterr()
    assert (
        "knows no torch for 'cu140'" in said.err and "--backend cu140 --refresh` asks" in said.err
    )
    assert main([*words, "--backend", "cu140", "--refresh", "--explain"]) == 1
    said = capsys.readouterr()
    assert "needs a driver for CUDA 14.0" in said.out and "never" not in said.out + said.err
    assert main([*words, "--backend", "cu150", "--refresh"]) == 1
    assert "lists no torch for 'cu150'" in capsys.readouterr().err


def test_an_index_that_lists_thousands_of_labels_is_asked_for_a_few(
    index: IndexServer, tmp_path: Path
) -> None:
    listed(index, tmp_path, "2.16.0+cu130", *(f"2.16.0+cu{n}" for n in range(200, 240)))
    assert len([b for b in asked(index).answered if b.startswith("cu2")]) == 16


# --- kept ---------------------------------------------------------------------------------------


def a_kept_file(index: IndexServer, folder: Path, as_of: str = TODAY) -> Path:
    listed(index, folder, "2.16.0+cu130")
    file = folder / "refreshed.json"
    assert keep(asked(index), as_of, file) == file
    return file


def newest(file: Path, root: str) -> tuple[str, str]:
    """The newest torch of the catalog with what was kept, and what was said about it."""
    said: list[str] = []
    catalog = with_saved(CATALOG, root, said.append, file)
    newest = resolve(machine("T4"), Request(), catalog).build
    return newest.torch if newest else "", " ".join(said)


def test_what_was_seen_is_kept_and_used_for_the_same_index_only(
    index: IndexServer, tmp_path: Path
) -> None:
    file = a_kept_file(index, tmp_path)
    assert newest(file, index.index_root + "/") == ("2.16.0", "")
    assert newest(file, INDEX_ROOT) == ("2.15.0", "")
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_older_than_the_catalog_is_left_aside_with_a_word(
    index: IndexServer, tmp_path: Path
) -> None:
    file = a_kept_file(index, tmp_path, as_of="2026-01-01")
    torch, said = newest(file, index.index_root)
    assert torch == "2.15.0" and "is older than the catalog of" in said


TOMORROW = (date.today() + timedelta(days=1)).isoformat()
DAMAGE = {
    "no-json": "{",
    "no-object": "[]",
    "nothing": "",
    "another-schema": {"schema": "gpusetup.refreshed/2"},
    "future": {"as_of": TOMORROW},
    "no-date": {"as_of": "yesterday"},
    "a-number": {"rows": 5},
    "a-path": {"answered": ["../../etc"]},
    "too-many": {"answered": ["cu130"] * 5000},
    "a-command": {"rows": [{"torch": "2.16.0; rm -rf /"}]},
    "a-url": {"rows": [{"backend": "cu130/../../evil"}]},
    "a-python": {"rows": [{"pythons": ["3.11 --extra-index-url http://evil"]}]},
    "a-libc": {"rows": [{"glibc": "2.28\n"}]},
    "a-system": {"rows": [{"os": "beos"}]},
    "a-machine": {"rows": [{"machine": "vax"}]},
    "non-ascii-digits": {"rows": [{"torch": "٢.16.0"}]},
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.one_in(6)
def test_a_damaged_file_changes_nothing_and_is_named(
    change: str | dict[str, object], index: IndexServer, tmp_path: Path
) -> None:
    file = a_kept_file(index, tmp_path)
    if isinstance(change, str):
        file.write_text(change)
    else:
        document = json.loads(file.read_text())
        for key, value in change.items():
            rows = key == "rows" and isinstance(value, list)
            document[key] = [{**document["rows"][0], **value[0]}] if rows else value
        file.write_text(json.dumps(document))
    torch, said = newest(file, index.index_root)
    assert torch == "2.15.0" and f"{file} is left aside: " in said


def test_a_file_that_is_not_the_users_own_is_left_aside(
    index: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_kept_file(index, tmp_path)
    file.chmod(0o622)
    assert "others may write it" in newest(file, index.index_root)[1]
    file.chmod(0o600)
    me = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: me + 1)
    assert "belongs to another user" in newest(file, index.index_root)[1]


def test_a_link_a_pipe_a_folder_and_an_endless_file_are_left_aside(
    index: IndexServer, tmp_path: Path
) -> None:
    file = a_kept_file(index, tmp_path)
    link, pipe, folder = (tmp_path / name for name in ("link", "pipe", "folder"))
    link.symlink_to(file)
    os.mkfifo(pipe)
    folder.mkdir()
    file.write_bytes(file.read_bytes() + b" " * (1 << 20))
    for one in (link, pipe, folder, file):
        torch, said = newest(one, index.index_root)
        assert torch == "2.15.0" and f"{one} is left aside" in said


def test_a_cache_that_cannot_be_written_is_no_error(index: IndexServer, tmp_path: Path) -> None:
    listed(index, tmp_path, "2.16.0+cu130")
    (tmp_path / "file").write_text("")
    assert keep(asked(index), TODAY, tmp_path / "file" / "refreshed.json") is None


def test_doctor_goes_by_what_install_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On this very machine, whatever it is; a described one is judged by the catalog alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GPUSETUP_INDEX_ROOT", raising=False)
    keep(ListedBuilds(rows=(), answered=(), root=INDEX_ROOT), TODAY)
    assert saved_file().parent.parent == tmp_path
    saved_file().write_text(saved_file().read_text().replace('"rows":[]', '"rows":[5]'))
    main(["doctor", "--json"])
    assert "refreshed.json is left aside" in capsys.readouterr().err
    main(["doctor", "--json", "--from", "healthy"])
    assert "refreshed.json" not in capsys.readouterr().err
