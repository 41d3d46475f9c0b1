"""A second portion of kinds, written after the rules were landed and labelled before it was judged."""

from __future__ import annotations

import random

from monitor_composer import (
    A100,
    H100,
    L40S,
    RTX3060,
    RTX4090,
    Gpu,
    Host,
    Run,
    Tree,
    compose,
    loop,
    pausing,
    random_bursts,
    some,
    then,
)
from monitor_kinds import HOST, RANKS, TRAIN, card, kind, ranks, steady, workers

BIG = (A100, H100, L40S)
LAUNCHER = "accelerate launch --num_processes 4 train.py"


@kind("a good run whose source tells no memory traffic, no clocks and no reasons", "good")
def _(d: random.Random) -> Run:
    silent = ("memory_busy_percent", "clock_sm_mhz", "clock_sm_max_mhz", "throttle_reasons")
    return compose(d, [Gpu(use=steady(d))], card=card(d), silent=silent)


@kind("one sample in ten seconds for half an hour, good", "good")
def _(d: random.Random) -> Run:
    return compose(d, [Gpu(use=steady(d))], card=card(d), seconds=1800, interval=10)


@kind("loads for minutes, works, then writes its results", "good")
def _(d: random.Random) -> Run:
    use = then((d.uniform(60, 120), 0), (d.uniform(300, 400), steady(d)), (9999, 0))
    tree = Tree(main=then((120, 100), (9999, 60)), workers=4, each=10)
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), seconds=440, command=TRAIN)


@kind("the first epoch reads from a cold disk, later ones from memory", "good")
def _(d: random.Random) -> Run:
    end = d.uniform(80, 140)
    use = then((end, loop(0.1, 0.4)), (9999, steady(d)))
    tree = Tree(
        main=40, workers=8, each=then((end, 10), (9999, 30)), reads=then((end, 9e7), (9999, 1e5))
    )
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), seconds=400, command=TRAIN)


@kind("a generation job in batches fills the card", "good")
def _(d: random.Random) -> Run:
    tree = Tree(main=100)
    return compose(
        d,
        [Gpu(use=steady(d), memory=88)],
        tree,
        HOST,
        card=card(d, BIG),
        command="python generate.py --prompts p.jsonl",
    )


@kind("two jobs of two people on two cards, both good", "good")
def _(d: random.Random) -> Run:
    one = Gpu(use=96, holders=((10, "python", "compute"),), memory=85)
    other = Gpu(use=93, holders=((20, "python3.11", "compute"),), memory=30, weight=0.7)
    return compose(d, [one, other], card=A100)


@kind(
    "a power cap of a laptop that cannot be raised holds clocks far down", "throttled", "draw-less"
)
def _(d: random.Random) -> Run:
    gpu = Gpu(use=98, weight=1.0, clock=d.uniform(35, 52), reasons=("sw_power_cap",))
    laptop = RTX3060.__class__(
        name="NVIDIA GeForce RTX 3050 Laptop GPU", gib=4, watts=45, idle=6, mhz=1740
    )
    return compose(d, [gpu], Tree(main=70, workers=2, each=20), HOST, card=laptop, command=TRAIN)


@kind("hot with no reasons told", "throttled", "cool")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=97, heat=d.uniform(90, 93), clock=d.uniform(45, 65), weight=0.6)
    return compose(d, [gpu], card=card(d, (A100,)), silent=("throttle_reasons",))


@kind("heat in the second half of the run", "throttled", "cool")
def _(d: random.Random) -> Run:
    hot = lambda at: ("sw_thermal_slowdown",) if at > 100 else ()  # noqa: E731
    gpu = Gpu(use=97, heat=88, clock=78, reasons=hot)
    return compose(
        d, [gpu], Tree(main=70, workers=4, each=20), HOST, card=RTX4090, seconds=200, command=TRAIN
    )


@kind("starved, and a little warm", "input-starved", "more-workers", "cheaper-items")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=loop(0.1, d.uniform(0.2, 0.4)), reasons=some(0.2, "sw_thermal_slowdown"))
    tree = Tree(main=30, workers=2, each=d.uniform(88, 98), cores=16)
    return compose(d, [gpu], tree, HOST, card=card(d), command=TRAIN)


@kind(
    "four ranks wait for their loaders",
    "input-starved",
    "more-workers",
    "cheaper-items",
    "more-cores",
)
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=loop(0.1, d.uniform(0.1, 0.3))))
    tree = Tree(
        main=50, helpers=150, workers=8, each=d.uniform(90, 98), ranks=4, collective=8, cores=64
    )
    return compose(d, gpus, tree, Host(cores=64), card=A100, command=RANKS)


@kind("four ranks wait for a network file system", "input-starved", "faster-storage", "run-ahead")
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=loop(0.1, d.uniform(0.2, 0.5))))
    tree = Tree(
        main=30,
        helpers=90,
        workers=16,
        each=5,
        ranks=4,
        collective=8,
        cores=64,
        blocked=d.uniform(4, 12),
    )
    return compose(d, gpus, tree, Host(cores=64, network=3e8), card=A100, command=LAUNCHER)


@kind(
    "workers are uneven: some full, some idle",
    "input-starved",
    "run-ahead",
    "more-workers",
    "cheaper-items",
)
def _(d: random.Random) -> Run:
    tree = Tree(main=30, workers=4, each=d.uniform(40, 65), cores=16)
    return compose(
        d, [Gpu(use=loop(0.2, d.uniform(0.2, 0.5)))], tree, HOST, card=card(d), command=TRAIN
    )


@kind(
    "sixteen workers on sixteen cores decode without rest",
    "input-starved",
    "cheaper-items",
    "more-cores",
)
def _(d: random.Random) -> Run:
    tree = Tree(main=40, workers=16, each=d.uniform(88, 92), cores=16)
    return compose(
        d,
        [Gpu(use=loop(0.1, d.uniform(0.1, 0.4)))],
        tree,
        Host(others=10),
        card=card(d),
        command=TRAIN,
    )


@kind(
    "inference reads its inputs in one process",
    "input-starved",
    "off-the-loop",
    "load-with-workers",
)
def _(d: random.Random) -> Run:
    tree = Tree(main=d.uniform(95, 101), inputs=d.uniform(2e7, 9e7))
    return compose(d, [Gpu(use=loop(0.1, d.uniform(0.2, 0.4)), memory=30)], tree, HOST, card=card(d),
                   command="python predict.py --images data/")  # fmt: skip


@kind(
    "gradients over a slow network between machines",
    "communication-bound",
    "fewer-bytes-between-gpus",
)
def _(d: random.Random) -> Run:
    gpus = ranks(8, Gpu(use=98, weight=d.uniform(0.15, 0.27), bus=12, nvlink=1e9, pcie=1.2e9))
    tree = Tree(main=100, helpers=700, workers=32, each=6, ranks=8, collective=16, cores=128)
    return compose(d, gpus, tree, Host(cores=128, network=1.2e9), card=H100,
                   command="torchrun --nnodes 4 --nproc-per-node 8 t.py")  # fmt: skip


@kind(
    "four ranks over PCIe, the cards half idle", "communication-bound", "fewer-bytes-between-gpus"
)
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=d.uniform(55, 75), weight=0.7, bus=20, pcie=d.uniform(12e9, 20e9)))
    tree = Tree(main=100, helpers=300, workers=16, each=12, ranks=4, collective=8, cores=64)
    return compose(d, gpus, tree, Host(cores=64), card=RTX4090, command=RANKS)


@kind("pipeline stages of unlike weight", "uneven", "balance-the-work")
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=97), Gpu(use=70), Gpu(use=60), Gpu(use=d.uniform(30, 45)))
    tree = Tree(main=100, helpers=250, ranks=4, collective=8, cores=64)
    return compose(d, gpus, tree, Host(cores=64), card=A100, command=RANKS)


@kind(
    "one script uses one card of two, the other holds nothing",
    "uneven good",
    "one-process-each",
    "",
)
def _(d: random.Random) -> Run:
    gpus = [Gpu(use=steady(d)), Gpu(use=0, memory=0.5, holders=())]
    tree = Tree(main=80, workers=4, each=20, ranks=1)
    return compose(d, gpus, tree, HOST, card=RTX4090, command=TRAIN)


@kind(
    "a server whose engine fills a core between small batches",
    "launch-bound bursty",
    "more-in-parallel",
    "send-more-requests",
)
def _(d: random.Random) -> Run:
    gpu = Gpu(
        use=d.uniform(45, 75),
        weight=0.3,
        memory=90,
        holders=((5000, "VLLM::EngineCore", "compute"),),
    )
    return compose(
        d,
        [gpu],
        Tree(main=d.uniform(97, 101), helpers=40),
        HOST,
        card=card(d, BIG),
        command="vllm serve org/m",
    )


@kind("a server nobody asks", "idle", "see-where-it-waits", "send-more-requests")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=0, memory=90, holders=((5000, "VLLM::EngineCore", "compute"),))
    return compose(
        d, [gpu], Tree(main=2, ranks=1), HOST, card=card(d, BIG), command="vllm serve org/m"
    )


@kind("a server without a command, seen by its processes' names", "bursty", "send-more-requests")
def _(d: random.Random) -> Run:
    gpu = Gpu(
        use=random_bursts(d, 2, 4, 85), memory=90, holders=((5000, "VLLM::EngineCore", "compute"),)
    )
    return compose(d, [gpu], card=card(d, BIG), seconds=150)


@kind("the data are tokenised for the whole time that was watched", "idle", "prepare-once")
def _(d: random.Random) -> Run:
    tree = Tree(main=d.uniform(98, 101), helpers=d.uniform(200, 900), ranks=1)
    return compose(d, [Gpu(use=0, memory=3)], tree, HOST, card=card(d), command=TRAIN)


@kind(
    "a small network in float32 without a command",
    "launch-bound",
    "larger-work",
    "compile-or-graphs",
)
def _(d: random.Random) -> Run:
    gpu = Gpu(use=d.uniform(55, 80), weight=d.uniform(0.12, 0.3), bus=10, memory=12)
    return compose(d, [gpu], card=card(d, BIG))


@kind(
    "compiled already, tiny kernels, memory high",
    "launch-bound",
    "more-in-parallel",
    "larger-work",
    "",
)
def _(d: random.Random) -> Run:
    gpu = Gpu(use=steady(d), weight=0.2, bus=8, memory=d.uniform(50, 70))
    return compose(
        d,
        [gpu],
        Tree(main=100, workers=2, each=5),
        HOST,
        card=card(d, BIG),
        command="python train.py --torch_compile true",
    )


@kind("memory-bound inference of a language model", "memory-bound", "fewer-bytes")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=99, bus=d.uniform(75, 90), weight=0.55, memory=70)
    return compose(d, [gpu], Tree(main=100), HOST, card=card(d, BIG), command="python generate.py")


@kind("memory is full and the kernel's killer ends the command", "memory-tight", "leave-a-margin")
def _(d: random.Random) -> Run:
    gpu = Gpu(use=steady(d), memory=then((50, 85), (9999, 98.9)))
    return compose(
        d,
        [gpu],
        Tree(main=70, workers=4, each=20),
        HOST,
        card=card(d),
        seconds=56,
        command=TRAIN,
        exit=134,
    )


@kind("memory falls from full to nothing without a command", "memory-tight", "leave-a-margin")
def _(d: random.Random) -> Run:
    end = d.uniform(60, 80)
    gpu = Gpu(use=then((end, 97), (9999, 0)), memory=then((end - 4, 88), (end, 99.4), (9999, 1)))
    return compose(d, [gpu], card=card(d), seconds=90)


@kind(
    "a debugger's stop: the process sleeps for most of the run",
    "bursty",
    "shorter-pauses",
    "see-where-it-waits",
)
def _(d: random.Random) -> Run:
    use = then((40, 96), (d.uniform(200, 250), 0), (9999, 96))
    tree = Tree(main=then((40, 70), (200, 1), (9999, 70)))
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), seconds=300, command=TRAIN)


@kind(
    "saving takes half the run and no writes are told",
    "bursty",
    "shorter-pauses",
    "see-where-it-waits",
)
def _(d: random.Random) -> Run:
    tree = Tree(main=30, workers=workers(d), each=1)
    return compose(
        d,
        [Gpu(use=pausing(97, 20, d.uniform(18, 25)))],
        tree,
        HOST,
        card=L40S,
        seconds=400,
        command=TRAIN,
    )
