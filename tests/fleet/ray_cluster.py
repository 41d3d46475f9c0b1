"""A Ray cluster in one machine: a head and nodes with pretended GPUs, as a program.

    python tests/fleet/ray_cluster.py n1 n2 n3

Prints the address, then obeys lines of stdin: `hold NODE` takes its GPUs, `free` gives them back.
Answers each with a line; the end of stdin ends the cluster.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


class Holder:
    def name(self) -> str:
        return os.environ["NODE"]


def main(names: list[str]) -> None:
    cluster = Cluster()
    cluster.add_node(num_cpus=1, include_dashboard=False, env_vars={"NODE": "head"})
    nodes = {
        name: cluster.add_node(
            num_cpus=1, num_gpus=2, node_name=name, env_vars={"NODE": name},
        )
        for name in names
    }  # fmt: skip
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    print(cluster.address, flush=True)
    held: list[Any] = []
    for line in sys.stdin:
        print(_obeyed(line.split(), nodes, held), flush=True)
    ray.shutdown()
    cluster.shutdown()


def _obeyed(words: list[str], nodes: dict[str, Any], held: list[Any]) -> str:
    if words[0] == "hold":
        affinity = NodeAffinitySchedulingStrategy(node_id=nodes[words[1]].node_id, soft=False)
        options = ray.remote(Holder).options(num_gpus=1, num_cpus=0, scheduling_strategy=affinity)
        held.append(options.remote())
        return str(ray.get(held[-1].name.remote()))
    if words[0] == "free":
        ray.kill(held.pop())
    return "done"


if __name__ == "__main__":
    main(sys.argv[1:])
