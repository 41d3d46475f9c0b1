"""verify among several ranks: torchrun with gloo on this machine, and ranks that go wrong."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import warm as warm_torch
from verifying import FOLDER, IN_THE_WAY, ROOT, states

from gpusetup.verify.checks.rows import RANKS
from gpusetup.verify.checks.table import LEVELS
from gpusetup.verify.ranks.gathering import Hub, Spoke
from gpusetup.verify.ranks.launch import Rank

FAULTS = ROOT / "tests" / "rank_faults"
TOGETHER = tuple(check.name for check in RANKS)


def free_port() -> int:
    """A port with a free one above it."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def under_torchrun(
    *words: str, ranks: int = 2, fault: str | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in IN_THE_WAY}
    broken = {"PYTHONPATH": str(FAULTS), "RANK_FAULT": fault} if fault else {}
    launcher = (sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}")
    return subprocess.run(
        [*launcher, f"--master-port={free_port()}", str(FOLDER / "__main__.py"), *words],
        env={**clean, **broken, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found = re.search(r"(?ms)^\{$.*?^\}$", done.stdout)
    assert found, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(found[0])
    return document


FEW = ("meet", "all_reduce", "broadcast", "barrier")


def all_but(*wanted: str) -> tuple[str, ...]:
    names = (*(each.name for each in LEVELS["standard"]), *TOGETHER)
    kept = {"import", "properties", "matmul", *wanted}
    return tuple(name for name in dict.fromkeys(names) if name not in kept)


def test_two_ranks_prove_themselves_and_each_other_in_one_report() -> None:
    """Started as torchrun starts them, by its variables, but with torch imported already."""
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    run = {**told, "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "OMP_NUM_THREADS": "1"}
    words = ("--device", "cpu", "--json", "--skip", *all_but(*FEW))
    clean = {name: value for name, value in os.environ.items() if name not in IN_THE_WAY}
    ranks = [
        warm_torch.Popen(
            [sys.executable, str(FOLDER), *words],
            env={**clean, **run, "RANK": each, "LOCAL_RANK": each},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for each in "01"
    ]
    out, err = zip(*(each.communicate(timeout=280) for each in ranks), strict=True)
    assert [each.returncode for each in ranks] == [0, 0], err
    judge_two(json.loads(out[0]), FEW)
    assert out[1] == ""


@pytest.mark.slow
def test_torchrun_starts_ranks_that_prove_each_other_in_everything() -> None:
    done = under_torchrun("--device", "cpu", "--json", "--skip", *all_but(*TOGETHER))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "[rank" not in done.stderr, "torch's own warnings about our settings"
    assert done.stdout.count('"schema"') == 1
    judge_two(report_of(done), TOGETHER)


def judge_two(document: dict[str, Any], together: tuple[str, ...]) -> None:
    found = states(document)
    assert {found[f"{name}@2 ranks"] for name in together} == {"passed"}
    assert found["matmul@rank 0 cpu"] == found["matmul@rank 1 cpu"] == "passed"
    assert [row["device"] for row in document["devices"]] == ["rank 0 cpu", "rank 1 cpu"]


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_in_time() -> None:
    done = under_torchrun("--device", "cpu", "--json", fault="1 broadcast hang")
    document = report_of(done)
    rows = {f"{row['name']}@{row['device']}": row for row in document["checks"]}
    assert rows["broadcast@2 ranks"]["status"] == "failed"
    assert rows["broadcast@rank 1 of 2 ranks"]["status"] == "crashed"
    assert " at broadcast/" in rows["broadcast@rank 1 of 2 ranks"]["detail"]
    assert rows["broadcast@2 ranks"]["seconds"] < 50
    assert rows["all_gather@2 ranks"]["status"] == "skipped"
    assert done.returncode != 0


# --- faults, in ranks that are forked from one process with torch in it ---


class Warm:
    """The process of `rank_faults/warm.py`."""

    def __init__(self) -> None:
        clean = {name: value for name, value in os.environ.items() if name not in IN_THE_WAY}
        self.process = warm_torch.Popen(
            [sys.executable, str(FAULTS / "warm.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**clean, "OMP_NUM_THREADS": "1"},
        )

    def ask(self, *checks: str, ranks: int = 2, **job: Any) -> dict[str, list[Any]]:
        """Check -> what each rank answers: status, detail, seconds."""
        whole = {"ranks": ranks, "port": free_port(), "fault": None, **job}
        line = json.dumps({**whole, "checks": ["meet", *checks]})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        found: dict[str, list[Any]] = json.loads(self.process.stdout.readline())
        return found


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    ranks = Warm()
    yield ranks
    assert ranks.process.stdin is not None
    assert ranks.process.stdout is not None
    ranks.process.stdin.close()
    ranks.process.stdout.close()
    ranks.process.wait(timeout=30)


def fault(on: str, how: str, rank: int | None = None, **when: Any) -> dict[str, Any]:
    return {"on": on, "how": how, "rank": rank, "when": when}


CAUGHT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("all_reduce", fault("all_reduce", "one", 0, dtype="bfloat16")),
    ("all_reduce", fault("all_reduce", "stale", 1, at_least=1_000_000)),
    ("all_reduce", fault("all_reduce", "drift", 1)),
    ("all_reduce", fault("all_reduce", "early", later=True)),
    ("reduce", fault("reduce", "root")),
    ("broadcast", fault("broadcast", "root", from_call=2)),
    ("all_gather", fault("all_gather_into_tensor", "stale", 0, from_call=5)),
    ("gather", fault("gather", "early", later=True)),
    ("scatter", fault("scatter", "one", 1)),
    ("reduce_scatter", fault("reduce_scatter_tensor", "coarse", 1)),
    ("all_to_all", fault("all_to_all_single", "swap", 0)),
    ("send_recv", fault("irecv", "stale", 1, from_call=2)),
    ("barrier", fault("barrier", "skip", from_call=2)),
    ("ddp_step", fault("ddp", "skip bucket", 1)),
)
"""The check that must see it, and a fault."""


@pytest.mark.parametrize(("check", "broken"), CAUGHT)
@pytest.mark.one_in(5)
def test_what_goes_wrong_in_one_collective_is_seen(
    warm: Warm, check: str, broken: dict[str, Any]
) -> None:
    found = warm.ask(check, fault=broken)
    assert [each[0] for each in found["meet"]] == ["passed", "passed"]
    assert "failed" in {each[0] for each in found[check] if each}


# --- launch ---


def rank(number: int, world: int = 2, port: int = 0, job: str = "a") -> Rank:
    return Rank(number, world, number, "127.0.0.1", port, f"n{number + 1}", job)


# --- gathering ---


def test_a_rank_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusetup.verify.ranks.gathering.SILENCE_SECONDS", 0.3)
    hub = Hub(rank(0, world=3, port=free_port()))
    assert hub.meet_at("meet", "") == "rank 1 was never heard of; rank 2 was never heard of"
    assert hub.finish(1) == 1


@pytest.mark.parametrize("said", [b"[1]\n", b"GET / HTTP/1.1\r\n", b"\xff\n", b'{"job": "x"}\n'])
def test_a_stranger_on_the_port_ends_nothing_and_every_rank_exits_as_rank_0_says(
    said: bytes,
) -> None:
    port = free_port()
    hub = Hub(rank(0, port=port))
    with socket.create_connection(("127.0.0.1", port + 1)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
    spoke = Spoke(rank(1, port=port))
    spoke.exchange_reports({"facts": {}, "results": []})
    assert hub.exchange_reports({})[1]["report"] == {"facts": {}, "results": []}
    hub.finish(3)
    assert spoke.exit_code() == 3
