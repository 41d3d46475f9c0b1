"""`fleet sweep` in the tasks of a real Ray cluster, by the program that the how-to page shows."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import free_ports

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "how-to" / "find-the-slow-link.md"
NODES = ("n1", "n2", "n3")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="ray is not installed: pip install 'gpusetup[ray]'",
    ),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a cluster with three nodes of two pretended GPUs each."""
    with subprocess.Popen(
        (sys.executable, str(HERE / "ray_cluster.py"), *NODES),
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=tmp_path_factory.mktemp("ray"), env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        address = process.stdout.readline().strip()
        assert address, "the cluster did not start"
        yield address
        process.stdin.close()
        process.wait(60)


class Sweep:
    """The page's program, at a port of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.port, self.program = free_ports(1)[0], folder / "sweep_ray.py"
        (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        text = text.replace("29500", str(self.port)).replace('"auto"', f'"{address}"')
        self.program.write_text(text, encoding="utf-8")

    def told(self, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            (sys.executable, str(self.program), "--device", "cpu", "--json", *words),
            capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
        document: dict[str, Any] = json.loads(line)
        assert done.returncode == (0 if document.get("ok") else 1), (line, done.stderr[-2000:])
        return document

    def worker(self, rank: int) -> int | None:
        """The process of a rank that computes and exchanges."""
        mine = {f"RANK={rank}", f"MASTER_PORT={self.port}"}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_text().split("\0")
                known = set((place / "environ").read_text(errors="replace").split("\0"))
            except OSError:
                continue
            if mine <= known and any(word.endswith("exchange.py") for word in words):
                return int(place.name)
        return None

    def stop(self, rank: int, ended: threading.Event) -> None:
        """Stop that process once it is connected with the store."""
        while not ended.wait(0.05):
            found = self.worker(rank)
            if found and connected(found):
                os.kill(found, signal.SIGSTOP)
                return


def connected(process: int) -> bool:
    try:
        return any(
            "socket:" in str(each.readlink()) for each in Path(f"/proc/{process}/fd").iterdir()
        )
    except OSError:
        return False


def test_in_tasks_of_ray_every_gpu_is_a_rank(address: str, tmp_path: Path) -> None:
    document = Sweep(tmp_path, address).told("--bytes", "64K", "--limit", "20")
    assert [rank["rank"] for rank in document["ranks"]] == list(range(2 * len(NODES)))
    assert document["backend"] == "gloo" and document["nodes"] == 1
    assert all(rank["computing"] and rank["within"] for rank in document["ranks"])
    assert not {one["fault"] for one in document["findings"]} & {"absent", "hung", "unmeasured"}


def test_in_tasks_of_ray_a_rank_that_stops_is_named(address: str, tmp_path: Path) -> None:
    sweep, ended = Sweep(tmp_path, address), threading.Event()
    stopper = threading.Thread(target=sweep.stop, args=(3, ended), daemon=True)
    stopper.start()
    document = sweep.told("--bytes", "64K", "--limit", "5")
    ended.set()
    stopper.join()
    named = {(one["fault"], tuple(one["ranks"])) for one in document["findings"]}
    assert ("hung", (3,)) in named
    assert all(rank["computing"] for rank in document["ranks"] if rank["rank"] != 3)
