"""The live index: what it says, what keeps it from saying anything, and what is made of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from described_machines import machine
from index_server import Fault, IndexServer, build_wheel, index_server

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Blocked
from gpusetup.install.fetching import web
from gpusetup.install.fetching.page import parse_page
from gpusetup.install.fetching.web import PAGE
from gpusetup.install.fetching.wheels import TORCH_INDEX, Wheel
from gpusetup.install.refresh.index import ask_index
from gpusetup.install.refresh.live_catalog import backends_to_ask, merged, refreshed, seen_builds
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Request
from gpusetup.resolver import resolve

CATALOG = load_catalog()
LINUX = "cp311-cp311-manylinux_2_28_x86_64"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passing fault is tried again at once; `test_install_plan.py` tests the real pauses."""
    monkeypatch.setattr(web, "PAUSES", (0.01, 0.02))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexServer]:
    with index_server(tmp_path / "index") as server:
        server.add("whl/cu124", build_wheel(tmp_path / "w", "torch", "2.5.1+cu124", tag=LINUX))
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_page_is_files_with_their_urls_hashes_and_sizes(index: IndexServer, cache: Path) -> None:
    page = ask_index(index.index_root, "cu124", "torch", cache=cache)
    (wheel,) = page.files
    assert page.missing is None and page.url == f"{index.index_root}/cu124/torch/"
    assert (wheel.name, wheel.version) == ("torch", "2.5.1+cu124")
    assert wheel.url.startswith(page.url) and wheel.sha256 and wheel.size_bytes
    index.json = False
    html = ask_index(index.index_root, "cu124", "torch", cache=cache)
    assert html.files == (replace(wheel, size_bytes=None),)


@pytest.mark.parametrize("status", [403, 404, 410])
def test_no_such_page_is_an_answer(index: IndexServer, cache: Path, status: int) -> None:
    index.faults["/whl/*"] = Fault(status=status)
    page = ask_index(index.index_root, "cu121", "torch", cache=cache)
    assert page.files == ()
    assert page.missing == f"{index.index_root}/cu121/torch/ answers {status}"


def test_an_empty_page_is_an_answer(index: IndexServer, cache: Path) -> None:
    index.faults["/whl/*"] = Fault(body=b"<!DOCTYPE html><html><body></body></html>")
    page = ask_index(index.index_root, "cu124", "torch", cache=cache)
    assert page.missing == f"{page.url} lists no wheels"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(status=500), "answers 500"),
        (
            Fault(status=503, headers={"Retry-After": "120"}),
            "answers 503 Service Unavailable, try again after 120 s",
        ),
        (Fault(status=429), "answers 429"),
        (Fault(status=401), "wants a user name and a password (401)"),
        (Fault(body=b"<html><body>" + b"<p>Sign in to the network</p>" * 200), "no index page"),
        (Fault(body=b'<a href="/login">Log in</a>'), "no index page"),
        (Fault(body=b"\x00\x01\x02 nothing"), "no index page"),
    ],
)
def test_what_is_no_answer_blocks_with_url_and_cause(
    index: IndexServer, cache: Path, fault: Fault, said: str
) -> None:
    index.faults["/whl/*"] = fault
    with pytest.raises(Blocked) as told:
        ask_index(index.index_root, "cu124", "torch", cache=cache)
    assert told.value.exit_code == 3 and told.value.hint
    assert f"{index.index_root}/cu124/torch/: " in told.value.message
    assert said in told.value.message
    assert not cache.exists()


def test_garbage_that_claims_to_be_json_blocks(index: IndexServer, cache: Path) -> None:
    with pytest.raises(ValueError, match="no files"):
        parse_page("http://i/", "application/vnd.pypi.simple.v1+json", '{"a": 1}')


def test_nobody_there_blocks(cache: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Blocked, match="refused"):
        ask_index(f"http://127.0.0.1:{port}", "cpu", "torch", cache=cache)


@pytest.mark.parametrize("root", ["ftp://mirror/whl", "mirror/whl", "http://", "file:///whl"])
def test_a_root_that_is_no_web_address_blocks(root: str, cache: Path) -> None:
    with pytest.raises(Blocked):
        ask_index(root, "cpu", "torch", cache=cache)


def test_a_password_in_the_root_is_not_told(index: IndexServer, cache: Path) -> None:
    index.faults["/whl/*"] = Fault(status=500)
    root = index.index_root.replace("http://", "http://user:hunter2@")
    with pytest.raises(Blocked) as told:
        ask_index(root, "cu124", "torch", cache=cache)
    assert "hunter2" not in f"{told.value.message}{told.value.hint}"


def test_a_trickle_is_given_up_in_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusetup.install.fetching.web.PAGE", replace(PAGE, total_seconds=0.5))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            client, _ = server.accept()
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
            with client:
                for _ in range(200):
                    try:
                        client.sendall(b"<p>" * 22000)
                    except OSError:
                        return
                    time.sleep(0.2)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        with pytest.raises(Blocked, match="does not end within"):
            ask_index(f"http://127.0.0.1:{server.getsockname()[1]}", "cpu", "torch", cache=cache)


def test_a_page_is_kept_and_asked_for_again_by_its_etag(index: IndexServer, cache: Path) -> None:
    first = ask_index(index.index_root, "cu124", "torch", cache=cache)
    index.faults["/whl/*"] = Fault(status=304)
    assert ask_index(index.index_root, "cu124", "torch", cache=cache) == first
    assert "If-None-Match" not in index.headers[0]
    assert index.headers[1]["If-None-Match"].startswith('"')


def test_a_broken_cache_is_asked_past(index: IndexServer, cache: Path) -> None:
    first = ask_index(index.index_root, "cu124", "torch", cache=cache)
    (kept,) = cache.iterdir()
    kept.write_text('{"etag": ')
    assert ask_index(index.index_root, "cu124", "torch", cache=cache) == first
    assert "If-None-Match" not in index.headers[1]


def test_a_cache_that_cannot_be_written_is_no_trouble(index: IndexServer, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert ask_index(index.index_root, "cu124", "torch", cache=file).files


# --- what is made of it --------------------------------------------------------------------------


def wheel(version: str, tag: str) -> Wheel:
    name = f"torch-{version}-{tag}.whl"
    return Wheel(
        name="torch", version=version, filename=name, url=f"http://i/{name}", source=TORCH_INDEX
    )


def test_builds_are_read_from_wheel_names() -> None:
    files = [
        wheel("2.16.0+cu130", "cp311-cp311-manylinux_2_28_x86_64"),
        wheel("2.16.0+cu130", "cp313-cp313t-manylinux_2_28_x86_64"),
        wheel("2.16.0+cu130", "cp311-cp311-win_amd64"),
        wheel("2.16.0.dev20261101+cu130", "cp311-cp311-win_amd64"),
        wheel("2.16.0rc1+cu130", "cp311-cp311-win_amd64"),
        wheel("2.16.0+cu126", "cp311-cp311-win_amd64"),
        wheel("2.16.0", "cp311-none-macosx_14_0_arm64"),
        wheel("2.5.1", "cp311-cp311-manylinux2014_aarch64"),
        wheel("2.5.1+cu130", "cp311-cp311-musllinux_1_2_x86_64"),
    ]
    seen = {s.key[2:]: s for s in seen_builds(files, "cu130")}
    assert set(seen) == {
        ("linux", "x86_64"),
        ("windows", "x86_64"),
        ("macos", "aarch64"),
        ("linux", "aarch64"),
    }
    assert seen["linux", "x86_64"].pythons == ("3.11", "3.13t")
    assert seen["linux", "x86_64"].glibc == "2.28" and seen["linux", "x86_64"].labelled
    assert seen["linux", "aarch64"].glibc == "2.17" and not seen["linux", "aarch64"].labelled
    assert seen["macos", "aarch64"].macos == "14.0"
    assert seen["windows", "x86_64"].torch == "2.16.0"


def listed(index: IndexServer, tmp_path: Path, *rows: tuple[str, str]) -> None:
    for version, tag in rows:
        backend = version.partition("+")[2]
        index.add(f"whl/{backend}", build_wheel(tmp_path / "live", "torch", version, tag=tag))


def test_a_newer_torch_on_the_index_is_chosen_and_called_inferred(
    index: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    listed(
        index, tmp_path, ("2.15.0+cu130", LINUX), ("2.16.0+cu130", LINUX), ("2.16.0+cu134", LINUX)
    )
    said: list[str] = []
    fresh = refreshed(CATALOG, index.index_root, said.append, today=date(2027, 1, 2))
    assert fresh.as_of == "2027-01-02" and "cu130" in said[0]
    found = resolve(machine("T4", driver="615.71.09"), Request(), fresh)
    assert found.build is not None
    assert (found.build.torch, found.build.backend) == ("2.16.0", "cu134")
    assert found.build.status == "inferred" and found.build.torchvision == "0.29.2"
    assert any("inferred from 2.15.0 cu132" in note for note in found.notes)
    assert [c.backend for c in found.fallbacks] == ["cu130"]
    assert "cu134" in fresh.backends and "cu134" not in fresh.other_backends


def test_a_build_that_the_index_does_not_list_is_gone_and_others_stay() -> None:
    page = parse_page("http://i/", "text/html", f'<a href="torch-2.14.1+cu130-{LINUX}.whl">x</a>')
    fresh = merged(CATALOG, seen_builds(page, "cu130"), frozenset({"cu130"}), "2027-01-02")
    assert fresh.row_of("2.15.0", "cu130", "linux", "x86_64") is None
    assert fresh.row_of("2.14.1", "cu130", "linux", "x86_64") is not None
    assert fresh.row_of("2.15.0", "cu132", "linux", "x86_64") is not None
    assert fresh.row_of("2.13.0", "cu130", "linux", "x86_64", "conda-forge") is not None


def test_a_root_without_any_torch_blocks(
    index: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(Blocked, match="has no index of torch"):
        refreshed(CATALOG, f"{index.url}/elsewhere", lambda _: None)


def test_the_backends_of_recent_releases_are_asked_for_and_the_unconfirmed_one() -> None:
    assert backends_to_ask(CATALOG) == ("cpu", "cu126", "cu130", "cu132", "cu134")
