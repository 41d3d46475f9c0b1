"""A second portion of kinds, written after the rules were landed and labelled before it was judged."""

from __future__ import annotations

import random

from monitor_composer import (
    A100,
    H100,
    L40S,
    RTX4090,
    Gpu,
    Host,
    Run,
    Tree,
    compose,
    loop,
    pausing,
    some,
    then,
)
from monitor_kinds import HOST, RANKS, TRAIN, card, kind, ranks, steady, workers

BIG = (A100, H100, L40S)


@kind("one sample in ten seconds for half an hour, good", "good")
def _(d: random.Random) -> Run:
    return compose(d, [Gpu(use=steady(d))], card=card(d), seconds=1800, interval=10)


@kind("the first epoch reads from a cold disk, later ones from memory", "good")
def _(d: random.Random) -> Run:
    end = d.uniform(80, 140)
    use = then((end, loop(0.1, 0.4)), (9999, steady(d)))
    tree = Tree(
        main=40, workers=8, each=then((end, 10), (9999, 30)), reads=then((end, 9e7), (9999, 1e5))
    )
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), seconds=400, command=TRAIN)


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
    "four ranks over PCIe, the cards half idle", "communication-bound", "fewer-bytes-between-gpus"
)
def _(d: random.Random) -> Run:
    gpus = ranks(4, Gpu(use=d.uniform(55, 75), weight=0.7, bus=20, pcie=d.uniform(12e9, 20e9)))
    tree = Tree(main=100, helpers=300, workers=16, each=12, ranks=4, collective=8, cores=64)
    return compose(d, gpus, tree, Host(cores=64), card=RTX4090, command=RANKS)


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


@kind("memory falls from full to nothing without a command", "memory-tight", "leave-a-margin")
def _(d: random.Random) -> Run:
    end = d.uniform(60, 80)
    gpu = Gpu(use=then((end, 97), (9999, 0)), memory=then((end - 4, 88), (end, 99.4), (9999, 1)))
    return compose(d, [gpu], card=card(d), seconds=90)


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
