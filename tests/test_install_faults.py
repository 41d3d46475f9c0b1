"""Whatever goes wrong, the environment is as it was, and two lines say what and what to do."""

from __future__ import annotations

import fcntl
import os
import random
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from index_server import Fault
from installing import (
    TAG,
    TORCH,
    Install,
    Said,
    World,
    impatient,
    needs_linux,
    state_of,
    versions_in,
)

from gpusetup.install import log as logs
from gpusetup.install.fetching import web
from gpusetup.install.fetching.causes import cause_of
from gpusetup.install.leftovers import held, released
from gpusetup.install.log import Log
from gpusetup.model.frozen import replace

pytestmark = needs_linux

WANTED = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")
PAGE, WHEEL, DATA = "/whl/cpu/torch/", "/whl/cpu/torch/*.whl", "/whl/cpu/torch/*.metadata"
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    impatient(monkeypatch)
    return world


@pytest.fixture
def venv(world: World) -> Path:
    venv = world.venv()
    world.fill(venv, world.wheel("torch", "2.0.0"), world.wheel("mine", "1.0"))
    return venv


def check(said: Said, venv: Path, before: dict[str, str], code: int, cause: str) -> None:
    """The contract of a failure: the code, one line of cause, one of what to do, no change."""
    assert said.exit == code, said.err
    assert state_of(venv) == before
    assert not (venv / ".gpusetup").exists()
    error = next(line for line in said.err.splitlines() if line.startswith("error: "))
    assert re.search(cause, said.err.partition("error: ")[2]), said.err
    assert len(error) > len("error: ")
    assert any(line.startswith("hint: ") and len(line) > 20 for line in said.err.splitlines())
    assert "Traceback" not in said.err


# --- the index -----------------------------------------------------------------------------------

FAULTS = {
    "the proxy wants a login": (PAGE, Fault(status=407), "the proxy before .* wants a user name"),
    "the page times out": (PAGE, Fault(stall_seconds=2), "says nothing for"),
    "the wheel says 404": (WHEEL, Fault(status=404), "answers 404 although"),
    "the wheel says 403": (WHEEL, Fault(status=403), "answers 403 although its page names it"),
    "the wheel wants a login": (WHEEL, Fault(status=401), "wants a user name and a password"),
    "the wheel redirects in a loop": (
        WHEEL,
        Fault(status=302, headers={"Location": f"{PAGE}torch.whl"}, body=b"there"),
        "redirects in a loop|answers 404 although",
    ),
    "the metadata says 500": (DATA, Fault(status=500), "answers 500"),
    "the rest's wheel says 403": ("/simple/filelock/*.whl", Fault(status=403), "answers 403|403"),
    "the rest's wheel breaks off": (
        "/simple/filelock/*.whl",
        Fault(cut_at=100),
        "breaks again and again",
    ),
    "the rest wants a login": (
        "/simple/filelock/",
        Fault(status=401),
        "wants a user name and a password",
    ),
}


@pytest.mark.parametrize(("pattern", "fault", "cause"), FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.one_in(16)
def test_a_faulty_index_changes_nothing(
    world: World, venv: Path, install: Install, pattern: str, fault: Fault, cause: str
) -> None:
    before = state_of(venv)
    world.add_torch("cpu")
    world.index.faults[pattern] = fault
    said = install("--python", str(venv), *WANTED)
    check(said, venv, before, 3, cause)


@pytest.mark.parametrize("at", [0, 1, 63, 500, 65535, 65536, 65537, 131072, 150_000])
@pytest.mark.one_in(9)
def test_a_body_that_is_cut_anywhere_is_taken_up(world: World, install: Install, at: int) -> None:
    noise = bytes(range(256)) * 800
    world.add_torch("cpu", files={"torch/lib/libtorch.so": os.urandom(200_000) + noise})
    world.index.faults[WHEEL] = Fault(cut_at=at, times=2)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))["torch"] == f"{TORCH}+cpu"


NOISE = {"torch/lib/libtorch.so": random.Random(7).randbytes(300_000)}


@pytest.mark.parametrize("cut_at", [None, 100_000])
@pytest.mark.parametrize("hashes", [True, False])
@pytest.mark.one_in(4)
def test_a_server_that_packs_what_is_packed_already(
    world: World,
    install: Install,
    hashes: bool,
    cut_at: int | None,
) -> None:
    """gzip makes a wheel longer, and a byte of it is no byte of the wheel."""
    world.add_torch("cpu", files=NOISE)
    world.index.packed, world.index.hashes = True, hashes
    if cut_at:
        world.index.faults[WHEEL] = Fault(cut_at=cut_at, times=1)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err


def test_a_wheel_that_drips_is_waited_for_once(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = replace(web.FILE, window_seconds=0.6, least_bytes=1 << 20)
    monkeypatch.setattr(web, "FILE", pace)
    world.add_torch("cpu", files=NOISE)
    world.index.faults[WHEEL] = Fault(drip_seconds=0.5)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 3 and "comes too slowly" in said.err
    assert world.index.asked_for(f"GET {WHEEL}") == 1


def test_a_log_that_cannot_be_written_ends_no_installation(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "open_log", lambda: Log(world.folder / "gone" / "install.log"))
    world.add_torch("cpu")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))["torch"] == f"{TORCH}+cpu"


def test_a_part_that_was_not_asked_for_is_not_taken_up(world: World, install: Install) -> None:
    world.add_torch("cpu", files=NOISE)
    world.index.shifted, world.index.hashes = True, False
    world.index.faults[WHEEL] = Fault(cut_at=100_000, times=1)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err


@pytest.mark.parametrize("length", [1000, 500_000])
@pytest.mark.one_in(2)
def test_what_an_earlier_run_left_and_is_wrong_is_fetched_again(
    world: World, install: Install, length: int
) -> None:
    wheel = world.add_torch("cpu", files=NOISE)
    cache = world.folder / "cache/gpusetup/wheels"
    cache.mkdir(parents=True)
    (cache / f"{wheel.name}.part").write_bytes(b"x" * length)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert (cache / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_web_page_in_place_of_metadata_is_passed_over(world: World, install: Install) -> None:
    world.add_torch("cpu")
    world.index.faults[DATA] = Fault(body=b"<!doctype html><html>log in</html>")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 0, said.err
    assert "filelock" in versions_in(Path("env"))


def test_what_changed_on_the_server_is_not_taken_up(world: World, install: Install) -> None:
    """If-Range: the rest of another file is no rest of ours."""
    wheel = world.add_torch("cpu", files={"torch/lib/libtorch.so": os.urandom(300_000)})
    world.index.faults[WHEEL] = Fault(cut_at=100_000, times=1)
    world.index.etag = lambda: f'"{len(world.index.asked)}"'
    assert install("--venv", "env", *WANTED).exit == 0
    asked = [h for h in world.index.headers if "If-Range" in h]
    assert asked and all("Range" in head for head in asked)
    whole = world.index.sent[-1] if world.index.sent else 0
    assert wheel.stat().st_size in world.index.sent, whole


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (PAGE, Fault(status=500, times=2)),
        (WHEEL, Fault(status=503, times=2)),
        (WHEEL, Fault(status=429, headers={"Retry-After": "0"}, times=1)),
        (WHEEL, Fault(cut_at=0, times=1)),
    ],
)
@pytest.mark.one_in(4)
def test_what_passes_is_waited_out(
    world: World, install: Install, pattern: str, fault: Fault
) -> None:
    world.add_torch("cpu")
    world.index.faults[pattern] = fault
    assert install("--venv", "env", *WANTED).exit == 0


EVIL = {
    "a name that climbs out": {"../../evil.py": "boo"},
    "an absolute name": {"/tmp/evil.py": "boo"},
    "a name of Windows that climbs out": {"torch\\..\\..\\..\\evil.py": "boo"},
    "data that climbs out": {f"torch-{TORCH}+cpu.data/scripts/../../../evil": "boo"},
}


@pytest.mark.parametrize("files", EVIL.values(), ids=EVIL.keys())
@pytest.mark.one_in(4)
def test_a_wheel_with_a_bad_name_in_it(
    world: World, venv: Path, install: Install, files: dict[str, str]
) -> None:
    before = state_of(venv)
    world.add_torch("cpu", files=files)
    said = install("--python", str(venv), *WANTED)
    check(said, venv, before, 3, "leads out of the environment")
    assert not list(world.folder.rglob("evil*"))


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"<!doctype html><p>Log in", "no wheel but a web page"),
        (b"PK\x03\x04 and then nothing", "what came is no wheel"),
        (b"\x00" * 5000, "what came is no wheel"),
    ],
)
@pytest.mark.one_in(3)
def test_what_is_no_wheel_is_seen_without_a_hash_too(
    world: World, venv: Path, install: Install, body: bytes, cause: str
) -> None:
    world.index.hashes = False
    before = state_of(venv)
    world.add_torch("cpu")
    world.index.faults[WHEEL] = Fault(body=body)
    check(install("--python", str(venv), *WANTED), venv, before, 3, cause)


# --- the way there -------------------------------------------------------------------------------


def test_a_proxy_that_is_not_there(
    world: World, venv: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(venv)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    said = install("--python", str(venv), *WANTED)
    check(said, venv, before, 3, "the proxy does not let it through")


def test_a_server_that_speaks_no_tls(world: World, venv: Path, install: Install) -> None:
    before = state_of(venv)
    root = world.index.index_root.replace("http://", "https://")
    said = install("--python", str(venv), *WANTED, "--index-root", root)
    check(said, venv, before, 3, "no TLS connection")


TLS = {
    "certificate verify failed: self-signed certificate in certificate chain": "is not trusted",
    "certificate verify failed: unable to get local issuer certificate": "is not trusted",
    "certificate verify failed: certificate is not yet valid": "not valid yet.*clock",
    "certificate verify failed: certificate has expired": "expired.*clock",
    "certificate verify failed: Hostname mismatch, certificate is not valid for 'x'": "another",
    "wrong version number": "no TLS connection",
}


@pytest.mark.parametrize(("said", "cause"), TLS.items())
def test_what_a_tls_error_means(said: str, cause: str) -> None:
    assert re.search(cause, cause_of(requests.exceptions.SSLError(f"[SSL: X] {said} (_ssl.c:1)")))


def test_an_index_root_that_listens_but_never_answers(venv: Path, install: Install) -> None:
    import socket

    before = state_of(venv)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        root = f"http://127.0.0.1:{deaf.getsockname()[1]}/whl"
        said = install("--python", str(venv), *WANTED, "--index-root", root)
    check(said, venv, before, 3, "says nothing for")


# --- disk and permissions ------------------------------------------------------------------------


def limited(world: World, venv: Path, most: int, *words: str) -> Said:
    """The program itself, where no file may grow beyond a size: what a full disk is like."""
    child = subprocess.run(
        [sys.executable, "-m", "gpusetup", "install", "--python", str(venv), *WANTED, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        capture_output=True,
        text=True,
        check=False,
    )
    return Said(exit=child.returncode, out=child.stdout, err=child.stderr)


@pytest.mark.parametrize("already_here", [False, True])
@pytest.mark.one_in(4)
def test_a_disk_that_is_full(
    world: World, venv: Path, install: Install, already_here: bool
) -> None:
    """While a wheel is fetched; and in the switch, when uv unpacks it."""
    before = state_of(venv)
    big = {"torch/lib/libtorch.so": os.urandom(100) * 30_000}
    world.add_torch("cpu", files=big if already_here else {"torch/big.so": os.urandom(900_000)})
    root = ("--index-root", world.index.index_root)
    if already_here:
        assert install("--venv", "other", *WANTED).exit == 0
        shutil.rmtree(world.folder / "uv-cache")
    said = limited(world, venv, 500_000, *root)
    check(said, venv, before, 3, "File too large|os error 27|Errno 27|too large")


def test_a_full_tmpdir_is_named_with_the_remedy(
    world: World, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificates that uv and pip are to trust do not fit there; nothing is left of them."""
    (temporary := world.folder / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    world.add_torch("cpu")
    before = state_of(venv)
    said = limited(world, venv, 50_000, "--index-root", world.index.index_root)
    check(said, venv, before, 3, f"{temporary} cannot hold .*File too large")
    assert "or set TMPDIR to a folder on another disk" in " ".join(said.err.split())
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("fails", [False, True])
def test_what_killed_runs_left_is_swept_and_nothing_of_a_live_one(
    world: World, venv: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    (temporary := world.folder / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (cache := world.folder / "cache/gpusetup/wheels").mkdir(parents=True)
    cache.parent.chmod(0o700)
    left = [venv / "gpusetup-constraints.txt.new", venv / "gpusetup-constraints.undo.json.new"]
    left += [temporary / "gpusetup-ca-dead.pem", cache / ".gpusetup-dead/links/x.whl"]
    live = [temporary / "gpusetup-ca-live.pem", cache / ".gpusetup-live"]
    for file in (*left, live[0], live[1] / "links/y.whl"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    handles = [os.open(path, os.O_RDONLY) for path in live]
    for handle in handles:
        fcntl.flock(handle, fcntl.LOCK_EX)
    world.add_torch("cpu")
    world.index.faults["/whl/cpu/torch/*.whl"] = Fault(flip=fails)
    said = limited(world, venv, 1 << 30, "--index-root", world.index.index_root)
    assert said.exit == (3 if fails else 0), said.err
    assert [one.name for one in temporary.iterdir()] == [live[0].name]
    assert [one.name for one in cache.glob(".gpusetup-*")] == [live[1].name]
    assert [one for one in left if one.exists() and not fails] == []
    for handle in handles:
        os.close(handle)


def test_what_a_sweep_takes_first_is_made_again(tmp_path: Path) -> None:
    gone, taken, free = (tmp_path / name for name in ("gone", "taken", "free"))
    for path in (taken, free):
        path.mkdir()
    sweeping = os.open(taken, os.O_RDONLY)
    fcntl.flock(sweeping, fcntl.LOCK_EX)
    assert held(iter((gone, taken, free)).__next__) == free
    released(free)
    os.close(sweeping)


def test_a_store_whose_name_is_taken(world: World, venv: Path, install: Install) -> None:
    (venv / ".gpusetup").write_text("mine")
    before = state_of(venv)
    world.add_torch("cpu")
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 3 and "hint: " in said.err
    assert ".gpusetup cannot be written" in said.err
    assert state_of(venv) == before


@pytest.mark.parametrize("moved", range(4))
@pytest.mark.one_in(4)
def test_a_move_that_fails_in_the_middle(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """As a file that Windows holds open, or a mount that has become read-only."""
    from gpusetup.install.switching import transaction
    from gpusetup.install.switching.files import rename

    venv = world.venv()
    former = {"torch/__init__.py": "", "a.py": "", "b.py": "", "c/d.py": ""}
    world.fill(venv, world.wheel("torch", "2.0.0", files=former))
    before = state_of(venv)
    world.add_torch("cpu")
    calls = iter(range(99))

    def refused(source: Path, destination: Path) -> None:
        if next(calls) == moved:
            raise PermissionError(13, "Permission denied", str(source))
        rename(source, destination)

    monkeypatch.setattr(transaction, "rename", refused)
    said = install("--python", str(venv), *WANTED)
    check(said, venv, before, 3, "Permission denied")
    assert "hint: the former state was put back" in said.err


def test_the_proof_is_of_the_very_torch_that_was_installed(
    world: World, venv: Path, install: Install
) -> None:
    """Another one may come first on the user's path: PYTHONPATH, a user site."""
    world.add_torch("cpu")
    said = install("--python", str(venv), *WANTED[:-1], "--json")
    assert said.exit == 1, said.err
    log = Path(said.answer["log"]).read_text()
    assert f"--device cpu --expect torch=={TORCH}+cpu" in log


def test_a_wheel_for_another_machine_is_not_taken(
    world: World, venv: Path, install: Install
) -> None:
    before = state_of(venv)
    other = TAG.replace("linux_x86_64", "win_amd64")
    wheel = world.wheel("torch", f"{TORCH}+cpu", tag=other)
    world.index.add("whl/cpu", wheel)
    said = install("--python", str(venv), *WANTED)
    check(said, venv, before, 3, f"has no wheel of torch {TORCH}")
