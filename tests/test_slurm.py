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
from gpusetup.fleet.slurm_files import files

SICK, ECC = {"ecc_uncorrected": 3}, "ecc-error"
DRAIN = "update NodeName=n1 State=DRAIN Reason=gpusetup: GPU 3 is 'hot'"
RESUME = "update NodeName=n1 State=RESUME"
SCONTROL = """\
#!/bin/sh
[ "$1" = show ] && exec cat {folder}/node
echo "$@" >> {folder}/updates
"""
PYTHON = """\
#!/bin/sh
[ -n "$SLURM_JOB_GPUS" ] || echo {said}
exit {code}
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("state", "code", "update"),
    [
        ("IDLE", 0, ""),
        ("IDLE", 1, DRAIN),
        ("MIXED", 2, ""),
        ("IDLE+DRAIN gpusetup: hot FAIL [root@x]", 0, RESUME),
        ("IDLE+DRAIN gpusetup: hot [root@x]", 1, ""),
        ("IDLE+DRAIN new cables [me@x]", 0, ""),
        ("IDLE+DRAIN new cables [me@x]", 1, ""),
        ("IDLE+DRAIN Prolog error [root@x]", 1, DRAIN),
        ("IDLE+DRAIN Prolog error [root@x]", 0, ""),
        ("DOWN+DRAIN gpusetup: hot [root@x]", 0, ""),
        ("DOWN bad PSU [me@x]", 1, ""),
        ("IDLE no GPU", 1, ""),
        ("", 1, ""),
    ],
)
def test_a_check_leads_to_one_action(state: str, code: int, update: str, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "scontrol", SCONTROL.format(folder=tmp_path))
    program(tmp_path / "bin" / "sleep", "#!/bin/sh\n")
    said = shlex.quote('failed: GPU 3 is "hot"\x07')
    python = program(tmp_path / "python", PYTHON.format(said=said, code=code))
    health = program(tmp_path / "health.sh", files(str(python), "/p", None)["health.sh"])
    first, _, reason = state.partition(" ")
    gres = "(null)" if reason == "no GPU" else "gpu:a100:4(S:0-1)"
    told = f"   State={first} ThreadsPerCore=1\n   Reason={reason}\n   Gres={gres}\n"
    (tmp_path / "node").write_text(told if state else "slurm_load_node error\n")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "SLURMD_NODENAME": "n1"}
    subprocess.run(("sh", str(health)), env=environment, check=False, timeout=20)
    updates = tmp_path / "updates"
    assert (updates.read_text().strip() if updates.exists() else "") == update


def test_the_files_are_shell_that_a_shell_accepts(tmp_path: Path) -> None:
    prefix = tmp_path / "with+sign"
    code = main(["fleet", "slurm", str(prefix), "--profile", "/etc/a b.json"])
    assert code == 0
    written = sorted(path.name for path in prefix.iterdir())
    assert written == sorted(files("python", "/p", None))
    for name in written:
        if name.endswith(".sh"):
            subprocess.run(("bash", "-n", str(prefix / name)), check=True)
    call = (prefix / "prolog.sh").read_text().splitlines()[-2]
    assert shlex.split(call)[-2] == "/etc/a b.json"


@pytest.mark.parametrize("name", ["with space", "a\nb", "a#b", "a$(id)"])
def test_a_folder_that_slurms_conf_cannot_name_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "slurm", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    assert "slurm.conf cannot name files in" in said.err and not said.out
    assert not list(tmp_path.iterdir())


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
    python = tmp_path / "python"
    if code != 127:  # 127: the program is gone
        program(python, PYTHON.format(said="", code=code))
    prolog = program(tmp_path / "prolog.sh", files(str(python), "/p", None)["prolog.sh"])
    for gpus in ("0,3", ""):
        environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_GPUS": gpus}
        ended = subprocess.run(("sh", str(prolog)), check=False, env=environment)
        assert (ended.returncode != 0) == (fails and bool(gpus))


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
        main(["fleet", "slurm", str(folder / f"files-{node}")])
    for name in ("prolog.sh", "health.sh"):
        wrapper = folder / name
        wrapper.write_text(WRAPPER.format(folder=folder, libraries=standin.libraries(), name=name))
        wrapper.chmod(0o755)
    conf = {
        "Prolog": folder / "prolog.sh", "HealthCheckProgram": folder / "health.sh",
        "HealthCheckInterval": 2, "HealthCheckNodeState": "ANY", "PrologFlags": "Alloc",
    }  # fmt: skip
    with cluster(folder / "cluster", len(NODES), conf, gpus=2) as running:
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
    driver(slurm.folder.parent, "n2", **SICK)  # n1 was asked again when n2 is drained
    slurm.until(lambda: f"n2 gpusetup: {ECC}" in slurm.reasons(), "n2 is not drained")
    assert "new cables" in slurm.reasons()
    slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")
