"""What gpusetup does under Slurm: decisions on tables, and the files on a real cluster."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import standin
from slurm_cluster import Cluster, cluster, missing

from gpusetup.cli import main
from gpusetup.commands import fleet_slurm as command
from gpusetup.fleet.slurm_health import Action, Memory, NodeState, decide, files
from gpusetup.model.frozen import replace

SICK, ECC = {"ecc_uncorrected": 3}, "ecc-error"
FREE, PROLOG = NodeState(drained=False), NodeState(drained=True, reason="Prolog error")
OURS = NodeState(drained=True, reason="gpusetup: hot")
THEIRS = NodeState(drained=True, reason="new cables")
OUT = replace(FREE, out=True, reason="bad PSU")
DRAIN, RESUME = Action(kind="drain", reason="gpusetup: hot"), Action(kind="resume")


@pytest.mark.parametrize(
    ("ok", "state", "memory", "action"),
    [
        (False, FREE, Memory(), Action()),
        (False, FREE, Memory(failed=1), DRAIN),
        (False, OURS, Memory(failed=5), Action()),
        (False, THEIRS, Memory(failed=5), Action()),
        (True, THEIRS, Memory(held=5), Action()),
        (True, OURS, Memory(failed=3, drained=OURS.reason), Action()),
        (True, OURS, Memory(held=1, drained=OURS.reason), RESUME),
        (True, OURS, Memory(held=9), Action()),
        (True, OURS, Memory(held=9, drained="gpusetup: cold"), Action()),
        (True, replace(OURS, out=True), Memory(held=9, drained=OURS.reason), Action()),
        (False, OUT, Memory(failed=9), Action()),
        (False, PROLOG, Memory(), Action(kind="reason", reason="gpusetup: hot")),
        (True, PROLOG, Memory(held=9), Action()),
    ],
)
def test_a_check_leads_to_one_action(
    ok: bool, state: NodeState, memory: Memory, action: Action
) -> None:
    assert decide(ok, "hot", state, memory)[0] == action


# --- what the programs ask and remember, without a cluster


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[str, ...]]]:
    """The words that `scontrol` gets; of the node it tells what `tmp_path/node` says."""
    words: list[tuple[str, ...]] = []

    def scontrol(*call: str) -> str:
        words.append(call)
        return (tmp_path / "node").read_text()

    monkeypatch.setattr(command, "_scontrol", scontrol)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.libraries()))
    monkeypatch.setenv("GPUSETUP_STANDIN", str(tmp_path / "state-n1"))
    monkeypatch.delenv("SLURM_JOB_GPUS", raising=False)
    driver(tmp_path, "n1")
    yield words


def health(folder: Path, node: str) -> int:
    (folder / "node").write_text(node)
    return main(["fleet", "slurm", "health", "--state", str(folder / "memory")])


def prolog(folder: Path) -> int:
    return main(["fleet", "slurm", "prolog", "--state", str(folder / "memory")])


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is for Linux")
IDLE = "State=IDLE ThreadsPerCore=1\n"


@LINUX
def test_a_node_whose_state_slurm_does_not_tell_is_left_alone(
    asked: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver(tmp_path, "n1", **SICK)
    said = "slurm_load_node error: Invalid node name\n"
    assert [health(tmp_path, said) for _ in range(3)] == [4, 4, 4]
    assert "tells no state" in capsys.readouterr().err
    assert {call[1] for call in asked} == {"show"}


@LINUX
def test_fewer_gpus_than_slurm_gives_out_fail_the_node(
    asked: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert health(tmp_path, f"{IDLE}   Gres=gpu:a100:2(S:0)\n") == 0
    assert health(tmp_path, f"{IDLE}   Gres=gpu:a100:4(S:0)\n") == 1
    assert "number of GPUs 2, the scheduler gives out 4" in capsys.readouterr().err


@LINUX
def test_a_job_fails_by_its_own_gpus_only(
    asked: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, "n1", **SICK)
    assert prolog(tmp_path) == 0
    for gpus, code in (("0", 0), ("1", 1), ("0,7", 1), ("all", 1), ("GPU-1;rm", 1)):
        monkeypatch.setenv("SLURM_JOB_GPUS", gpus)
        assert prolog(tmp_path) == code, gpus


@LINUX
def test_a_profile_that_cannot_be_read_fails_no_job_and_drains_no_node(
    asked: list[tuple[str, ...]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ("--state", str(tmp_path / "memory"), "--profile", str(tmp_path / "none"))
    monkeypatch.setenv("SLURM_JOB_GPUS", "0")
    driver(tmp_path, "n1", **SICK)
    assert main(["fleet", "slurm", "prolog", *given]) == 0
    assert f"passed over: {tmp_path / 'none'} cannot be read" in capsys.readouterr().err
    (tmp_path / "node").write_text(IDLE)
    assert [main(["fleet", "slurm", "health", *given]) for _ in range(3)] == [2, 2, 2]
    assert {call[1] for call in asked} <= {"show"}


@LINUX
@pytest.mark.parametrize("kind", ["pipe", "device", "file"])
def test_what_lies_in_place_of_our_memory_is_not_read(
    kind: str, asked: list[tuple[str, ...]], tmp_path: Path
) -> None:
    place, other = tmp_path / "memory" / "health.json", tmp_path / "other"
    place.parent.mkdir()
    other.write_text('{"failed": 1}')
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero" if kind == "device" else other)
    driver(tmp_path, "n1", **SICK)
    assert health(tmp_path, IDLE) == 1
    assert {call[1] for call in asked} == {"show"} and other.read_text() == '{"failed": 1}'


def test_the_files_are_shell_that_a_shell_accepts(tmp_path: Path) -> None:
    prefix = tmp_path / "with+sign"
    code = main(
        ["fleet", "slurm", "install", "--prefix", str(prefix), "--profile", "/etc/a b.json"]
    )
    assert code == 0
    written = sorted(path.name for path in prefix.iterdir())
    assert written == sorted(files("python", "/p", "/s", None))
    for name in written:
        if name.endswith(".sh"):
            subprocess.run(("bash", "-n", str(prefix / name)), check=True)
    call = (prefix / "prolog.sh").read_text().splitlines()[-2]
    assert shlex.split(call)[-1] == "/etc/a b.json"


@pytest.mark.parametrize("name", ["with space", "a\nb", "a#b", "a$(id)"])
def test_a_folder_that_slurms_conf_cannot_name_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for action in ("install", "print"):
        assert main(["fleet", "slurm", action, "--prefix", str(tmp_path / name)]) == 2
        said = capsys.readouterr()
        assert "slurm.conf cannot name files in" in said.err and not said.out
    assert not list(tmp_path.iterdir())


def test_what_is_installed_goes_through_no_link(tmp_path: Path) -> None:
    victim, prefix = tmp_path / "victim", tmp_path / "files"
    victim.write_text("precious")
    prefix.mkdir()
    for name in ("prolog.sh", "health.sh", "slurm.conf.gpusetup"):
        (prefix / name).symlink_to(victim)
    assert main(["fleet", "slurm", "install", "--prefix", str(prefix)]) == 0
    assert victim.read_text() == "precious"
    assert all(path.is_file() and not path.is_symlink() for path in prefix.iterdir())
    assert os.access(prefix / "prolog.sh", os.X_OK)


@pytest.mark.parametrize(("code", "fails"), [(0, False), (1, True), (2, False), (127, False)])
def test_only_the_answer_no_fails_a_job(code: int, fails: bool, tmp_path: Path) -> None:
    python, program = tmp_path / "python", tmp_path / "prolog.sh"
    if code != 127:  # 127: the program is gone
        python.write_text(f"#!/bin/sh\nexit {code}\n")
        python.chmod(0o755)
    program.write_text(files(str(python), "/p", "/s", None)["prolog.sh"])
    ended = subprocess.run(("sh", str(program)), check=False, capture_output=True)
    assert (ended.returncode != 0) == fails


# --- on a real cluster ----------------------------------------------------------------------------

WRAPPER = """\
#!/bin/sh
export GPUSETUP_STANDIN={folder}/state-$SLURMD_NODENAME LD_LIBRARY_PATH={libraries}
export SLURM_CONF={folder}/cluster/slurm.conf PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec {folder}/files-$SLURMD_NODENAME/{name}
"""
NODES = ("n1", "n2", "n3")


def driver(folder: Path, node: str, **second: object) -> None:
    """The stand-in's state on a node: two GPUs, the second with these values."""
    gpu = {**standin.A100, "processes": ""}
    beside = folder / f"new-{node}"
    beside.write_text(standin.state((gpu, {**gpu, **second})))
    beside.replace(folder / f"state-{node}")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes whose prolog and health program are ours, each with a stand-in driver."""
    if why := missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("slurm")
    for node in NODES:
        driver(folder, node)
        state = ("--state", str(folder / f"memory-{node}"))
        main(["fleet", "slurm", "install", "--prefix", str(folder / f"files-{node}"), *state])
    for name in ("prolog.sh", "health.sh"):
        wrapper = folder / name
        wrapper.write_text(WRAPPER.format(folder=folder, libraries=standin.libraries(), name=name))
        wrapper.chmod(0o755)
    conf = {
        "Prolog": folder / "prolog.sh", "HealthCheckProgram": folder / "health.sh",
        "HealthCheckInterval": 2, "HealthCheckNodeState": "ANY", "PrologFlags": "Alloc",
    }  # fmt: skip
    with cluster(folder / "cluster", len(NODES), conf) as running:
        yield running


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons need Linux")
def test_a_sick_node_is_drained_with_its_reason_and_resumed_when_it_is_cured(
    slurm: Cluster,
) -> None:
    folder = slurm.folder.parent
    driver(folder, "n2", **SICK)
    slurm.until(lambda: f"n2 gpusetup: {ECC}" in slurm.reasons(), "n2 is not drained")
    assert "GPU 1" in slurm.reasons() and "n1" not in slurm.reasons()
    driver(folder, "n2")
    slurm.until(lambda: "DRAIN" not in slurm.node("n2"), "n2 is not resumed")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons need Linux")
def test_a_node_that_somebody_drained_stays_drained(slurm: Cluster) -> None:
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=new cables")
    memory = slurm.folder.parent / "memory-n1" / "health.json"
    slurm.until(lambda: '"held":0' not in memory.read_text(), "n1 is not checked")
    memory.write_text('{"failed": 0, "held": 9}')
    slurm.until(lambda: '"held":1' in memory.read_text(), "n1 is not checked again")
    assert "new cables" in slurm.reasons()
    slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")
