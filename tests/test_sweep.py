"""A sweep: who is measured next and who is named, on paper; then real ranks of gloo."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import simulate_sweep
import trial_sweep
from simulate_sweep import FAULTS, FLEETS, Fleet, count, messages, swept
from slurm_cluster import Cluster, cluster, missing

from gpusetup.cli import main
from gpusetup.fleet.sweep.answer import Course, SweepAnswer, answer
from gpusetup.fleet.sweep.decide import AGAIN, COMPUTES, MOST_AGAIN, MOST_PASSES, next_round
from gpusetup.fleet.sweep.follow import Follower, take_part, worker_of
from gpusetup.fleet.sweep.lead import Leader, Meeting, Sizes
from gpusetup.fleet.sweep.plan import MORE_TURNS, matching, planes, sizes, turns
from gpusetup.fleet.sweep.values import Options, Result, Unit
from gpusetup.fleet.sweep.verdict import NOTES, Named, verdict
from gpusetup.readings.dcgm import parse_dcgm
from gpusetup.readings.nccl_tests import parse_nccl_tests
from gpusetup.render.console import Console
from gpusetup.render.sweep import sweep_screen
from gpusetup.verify.ranks.gathering import Spoke
from gpusetup.verify.ranks.launch import Rank

Told = set[tuple[str, tuple[int, ...]]]


def told(named: tuple[Named, ...]) -> Told:
    return {(one.fault, one.ranks) for one in named if one.fault not in NOTES}


# --- the course of a sweep, on paper --------------------------------------------------------------


@given(st.integers(2, 40), st.booleans())
def test_no_rank_is_in_two_pairs_of_a_turn_and_no_pair_comes_twice(n: int, every: bool) -> None:
    met: set[frozenset[int]] = set()
    for turn in range(turns(n, every)):
        pairs = matching(tuple(range(n)), turn, every)
        assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs) == n - n % 2
        assert not met & {frozenset(pair) for pair in pairs}
        met |= {frozenset(pair) for pair in pairs}
    assert len(met) == n * (n - 1) // 2 or not every


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 10**6))
@settings(max_examples=25)
def test_a_course_ends_and_asks_each_rank_once_a_round(hosts: int, ranks: int, seed: int) -> None:
    draw = random.Random(seed)
    fleet = Fleet(hosts, ranks=ranks, spread=draw.choice((0.0, 0.05, 0.5)))
    for plant in draw.sample(list(FAULTS.values()), 2) if hosts > 1 else ():
        plant(fleet, draw)
    for result in swept(fleet, seed)[1]:
        assert len(set(result.round.asked)) == len(result.round.asked) > 0


PAPER = [name for name in FLEETS if name not in ("3 hosts", "4 hosts", "1000 hosts, 3:1")]


@pytest.mark.parametrize("fault", ["sound", *FAULTS])
@pytest.mark.parametrize("name", PAPER)
@pytest.mark.one_in(4)
def test_what_is_planted_is_named_and_nothing_else(name: str, fault: str) -> None:
    seeds = 3
    found, false, _ = count(name, fault, seeds)
    assert false == 0
    if ":1" in name and fault in SOMETIMES_HIDDEN:
        assert found >= SOMETIMES_HIDDEN[fault]
        return
    assert found == (seeds if fault in FAULTS and (name, fault) not in HIDDEN else found)


SOMETIMES_HIDDEN = {"link at half": 1, "link at seven tenths": 0, "path at half": 0}
"""Where half of the pairs are slower by design some stay unnamed: how many of the three are named
at least; `scripts/simulate_sweep.py` counts them."""
HIDDEN = {("5 hosts", "link at seven tenths")}
"""A loss that so few measurements do not tell from their scatter."""


def longest(hosts: int) -> int:
    """Rounds of the longest course of so many hosts."""
    passes = ((hosts - 1).bit_length() + MORE_TURNS + COMPUTES) * MOST_PASSES
    return passes + AGAIN + MOST_AGAIN + 3 * len(sizes(hosts))


@pytest.mark.parametrize("hosts", [64, 1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_rounds_grow_with_the_logarithm_and_messages_with_the_ranks(hosts: int) -> None:
    fleet = Fleet(hosts, rack=8, oversubscribed=2.0, links={7: 0.5}, computing={9: 0.5})
    fleet.hung[11] = 5
    named, results = swept(fleet, 3)
    assert {("slow-link", (7,)), ("slow-compute", (9,)), ("hung", (11,))} <= told(named)
    assert len(results) <= longest(hosts)
    assert messages(results) <= 3 * hosts * len(results)


def test_many_faults_at_once_are_all_named() -> None:
    fleet = Fleet(40, links={3: 0.5, 8: 0.0, 21: 0.6}, computing={5: 0.5}, hung={30: 4})
    assert told(swept(fleet, 1)[0]) == {
        ("slow-link", (3,)), ("broken-link", (8,)), ("slow-link", (21,)), ("slow-compute", (5,)),
        ("hung", (30,)),
    }  # fmt: skip


def test_a_rack_with_a_slow_uplink_blames_none_of_its_nodes() -> None:
    named, _ = swept(Fleet(64, rack=16, racks={2: 0.4}, disturbed=0.0), 1)
    assert told(named) == set()
    apart = next(one for one in named if one.fault == "apart")
    assert set(apart.ranks) == set(range(32, 48))


def test_where_nothing_is_exchanged_nobody_is_blamed() -> None:
    named, _ = swept(Fleet(6, links=dict.fromkeys(range(6), 0.0)), 1)
    assert [one.fault for one in named] == ["unmeasured"]


def test_two_ranks_are_not_compared() -> None:
    named, results = swept(Fleet(2, links={1: 0.3}, computing={0: 0.3}), 1)
    assert named == ()
    assert any(result.exchanged for result in results)


def test_a_rank_that_was_silent_once_is_asked_again_and_not_blamed() -> None:
    class Late(Fleet):
        def measured(self, asked: Any, draw: random.Random) -> Result:
            self.hung = {3: 0} if asked.number == 4 else {}
            return super().measured(asked, draw)

    named, results = swept(Late(8), 1)
    assert told(named) == set()
    assert 3 in results[4].silent
    assert any(3 in pair.group and pair.rate for r in results[5:] for pair in r.exchanged)


def test_a_slow_gpu_is_compared_with_its_own_kind() -> None:
    units = [Unit(rank=r, host=f"n{r}", device="A100" if r < 6 else "H100") for r in range(12)]
    results: list[Result] = []
    while asked := next_round(units, results):
        fleet = Fleet(12, computing=dict.fromkeys(range(6), 0.4) | {9: 0.5}, disturbed=0.0)
        results.append(fleet.measured(asked, random.Random(len(results))))
    assert told(verdict(units, results)) == {("slow-compute", (9,))}


def test_hosts_and_rails_are_swept_apart() -> None:
    found = planes(Fleet(3, ranks=4).units)
    assert [plane.stage for plane in found] == ["within", "between"]
    assert found[1].members == ((0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11))


# --- the answer -----------------------------------------------------------------------------------


def judged(fleet: Fleet, seed: int = 1, **more: Any) -> SweepAnswer:
    results = tuple(swept(fleet, seed)[1])
    hosts = {unit.rank: unit.host for unit in fleet.units}
    return answer(Course(units=fleet.units, results=results, hosts=hosts, **more))


def test_the_answer_names_nodes_and_how_to_leave_them_out() -> None:
    found = judged(Fleet(9, links={4: 0.5}), absent={9: "it did not come within 5 s"})
    assert not found.ok
    assert [(one.fault, one.nodes, one.ranks) for one in found.findings] == [
        ("absent", (), (9,)), ("slow-link", ("n00004",), (4,)),
    ]  # fmt: skip
    assert found.exclude.slurm == "--exclude=n00004"
    screen = Console().rendered(sweep_screen(found))
    assert "✗ slow-link: rank 4 on n00004 exchanges at" in screen
    assert "it did not come within 5 s" in screen
    assert "sbatch --exclude=n00004 job.sh" in screen


def test_a_node_with_several_bad_ranks_is_said_once() -> None:
    found = judged(Fleet(12, ranks=4, computing=dict.fromkeys((8, 9, 10), 0.5)))
    assert [one.title.split(" computes")[0] for one in found.findings] == [
        "ranks 8, 9 and 10 on n00002"
    ]


def test_a_sound_fleet_says_how_slow_a_rank_would_have_been_named() -> None:
    found = judged(Fleet(16))
    assert found.ok and not found.findings
    assert [round(level.sees_below, 1) for level in found.levels] == [0.8, 0.8]
    assert {rank.node for rank in found.ranks} == {unit.host for unit in Fleet(16).units}


# --- the edge: processes that are no torch --------------------------------------------------------

WORKER = """
import json, os, sys
fault, rate = sys.argv[1], float(sys.argv[2])
say = lambda **m: print(json.dumps(m), flush=True)
print("[W] a library says something; {no json")
if fault == "dies": sys.exit("no such library: libcudart.so.12")
if fault == "never": sys.stdin.readline(); sys.exit()
if sys.argv[1] == "store": say(said="store", port=1); sys.stdin.read(); sys.exit()
say(said="ready", device="cpu", torch="2.9")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "join": say(said="joined")
    elif fault == "crashes" and asked["round"] == 3: os.abort()
    elif fault == "silent" and asked["round"] >= 3: pass
    elif asked["do"] == "compute": say(said="computed", round=asked["round"], rate=rate)
    elif fault == "alien": print('{"said": "exchanged", "round": 1, "seconds": "soon"}')
    else: say(said="exchanged", round=asked["round"], seconds=[1.0 / rate] * 3)
"""


class Together:
    """A leader and its followers in threads, each with a worker of its own."""

    def __init__(self, workers: list[tuple[str, ...]], store: tuple[str, ...], sizes: Sizes):
        port = trial_sweep.free_port()
        ranks = [
            Rank(n, len(workers), 0, "127.0.0.1", port, f"n{n}", "test")
            for n in range(len(workers))
        ]
        self.followers: dict[int, Follower] = {}
        meeting = Meeting(command=store, address="127.0.0.1")
        self.leader = Leader(ranks[0], workers[0], meeting, sizes)
        self.threads: list[threading.Thread] = []
        for rank in ranks[1:]:
            self._start(rank, workers[rank.rank])
        self.leader.meet()

    def _start(self, rank: Rank, worker: tuple[str, ...]) -> None:
        """One after the other: forks of a warm process do not start in two threads at once."""
        self.threads.append(threading.Thread(target=self._follow, args=(rank, worker), daemon=True))
        self.threads[-1].start()
        while rank.rank not in self.followers:
            time.sleep(0.01)

    def _follow(self, rank: Rank, worker: tuple[str, ...]) -> None:
        spoke = Spoke(rank)
        beside = {"host": rank.host, "local": 0}
        take_part(spoke, worker, beside, lambda one: self.followers.update({rank.rank: one}))

    def sweep(self) -> tuple[tuple[Named, ...], list[Result]]:
        results = self.leader.sweep(Options())
        absent = self.leader.absent
        return verdict(self.leader.units, results, Options(), absent), results

    def end(self) -> None:
        self.leader.end(0)
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()


def plain_worker(fault: str = "", rate: float = 100.0) -> tuple[str, ...]:
    return sys.executable, "-c", WORKER, fault, str(rate)


@pytest.fixture
def together() -> Iterator[Any]:
    made: list[Together] = []

    def make(faults: dict[int, str], count: int = 5, meet: float = 20.0) -> Together:
        workers = [plain_worker(faults.get(n, "")) for n in range(count)]
        sizes = Sizes(bytes=1024, repeats=3, limit=0.2, meet=meet)
        made.append(Together(workers, plain_worker("store"), sizes))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_a_silent_rank_is_named_and_the_others_go_on(
    together: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusetup.fleet.sweep.lead.SLACK_SECONDS", 0.1)
    named, results = together({2: "silent"}).sweep()
    assert told(named) == {("hung", (2,))}
    assert sum(bool(result.silent) for result in results) == 2, "two limits, and no more"


def test_a_worker_that_crashes_is_started_anew(together: Any) -> None:
    named, results = together({1: "crashes"}).sweep()
    assert ("hung", (1,)) not in told(named)
    assert any(1 in result.round.asked for result in results[6:])


def test_who_does_not_come_is_absent_with_the_reason(together: Any) -> None:
    leader = together({1: "dies", 3: "never"}, meet=1.5).leader
    assert leader.absent == {
        1: "exit 1: no such library: libcudart.so.12", 3: "its torch was not ready within 1.5 s",
    }  # fmt: skip
    assert [unit.rank for unit in leader.units] == [0, 2, 4]


def test_an_answer_of_another_form_is_no_measurement(together: Any) -> None:
    named, _ = together({4: "alien"}, count=6).sweep()
    assert told(named) <= {("broken-link", (4,)), ("hung", (4,))} and named


# --- the command ----------------------------------------------------------------------------------


def test_without_a_launcher_it_says_how_to_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert main(["fleet", "sweep"]) == 2
    said = capsys.readouterr().err
    assert "nothing here says which of how many" in said
    assert "srun --ntasks-per-node=8 gpusetup fleet sweep" in said


@pytest.mark.parametrize(
    "words", [("--bytes", "7"), ("--loss", "2"), ("--repeats", "0"), ("--meet", "soon")]
)
def test_a_value_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    assert main(["fleet", "sweep", *words]) == 2
    assert words[1] in capsys.readouterr().err


# --- real ranks -----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="stops a process by a signal")
def test_a_stopped_rank_of_gloo_is_named_and_the_others_measure(
    warm_torch: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr("gpusetup.fleet.sweep.lead.SLACK_SECONDS", 0.3)
    workers = [worker_of(sys.executable, "cpu:0") for _ in range(4)]
    sizes = Sizes(bytes=1 << 14, repeats=3, limit=1.0, meet=120.0)
    ranks = Together(workers, worker_of(sys.executable, "store"), sizes)
    try:
        lines = ranks.followers[2].lines
        assert lines is not None
        os.kill(lines._child.pid, signal.SIGSTOP)
        named, results = ranks.sweep()
        os.kill(lines._child.pid, signal.SIGCONT)
    finally:
        ranks.end()
    assert ("hung", (2,)) in told(named)
    assert {pair.group for r in results for pair in r.exchanged if pair.rate}


@pytest.mark.slow
def test_each_planted_fault_among_eight_ranks_is_named() -> None:
    script = Path(trial_sweep.__file__)
    done = subprocess.run(
        [sys.executable, str(script), "--runs", "1"],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
def test_under_torchrun_rank_0_says_one_answer() -> None:
    clean = {name: value for name, value in os.environ.items() if "RANK" not in name}
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=3")
    done = subprocess.run(
        [*launcher, f"--master-port={trial_sweep.free_port()}", "-m", "gpusetup",
         "fleet", "sweep", "--json", "--limit", "20"],
        env={**clean, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    document = json.loads(line)
    assert document["schema"] == "gpusetup.sweep/1" and len(document["ranks"]) == 3
    assert done.returncode == (0 if document["ok"] else 1), done.stderr[-2000:]


def test_the_simulation_counts_what_it_planted() -> None:
    assert simulate_sweep.count("8 hosts", "link down", 2)[:2] == (2, 0)


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
        *("srun", "-N4", "-n4", "--chdir", str(trial_sweep.HERE.parent), "unshare", "-m"),
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
    sound = under_srun(slurm, tmp_path, "--bytes", "64K", "--limit", "20")
    assert {rank["node"] for rank in sound["ranks"]} == {"n1", "n2", "n3", "n4"}
    assert [level["of"] for level in sound["levels"]] == ["computing", "between"]
    (tmp_path / "sitecustomize.py").write_text(STOPS, encoding="utf-8")
    slurm.environment["PYTHONPATH"] = str(tmp_path)
    hung = under_srun(slurm, tmp_path, "--bytes", "64K", "--limit", "5")
    faults = [(one["fault"], one["nodes"]) for one in hung["findings"]]
    assert ("hung", ["n3"]) in faults
    assert hung["exclude"]["slurm"] == "--exclude=n3"


# --- what others measured -------------------------------------------------------------------------

HEAD = """\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
{ranks}
#
#                                                              out-of-place          in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)
        1024           256     float     sum      -1    20.27    0.05    0.09      0    19.5 \
   0.05    0.10      0
  1073741824     268435456     float     sum      -1    44123   24.33   {rate:5.2f}      \
{wrong}    44101   24.35   {rate:5.2f}      {wrong}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.1
#
"""
OLD = """\
#   Rank  0 Pid  31415 on node-a device  0 [0x07] Tesla V100-SXM2-32GB
#                                               out-of-place                in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw
    33554432       8388608   float     sum    421.5   79.61  139.31  0e+00    420.1   79.87  \
139.77  0e+00
"""


def nccl_output(hosts: tuple[str, ...], rate: float = 24.0, wrong: object = 0) -> str:
    ranks = "\n".join(
        f"#  Rank {rank:2} Group  0 Pid {9000 + rank} on {host:>10} device  {rank % 8} "
        "[0000:07:00] NVIDIA H100 80GB HBM3"
        for rank, host in enumerate(hosts)
    )
    return HEAD.format(ranks=ranks, rate=rate, wrong=wrong)


def from_folder(
    capsys: pytest.CaptureFixture[str], folder: Path, files: dict[str, str]
) -> tuple[int, dict[str, Any]]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    code = main(["fleet", "sweep", "--from", str(folder), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def pairs_of(hosts: int, slow: dict[int, float], **more: Any) -> dict[str, str]:
    """Two turns of pairs, and a third of neighbours."""
    names = [f"gpu{number:03}" for number in range(hosts)]
    wanted = [pair for turn in range(3) for pair in matching(tuple(range(hosts)), turn)]
    return {
        f"{one}-{other}.txt": nccl_output(
            (names[one], names[other]), 24.0 * min(slow.get(one, 1), slow.get(other, 1)), **more
        )
        for one, other in wanted
    }


def test_a_slow_node_is_named_from_outputs_of_nccl_tests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, found = from_folder(capsys, tmp_path, {**pairs_of(8, {3: 0.5}), "README.md": "hello"})
    assert code == 1
    assert [(one["fault"], one["nodes"]) for one in found["findings"]] == [
        ("slow-link", ["gpu003"])
    ]
    assert found["findings"][0]["rate"] == 12.0 and found["exclude"]["slurm"] == "--exclude=gpu003"
    assert found["left_out"] == ["README.md"] and found["files"] == 12
    assert [pair[0] for pair in found["measure_next"]] == ["gpu003"]


def test_of_one_slow_pair_no_end_is_blamed_and_the_next_pairs_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rates = {("a", "b"): 24.0, ("c", "d"): 24.1, ("e", "f"): 11.0, ("g", "h"): 23.9}
    files = {f"{x}{y}.txt": nccl_output((x, y), rate) for (x, y), rate in rates.items()}
    code, found = from_folder(capsys, tmp_path, files)
    assert (code, [one["fault"] for one in found["findings"]]) == (1, ["slow-pair"])
    assert {pair[0] for pair in found["measure_next"]} == {"e", "f"}
    assert found["exclude"]["names"] == []


def test_sound_outputs_blame_nobody(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = from_folder(capsys, tmp_path, pairs_of(8, {}, wrong="N/A"))
    assert (code, found["findings"]) == (0, [])


def test_wrong_values_and_a_failed_run_are_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = pairs_of(8, {})
    files["again.txt"] = nccl_output(("gpu001", "gpu002"), wrong=7)
    down = nccl_output(("gpu000", "gpu009")).partition("  1073741824")[0]
    files["down.txt"] = f"{down}gpu009: Test NCCL failure common.cu:958 'unhandled system error'\n"
    code, found = from_folder(capsys, tmp_path, files)
    assert code == 1
    assert {one["fault"] for one in found["findings"]} == {"wrong-values", "slow-pair"}


def test_an_old_output_without_groups_is_read() -> None:
    run = parse_nccl_tests(OLD)
    assert run and (run.hosts, run.device) == (("node-a",), "Tesla V100-SXM2-32GB")
    assert run.rate == pytest.approx(139.77e9) and run.size_bytes == 33554432


@pytest.mark.parametrize("text", ["", "# Rank 0", "{}", '{"DCGM Diagnostic": 3}', "| a | b |"])
def test_foreign_text_is_no_output(text: str) -> None:
    assert parse_nccl_tests(text) is None
    assert parse_dcgm(text) is None


TABLE = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| NVML Library              | Pass                                           |
|-----  Hardware  ----------+------------------------------------------------|
| GPU Memory                | Fail - GPU: 2                                  |
| Warning                   | GPU 2 DBE volatile errors                      |
|                           | were found                                     |
| Pulse Test                | Pass - All                                     |
| pcie                      | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU5: Fail                                     |
+---------------------------+------------------------------------------------+
"""
DCGM_3 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {"category": "Deployment", "tests": [
                {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}]},
            {"category": "Stress", "tests": [
                {"name": "Targeted Power", "results": [
                    {"gpu_id": "0", "status": "Pass"},
                    {"gpu_id": "1", "status": "Fail", "warnings": [
                        {"error_id": 14, "warning": "Max power of 412 W did not reach 630 W"}]},
                ]}]},
        ],
        "version": "3.3.5",
    }
}  # fmt: skip
DCGM_4 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {"category": "Integration", "tests": [
                {"name": "pcie", "results": [
                    {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 3,
                     "status": "Fail", "warnings": [{"warning": "bandwidth", "error_id": 45}]},
                    {"entity_group": "CPU", "entity_id": 0, "status": "Skip"}],
                 "test_summary": {"status": "Fail"}}]},
        ],
    },
    "metadata": {"version": "4.2.3"},
}  # fmt: skip


def test_what_dcgm_failed_is_said_with_its_gpus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = {
        "n1.txt": TABLE, "n2.json": json.dumps(DCGM_3), "n3.json": json.dumps(DCGM_4),
        "n4.txt": TABLE.replace("Fail - GPU: 2", "Pass").replace("Fail", "Pass"),
    }  # fmt: skip
    code, found = from_folder(capsys, tmp_path, files)
    assert code == 1
    assert [(one["title"], one["detail"]) for one in found["findings"]] == [
        ("n1: DCGM's test GPU Memory failed on GPU 2", "GPU 2 DBE volatile errors were found"),
        ("n1: DCGM's test pcie failed on GPU 5", ""),
        ("n2: DCGM's test Targeted Power failed on GPU 1",
         "Max power of 412 W did not reach 630 W"),
        ("n3: DCGM's test pcie failed on GPU 3", "bandwidth"),
    ]  # fmt: skip
    assert found["exclude"]["names"] == ["n1", "n2", "n3"]


def test_a_folder_without_any_output_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    assert main(["fleet", "sweep", "--from", str(tmp_path)]) == 2
    assert main(["fleet", "sweep", "--from", str(tmp_path / "absent")]) in (2, 3)
    assert "no output of nccl-tests" in capsys.readouterr().err
