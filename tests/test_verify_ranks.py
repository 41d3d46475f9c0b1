"""verify among several ranks: torchrun with gloo on this machine, and ranks that go wrong."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

import pytest
from verifying import FOLDER, IN_THE_WAY, ROOT, states

from gpusetup.verify.ranks.gathering import Hub, Spoke
from gpusetup.verify.ranks.launch import Rank, device_of, first_host, port_of, rank_in
from gpusetup.verify.values import Blocked, WrongQuestion

FAULTS = ROOT / "tests" / "rank_faults"
TOGETHER = (
    *("meet", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"),
    *("ddp_step", "fsdp_step"),
)


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
        timeout=120,
        check=False,
    )


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found = re.search(r"(?ms)^\{$.*?^\}$", done.stdout)
    assert found, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(found[0])
    return document


def test_two_ranks_prove_themselves_and_each_other_in_one_report() -> None:
    done = under_torchrun("--device", "cpu", "--json")
    document = report_of(done)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count('"schema"') == 1
    found = states(document)
    assert {found[f"{name}@2 ranks"] for name in TOGETHER} == {"passed"}
    assert found["matmul@rank 0 cpu"] == found["matmul@rank 1 cpu"] == "passed"
    assert [row["device"] for row in document["devices"]] == ["rank 0 cpu", "rank 1 cpu"]


def test_a_rank_that_hangs_is_named_in_time() -> None:
    done = under_torchrun("--device", "cpu", "--json", fault="1 all_reduce hang")
    document = report_of(done)
    rows = {f"{row['name']}@{row['device']}": row for row in document["checks"]}
    assert rows["all_reduce@2 ranks"]["status"] == "failed"
    assert "rank 1 hangs in all_reduce" in rows["all_reduce@2 ranks"]["detail"]
    assert rows["all_reduce@rank 1 2 ranks"]["status"] == "crashed"
    assert rows["broadcast@2 ranks"]["status"] == "skipped"
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("fault", "check", "said"),
    [
        ("1 all_reduce drop", "all_reduce", "elements are wrong"),
        ("0 broadcast flip", "broadcast", "1 of 1048576 elements are wrong on rank 0"),
        ("1 all_to_all_single flip", "all_to_all", "rank 1: 1 of 1048576 elements"),
        ("1 reduce_scatter flip", "reduce_scatter", "rank 1: 1 of 524288 elements"),
        ("1 all_gather raise", "all_gather", "rank 1: RuntimeError: Connection reset by peer"),
        ("1 all_reduce die", "all_reduce", "rank 1"),
    ],
)
@pytest.mark.one_in(3)
def test_what_goes_wrong_on_one_rank_fails_the_whole_and_names_it(
    fault: str, check: str, said: str
) -> None:
    done = under_torchrun("--device", "cpu", "--json", fault=fault)
    rows = {f"{row['name']}@{row['device']}": row for row in report_of(done)["checks"]}
    assert rows[f"{check}@2 ranks"]["status"] == "failed"
    assert said in rows[f"{check}@2 ranks"]["detail"]
    assert done.returncode != 0


# --- launch ---


def rank(number: int, world: int = 2, port: int = 0, job: str = "a") -> Rank:
    return Rank(number, world, number, "127.0.0.1", port, f"n{number + 1}", job)


def test_a_process_on_its_own_is_no_rank() -> None:
    assert rank_in({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}) is None


def test_torchrun_outranks_slurm() -> None:
    both = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "RANK": "1", "WORLD_SIZE": "2"}
    found = rank_in({**both, "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29500"})
    assert found is not None
    assert (found.rank, found.world, found.port) == (1, 2, 29500)


@pytest.mark.parametrize("text", ["one", ""])
def test_a_rank_that_is_no_number_is_a_wrong_question(text: str) -> None:
    with pytest.raises(WrongQuestion):
        rank_in({"SLURM_PROCID": "x" + text, "SLURM_NTASKS": "2"})


def test_a_rank_beyond_the_world_is_a_wrong_question() -> None:
    with pytest.raises(WrongQuestion):
        rank_in({"SLURM_PROCID": "2", "SLURM_NTASKS": "2"})


def test_two_jobs_on_one_host_meet_on_different_ports() -> None:
    ports = {port_of({"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0"}) for job in range(100)}
    assert len(ports) == 100
    assert all(20_000 <= port < 30_000 for port in ports)


def test_a_host_list_names_its_first_host() -> None:
    assert first_host("n[01-16,20]") == "n01"
    assert first_host("gpu-a,gpu-b") == "gpu-a"


def test_a_rank_takes_the_gpu_of_its_place() -> None:
    assert device_of(rank(1), "auto", ("cuda:0", "cuda:1")) == ("cuda:1",)
    assert device_of(rank(1), "auto", ("cuda:0",)) == ("cuda:0",)  # Slurm shows it one
    assert device_of(rank(1), "none", ()) == ()


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
    port = free_port()
    hub = Hub(rank(0, port=port))
    stranger = Spoke(rank(1, port=port, job="b"))
    assert stranger.settle(0) == 1
    assert hub.come_to("meet") == ["rank 1 was never heard of"]
    hub.settle(1)


def test_every_rank_exits_as_rank_0_says() -> None:
    port = free_port()
    hub = Hub(rank(0, port=port))
    spoke = Spoke(rank(1, port=port))
    spoke.others({"facts": {}, "results": []})
    assert hub.others({})[1].report == {"facts": {}, "results": []}
    hub.settle(3)
    assert spoke.settle(0) == 3


def test_a_taken_port_blocks_with_the_way_out() -> None:
    port = free_port()
    hub = Hub(rank(0, port=port))
    with pytest.raises(Blocked, match=str(port + 1)):
        Hub(rank(0, port=port))
    hub.settle(0)


def test_rank_0_that_is_not_there_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusetup.verify.ranks.gathering.CONNECT_SECONDS", 0.1)
    with pytest.raises(Blocked, match="cannot reach rank 0"):
        Spoke(rank(1, port=free_port()))
