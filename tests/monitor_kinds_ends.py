"""A third portion, labelled before the rules for it were written: runs that hang, lose a card, wait
for another node, swap, or come from a source that tells little."""

from __future__ import annotations

import random

from monitor_composer import (
    A100,
    H100,
    Card,
    Gpu,
    Host,
    Run,
    Tree,
    compose,
    loop,
    then,
)
from monitor_kinds import HOST, TRAIN, card, kind, ranks, steady, workers

NODES = "torchrun --nnodes 4 --nproc_per_node 8 --rdzv_backend c10d train.py"
RANKS = "torchrun --nproc_per_node=4 train.py"
UNSAID = ("power_limit_default_watts", "power_limit_max_watts")


# --- several nodes --------------------------------------------------------------------------------


@kind("ranks wait in collectives, links are told and quiet, the network is not told",
      "communication-bound", "fewer-bytes-between-gpus")  # fmt: skip
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=99, weight=d.uniform(0.1, 0.2), bus=25, nvlink=1e9, pcie=4e8))
    tree = Tree(main=100, helpers=300, ranks=4, collective=12, cores=64)
    return compose(d, gpus, tree, card=A100, command=NODES)


# --- hangs ----------------------------------------------------------------------------------------


def hung(d: random.Random, since: float) -> Gpu:
    return Gpu(
        use=then((since, steady(d)), (9999, 100)),
        weight=then((since, 0.85), (9999, 0.08)),
        bus=45,
        nvlink=lambda at: 8e10 if at < since else None,
    )


@kind("a collective hangs after healthy work, the run is killed", "communication-bound",
      "see-where-it-waits")  # fmt: skip
def _(d: random.Random) -> Run:
    since = d.uniform(80, 150)
    tree = Tree(main=100, helpers=300, workers=8, each=then((since, 30), (9999, 0)), ranks=4,
                collective=12, cores=64)  # fmt: skip
    return compose(d, ranks(4, hung(d, since)), tree, HOST, card=A100, seconds=since + 190,
                   command=RANKS, exit=137)  # fmt: skip


# --- a card is lost -------------------------------------------------------------------------------


@kind("one card of eight falls off the bus, the ranks spin, the run ends with an error", "uneven",
      "see-why-it-was-lost")  # fmt: skip
def _(d: random.Random) -> Run:
    since = d.uniform(60, 120)
    gpus = ranks(8, hung(d, since))
    gpus[5] = Gpu(use=97, lost_after=since, nvlink=8e10)
    tree = Tree(main=100, helpers=700, ranks=8, collective=24, cores=64)
    return compose(d, gpus, tree, HOST, card=A100, seconds=220, command=RANKS, exit=1)


@kind("the only card is lost in the middle of a good run", "none", "see-why-it-was-lost")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=steady(d), lost_after=60)
    tree = Tree(main=70, workers=4, each=20)
    return compose(d, [gpu], tree, HOST, card=card(d), seconds=90, command=TRAIN, exit=1)


# --- a source that tells little -------------------------------------------------------------------

T4 = Card(name="Tesla T4", gib=15, watts=70, idle=10, mhz=1590)
L4 = Card(name="NVIDIA L4", gib=23, watts=72, idle=14, mhz=2040)
UNKNOWN = Card(name="NVIDIA Graphics Device", gib=48, watts=300, idle=25, mhz=2400)
RTX3090 = Card(name="NVIDIA GeForce RTX 3090", gib=24, watts=350, idle=25, mhz=2100)


@kind("a card of no known name at its power limit, no rated power told", "good")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=99, weight=1.0, clock=d.uniform(55, 75), reasons=("sw_power_cap",))
    return compose(d, [gpu], card=UNKNOWN, silent=UNSAID)


@kind("a card far below its rated power, no rated power told", "throttled",
      "raise-the-power-limit")  # fmt: skip
def _(d: random.Random) -> Run:
    gpu = Gpu(use=98, weight=1.0, limit=d.uniform(0.55, 0.7), clock=d.uniform(55, 70),
              reasons=("sw_power_cap",))  # fmt: skip
    return compose(d, [gpu], card=card(d, (RTX3090, A100)), silent=UNSAID)


@kind("small kernels, told by the multiprocessors alone", "launch-bound", "larger-work",
      "compile-or-graphs")  # fmt: skip
def _(d: random.Random) -> Run:
    silent = (*UNSAID, "name", "power_limit_watts", "throttle_reasons", "processes")
    gpu = Gpu(use=99, weight=0.25, bus=6, sm_active=d.uniform(6, 18), memory=50)
    return compose(d, [gpu], card=card(d, (A100, H100)), silent=silent)


# --- causes ---------------------------------------------------------------------------------------


@kind("workers wait for a network file system, the disk is quiet", "input-starved",
      "faster-storage")  # fmt: skip
def _(d: random.Random) -> Run:
    tree = Tree(main=15, workers=8, each=d.uniform(5, 15), inputs=1.1e8, blocked=d.uniform(3, 7))
    host = Host(network=d.uniform(9e7, 1.2e8), reads=1e5)
    gpu = Gpu(use=loop(0.4, 0.7))
    return compose(d, [gpu], tree, host, card=card(d), command=TRAIN)


@kind("the machine swaps: its memory is full, the disk reads and writes", "input-starved",
      "free-host-memory")  # fmt: skip
def _(d: random.Random) -> Run:
    tree = Tree(main=10, workers=workers(d), each=6, reads=1e8, blocked=d.uniform(2, 5))
    host = Host(memory=d.uniform(98.5, 99.6), reads=2e8, writes=1.5e8)
    return compose(d, [Gpu(use=loop(0.15, 0.9))], tree, host, card=card(d), command=TRAIN)


@kind("a container's CPU quota holds the command back", "input-starved", "more-cores")
def _(d: random.Random) -> Run:
    tree = Tree(main=40, workers=4, each=38, held_back=d.uniform(60, 90), cores=2)
    host = Host(cores=48, others=300)
    return compose(d, [Gpu(use=loop(0.3, 0.7))], tree, host, card=card(d), command=TRAIN)


@kind("environments fill all cores, the policy waits", "input-starved", "speed-up-the-producers")
def _(d: random.Random) -> Run:
    tree = Tree(main=60, helpers=1500, cores=16)
    command = "python train.py --algo ppo --num-envs 16"
    gpu = Gpu(use=loop(0.15, 0.8), memory=20)
    return compose(d, [gpu], tree, HOST, card=card(d), command=command)


@kind("the model was left on the CPU, the card only holds a context", "idle", "move-to-the-gpu")
def _(d: random.Random) -> Run:
    tree = Tree(main=d.uniform(700, 1500), workers=2, each=3)
    return compose(d, [Gpu(use=0, memory=2)], tree, HOST, card=card(d), command=TRAIN)
