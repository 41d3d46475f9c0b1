"""`fleet run`: what is asked of which nodes, and what becomes of their answers."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fleet_records
import node_python
import pytest

from gpusetup.cli import main
from gpusetup.fleet import work
from gpusetup.fleet.engines import hosts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nodes have a POSIX shell")
Record = dict[str, Any]


# --- the command ----------------------------------------------------------------------------------

SSH = """\
#!/bin/sh
# ssh OPTIONS -- HOST COMMAND, without a network
while [ "$1" != -- ]; do shift; done
test "$2" = gone && {{ echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }}
NODE=$2 exec sh -c "$3"
"""
Run = Callable[..., tuple[int, Record, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`fleet run --hosts` on named hosts, of which `sound` ones have recorded answers."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH.format(), encoding="utf-8")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    monkeypatch.setattr(hosts.Hosts, "extra_seconds", 0.5)
    monkeypatch.setitem(work.LIMIT_SECONDS, "quick", 0.7)
    python = node_python.recorded_python(tmp_path)

    def ran(names: str, *words: str) -> tuple[int, Record, str]:
        (tmp_path / "hosts").write_text(names, encoding="utf-8")
        into = ("--into", str(tmp_path / "records"), "--node-python", str(python))
        given = ("--hosts", str(tmp_path / "hosts"), *into, *words)
        code = main(["fleet", "run", *given, "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return ran


def sound(seed: int = 1, **snapshot: Any) -> Record:
    facts = {"links.active": "8 x InfiniBand", "clock.synchronised": "yes"}
    return {
        "node-check": {
            "schema": "gpusetup.node-check/1",
            "node": "localhost",
            "ok": True,
            "reason": "sound",
            "facts": facts,
        },
        "snapshot": {**fleet_records.machine(0), **snapshot},
        "verify": fleet_records.report(random.Random(seed)),
    }


def test_alike_nodes_are_green_under_the_names_of_the_list(run: Run, tmp_path: Path) -> None:
    for number in range(1, 4):
        node_python.record(tmp_path, f"n{number}", sound(number))
    code, answer, said = run("n[1-3]\n")
    assert code == 0, answer
    assert [(one["name"], one["status"]) for one in answer["nodes"]] == [
        ("n1", "ok"), ("n2", "ok"), ("n3", "ok"),
    ]  # fmt: skip
    assert "to each of 3 nodes" in said and "records" in said
    assert main(["fleet", "show", str(tmp_path / "records")]) == 0


def test_a_node_that_hangs_one_that_is_gone_and_a_sick_one_are_named(
    run: Run, tmp_path: Path
) -> None:
    for name in ("n1", "n2", "n3", "slow", "sick", "bare"):
        node_python.record(tmp_path, name, sound())
    (tmp_path / "slow" / "hang").write_text("verify")
    (tmp_path / "n2" / "noise").write_text("Welcome to {n2}\n{ 1 }\n")
    failed = sound()["verify"]
    failed["checks"][0]["status"] = "failed"
    node_python.record(tmp_path, "sick", {"verify": failed})
    (tmp_path / "bare" / "verify").write_text("")
    code, answer, said = run("n[1-3],slow,sick\nbare\ngone\n")
    rows = {one["name"]: one for one in answer["nodes"]}
    assert code == 1
    assert {name for name, one in rows.items() if one["status"] == "ok"} == {"n1", "n2", "n3"}
    assert rows["slow"]["problem"] == "no answer in 1.2 s (no verify)"
    assert "time limit: 1.2 s each" in said
    assert "No route to host" in rows["gone"]["problem"]
    assert "(no verify)" in rows["bare"]["problem"]
    assert "gpu-check-failed" in {one["id"] for one in rows["sick"]["findings"]}
    assert answer["exclude"] == "--exclude=bare,gone,sick,slow"
    assert "slow: no answer in 1.2 s" in said
    kept = {path.name.partition(".")[2] for path in (tmp_path / "records").glob("slow.*")}
    assert kept == {"node-check.json", "snapshot.json", "run.json"}
    assert main(["fleet", "show", str(tmp_path / "records")]) == 1


def test_the_plan_is_shown_and_nothing_asked(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts").write_text("n[1-64]")
    words = ["--hosts", str(tmp_path / "hosts"), "--into", str(tmp_path / "new")]
    asked = ["--print", "--level", "stress", "--python", "/a b/python"]
    assert main(["fleet", "run", *words, *asked]) == 0
    said = capsys.readouterr().out
    assert said.count("ssh -n") == 1 and "nodes: n[1-9],n[10-64]" in said
    assert "--level stress" in said and "/a b/python" in said
    assert not (tmp_path / "new").exists()


SRUN = """\
echo "$@" >> {folder}/asked
for word in "$@"; do case $word in --nodelist=*) node=${{word#--nodelist=}} ;; esac; done
[ $node = taken ] && {{ echo 'srun: error: Requested nodes are busy' >&2; exit 1; }}
while [ "$1" != sh ]; do shift; done
NODE=$node exec "$@"
"""
SLURM = {
    "sinfo": "cat {folder}/sinfo",
    "srun": SRUN,
    "scancel": 'echo "$@" >> {folder}/cancelled',
}
"""Slurm's command -> what it does here: srun runs the work on this machine."""


def test_slurms_idle_nodes_get_an_exclusive_job_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in SLURM.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text.format(folder=tmp_path)}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    rows = [
        f"{name}|idle|all*|96|gpu:h100:8(S:0-1),nvme:2|none" for name in ("n1", "n2", "n3", "taken")
    ]
    (tmp_path / "sinfo").write_text("\n".join([*rows, "n9|drained|all*|96|(null)|new cables\n"]))
    for number in (1, 2, 3):
        node_python.record(tmp_path, f"n{number}", sound(number))
    python = ("--node-python", str(node_python.recorded_python(tmp_path)))
    into = ("--into", str(tmp_path / "records"))
    assert main(["fleet", "run", "--slurm", *into, *python, "--json", "--", "--account=ops"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in answer["nodes"]] == ["n1", "n2", "n3"]
    assert answer["not_asked"] == {
        "n9": "drained (new cables)", "taken": "another job uses the node now",
    }  # fmt: skip
    asked = (tmp_path / "asked").read_text()
    for option in ("--exclusive", "--gres=gpu:h100:8", "--cpus-per-task=96", "--account=ops"):
        assert asked.count(option) == 4
    assert "--name=gpusetup-" in (tmp_path / "cancelled").read_text()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert main(["fleet", "run", "--slurm"]) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "one of the arguments --slurm"),
        (("show", "x", "--slurm"), "unrecognized arguments: --slurm"),
        (("run", "--hosts", __file__), "is not a list of nodes"),
        (("run", "--hosts", "x", "--partition", "p"), "`--partition` needs `--slurm`"),
        (("run", "--hosts", "h", "--slurm"), "not allowed with argument"),
        (("run", "--hosts", "h", "--", "--mem=1"), "needs `--slurm`"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", *words]) == 2
    assert said in capsys.readouterr().err
