"""verify under a real Slurm: the ranks of `srun` meet, and one that hangs is named in time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, cluster, missing
from test_verify_ranks import FAULTS, FEW, all_but, judge_two
from verifying import FOLDER, IN_THE_WAY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "a Slurm is here"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm"), nodes=2) as made:
        for name in IN_THE_WAY:
            made.environment.pop(name, None)
        made.environment |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        yield made


def under_srun(
    slurm: Cluster, folder: Path, *words: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Two nodes with one task each; both are this machine, by names that only the tasks know."""
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost n1 n2\n", encoding="utf-8")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    ours = (sys.executable, str(FOLDER), "--device", "cpu", "--json", "--skip", *words)
    launcher = ("srun", "-N2", "-n2", "unshare", "-m", "sh", "-c", script, str(hosts))
    done = slurm.run(*launcher, *ours, timeout=280)
    found = re.search(r"(?ms)^\{$.*?^\}$", done.stdout)
    assert found, done.stderr[-3000:]
    return done, json.loads(found[0])


def test_srun_starts_ranks_that_prove_each_other(slurm: Cluster, tmp_path: Path) -> None:
    done, document = under_srun(slurm, tmp_path, *all_but(*FEW))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count('"schema"') == 1
    judge_two(document, FEW)


def test_under_srun_a_rank_that_hangs_is_named_in_time(slurm: Cluster, tmp_path: Path) -> None:
    slurm.environment |= {"PYTHONPATH": str(FAULTS), "RANK_FAULT": "1 broadcast hang"}
    done, document = under_srun(slurm, tmp_path, *all_but(*FEW))
    rows = {f"{row['name']}@{row['device']}": row for row in document["checks"]}
    assert "rank 1 hangs in broadcast; rank 0: broadcast/" in rows["broadcast@2 ranks"]["detail"]
    assert rows["broadcast@2 ranks"]["seconds"] < 50
    assert done.returncode != 0
