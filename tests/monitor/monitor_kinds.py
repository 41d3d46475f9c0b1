"""Kinds of runs, each with the verdict and the next steps that are right for it.

The labels were written before any of them was judged, each for what happens in the run and not for
what a rule makes of it. A kind is composed several times, with other cards and noise.
"""

from __future__ import annotations

import random
from typing import Any

from monitor_composer import (
    A100,
    ALL,
    BIG,
    HOST,
    L40S,
    RTX4090,
    TRAIN,
    Card,
    Gpu,
    Host,
    Run,
    Tree,
    compose,
    loop,
    pausing,
    random_bursts,
    ranks,
    then,
)

from gpusetup.model.frozen import Frozen

SEEDS = range(4)


class Kind(Frozen):
    verdicts: tuple[str, ...]
    """The right one; two where both say what happens."""
    steps: tuple[str, ...]
    """Those that follow; "" is none."""
    gpus: Any
    cards: tuple[Card, ...]
    more: dict[str, Any]


KINDS: dict[str, Kind] = {}


def kind(
    name: str, verdicts: str, steps: str, *gpus: Gpu, cards: tuple[Card, ...] = ALL, **more: Any
) -> None:
    named = tuple(steps.split()) or ("",)
    KINDS[name] = Kind(
        verdicts=tuple(verdicts.split()), steps=named, gpus=gpus, cards=cards, more=more
    )


def composed(name: str, seed: int) -> Run:
    dice, its = random.Random(f"{name} {seed}"), KINDS[name]
    more = {"tree": None, "host": HOST, "command": TRAIN, **its.more}
    return compose(dice, its.gpus, card=dice.choice(its.cards), **more)


UNWATCHED: dict[str, Any] = {"command": None, "host": None}
RANKS: dict[str, Any] = {"command": "torchrun --nproc_per_node=4 train.py", "cards": (A100,)}
WELL_FED = Tree(main=70, workers=4, each=20)
LAPTOP = Card(name="NVIDIA GeForce RTX 4070 Laptop GPU", gib=8, watts=100, idle=6, mhz=2250)
CAPPED: dict[str, Any] = {"reasons": ("sw_power_cap",)}


def hung(since: float) -> Gpu:
    return Gpu(
        use=then((since, 96), (9999, 100)),
        weight=then((since, 0.85), (9999, 0.08)),
        bus=45,
        nvlink=lambda at: 8e10 if at < since else None,
    )


# --- good runs, and cards that are held down ------------------------------------------------------

kind(
    "a steady training beside its workers", "good", "", Gpu(use=96),
    tree=Tree(main=70, workers=4, each=24, reads=3e6),
)  # fmt: skip
kind(
    "pauses for evaluation and checkpoints", "good", "", Gpu(use=pausing(96, 65, 11)),
    tree=WELL_FED, seconds=320,
)  # fmt: skip
kind(
    "a laptop that draws a third of its limit", "throttled", "plug-it-in",
    Gpu(use=96, weight=0.3, clock=35, heat=52, **CAPPED), cards=(LAPTOP,), **UNWATCHED,
)  # fmt: skip
# --- GPUs that wait for each other, or for their host ---------------------------------------------

kind(
    "ranks wait for each other over slow links", "communication-bound", "fewer-bytes-between-gpus",
    *ranks(4, Gpu(use=99, weight=0.24, bus=15, pcie=14e9)), host=Host(cores=64),
    tree=Tree(main=100, helpers=300, workers=16, each=10, ranks=4, cores=64),
    **{**RANKS, "cards": (RTX4090, L40S)},
)  # fmt: skip
kind(
    "one rank works while the others spin and wait", "uneven", "balance-the-work",
    *ranks(4, Gpu(use=99, weight=0.88), Gpu(use=100, weight=0.16, bus=6)), host=Host(cores=64),
    tree=Tree(main=100, helpers=300, ranks=4, cores=64), **RANKS,
)  # fmt: skip
kind(
    "a collective hangs after healthy work, the run is killed", "communication-bound",
    "see-where-it-waits", *ranks(4, hung(110)), seconds=300, exit=137,
    tree=Tree(main=100, helpers=300, workers=8, each=then((110, 30), (9999, 0)), ranks=4, cores=64),
    **RANKS,
)  # fmt: skip
# --- GPUs that wait for their input ---------------------------------------------------------------

kind(
    "workers decode without rest, cores are free", "input-starved", "more-workers cheaper-items",
    Gpu(use=loop(0.2, 0.4)), tree=Tree(main=40, workers=2, each=94, cores=24, reads=1e7),
    host=Host(cores=24),
)  # fmt: skip
kind(
    "no workers, the main process reads and decodes", "input-starved", "load-with-workers",
    Gpu(use=loop(0.1, 0.3)), tree=Tree(main=98, reads=2e6, inputs=6e7),
)  # fmt: skip
kind(
    "a disk of slow seeks holds the workers", "input-starved", "faster-storage",
    Gpu(use=loop(0.1, 0.6)), tree=Tree(main=12, workers=8, each=9, reads=2e7, blocked=5),
)  # fmt: skip
kind(
    "workers wait for a network file system, the disk is quiet", "input-starved", "faster-storage",
    Gpu(use=loop(0.4, 0.7)), tree=Tree(main=15, workers=8, each=9, inputs=11e7, blocked=5),
    host=Host(network=10e7, reads=1e5),
)  # fmt: skip
kind(
    "the machine swaps: its memory is full, the disk reads and writes", "memory-tight",
    "use-less-host-memory", Gpu(use=loop(0.15, 0.9)),
    tree=Tree(main=10, workers=4, each=6, reads=1e8, blocked=3),
    host=Host(memory=99, reads=2e8, writes=15e7),
)  # fmt: skip
kind(
    "a container's CPU quota holds the command back", "input-starved", "more-cores",
    Gpu(use=loop(0.3, 0.7)), tree=Tree(main=40, workers=4, each=38, cores=2),
    host=Host(cores=48, others=300),
)  # fmt: skip
# --- small kernels, and memory --------------------------------------------------------------------

kind(
    "tiny kernels, one core is full, workers rest", "launch-bound", "larger-work compile-or-graphs",
    Gpu(use=60, weight=0.2, bus=12, memory=30), tree=Tree(main=98, workers=4, each=4, reads=1e5),
)  # fmt: skip
kind(
    "memory touches 99 % and the command ends with an error", "memory-tight", "leave-a-margin",
    Gpu(use=96, memory=then((77, 80), (9999, 99.3))), tree=WELL_FED, seconds=80, exit=1,
)  # fmt: skip
kind(
    "memory-bound inference of a language model", "memory-bound", "fewer-bytes",
    Gpu(use=99, bus=82, weight=0.55, memory=70), tree=Tree(main=100), cards=BIG,
    command="python generate.py",
)  # fmt: skip

# --- little happens, or nobody tells what ---------------------------------------------------------

kind(
    "torch computes on the CPU", "idle", "see-whether-torch-can",
    Gpu(use=0, memory=0.5, holders=()), tree=Tree(main=1100),
)  # fmt: skip
kind(
    "a server waits for requests", "bursty idle", "send-more-requests",
    Gpu(use=random_bursts(2, 6, 80), memory=90, holders=((5000, "VLLM::EngineCore", "compute"),)),
    tree=Tree(main=35), cards=BIG, seconds=180,
    command="python -m vllm.entrypoints.openai.api_server --model org/m",
)  # fmt: skip
kind(
    "a notebook whose cells are run by hand", "bursty idle", "release-between-cells",
    Gpu(use=random_bursts(5, 20), memory=40), tree=Tree(main=20), seconds=240,
    command="jupyter lab --no-browser",
)  # fmt: skip
kind(
    "checkpoints take half of the run", "bursty", "shorter-pauses", Gpu(use=pausing(97, 20, 25)),
    tree=Tree(main=60, workers=4, each=2, writes=lambda at: 6e8 if at % 45 >= 20 else 0.0),
    seconds=400,
)  # fmt: skip
kind(
    "the model was left on the CPU, the card only holds a context", "idle", "move-to-the-gpu",
    Gpu(use=0, memory=2), tree=Tree(main=1100, workers=2, each=3),
)  # fmt: skip
kind(
    "a job stands still, and the record ends before anybody sees it", "bursty",
    "see-where-it-waits", Gpu(use=then((140, 96), (9999, 0))), seconds=290,
    tree=Tree(main=then((140, 70), (9999, 0.3)), workers=4, each=then((140, 30), (9999, 0))),
)  # fmt: skip
