"""The rows about several devices and about time: among GPUs, among ranks, under load."""

from __future__ import annotations

from typing import Tuple

from ..values import Check

RANKS_ONLY = ("ranks:cuda", "ranks:cpu")
TOGETHER_SECONDS = 100.0
"""No check among ranks may take longer: waiting for the others, its calls and the time after which
one collective is given up are shorter together."""
MEETING_SECONDS = 300.0
"""A cold file system, a slow start, and the first connections count in."""
NETWORK_STEP = "`NCCL_DEBUG=INFO` (gloo: `TORCH_DISTRIBUTED_DEBUG=DETAIL`) says where it waits"


def among_ranks(
    name: str, proves: str, *needs: str, module: str = "collectives", seconds: float = 0.0
) -> Check:
    return Check(
        name,
        f"ranks.{module}:{name}",
        on=RANKS_ONLY,
        needs=("import", *needs),
        limit_seconds=seconds or TOGETHER_SECONDS,
        proves=proves,
        means="training on these ranks would hang, stop, or compute something else",
        then=NETWORK_STEP,
    )


DISTRIBUTED: Tuple[Check, ...] = (
    Check(
        "peers",
        "checks.peers:copies_between_gpus",
        on=("host:auto", "host:cuda"),
        needs=("gpu",),
        least_gpus=2,
        proves="what one GPU copies to another arrives, for every pair, directly or by the host",
        means="model or data parallel training would work on other numbers than were sent",
        then="`nvidia-smi topo -p2p r`; NCCL_P2P_DISABLE=1 goes around a bad link",
    ),
)
"""Rows of one process with several GPUs."""

RANKS: Tuple[Check, ...] = (
    among_ranks(
        "meet",
        "all ranks form one group, each on its own GPU",
        module="meeting",
        seconds=MEETING_SECONDS,
    ),
    among_ranks("all_reduce", "sums and other reductions over ranks are exact", "meet"),
    among_ranks("reduce", "a reduction arrives at the rank that it is for", "meet"),
    among_ranks("broadcast", "one rank's values reach every rank", "meet"),
    among_ranks("all_gather", "every rank's part arrives in order", "meet"),
    among_ranks("gather", "every rank's part arrives at one, in order", "meet"),
    among_ranks("scatter", "one rank's parts reach the ranks they are for", "meet"),
    among_ranks("reduce_scatter", "each rank gets its part of the sum", "meet"),
    among_ranks("all_to_all", "parts reach the rank they are for", "meet"),
    among_ranks("send_recv", "what a rank sends to another one arrives there", "meet"),
    among_ranks("barrier", "no rank leaves a barrier before all have come", "meet"),
    among_ranks(
        "ddp_step",
        "DDP, with small buckets, accumulated and in sub-groups, agrees with one process",
        "meet",
        module="training",
    ),
    among_ranks("fsdp_step", "FSDP2 agrees with one process", "meet", module="training"),
    among_ranks("tp_step", "tensor parallel agrees with one process", "meet", module="training"),
)
"""Rows that run in addition, at any level, where torchrun or srun started several ranks."""

STRESS: Tuple[Check, ...] = (
    Check(
        "load",
        "checks.stress:load",
        on=("cuda", "cpu"),
        needs=("properties", "arch"),
        lasts=True,
        proves="under sustained load every result is the same bit for bit, at a steady rate",
        means="long training runs on this device would slow down or go wrong",
        then="watch it: `gpusetup monitor 60`",
    ),
)
