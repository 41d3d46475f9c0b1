"""What stands in for a Kubernetes: a program `kubectl`.

    python tests/fleet/kube_api.py CLUSTER.json create -f - | wait | logs | get | delete ...

The program runs a Job's command here, with the node's name in NODE.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

PROBLEMS = {
    "full": "no GPU|",
    "noimage": "|ImagePullBackOff",
}
"""Node -> what is told of a pod there, which does not begin."""


def kubectl(folder: Path, words: list[str]) -> int:
    """What kubectl prints and does; Jobs are files of the folder `jobs`."""
    verb, what = words[0], words[1]
    if verb == "get" and what in ("nodes", "pods") and "--no-headers" in words:
        print((folder / what).read_text(), end="")
        return 0
    if verb == "create":
        job = yaml.safe_load(sys.stdin)
        (folder / "jobs" / job["metadata"]["name"]).write_text(json.dumps(job))
        return 0
    name = next((word for word in words if "gpusetup-" in word), "")
    path = folder / "jobs" / name.removeprefix("job/").removeprefix("--selector=job-name=")
    if verb == "delete":
        path.unlink(missing_ok=True)
        return 0
    job = json.loads(path.read_text())
    node = job["metadata"]["annotations"]["gpusetup.io/node"]
    if verb == "wait":
        return 1 if node in PROBLEMS else 0
    if verb == "get":
        print(PROBLEMS[node])
    elif node not in PROBLEMS:
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        subprocess.run(command, env={**os.environ, "NODE": node}, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(kubectl(Path(sys.argv[1]), sys.argv[2:]))
