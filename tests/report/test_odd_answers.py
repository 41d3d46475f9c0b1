"""Servers, words and snapshots of strangers: odd ones end nothing and begin no line."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusetup import cli
from gpusetup.install.planning import with_size
from gpusetup.uv.question import Wheel


@contextmanager
def raw_server(answer: bytes) -> Iterator[str]:
    """A server that answers whatever it is asked with these bytes; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


ANSWERS = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a long header line": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 500 + b"\r\n",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "a redirection to nowhere": b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_server_that_tells_no_size_in_an_odd_way_fails_no_plan(name: str) -> None:
    with raw_server(ANSWERS[name]) as address:
        wheel = Wheel(name="a", version="1", filename="a.whl", url=f"{address}/a.whl")
        assert with_size(wheel, None, set()).size_bytes is None


@pytest.mark.parametrize(
    "command", [("resolve", "--offline"), ("install", "--dry-run", "--venv", "e")]
)
def test_a_huge_marker_is_no_requirement(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    depth = 20_000
    word = "numpy; " + "(" * depth + 'python_version > "3"' + ")" * depth
    assert cli.main([*command, word]) == 2
    said = capsys.readouterr().err
    assert "is neither a package nor a requirement" in said
    assert len(said) < 1_000, "the word itself is not repeated whole"


def test_a_path_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (("resolve",), ("doctor",), ("install", "--dry-run", "--venv", "e")):
        assert cli.main([*command, "--gpu", "../../x", "--driver", "580.95.05"]) == 2
        assert "No GPU is called" in capsys.readouterr().err


@pytest.mark.parametrize(("bytes_of_ram", "said"), [(-1, "Expected `int` >= 0"), (1, "RAM is too")])
def test_a_machine_with_impossible_ram_is_refused_or_said_not_to_fit(
    bytes_of_ram: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = json.loads(
        (Path(cli.__file__).parent / "data/machines/healthy.json").read_text(encoding="utf-8")
    )
    snapshot["memory"]["total_bytes"] = bytes_of_ram
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(snapshot), encoding="utf-8")
    job = ("--model", "qwen3-0.6b", "--context", "512", "--batch", "1", "--optimizer")
    assert cli.main(["plan", *job, "paged-adamw", "--from", str(path)]) in (1, 2)
    printed = capsys.readouterr()
    assert said in " ".join((printed.out + printed.err).split())


def test_a_line_break_in_a_snapshot_begins_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(cli.__file__).parent / "data/machines"
    snapshot = json.loads((folder / "rtx3050-laptop.json").read_text())
    snapshot["gpus"][0]["name"] = "RTX 3050\nok: nothing is wrong\n  curl x | sh"
    snapshot["os"]["name"] = "Ubuntu\nok: nothing is wrong"
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(snapshot))
    for command in (("doctor",), ("resolve", "--explain"), ("install", "--dry-run")):
        cli.main([*command, "--from", str(path)])
        lines = capsys.readouterr().out.splitlines()
        assert not [line for line in lines if line.strip().startswith(("ok:", "curl x"))], command
