"""`fleet run --ray`: which nodes of a cluster are asked, and a real cluster in one machine."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import node_python
import pytest
import standin

from gpusetup.cli import main

ABSENT = importlib.util.find_spec("ray") is None
NODES = ("n1", "n2", "n3")
GPU = {**standin.A100, "processes": ""}


@pytest.mark.skipif(not ABSENT, reason="Ray is here")
def test_without_ray_it_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "run", "--ray", "auto"]) == 3
    assert "gpusetup[ray]" in capsys.readouterr().err


# --- on a real cluster ----------------------------------------------------------------------------

ON_NODE = """\
#!/bin/sh
export GPUSETUP_STANDIN={folder}/state-$NODE LD_LIBRARY_PATH={libraries}
test -f {folder}/hang-$NODE && [ "$4" = verify ] && exec sleep 600
exec {python} "$@"
"""


class Ray:
    """The program `ray_cluster.py`, and `fleet run` on it."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], address: str) -> None:
        self.folder, self.process, self.address = folder, process, address

    def told(self, line: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def fleet(self, into: str, *words: str) -> tuple[int, dict[str, Any], str]:
        pythons = (
            *("--node-python", str(self.folder / "node-python")),
            *("--python", str(self.folder / "env" / "bin" / "python")),
        )
        given = ("--device", "cpu", "--into", str(self.folder / into), "--json", *words)
        said = subprocess.run(
            (sys.executable, "-m", "gpusetup", "fleet", "run", "--ray", self.address,
             *pythons, *given),
            cwd=self.folder, text=True, capture_output=True, check=False,
        )  # fmt: skip
        return said.returncode, json.loads(said.stdout), said.stderr


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in answer["nodes"]}


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    if ABSENT:
        pytest.skip("ray is not installed: pip install 'gpusetup[ray]'")
    folder = tmp_path_factory.mktemp("ray")
    for node in NODES:
        (folder / f"state-{node}").write_text(standin.state((GPU, GPU)))
    node_python.cuda_environment(folder / "env")
    python = shlex.quote(sys.executable)
    text = ON_NODE.format(folder=folder, libraries=standin.libraries(), python=python)
    (folder / "node-python").write_text(text)
    (folder / "node-python").chmod(0o755)
    program = str(Path(__file__).parent / "ray_cluster.py")
    process = subprocess.Popen(
        (sys.executable, program, *NODES), text=True, cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address, "the cluster did not start"
        yield Ray(folder, process, address)
    finally:
        assert process.stdin
        with process:
            process.stdin.close()
            process.wait(60)


@pytest.mark.slow
def test_a_node_that_hangs_and_a_busy_one_are_told_apart(ray: Ray) -> None:
    (ray.folder / "hang-n2").write_text("")
    assert ray.told("hold n3") == "n3"
    code, answer, _ = ray.fleet("hung", "--limit", "30")
    (ray.folder / "hang-n2").unlink()
    ray.told("free")
    assert (code, states(answer)) == (1, {"n1": "ok", "n2": "failed"})
    assert answer["nodes"][0]["problem"] == "no answer in 30 s (no verify)"
    assert "its GPUs are in use" in answer["not_asked"]["n3"]


@pytest.mark.slow
def test_a_sick_node_is_named(ray: Ray) -> None:
    (ray.folder / "state-n1").write_text(standin.state((GPU, {**GPU, "ecc_uncorrected": 3})))
    code, answer, said = ray.fleet("sick", "--limit", "60")
    assert (code, states(answer)) == (1, {"n1": "failed", "n2": "ok", "n3": "ok"}), said
    assert "ecc-error" in {one["id"] for one in answer["nodes"][0]["findings"]}
