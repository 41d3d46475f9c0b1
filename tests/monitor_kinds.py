"""Kinds of runs, each with the verdict and the next steps that are right for it.

The labels were written before any of them was judged, each for what happens in the run and not for
what a rule makes of it. A kind is composed several times, with other cards, lengths and noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from monitor_composer import (
    A100,
    ALL,
    BIG,
    L40S,
    RTX3060,
    RTX4090,
    Card,
    Gpu,
    Host,
    Run,
    Tree,
    compose,
    loop,
    pausing,
    ramp,
    random_bursts,
    some,
    then,
)

from gpusetup.model.frozen import Frozen, replace

TRAIN = "python train.py --config conf/base.yaml"
RANKS = "torchrun --nproc_per_node=4 train.py"


class Kind(Frozen):
    verdicts: tuple[str, ...]
    """The right one; two where both say what happens."""
    steps: tuple[str, ...]
    """Those that follow; "" is none."""
    make: Callable[[random.Random], Run]


KINDS: dict[str, Kind] = {}


def kind(
    name: str, verdicts: str, *steps: str
) -> Callable[[Callable[[random.Random], Run]], Callable[[random.Random], Run]]:
    def keep(make: Callable[[random.Random], Run]) -> Callable[[random.Random], Run]:
        KINDS[name] = Kind(verdicts=tuple(verdicts.split()), steps=steps or ("",), make=make)
        return make

    return keep


def card(dice: random.Random, among: tuple[Card, ...] = ALL) -> Card:
    return dice.choice(among)


def steady(dice: random.Random) -> float:
    return dice.uniform(92, 99)


def workers(dice: random.Random) -> int:
    return dice.choice((2, 4, 8))


HOST = Host()
RANK_HOLDERS = tuple(((4000 + n, "python", "compute"),) for n in range(8))


def ranks(count: int, *gpus: Gpu) -> list[Gpu]:
    """One process a GPU; the last behaviour is that of all the rest."""
    told = [gpus[min(n, len(gpus) - 1)] for n in range(count)]
    return [replace(gpu, holders=RANK_HOLDERS[n]) for n, gpu in enumerate(told)]


# --- good -----------------------------------------------------------------------------------------


@kind("a steady training beside its workers", "good")
def _(d: random.Random) -> Run:
    tree = Tree(main=d.uniform(40, 99), workers=workers(d), each=d.uniform(8, 40), reads=3e6)
    return compose(d, [Gpu(use=steady(d))], tree, HOST, card=card(d), command=TRAIN)


@kind("a steady training, nobody watched its processes", "good")
def _(d: random.Random) -> Run:
    return compose(d, [Gpu(use=steady(d), weight=d.uniform(0.7, 0.95))], card=card(d))


@kind("pauses for evaluation and checkpoints", "good")
def _(d: random.Random) -> Run:
    use = pausing(steady(d), d.uniform(50, 80), d.uniform(8, 14))
    tree = Tree(main=70, workers=4, each=20)
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), seconds=320, command=TRAIN)


@kind("a training beside a display card", "good")
def _(d: random.Random) -> Run:
    display = Gpu(use=lambda at: 3 + at % 4, weight=0.3, memory=d.uniform(4, 9), bus=2, card=RTX3060,
                  holders=((900, "/usr/lib/xorg/Xorg", "graphics"),
                           (950, "/usr/bin/gnome-shell", "graphics")))  # fmt: skip
    tree = Tree(main=70, workers=6, each=20)
    return compose(d, [Gpu(use=steady(d)), display], tree, HOST, card=RTX4090, command=TRAIN)


# --- the input ------------------------------------------------------------------------------------


@kind(
    "workers decode without rest, cores are free", "input-starved", "more-workers", "cheaper-items"
)
def _(d: random.Random) -> Run:
    use = loop(d.uniform(0.05, 0.4), d.uniform(0.2, 0.6))
    tree = Tree(main=d.uniform(20, 60), workers=2, each=d.uniform(88, 99), cores=24, reads=1e7)
    return compose(d, [Gpu(use=use)], tree, Host(cores=24), card=card(d), command=TRAIN)


@kind("no workers, the main process reads and decodes", "input-starved", "load-with-workers")
def _(d: random.Random) -> Run:
    use = loop(0.1, d.uniform(0.1, 0.5))
    tree = Tree(main=d.uniform(95, 101), reads=2e6, inputs=d.uniform(3e7, 9e7))
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), command=TRAIN)


@kind("a disk of slow seeks holds the workers", "input-starved", "faster-storage")
def _(d: random.Random) -> Run:
    tree = Tree(main=12, workers=8, each=d.uniform(4, 15), reads=d.uniform(8e6, 4e7),
                blocked=d.uniform(3, 7))  # fmt: skip
    return compose(
        d, [Gpu(use=loop(0.1, d.uniform(0.3, 0.9)))], tree, HOST, card=card(d), command=TRAIN
    )


@kind("neighbours take the CPU from the workers", "input-starved", "free-the-cpu")
def _(d: random.Random) -> Run:
    tree = Tree(main=35, workers=8, each=d.uniform(30, 45), cores=16)
    host = Host(others=d.uniform(1150, 1250))
    return compose(
        d, [Gpu(use=loop(0.2, d.uniform(0.2, 0.6)))], tree, host, card=card(d), command=TRAIN
    )


# --- launches -------------------------------------------------------------------------------------


@kind("tiny kernels, one core is full, workers rest", "launch-bound", "larger-work",
      "compile-or-graphs")  # fmt: skip
def _(d: random.Random) -> Run:
    tree = Tree(main=d.uniform(94, 101), workers=d.choice((0, 4)), each=4, reads=1e5)
    gpu = Gpu(use=d.uniform(40, 78), weight=d.uniform(0.12, 0.3), bus=12, memory=30)
    return compose(d, [gpu], tree, HOST, card=card(d), command=TRAIN)


@kind("a molecular simulation of a small system", "launch-bound", "more-in-parallel")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=d.uniform(50, 80), weight=0.25, bus=5, memory=2)
    tree = Tree(main=d.uniform(97, 100))
    return compose(d, [gpu], tree, HOST, card=card(d), command="gmx mdrun -deffnm md -nb gpu")


# --- links ----------------------------------------------------------------------------------------


@kind(
    "ranks wait for each other over slow links", "communication-bound", "fewer-bytes-between-gpus"
)
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=99, weight=d.uniform(0.18, 0.3), bus=15, pcie=d.uniform(9e9, 20e9)))
    tree = Tree(main=100, helpers=300, workers=16, each=10, ranks=4, collective=8, cores=64)
    return compose(d, gpus, tree, Host(cores=64), card=card(d, (RTX4090, L40S)), command=RANKS)


@kind("NCCL spins, no link counters, the threads tell", "communication-bound",
      "fewer-bytes-between-gpus")  # fmt: skip
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=99, weight=d.uniform(0.18, 0.28), bus=14))
    tree = Tree(main=100, helpers=300, ranks=4, collective=8, cores=64)
    return compose(
        d, gpus, tree, Host(cores=64, network=d.choice((2e5, 9e8))), card=A100, command=RANKS
    )


@kind("parameters stay on the CPU and travel each step", "communication-bound", "stay-on-the-gpu")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=d.uniform(35, 75), weight=0.3, bus=15, pcie=d.uniform(15e9, 25e9))
    tree = Tree(main=d.uniform(100, 600), workers=2, each=5)
    return compose(
        d, [gpu], tree, HOST, card=card(d, BIG), command="deepspeed train.py --deepspeed z3.json"
    )


@kind("a collective hangs: kernels spin and nothing moves", "communication-bound idle",
      "see-where-it-waits")  # fmt: skip
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=100, weight=0.14, bus=0, nvlink=0.0, pcie=1e6))
    tree = Tree(main=100, helpers=300, ranks=4, collective=8, cores=64)
    return compose(d, gpus, tree, Host(cores=64), card=A100, command=RANKS)


# --- memory ---------------------------------------------------------------------------------------


@kind("memory nearly full all the time", "memory-tight", "leave-a-margin")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=steady(d), memory=d.uniform(96.5, 98.5))
    return compose(d, [gpu], Tree(main=70, workers=4, each=20), HOST, card=card(d), command=TRAIN)


@kind("memory touches 99 % and the command ends with an error", "memory-tight", "leave-a-margin")
def _(d: random.Random) -> Run:
    end = d.uniform(60, 100)
    gpu = Gpu(use=steady(d), memory=then((end - 3, 80), (9999, 99.3)))
    tree = Tree(main=70, workers=4, each=20)
    return compose(d, [gpu], tree, HOST, card=card(d), seconds=end, command=TRAIN, exit=1)


@kind("memory grows until it is full", "memory-tight", "find-the-leak", "leave-a-margin")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=steady(d), memory=ramp(d.uniform(40, 55), 99.5, 200))
    tree = Tree(main=70, workers=4, each=20)
    return compose(d, [gpu], tree, HOST, card=card(d), seconds=200, command=TRAIN, exit=1)


# --- held down ------------------------------------------------------------------------------------


@kind("one hot card of eight makes all ranks wait", "throttled", "cool")
def _(d: random.Random) -> Run:
    hot = Gpu(use=99, heat=90, clock=58, weight=0.7, reasons=("hw_thermal_slowdown",))
    gpus = ranks(8, hot, Gpu(use=d.choice((97, 65)), weight=0.55))
    tree = Tree(main=100, helpers=700, ranks=8, collective=16, cores=128)
    return compose(
        d, gpus, tree, Host(cores=128), card=A100, command="torchrun --nproc_per_node=8 t.py"
    )


@kind("the power supply brakes", "throttled", "check-the-supply")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=97, clock=d.uniform(35, 60), weight=0.5,
              reasons=some(0.6, "hw_slowdown", "hw_power_brake_slowdown"))  # fmt: skip
    return compose(d, [gpu], card=card(d, BIG))


@kind("low clocks were set by hand", "throttled", "reset-the-clocks")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=98, clock=d.uniform(40, 65), weight=0.5, reasons=("applications_clocks_setting",))
    return compose(d, [gpu], card=card(d, BIG))


# --- several GPUs ---------------------------------------------------------------------------------


@kind("one rank works while the others spin and wait", "uneven", "balance-the-work")
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=99, weight=0.88), Gpu(use=100, weight=d.uniform(0.1, 0.22), bus=6))
    tree = Tree(main=100, helpers=300, ranks=4, collective=8, cores=64)
    return compose(d, gpus, tree, Host(cores=64), card=A100, command=RANKS)


@kind("the second card holds the process and is left out", "uneven", "one-process-each")
def _(d: random.Random) -> Run:
    gpus = [Gpu(use=steady(d)), Gpu(use=0, memory=2)]
    tree = Tree(main=80, workers=4, each=20, ranks=1)
    return compose(d, gpus, tree, HOST, card=A100, command=TRAIN)


# --- nothing, or now and then ---------------------------------------------------------------------


@kind("torch computes on the CPU", "idle", "see-whether-torch-can")
def _(d: random.Random) -> Run:
    tree = Tree(main=d.uniform(700, 1500))
    return compose(d, [Gpu(use=0, memory=0.5, holders=())], tree, HOST, card=card(d), command=TRAIN)


@kind("nothing runs and nobody holds the card", "idle", "watch-the-command", "")
def _(d: random.Random) -> Run:
    return compose(d, [Gpu(use=0, memory=0.3, holders=())], card=card(d))


@kind("a server waits for requests", "bursty idle", "send-more-requests")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=random_bursts(d, 2, 6, 80), memory=90,
              holders=((5000, "VLLM::EngineCore", "compute"),))  # fmt: skip
    tree = Tree(main=d.uniform(10, 60))
    return compose(d, [gpu], tree, HOST, card=card(d, BIG), seconds=180,
                   command="python -m vllm.entrypoints.openai.api_server --model org/m")  # fmt: skip


@kind("a notebook whose cells are run by hand", "bursty idle", "release-between-cells")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=random_bursts(d, 5, 20), memory=40)
    tree = Tree(main=20)
    return compose(
        d, [gpu], tree, HOST, card=card(d), seconds=240, command="jupyter lab --no-browser"
    )


@kind("bursts that nobody watched the cause of", "bursty", "watch-the-command")
def _(d: random.Random) -> Run:
    use = d.choice((loop(2, 3), loop(0.2, 0.3), random_bursts(d, 2, 3)))
    return compose(d, [Gpu(use=use)], card=card(d))


@kind("checkpoints take half of the run", "bursty", "shorter-pauses")
def _(d: random.Random) -> Run:
    work, rest = d.uniform(15, 25), d.uniform(20, 30)
    writing = lambda at: 6e8 if at % (work + rest) >= work else 0.0  # noqa: E731
    tree = Tree(main=60, workers=4, each=2, writes=writing)
    use = pausing(97, work, rest)
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), seconds=400, command=TRAIN)


SEEDS = range(4)


def composed(name: str, seed: int) -> Run:
    return KINDS[name].make(random.Random(f"{name} {seed}"))
