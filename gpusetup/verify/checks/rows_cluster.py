"""The rows about several devices and about time: among GPUs, among ranks, under load."""

from __future__ import annotations

from typing import Tuple

from ..values import Check

RANKS_ONLY = ("ranks:cuda", "ranks:cpu")
TOGETHER_SECONDS = 25.0
"""No check among ranks may take longer: waiting for the others and the collective are shorter."""
NETWORK_STEP = "`NCCL_DEBUG=INFO` (gloo: `TORCH_DISTRIBUTED_DEBUG=DETAIL`) says where it stands"


def among_ranks(name: str, proves: str, *needs: str) -> Check:
    return Check(
        name,
        f"ranks.collectives:{name}",
        on=RANKS_ONLY,
        needs=("import", *needs),
        limit_seconds=TOGETHER_SECONDS,
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
    among_ranks("meet", "all ranks form one group, each on a GPU of its own"),
    among_ranks("all_reduce", "sums over all ranks are exact", "meet"),
    among_ranks(
        "all_gather",
        "every rank's part arrives in order",
        "all_reduce",
    ),
    among_ranks(
        "reduce_scatter",
        "each rank gets its part of the sum",
        "all_gather",
    ),
    among_ranks(
        "broadcast",
        "one rank's values reach every rank",
        "all_gather",
    ),
    among_ranks(
        "all_to_all",
        "parts reach the rank they are for",
        "broadcast",
    ),
    among_ranks(
        "ddp_step",
        "a DDP step agrees with a single process",
        "broadcast",
    ),
    among_ranks(
        "fsdp_step",
        "an FSDP2 step agrees with one process",
        "ddp_step",
    ),
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
