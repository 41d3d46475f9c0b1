"""A sweep of processes: workers, real ranks of gloo, torchrun and srun."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, cluster, free_ports, missing

from gpusetup.cli import main
from gpusetup.fleet.sweep.follower import take_part
from gpusetup.fleet.sweep.leader import Leader
from gpusetup.fleet.sweep.rounds import Sweep
from gpusetup.verify.ranks.gathering import Spoke
from gpusetup.verify.ranks.launch import Rank

# --- the edge: processes that are no torch --------------------------------------------------------

WORKER = """
import atexit, json, os, sys
fault, rate = sys.argv[1], float(sys.argv[2])
say = lambda **m: print(json.dumps(m), flush=True)
warn = lambda text: print(text, file=sys.stderr)
print("[W] a library says something; {no json")
if fault == "dies":
    atexit.register(warn, "[rank1]:[W1123 10:00:00.1 Store.cpp:9] it was not closed")
    warn("/x.py:3: UserWarning: an old call\\n  warnings.warn(")
    sys.exit("no such library: libcudart.so.12")
if fault == "never": sys.stdin.readline(); sys.exit()
if sys.argv[1] == "store": say(said="store", port=1); sys.stdin.read(); sys.exit()
say(said="ready")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "join": say(said="joined", device="cpu")
    elif fault == "silent" and asked["round"] >= 3: pass
    elif fault == "alien": print('{"said": "exchanged", "round": 1, "seconds": "soon"}')
    else: say(said="exchanged", round=asked["round"], seconds=[1.0 / rate] * 3)
"""


class Together:
    """A leader and its followers in threads, each with a worker of its own."""

    def __init__(self, workers: list[tuple[str, ...]], store: tuple[str, ...]):
        port = free_ports(1)[0]
        ranks = [
            Rank(n, len(workers), 0, "127.0.0.1", port, f"n{n}", "test")
            for n in range(len(workers))
        ]
        self.leader = Leader(ranks[0], workers[0], store)
        self.threads: list[threading.Thread] = []
        for rank in ranks[1:]:  # one after the other: a warm process does not fork in two threads
            words = (rank, workers[rank.rank])
            self.threads.append(threading.Thread(target=self._follow, args=words, daemon=True))
            self.threads[-1].start()
            time.sleep(0.1)
        self.leader.meet()

    def _follow(self, rank: Rank, worker: tuple[str, ...]) -> None:
        take_part(Spoke(rank), worker)

    def end(self) -> None:
        self.leader.end(0)
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()


def faults_of(sweep: Sweep) -> set[tuple[str, tuple[int, ...]]]:
    return {(one.fault, one.ranks) for one in sweep.faults()}


def plain_worker(fault: str = "") -> tuple[str, ...]:
    return sys.executable, "-c", WORKER, fault, "100.0"


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Together] = []

    def make(faults: dict[int, str], count: int = 5, meet: float = 20.0) -> Leader:
        workers = [plain_worker(faults.get(n, "")) for n in range(count)]
        monkeypatch.setattr("gpusetup.fleet.sweep.leader.MEET_SECONDS", meet)
        made.append(Together(workers, plain_worker("store")))
        return made[-1].leader

    yield make
    for one in made:
        one.end()


def test_a_silent_rank_is_named_and_the_others_go_on(
    together: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusetup.fleet.sweep.leader.SLACK_SECONDS", 0.1)
    sweep = together({2: "silent"}).sweep(0.2)
    assert faults_of(sweep) == {("hung", (2,))}
    assert sum(bool(result.silent) for result in sweep.results) == 2, "two limits, and no more"


def test_who_does_not_come_is_absent_with_the_reason(together: Any) -> None:
    leader = together({1: "dies", 3: "never"}, meet=3.0)
    assert leader.absent == {
        1: "exit 1: no such library: libcudart.so.12", 3: "it was not ready within 3 s",
    }  # fmt: skip
    assert [unit.rank for unit in leader.units] == [0, 2, 4]


def test_an_answer_of_another_form_is_no_measurement(together: Any) -> None:
    named = faults_of(together({4: "alien"}, count=6).sweep(0.2))
    assert named and named <= {("broken-link", (4,)), ("hung", (4,))}


# --- the command ----------------------------------------------------------------------------------


def test_without_a_launcher_it_says_how_to_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert main(["fleet", "sweep"]) == 2
    said = capsys.readouterr().err
    assert "no launcher has set its rank" in said
    assert "srun --ntasks-per-node=8 gpusetup fleet sweep" in said


# --- real ranks -----------------------------------------------------------------------------------


STOPS = """
import os, signal, sys, threading, time
def watch():
    while not hasattr(sys.modules.get("torch.distributed"), "all_reduce"):
        time.sleep(0.1)
    dist, calls = sys.modules["torch.distributed"], []
    plain = dist.all_reduce
    def all_reduce(*words, **more):
        calls.append(1)
        if len(calls) == 10:
            os.kill(os.getpid(), signal.SIGSTOP)
        return plain(*words, **more)
    dist.all_reduce = all_reduce
mine = open("/proc/self/cmdline", "rb").read()
if os.environ.get("SLURM_PROCID") == "2" and b"exchange.py" in mine:
    threading.Thread(target=watch, daemon=True).start()
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with cluster(folder, nodes=4) as made:
        yield made


def under_srun(slurm: Cluster, folder: Path, *words: str) -> dict[str, Any]:
    """The nodes are this machine by names that only these tasks can look up."""
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost n1 n2 n3 n4\n", encoding="utf-8")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    ours = (sys.executable, "-m", "gpusetup", "fleet", "sweep", "--json", "--device", "cpu")
    done = slurm.run(
        *(
            "srun",
            "-N4",
            "-n4",
            "--chdir",
            str(Path(__file__).resolve().parents[2]),
            "unshare",
            "-m",
        ),
        *("sh", "-c", script, str(hosts), *ours, *words),
        timeout=280,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    document: dict[str, Any] = json.loads(line)
    assert (done.returncode == 0) == document["ok"], done.stderr[-2000:]
    return document


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing() or "a Slurm is here")
def test_under_srun_the_nodes_are_swept_and_a_hung_one_is_named(
    slurm: Cluster, tmp_path: Path
) -> None:
    slurm.environment["GLOO_SOCKET_IFNAME"] = "lo"
    sound = under_srun(slurm, tmp_path, "--limit", "20")
    assert {rank["host"] for rank in sound["ranks"]} == {"n1", "n2", "n3", "n4"}
    assert [level["of"] for level in sound["levels"]] == ["between"]
    (tmp_path / "sitecustomize.py").write_text(STOPS, encoding="utf-8")
    slurm.environment["PYTHONPATH"] = str(tmp_path)
    hung = under_srun(slurm, tmp_path, "--limit", "5")
    faults = [(one["fault"], one["nodes"]) for one in hung["findings"]]
    assert ("hung", ["n3"]) in faults
    assert hung["exclude"]["slurm"] == "--exclude=n3"
