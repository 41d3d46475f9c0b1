"""What gpusetup does under Slurm: its programs, on a cluster that exists on paper only."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from gpusetup.cli import main
from gpusetup.fleet.slurm_files import files


def written(python: object, profile: str | None = None, **more: str) -> dict[str, str]:
    return files("/p", python=str(python), profile=profile, **more)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_files_are_shell_that_a_shell_accepts(tmp_path: Path) -> None:
    prefix = tmp_path / "with+sign"
    profile = tmp_path / "a b.json"
    profile.write_text(json.dumps(PROFILE))
    code = main(["fleet", "slurm", str(prefix), "--profile", str(profile)])
    assert code == 0
    names = sorted(path.name for path in prefix.iterdir())
    assert names == sorted(written("python"))
    for name in names:
        if name.endswith(".sh"):
            subprocess.run(("bash", "-n", str(prefix / name)), check=True)
    lines = (prefix / "prolog.sh").read_text().splitlines()
    call = next(line for line in lines if line.startswith("check()"))
    assert shlex.split(call)[-2] == f"{profile};"


PROFILE = {"schema": "gpusetup.node-check/1", "ok": True, "reason": "8 x H100", "facts": {}}
BAD_SETUPS = {
    "a profile that is missing": (("--profile", "{folder}/none.json"), "none.json"),
    "a profile that is none": (("--profile", "{folder}/empty.json"), "empty.json"),
    "the record of a failed node": (("--profile", "{folder}/failed.json"), "ecc-error"),
    "relative metrics": (("--prometheus", "gpusetup.prom"), "is relative, but slurmd"),
    "a share that is none": (("--drain-at-most=101%",), "20%"),
    "metrics that nobody reads": (("--prometheus", "/m/gpusetup.txt"), "does not end in .prom"),
}


@pytest.mark.parametrize("case", BAD_SETUPS)
def test_what_would_fail_on_every_node_is_refused_when_it_is_written(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {**PROFILE, "ok": False, "reason": "ecc-error: GPU 1"}
    (tmp_path / "failed.json").write_text(json.dumps(failed))
    (tmp_path / "empty.json").write_text("{}")
    words, message = BAD_SETUPS[case]
    options = [word.format(folder=tmp_path) for word in words]
    assert main(["fleet", "slurm", str(tmp_path / "files"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "files").exists()


def test_what_is_installed_goes_through_no_link(tmp_path: Path) -> None:
    victim, prefix = tmp_path / "victim", tmp_path / "files"
    victim.write_text("precious")
    prefix.mkdir()
    for name in ("prolog.sh", "health.sh", "slurm.conf.gpusetup"):
        (prefix / name).symlink_to(victim)
    assert main(["fleet", "slurm", str(prefix)]) == 0
    assert victim.read_text() == "precious"
    assert all(path.is_file() and not path.is_symlink() for path in prefix.iterdir())
    assert os.access(prefix / "prolog.sh", os.X_OK)


@pytest.mark.parametrize(("code", "fails"), [(0, False), (1, True), (2, False), (127, False)])
def test_only_the_answer_no_fails_a_job(code: int, fails: bool, tmp_path: Path) -> None:
    paper = Paper(tmp_path, nodes=5, check=code)
    if code == 127:  # the program is gone
        (tmp_path / "python").unlink()
    assert paper.prolog("n1", SLURM_JOB_GPUS="0,3") == fails
    assert not paper.prolog("n2")


# --- the brake, on a cluster that exists on paper only --------------------------------------------

PAPER_SCONTROL = """\
#!/bin/sh
# A cluster whose nodes are files of one line: state|time of the reason|reason
cd {folder}/nodes || exit 1
if [ "$1" = show ]; then
    [ -e {folder}/no-record ] && exit 1
    IFS='|' read -r state time reason < "$3" || exit 1
    printf '   State=%s ThreadsPerCore=1\\n   Gres=gpu:8\\n   Partitions=all \\n' "$state"
    [ -z "$reason" ] || printf '   Reason=%s [root@%s]\\n' "$reason" "$time"
    exit 0
fi
name=${{2#NodeName=}}
case $3 in
    State=RESUME) line="IDLE||" ;;
    *) line="IDLE+DRAIN|$(date +%Y-%m-%dT%H:%M:%S)|${{4#Reason=}}" ;;
esac
echo "$line" > ".$name.new" && mv ".$name.new" "$name"
"""
PAPER_SINFO = """\
#!/bin/sh
[ -e {folder}/no-answer ] && exit 1
[ "$1 $2 $3 $4" = "-h -N -p all" ] || exit 1  # Slurm 22.05 refuses -a beside -p
cd {folder}/nodes || exit 1
for name in *; do
    IFS='|' read -r state time reason < "$name"
    case $state in *DRAIN*) state=drained ;; *) state=idle ;; esac
    printf '%s|%s|%s|%s\\n' "$name" "$state" "${{time:-Unknown}}" "${{reason:-none}}"
done
"""
PAPER_SLEEP = """\
#!/bin/sh
[ "$1" -eq 3 ] && exec /bin/sleep 3
exit 0
"""


class Paper:
    """Nodes with Slurm's commands, of which each check gives the same exit code."""

    def __init__(self, folder: Path, nodes: int, check: int, **setup: str) -> None:
        self.folder = folder
        (folder / "nodes").mkdir()
        for number in range(1, nodes + 1):
            (folder / "nodes" / f"n{number}").write_text("IDLE||\n")
        program(folder / "bin" / "scontrol", PAPER_SCONTROL.format(folder=folder))
        program(folder / "bin" / "sinfo", PAPER_SINFO.format(folder=folder))
        program(folder / "bin" / "sleep", PAPER_SLEEP)
        program(folder / "bin" / "logger", f'#!/bin/sh\necho "$@" >> {folder}/syslog\n')
        said = "'failed: unlike-profile: driver 590, expected 580'"
        python = program(folder / "python", f"#!/bin/sh\necho {said}\nexit {check}\n")
        for name, text in written(python, **setup).items():
            program(folder / name, text)

    def start(self, name: str, node: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ("sh", str(self.folder / name)),
            env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "SLURMD_NODENAME": node,
                 **environment},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, name: str, node: str, **environment: str) -> tuple[int, str]:
        process = self.start(name, node, **environment)
        output = process.communicate(timeout=60)[0]
        return process.returncode, output

    def prolog(self, node: str, **environment: str) -> bool:
        """Whether a job's prolog fails."""
        return self.run("prolog.sh", node, **environment)[0] != 0

    def drained(self) -> set[str]:
        lines = {path.name: path.read_text() for path in (self.folder / "nodes").iterdir()}
        return {name for name, line in lines.items() if "DRAIN" in line}

    def set(self, node: str, line: str) -> None:
        (self.folder / "nodes" / node).write_text(f"{line}\n")


DRAINED, RESUMED = "IDLE+DRAIN|gpusetup: GPU 3 is 'hot'", "IDLE|"
"""State and reason of a node, as the cluster on paper writes them."""


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        ("IDLE|", 0, "IDLE|"),
        ("IDLE|", 1, DRAINED),
        ("MIXED|", 2, "MIXED|"),
        ("IDLE+DRAIN|gpusetup: hot FAIL", 0, RESUMED),
        ("IDLE+DRAIN|gpusetup: hot", 1, "IDLE+DRAIN|gpusetup: hot"),
        ("IDLE+DRAIN|new cables", 0, "IDLE+DRAIN|new cables"),
        ("IDLE+DRAIN|Prolog error", 1, DRAINED),
        ("DOWN+DRAIN|gpusetup: hot", 0, "DOWN+DRAIN|gpusetup: hot"),
    ],
)
def test_a_check_leads_to_one_action(before: str, code: int, after: str, tmp_path: Path) -> None:
    paper = Paper(tmp_path, nodes=5, check=code)
    said = shlex.quote('failed: GPU 3 is "hot"\x07')
    program(tmp_path / "python", f"#!/bin/sh\necho {said}\nexit {code}\n")
    state, _, reason = before.partition("|")
    paper.set("n1", f"{state}|{'2026-01-01T00:00:00' if reason else ''}|{reason}")
    paper.run("health.sh", "n1")
    now, _, why = (tmp_path / "nodes" / "n1").read_text().strip().split("|")
    assert f"{now}|{why}" == after


@pytest.mark.parametrize(
    ("limit", "most"), [("20%", 2), ("3", 3), ("5%", 1), ("0", 0), ("100%", 10)]
)
def test_a_profile_that_fails_every_node_at_once_drains_no_more_than_the_share(
    limit: str, most: int, tmp_path: Path
) -> None:
    paper = Paper(tmp_path, nodes=10, check=1, drain_at_most=limit)
    for _ in range(2):  # the second round changes nothing
        running = [paper.start("health.sh", f"n{number}") for number in range(1, 11)]
        outputs = [process.communicate(timeout=60)[0] for process in running]
        assert len(paper.drained()) == most
    in_service = [output for output in outputs if output]
    # slurmd logs the output of a program that failed.
    assert len(in_service) == sum(process.returncode for process in running) == 10 - most
    for output in in_service:
        assert "NOT drained although its check failed" in output
        assert "driver 590, expected 580" in output
        assert f"--drain-at-most {limit}" in output
    if most < 10:
        assert "NOT drained" in (tmp_path / "syslog").read_text()


def test_a_slurm_that_does_not_say_who_is_drained_drains_nothing_and_fails_no_job(
    tmp_path: Path,
) -> None:
    paper = Paper(tmp_path, nodes=10, check=1)
    (tmp_path / "no-answer").touch()
    output = paper.run("health.sh", "n1")[1]
    assert "Slurm does not say which nodes of partition all are drained" in output
    assert not paper.prolog("n2", SLURM_JOB_GPUS="0")
    (tmp_path / "no-answer").unlink()
    (tmp_path / "no-record").touch()
    code, output = paper.run("prolog.sh", "n2", SLURM_JOB_GPUS="0")
    assert (code, "in which partitions it is" in output) == (0, True)
    assert not paper.drained()


def test_a_reason_of_somebody_else_given_meanwhile_is_kept(tmp_path: Path) -> None:
    """The brake takes back its own drain only."""
    paper = Paper(tmp_path, nodes=10, check=1, drain_at_most="1")
    sleep = (
        f"#!/bin/sh\n[ $1 -eq 3 ] || exit 0\n"
        f"echo 'IDLE+DRAIN|2020-01-01T00:00:00|gpusetup: earlier' > {tmp_path}/nodes/n9\n"
        f"echo 'IDLE+DRAIN|2030-01-01T00:00:00|new cables' > {tmp_path}/nodes/n1\n"
    )
    program(tmp_path / "bin" / "sleep", sleep)
    paper.run("health.sh", "n1")
    assert "new cables" in (tmp_path / "nodes" / "n1").read_text()
