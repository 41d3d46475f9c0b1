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

from gpusetup.verify.checks.rows_cluster import RANKS
from gpusetup.verify.checks.table import LEVELS
from gpusetup.verify.ranks.gathering import Hub, Spoke
from gpusetup.verify.ranks.launch import Rank, port_of, rank_in
from gpusetup.verify.values import Blocked, WrongQuestion

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
LONG = ("compile", "memory")


def all_but(*wanted: str) -> tuple[str, ...]:
    names = (*(each.name for each in LEVELS["standard"]), *TOGETHER)
    kept = {"import", "properties", "matmul", *wanted}
    return tuple(name for name in dict.fromkeys(names) if name not in kept)


def long_ones() -> tuple[str, ...]:
    """What is proven on one device (test_verify_standard.py, ..._census.py)."""
    return tuple(name for name in all_but(*TOGETHER) if name.startswith("census") or name in LONG)


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
@pytest.mark.parametrize(
    ("together", "left_out"),
    [pytest.param(FEW, all_but(*FEW), id="few"), pytest.param(TOGETHER, long_ones(), id="all")],
)
def test_torchrun_starts_ranks_that_prove_each_other(
    together: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    done = under_torchrun("--device", "cpu", "--json", "--skip", *left_out)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "[rank" not in done.stderr, "torch's own warnings about our settings"
    assert done.stdout.count('"schema"') == 1
    judge_two(report_of(done), together)


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
    assert "rank 1 hangs in broadcast (broadcast/" in rows["broadcast@2 ranks"]["detail"]
    assert rows["broadcast@rank 1 2 ranks"]["status"] == "crashed"
    assert rows["broadcast@2 ranks"]["seconds"] < 35
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
    ("all_reduce", fault("all_reduce", "lost", 1, at_least=1_000_000)),
    ("all_reduce", fault("all_reduce", "one", 0, dtype="bfloat16")),
    ("all_reduce", fault("all_reduce", "early", later=True)),
    ("all_reduce", fault("functional.all_reduce", "one", 1, from_call=3)),
    ("reduce", fault("reduce", "root", root=1)),
    ("broadcast", fault("broadcast", "root", from_call=2)),
    ("broadcast", fault("broadcast", "stale", 0, offset=1)),
    ("all_gather", fault("all_gather", "swap", at_most=8)),
    ("all_gather", fault("all_gather_into_tensor", "stale", 0, every=5)),
    ("gather", fault("gather", "early", later=True)),
    ("scatter", fault("scatter", "one", 1, odd=1)),
    ("reduce_scatter", fault("reduce_scatter_tensor", "op", op="MAX")),
    ("reduce_scatter", fault("reduce_scatter_tensor", "coarse", 1, dtype="float32")),
    ("all_to_all", fault("all_to_all_single", "swap", 0, splits=1)),
    ("send_recv", fault("recv", "stale", 1, from_call=2)),
    ("barrier", fault("barrier", "skip", from_call=2)),
    ("barrier", fault("barrier", "skip", sub=1)),
    ("objects", fault("broadcast_object_list", "root")),
    ("ddp_step", fault("ddp", "skip bucket", 1)),
    ("ddp_step", fault("ddp", "stale", **{"from": 3})),
    ("ddp_step", fault("ddp", "no start")),
    ("ddp_step", fault("no_sync", "ignored")),
    ("ddp_forms", fault("sampler", "same", 1)),
    ("tp_step", fault("dtensor", "swap")),
)
"""The check that must see it, and a fault."""


@pytest.mark.parametrize(("check", "broken"), CAUGHT)
@pytest.mark.one_in(10)
def test_what_goes_wrong_in_one_collective_is_seen(
    warm: Warm, check: str, broken: dict[str, Any]
) -> None:
    found = warm.ask(check, fault=broken)
    assert [each[0] for each in found["meet"]] == ["passed", "passed"]
    assert {each[0] for each in found[check] if each} == {"failed"}


def test_an_error_on_one_rank_ends_the_others_and_names_it(warm: Warm) -> None:
    found = warm.ask("gather", "scatter", fault=fault("gather", "raise", 1, from_call=3))
    assert "rank 1: gather/plain-" in found["gather"][0][1]
    assert "RuntimeError: Connection reset by peer" in found["gather"][0][1]
    assert {each[0] for each in found["scatter"]} == {"skipped"}


@pytest.mark.parametrize("where", [None, 1])
def test_without_numpy_objects_are_left_out_and_the_rest_is_proven(
    warm: Warm, where: int | None
) -> None:
    found = warm.ask("objects", "gather", fault=fault("numpy", "raise", where))
    assert "numpy is not installed" in found["objects"][0][1]
    assert [each[0] for each in found["objects"] + found["gather"]] == ["skipped"] * 2 + [
        "passed"
    ] * 2


def test_a_rank_that_hangs_is_named_with_its_call(warm: Warm) -> None:
    broken = fault("scatter", "hang", 1, from_call=2)
    found = warm.ask("scatter", "gather", fault=broken, seconds=36)
    (status, detail, seconds), silent = found["scatter"]
    assert (status, silent) == ("failed", None)
    assert "rank 1 hangs in scatter (scatter/plain-" in detail
    assert seconds < 35
    assert found["gather"][0][0] == "skipped"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_sound_ranks_pass_whatever_the_seed(warm: Warm, ranks: int, seed: int) -> None:
    found = warm.ask(*TOGETHER[1:], ranks=ranks, seed=100 + seed, seconds=300)
    assert {each[0] for row in found.values() for each in row} == {"passed"}, found


# --- launch ---


def rank(number: int, world: int = 2, port: int = 0, job: str = "a") -> Rank:
    return Rank(number, world, number, "127.0.0.1", port, f"n{number + 1}", job)


def test_no_stray_variable_makes_a_rank() -> None:
    """A batch script and the shell of `salloc` have some of them, an image has others."""
    assert rank_in({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None
    assert rank_in({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}) is None
    assert rank_in({"RANK": "x"}) is None
    assert rank_in({"PMI_RANK": "1", "PMI_SIZE": "2"}) is None


def open_mpi(rank: int, world: int, here: int) -> dict[str, str]:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    values = (rank, world, rank % here, here)
    return {f"OMPI_COMM_WORLD_{n}": str(v) for n, v in zip(names, values, strict=True)}


def test_mpirun_on_one_host_needs_nothing_else() -> None:
    one, two = (rank_in(open_mpi(rank, 2, 2), parent=4711) for rank in (0, 1))
    assert one is not None
    assert two is not None
    assert (two.rank, two.world, two.local, two.address) == (1, 2, 1, "127.0.0.1")
    assert (one.port, one.job) == (two.port, two.job)
    other = rank_in(open_mpi(0, 2, 2), parent=4712)
    assert other is not None
    assert other.port != one.port


def test_mpirun_on_several_hosts_asks_for_the_first() -> None:
    with pytest.raises(WrongQuestion, match="several hosts") as problem:
        rank_in(open_mpi(3, 4, 2))
    assert "MASTER_ADDR" in str(problem.value.hint)
    found = rank_in({**open_mpi(3, 4, 2), "MASTER_ADDR": "n1", "MASTER_PORT": "29500"})
    assert found is not None
    assert (found.rank, found.local, found.address, found.port) == (3, 1, "n1", 29500)


def test_two_runs_with_the_same_name_are_told_apart() -> None:
    """Without --rdzv-id torchrun calls every run `none`."""
    both = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}
    found = [
        rank_in({**both, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
        for port in ("29500", "29501")
    ]
    assert len({each.job for each in found if each}) == 2


def test_torchrun_outranks_slurm() -> None:
    both = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "RANK": "1", "WORLD_SIZE": "2"}
    found = rank_in({**both, "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29500"})
    assert found is not None
    assert (found.rank, found.world, found.port) == (1, 2, 29500)


@pytest.mark.parametrize("text", ["one", ""])
def test_a_rank_that_is_no_number_is_a_wrong_question(text: str) -> None:
    with pytest.raises(WrongQuestion):
        rank_in({"SLURM_PROCID": "x" + text, "SLURM_STEP_NUM_TASKS": "2"})


def test_a_rank_beyond_the_world_is_a_wrong_question() -> None:
    with pytest.raises(WrongQuestion):
        rank_in({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "2"})


def test_two_jobs_on_one_host_meet_on_different_ports() -> None:
    ports = {port_of({"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0"}) for job in range(100)}
    assert len(ports) == 100
    assert all(20_000 <= port < 30_000 for port in ports)


# --- gathering ---


def test_a_rank_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusetup.verify.ranks.gathering.NEVER_HEARD_SECONDS", 0.3)
    hub = Hub(rank(0, world=3, port=free_port()))
    assert hub.come_to("meet") == ["rank 1 was never heard of", "rank 2 was never heard of"]
    assert hub.settle(1) == 1


def test_a_rank_that_dies_is_named_with_its_last_check() -> None:
    port = free_port()
    hub = Hub(rank(0, port=port))
    spoke = Spoke(rank(1, port=port))
    spoke.doing("matmul")
    spoke.told.close()
    spoke.link.close()
    assert hub.come_to("meet") == ["rank 1 on n2 was last heard of in matmul"]
    hub.settle(1)


def test_another_job_on_the_port_is_not_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusetup.verify.ranks.gathering.NEVER_HEARD_SECONDS", 0.5)
    monkeypatch.setattr("gpusetup.verify.ranks.gathering.CONNECT_SECONDS", 0.5)
    port = free_port()
    hub = Hub(rank(0, port=port))
    with pytest.raises(Blocked, match="cannot reach rank 0"):
        Spoke(rank(1, port=port, job="b"))
    assert hub.come_to("meet") == ["rank 1 was never heard of"]
    hub.settle(1)


@pytest.mark.parametrize("said", [b"[1]\n", b"GET / HTTP/1.1\r\n", b"\xff\n", b'{"job": "x"}\n'])
def test_a_stranger_on_the_port_ends_nothing(said: bytes) -> None:
    port = free_port()
    hub = Hub(rank(0, port=port))
    with socket.create_connection(("127.0.0.1", port + 1)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
    spoke = Spoke(rank(1, port=port))
    spoke.others({"facts": {}, "results": []})
    assert hub.others({})[1].report == {"facts": {}, "results": []}
    hub.settle(0)
    assert spoke.settle(1) == 0


def test_two_runs_on_one_host_go_past_each_other() -> None:
    """The port above the one is the other's; each rank finds its own run's rank 0."""
    port = free_port()
    first, second = Hub(rank(0, port=port, job="a")), Hub(rank(0, port=port, job="b"))
    spokes = {job: Spoke(rank(1, port=port, job=job)) for job in "ba"}
    first.settle(3)
    second.settle(4)
    assert {job: spoke.settle(0) for job, spoke in spokes.items()} == {"a": 3, "b": 4}


def test_every_rank_exits_as_rank_0_says() -> None:
    port = free_port()
    hub = Hub(rank(0, port=port))
    spoke = Spoke(rank(1, port=port))
    spoke.others({"facts": {}, "results": []})
    assert hub.others({})[1].report == {"facts": {}, "results": []}
    hub.settle(3)
    assert spoke.settle(0) == 3


def test_taken_ports_block_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusetup.verify.ranks.gathering.PLACES", 1)
    port = free_port()
    hub = Hub(rank(0, port=port))
    with pytest.raises(Blocked, match=str(port + 1)):
        Hub(rank(0, port=port))
    hub.settle(0)


def test_rank_0_that_is_not_there_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusetup.verify.ranks.gathering.CONNECT_SECONDS", 0.1)
    with pytest.raises(Blocked, match="cannot reach rank 0"):
        Spoke(rank(1, port=free_port()))
