"""One setting for a company's certificates is enough: our own fetches, uv and pip go by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installing import (
    TORCH,
    Install,
    World,
    enter,
    installer,
    needs_linux,
    new_world,
    versions_in,
)

from gpusetup.install.fetching import web
from gpusetup.install.settings import trust

pytestmark = [
    needs_linux,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]

WANTED = ("--torch", TORCH, "--backend", "cpu", "--yes", "--no-verify")
SETTINGS = (*trust.VARIABLES, "PIP_CERT")


def openssl(*words: str, cwd: Path) -> None:
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True)


def authority(folder: Path, host: str = "IP:127.0.0.1", days: str = "2") -> Path:
    """A folder with `ca.pem`, an authority of our own, and `server.pem`, what it vouches for."""
    folder.mkdir(parents=True)
    new = ("-newkey", "rsa:2048", "-nodes")
    openssl(
        *("req", "-x509", *new, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"),
        *("-subj", "/CN=Own authority", "-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        cwd=folder,
    )
    openssl(*("req", *new, "-keyout", "key", "-out", "csr", "-subj", "/CN=index"), cwd=folder)
    (folder / "names").write_text(f"subjectAltName={host}\nextendedKeyUsage=serverAuth\n")
    openssl(
        *("x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", days, "-extfile", "names", "-out", "crt"),
        cwd=folder,
    )
    (folder / "server.pem").write_text((folder / "crt").read_text() + (folder / "key").read_text())
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("tls") / "own")


@pytest.fixture
def world(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with new_world(tmp_path, own / "server.pem") as world:
        settle(world, monkeypatch)
        yield world


def settle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(world, monkeypatch)
    for name in (*SETTINGS, "PIP_CONFIG_FILE", "XDG_CONFIG_HOME", "SSL_CLIENT_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(web, "PAUSES", (0.01, 0.02))
    world.add_default("filelock", "3.20.0")
    world.add_default("typing-extensions", "4.15.0")
    world.add_torch("cpu")


Setting = Callable[[World, pytest.MonkeyPatch, Path], None]


def variable(name: str) -> Setting:
    return lambda _world, set_, ca: set_.setenv(name, str(ca))


def pip_conf(text: str, place: str = ".config/pip/pip.conf") -> Setting:
    def write(world: World, _set: pytest.MonkeyPatch, ca: Path) -> None:
        path = world.folder / "home" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(ca=ca))

    return write


def a_folder(name: str) -> Setting:
    def fill(world: World, set_: pytest.MonkeyPatch, ca: Path) -> None:
        folder = world.folder / "certificates"
        folder.mkdir()
        shutil.copy(ca, folder / "own.crt")
        (folder / "README").write_text("nothing")
        (folder / "more").mkdir()
        set_.setenv(name, str(folder))

    return fill


def named_file(world: World, set_: pytest.MonkeyPatch, ca: Path) -> None:
    path = world.folder / "pip.ini"
    path.write_text(f"[global]\ncert = {ca}\n")
    set_.setenv("PIP_CONFIG_FILE", str(path))


def below_home(world: World, _set: pytest.MonkeyPatch, ca: Path) -> None:
    shutil.copy(ca, world.folder / "home/own.pem")
    pip_conf("[global]\ncert = ~/own.pem\n")(world, _set, ca)


def a_bundle_of_all_kinds(world: World, set_: pytest.MonkeyPatch, ca: Path) -> None:
    begin, end = (f"-----{word} CERTIFICATE-----\r\n" for word in ("BEGIN", "END"))
    text = ca.read_text().replace("\n", "\r\n")
    bundle = world.folder / "all.pem"
    bundle.write_text(f"# ours\r\n{begin}AAAA\r\n{end}{text}\r\nrubbish \u00e4\r\n{begin}")
    set_.setenv("SSL_CERT_FILE", str(bundle))


def one_that_is_gone_beside(world: World, set_: pytest.MonkeyPatch, ca: Path) -> None:
    set_.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    set_.setenv("SSL_CERT_FILE", str(ca))


def the_systems_store(_world: World, set_: pytest.MonkeyPatch, ca: Path) -> None:
    set_.setattr(trust, "SYSTEM_STORES", (str(ca),))
    set_.setattr(trust, "_WRITTEN", {})  # what an earlier test wrote is of this machine's store


CA_SETTINGS: dict[str, Setting] = {
    "REQUESTS_CA_BUNDLE": variable("REQUESTS_CA_BUNDLE"),
    "CURL_CA_BUNDLE": variable("CURL_CA_BUNDLE"),
    "SSL_CERT_FILE": variable("SSL_CERT_FILE"),
    "PIP_CERT": variable("PIP_CERT"),
    "SSL_CERT_DIR": a_folder("SSL_CERT_DIR"),
    "REQUESTS_CA_BUNDLE that is a folder": a_folder("REQUESTS_CA_BUNDLE"),
    "pip.conf": pip_conf("[global]\ncert = {ca}\n"),
    "pip.conf for install": pip_conf("[install]\ncert={ca}\n"),
    "pip.conf of old": pip_conf("[global]\ncert: {ca}\n", ".pip/pip.conf"),
    "pip.conf below home": below_home,
    "pip.conf that a variable names": named_file,
    "a bundle of all kinds": a_bundle_of_all_kinds,
    "one that is gone, and one that is there": one_that_is_gone_beside,
    "the system's store": the_systems_store,
}


@pytest.mark.parametrize("setting", CA_SETTINGS.values(), ids=CA_SETTINGS.keys())
@pytest.mark.slow
def test_one_setting_is_enough(
    world: World,
    own: Path,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    setting: Setting,
) -> None:
    venv = world.venv()
    setting(world, monkeypatch, own / "ca.pem")
    said = install("--python", str(venv), *WANTED)
    assert said.exit == 0, said.err
    assert versions_in(venv)["filelock"] == "3.20.0"
    assert world.index.asked_for("GET /simple/filelock/*")


def test_the_file_that_uv_and_pip_are_given_goes_when_we_end(own: Path, tmp_path: Path) -> None:
    program = (
        "import os; from pathlib import Path\n"
        "from gpusetup.install.settings.trust import trusted_environment as t\n"
        "e = t(os.environ, Path('/nowhere'))\n"
        "print(e['SSL_CERT_FILE'], e == t(os.environ, Path('/')))"
    )
    environ = {**os.environ, "SSL_CERT_FILE": str(own / "ca.pem"), "TMPDIR": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    path, same = said.stdout.split()
    assert Path(path).parent == tmp_path and same == "True"
    assert not list(tmp_path.iterdir())


# --- what is not enough --------------------------------------------------------------------------


def pipe(world: World, set_: pytest.MonkeyPatch, _ca: Path) -> None:
    os.mkfifo(world.folder / "pipe")
    set_.setenv("SSL_CERT_FILE", str(world.folder / "pipe"))


def empty_folder(world: World, set_: pytest.MonkeyPatch, _ca: Path) -> None:
    (world.folder / "none").mkdir()
    set_.setenv("REQUESTS_CA_BUNDLE", str(world.folder / "none"))


def no_certificate(world: World, set_: pytest.MonkeyPatch, _ca: Path) -> None:
    (world.folder / "ca.txt").write_bytes(bytes(range(256)))
    set_.setenv("CURL_CA_BUNDLE", str(world.folder / "ca.txt"))


NOT_ENOUGH: dict[str, tuple[Setting, str]] = {
    "no setting": (lambda *_: None, "REQUESTS_CA_BUNDLE names your own"),
    "a file that is gone": (
        lambda _w, set_, _ca: set_.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem"),
        "REQUESTS_CA_BUNDLE names /nowhere/ca.pem, which is not there",
    ),
    "pip's, and it is gone": (
        pip_conf("[global]\ncert = /nowhere/own.pem\n"),
        "pip's `cert` names /nowhere/own.pem, which is not there",
    ),
    "a pipe": (pipe, "SSL_CERT_FILE names .*pipe, which cannot be read"),
    "an empty folder": (empty_folder, "none, which holds no certificate"),
    "no certificate": (no_certificate, "ca.txt, which holds no certificate"),
    "a device": (
        lambda _w, set_, _ca: set_.setenv("SSL_CERT_FILE", "/dev/zero"),
        "SSL_CERT_FILE names /dev/zero, which cannot be read",
    ),
    "a blank": (lambda _w, set_, _ca: set_.setenv("SSL_CERT_FILE", " "), "is not trusted"),
}


@pytest.mark.parametrize(("setting", "cause"), NOT_ENOUGH.values(), ids=NOT_ENOUGH.keys())
@pytest.mark.one_in(4)
def test_what_names_nothing_is_told_where_tls_fails(
    world: World,
    own: Path,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    setting: Setting,
    cause: str,
) -> None:
    import re

    setting(world, monkeypatch, own / "ca.pem")
    said = install("--venv", "env", *WANTED)
    assert said.exit == 3, said.err
    assert "its TLS certificate is not trusted" in said.err
    assert re.search(cause, said.err), said.err
    assert not Path("env").exists()


@pytest.mark.parametrize(
    ("host", "days", "cause"),
    [("DNS:elsewhere", "2", "is for another host"), ("IP:127.0.0.1", "-1", "has expired")],
)
@pytest.mark.one_in(2)
def test_a_certificate_that_is_wrong_is_refused_whatever_is_trusted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    host: str,
    days: str,
    cause: str,
) -> None:
    folder = authority(tmp_path / "tls", host, days)
    with new_world(tmp_path, folder / "server.pem") as world:
        settle(world, monkeypatch)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(folder / "ca.pem"))
        said = installer(world, capsys)("--venv", "env", *WANTED)
    assert said.exit == 3, said.err
    assert cause in said.err
