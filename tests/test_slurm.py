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
from gpusetup.fleet.engines.slurm import (
    NAMES,
    NOTHING,
    Action,
    Memory,
    NodeState,
    decide,
    files,
    in_short,
    node_state,
)
from gpusetup.model.frozen import replace

SICK, ECC = {"ecc_uncorrected": 3}, "ecc-error"
FREE, PROLOG = NodeState(drained=False), NodeState(drained=True, reason="Prolog error")
OURS = NodeState(drained=True, reason="gpusetup: ecc-error: GPU 1")
THEIRS = NodeState(drained=True, reason="new cables")


@pytest.mark.parametrize(
    ("ok", "state", "memory", "prolog", "action"),
    [
        (False, FREE, Memory(), "", NOTHING),
        (False, FREE, Memory(failed=1), "", Action(kind="drain", reason="gpusetup: hot")),
        (False, OURS, Memory(failed=5), "", NOTHING),
        (False, THEIRS, Memory(failed=5), "", NOTHING),
        (True, THEIRS, Memory(held=5), "", NOTHING),
        (True, OURS, Memory(failed=3), "", NOTHING),
        (True, OURS, Memory(held=1, drained=OURS.reason), "", Action(kind="resume")),
        (True, OURS, Memory(held=9), "", NOTHING),
        (True, OURS, Memory(held=9, drained="gpusetup: hot"), "", NOTHING),
        (True, replace(OURS, out=True), Memory(held=9, drained=OURS.reason), "", NOTHING),
        (False, replace(FREE, out=True, reason="bad PSU"), Memory(failed=9), "", NOTHING),
        (True, FREE, Memory(failed=1), "", NOTHING),
        (False, PROLOG, Memory(), "cold", Action(kind="reason", reason="gpusetup: hot")),
        (True, PROLOG, Memory(), "cold", Action(kind="reason", reason="gpusetup: cold")),
        (True, PROLOG, Memory(held=9), "", NOTHING),
    ],
)
def test_a_check_leads_to_one_action(
    ok: bool, state: NodeState, memory: Memory, prolog: str, action: Action
) -> None:
    assert decide(ok, "hot", state, memory, prolog)[0] == action


def test_what_was_drained_is_remembered_until_somebody_gives_another_reason() -> None:
    action, memory = decide(False, "hot", FREE, Memory(failed=1))
    assert memory.drained == action.reason == "gpusetup: hot"
    ours = NodeState(drained=True, reason=action.reason)
    _, memory = decide(True, "", ours, memory)
    assert decide(True, "", ours, memory)[0].kind == "resume"
    _, kept = decide(True, "", NodeState(drained=True, reason="gpusetup: hot, ticket 9"), memory)
    assert decide(True, "", ours, kept)[0] == NOTHING


def test_a_prologs_reason_makes_the_drain_ours_and_asks_for_two_sound_checks() -> None:
    action, memory = decide(True, "", PROLOG, Memory(held=9), "cold")
    ours = NodeState(drained=True, reason=action.reason)
    once, memory = decide(True, "", ours, memory)
    assert (once, decide(True, "", ours, memory)[0].kind) == (NOTHING, "resume")


def test_checks_that_alternate_drain_nothing() -> None:
    memory = Memory()
    for ok in (False, True) * 5:
        action, memory = decide(ok, "hot", FREE, memory)
        assert action == NOTHING


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("State=IDLE ThreadsPerCore=1\n", NodeState(drained=False)),
        ("State=IDLE+DRAIN\n   Reason=Prolog error [root@2026-11-20T10:00:00]\n", PROLOG),
        ("State=MIXED+DRAIN+CLOUD x\nReason=new cables [a@b]\n", THEIRS),
        ("State=DRAINED\nReason=new cables", THEIRS),
        ("State=DOWN*\nReason=bad PSU [a@b]", NodeState(drained=False, reason="bad PSU", out=True)),
        ("State=DOWN+DRAIN\nReason=new cables [a@b]", replace(THEIRS, out=True)),
        ("State=IDLE+MAINT\n Gres=gpu:a100:8(S:0-1)\n", replace(FREE, out=True, gres=8)),
        ("", NodeState(drained=False)),
    ],
)
def test_a_nodes_state_is_read_as_scontrol_prints_it(text: str, state: NodeState) -> None:
    assert node_state(text) == state


def test_a_reason_is_one_short_line_whatever_a_driver_says() -> None:
    said = in_short('x\n"; reboot; \x1b[2J' + "y" * 500)
    assert len(said) <= 200 and '"' not in said and "\n" not in said and "\x1b" not in said


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
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
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
def test_a_node_that_somebody_set_down_is_left_alone(
    asked: list[tuple[str, ...]], tmp_path: Path
) -> None:
    down = "State=DOWN\nReason=bad PSU [root@2026-11-20T10:00:00]\n"
    driver(tmp_path, "n1", **SICK)
    assert [health(tmp_path, down) for _ in range(3)] == [1, 1, 1]
    driver(tmp_path, "n1")
    assert [health(tmp_path, down) for _ in range(3)] == [0, 0, 0]
    assert {call[1] for call in asked} == {"show"}


@LINUX
@pytest.mark.parametrize("said", ["", "State=\n", "slurm_load_node error: Invalid node name\n"])
def test_a_node_whose_state_slurm_does_not_tell_is_left_alone(
    said: str, asked: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver(tmp_path, "n1", **SICK)
    assert [health(tmp_path, said) for _ in range(3)] == [4, 4, 4]
    assert "tells no state" in capsys.readouterr().err
    assert {call[1] for call in asked} == {"show"}


@LINUX
def test_a_node_without_gpus_of_slurms_is_sound_without_any(
    asked: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH")
    bare = f"{IDLE}   Gres=(null)\n"
    assert prolog(tmp_path) == 0
    assert [health(tmp_path, bare) for _ in range(3)] == [0, 0, 0]
    assert prolog(tmp_path) == 0
    assert {call[1] for call in asked} == {"show"}


@LINUX
def test_fewer_gpus_than_slurm_gives_out_fail_the_node(
    asked: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert health(tmp_path, f"{IDLE}   Gres=gpu:a100:2(S:0)\n") == 0
    assert health(tmp_path, f"{IDLE}   Gres=gpu:a100:4(S:0)\n") == 1
    assert "number of GPUs 2, the scheduler gives out 4" in capsys.readouterr().err


@LINUX
def test_a_job_without_gpus_starts_beside_a_sick_one_and_a_gpu_that_is_gone_fails_its_job(
    asked: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, "n1", **SICK)
    assert prolog(tmp_path) == 1  # nothing is known of what Slurm gives out: the job may use any
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nGresTypes=gpu\n")
    assert prolog(tmp_path) == 0
    health(tmp_path, f"{IDLE}   Gres=gpu:2\n")
    assert prolog(tmp_path) == 0
    for gpus, code in (("0", 0), ("1", 1), ("0,7", 1)):
        monkeypatch.setenv("SLURM_JOB_GPUS", gpus)
        assert prolog(tmp_path) == code, gpus


@LINUX
def test_a_prologs_reason_is_forgotten_once_the_node_is_sound(
    asked: list[tuple[str, ...]], tmp_path: Path
) -> None:
    driver(tmp_path, "n1", **SICK)
    assert prolog(tmp_path) == 1
    driver(tmp_path, "n1")
    for _ in range(3):
        assert health(tmp_path, IDLE) == 0
    health(tmp_path, "State=IDLE+DRAIN\n   Reason=Prolog error [slurm@2026-11-20T10:00:00]\n")
    assert {call[1] for call in asked} == {"show"}


@LINUX
def test_a_profile_that_cannot_be_read_fails_no_job_and_drains_no_node(
    asked: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, missing = ("--state", str(tmp_path / "memory")), ("--profile", str(tmp_path / "none"))
    assert main(["fleet", "slurm", "prolog", *state, *missing]) == 0
    assert f"passed over: {tmp_path / 'none'} cannot be read" in capsys.readouterr().err
    driver(tmp_path, "n1", **SICK)
    assert main(["fleet", "slurm", "prolog", *state, *missing]) == 1
    (tmp_path / "node").write_text(IDLE)
    assert [main(["fleet", "slurm", "health", *state, *missing]) for _ in range(3)] == [2, 2, 2]
    assert f"{tmp_path / 'none'} cannot be read" in capsys.readouterr().err
    assert {call[1] for call in asked} <= {"show"}


@LINUX
def test_a_prolog_that_cannot_keep_its_reason_fails_its_job_all_the_same(
    asked: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, "n1", **SICK)
    assert main(["fleet", "slurm", "prolog", "--state", "/proc/none"]) == 1
    for gpus, code in (("0", 0), ("all", 1), ("GPU-1;rm", 1)):
        monkeypatch.setenv("SLURM_JOB_GPUS", gpus)
        assert prolog(tmp_path) == code, gpus


@LINUX
@pytest.mark.parametrize("name", ["health.json", "prolog-reason"])
@pytest.mark.parametrize("kind", ["pipe", "device", "file"])
def test_what_lies_in_place_of_our_files_is_not_read(
    name: str, kind: str, asked: list[tuple[str, ...]], tmp_path: Path
) -> None:
    place = tmp_path / "memory" / name
    place.parent.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("root:x:0")
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero" if kind == "device" else secret)
    drained = "State=IDLE+DRAIN\n   Reason=Prolog error [slurm@2026-11-20T10:00:00]\n"
    assert health(tmp_path, drained) == 0
    assert not any("root" in word for call in asked for word in call)
    assert secret.read_text() == "root:x:0"


def test_the_files_are_shell_that_a_shell_accepts(tmp_path: Path) -> None:
    prefix = tmp_path / "with+sign"
    code = main(
        ["fleet", "slurm", "install", "--prefix", str(prefix), "--profile", "/etc/a b.toml"]
    )
    assert code == 0
    written = sorted(path.name for path in prefix.iterdir())
    assert written == sorted(f.path for f in files("python", "/p", "/s", None))
    for name in written:
        if name.endswith(".sh"):
            subprocess.run(("bash", "-n", str(prefix / name)), check=True)
    call = (prefix / "prolog.sh").read_text().splitlines()[-2]
    assert shlex.split(call)[-1] == "/etc/a b.toml"


def test_nothing_is_written_where_no_folder_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "slurm", "install"]) == 2
    said = capsys.readouterr().err
    assert "prolog.sh" in said and "`--prefix`" in said
    assert main(["fleet", "slurm", "print"]) == 0
    assert "Prolog=/etc/slurm/gpusetup/prolog.sh" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["with space", "a\nb", "a#b", 'a"b', "a'b", "a$(id)", "a*b"])
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
    for name in ("prolog.sh", "slurm.conf.gpusetup"):
        (prefix / name).symlink_to(victim)
    (prefix / "health.sh").symlink_to(tmp_path / "absent")
    assert main(["fleet", "slurm", "install", "--prefix", str(prefix)]) == 0
    assert victim.read_text() == "precious" and not (tmp_path / "absent").exists()
    assert sorted(path.name for path in prefix.iterdir()) == sorted(NAMES)
    assert all(path.is_file() and not path.is_symlink() for path in prefix.iterdir())
    assert os.access(prefix / "prolog.sh", os.X_OK)


@pytest.mark.parametrize(("code", "fails"), [(0, False), (1, True), (2, False), (127, False)])
def test_only_the_answer_no_fails_a_job(code: int, fails: bool, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    (tmp_path / "prolog.sh").write_text(files(str(python), "/p", "/s", None)[0].text)
    ended = subprocess.run(("sh", str(tmp_path / "prolog.sh")), check=False)
    assert (ended.returncode != 0) == fails
    (tmp_path / "prolog.sh").write_text(files(str(tmp_path / "gone"), "/p", "/s", None)[0].text)
    gone = subprocess.run(("sh", str(tmp_path / "prolog.sh")), check=False, capture_output=True)
    assert gone.returncode == 0


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
    slurm.until(lambda: not node_state(slurm.node("n2")).drained, "n2 is not resumed")


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons need Linux")
def test_the_reason_of_a_failed_prolog_is_seen(slurm: Cluster) -> None:
    folder = slurm.folder.parent
    memory = folder / "memory-n3" / "health.json"
    driver(folder, "n3", **SICK)
    slurm.run("srun", "-w", "n3", "true", timeout=60)
    slurm.until(lambda: f"n3 gpusetup: {ECC}" in slurm.reasons(), "the reason is not seen")
    driver(folder, "n3")
    slurm.until(lambda: not node_state(slurm.node("n3")).drained, "n3 is not resumed")
    assert memory.exists()
