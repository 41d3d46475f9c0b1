"""Kinds of runs that wait for data or launches, or fill their memory."""

from __future__ import annotations

from monitor_composer import (
    BIG,
    HOST,
    TRAIN,
    Dice,
    Gpu,
    Host,
    Run,
    Tree,
    card,
    compose,
    kind,
    loop,
    ramp,
    some,
    steady,
    then,
    train,
    workers,
)

kind(
    "workers decode without rest, cores are free", "input-starved", "more-workers", "cheaper-items"
)(
    lambda d: compose(
        d,
        [Gpu(use=loop(d.uniform(0.05, 0.4), d.uniform(0.2, 0.6)))],
        Tree(main=d.uniform(20, 60), workers=2, each=d.uniform(88, 99), cores=24, reads=1e7),
        Host(cores=24),
        card=card(d),
        command=TRAIN,
    )
)

kind("no workers, the main process reads and decodes", "input-starved", "load-with-workers")(
    lambda d: train(
        d,
        Gpu(use=loop(0.1, d.uniform(0.1, 0.5))),
        Tree(main=d.uniform(95, 101), reads=2e6, inputs=d.uniform(3e7, 9e7)),
    )
)


@kind("a disk of slow seeks holds the workers", "input-starved", "faster-storage")
def _(d: Dice) -> Run:
    tree = Tree(
        main=12,
        workers=8,
        each=d.uniform(4, 15),
        reads=d.uniform(8e6, 4e7),
        blocked=d.uniform(3, 7),
    )
    return train(d, Gpu(use=loop(0.1, d.uniform(0.3, 0.9))), tree)


@kind("neighbours take the CPU from the workers", "input-starved", "free-the-cpu")
def _(d: Dice) -> Run:
    tree = Tree(main=35, workers=8, each=d.uniform(30, 45), cores=16)
    host = Host(others=d.uniform(1150, 1250))
    return compose(
        d, [Gpu(use=loop(0.2, d.uniform(0.2, 0.6)))], tree, host, card=card(d), command=TRAIN
    )


@kind(
    "tiny kernels, one core is full, workers rest",
    "launch-bound",
    "larger-work",
    "compile-or-graphs",
)
def _(d: Dice) -> Run:
    tree = Tree(main=d.uniform(94, 101), workers=d.choice((0, 4)), each=4, reads=1e5)
    gpu = Gpu(use=d.uniform(40, 78), weight=d.uniform(0.12, 0.3), bus=12, memory=30)
    return train(d, gpu, tree)


kind("a molecular simulation of a small system", "launch-bound", "more-in-parallel")(
    lambda d: train(
        d,
        Gpu(use=d.uniform(50, 80), weight=0.25, bus=5, memory=2),
        Tree(main=d.uniform(97, 100)),
        command="gmx mdrun -deffnm md -nb gpu",
    )
)

kind("memory nearly full all the time", "memory-tight", "leave-a-margin")(
    lambda d: train(
        d, Gpu(use=steady(d), memory=d.uniform(96.5, 98.5)), Tree(main=70, workers=4, each=20)
    )
)


@kind("memory touches 99 % and the command ends with an error", "memory-tight", "leave-a-margin")
def _(d: Dice) -> Run:
    end = d.uniform(60, 100)
    return train(
        d,
        Gpu(use=steady(d), memory=then((end - 3, 80), (9999, 99.3))),
        Tree(main=70, workers=4, each=20),
        seconds=end,
        exit=1,
    )


kind("memory grows until it is full", "memory-tight", "find-the-leak", "leave-a-margin")(
    lambda d: train(
        d,
        Gpu(use=steady(d), memory=ramp(d.uniform(40, 55), 99.5, 200)),
        Tree(main=70, workers=4, each=20),
        seconds=200,
        exit=1,
    )
)

kind("starved, and a little warm", "input-starved", "more-workers", "cheaper-items")(
    lambda d: train(
        d,
        Gpu(use=loop(0.1, d.uniform(0.2, 0.4)), reasons=some(0.2, "sw_thermal_slowdown")),
        Tree(main=30, workers=2, each=d.uniform(88, 98), cores=16),
    )
)


@kind(
    "workers are uneven: some full, some idle",
    "input-starved",
    "run-ahead",
    "more-workers",
    "cheaper-items",
)
def _(d: Dice) -> Run:
    tree = Tree(main=30, workers=4, each=d.uniform(40, 65), cores=16)
    return train(d, Gpu(use=loop(0.2, d.uniform(0.2, 0.5))), tree)


@kind(
    "sixteen workers on sixteen cores decode without rest",
    "input-starved",
    "cheaper-items",
    "more-cores",
)
def _(d: Dice) -> Run:
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
def _(d: Dice) -> Run:
    tree = Tree(main=d.uniform(95, 101), inputs=d.uniform(2e7, 9e7))
    return train(
        d,
        Gpu(use=loop(0.1, d.uniform(0.2, 0.4)), memory=30),
        tree,
        command="python predict.py --images data/",
    )


kind(
    "compiled already, tiny kernels, memory high",
    "launch-bound",
    "more-in-parallel",
    "larger-work",
    "",
)(
    lambda d: compose(
        d,
        [Gpu(use=steady(d), weight=0.2, bus=8, memory=d.uniform(50, 70))],
        Tree(main=100, workers=2, each=5),
        HOST,
        card=card(d, BIG),
        command="python train.py --torch_compile true",
    )
)

kind("memory-bound inference of a language model", "memory-bound", "fewer-bytes")(
    lambda d: compose(
        d,
        [Gpu(use=99, bus=d.uniform(75, 90), weight=0.55, memory=70)],
        Tree(main=100),
        HOST,
        card=card(d, BIG),
        command="python generate.py",
    )
)


@kind("memory falls from full to nothing without a command", "memory-tight", "leave-a-margin")
def _(d: Dice) -> Run:
    end = d.uniform(60, 80)
    return compose(
        d,
        [Gpu(use=then((end, 97), (9999, 0)), memory=then((end - 4, 88), (end, 99.4), (9999, 1)))],
        card=card(d),
        seconds=90,
    )


kind(
    "workers wait for a network file system, the disk is quiet", "input-starved", "faster-storage"
)(
    lambda d: compose(
        d,
        [Gpu(use=loop(0.4, 0.7))],
        Tree(main=15, workers=8, each=d.uniform(5, 15), inputs=11e7, blocked=d.uniform(3, 7)),
        Host(network=d.uniform(9e7, 12e7), reads=1e5),
        card=card(d),
        command=TRAIN,
    )
)

kind(
    "the machine swaps: its memory is full, the disk reads and writes",
    "memory-tight",
    "use-less-host-memory",
)(
    lambda d: compose(
        d,
        [Gpu(use=loop(0.15, 0.9))],
        Tree(main=10, workers=workers(d), each=6, reads=1e8, blocked=d.uniform(2, 5)),
        Host(memory=d.uniform(98.5, 99.6), reads=2e8, writes=15e7),
        card=card(d),
        command=TRAIN,
    )
)

kind("a container's CPU quota holds the command back", "input-starved", "more-cores")(
    lambda d: compose(
        d,
        [Gpu(use=loop(0.3, 0.7))],
        Tree(main=40, workers=4, each=38, cores=2),
        Host(cores=48, others=300),
        card=card(d),
        command=TRAIN,
    )
)

kind("environments fill all cores, the policy waits", "input-starved", "speed-up-the-producers")(
    lambda d: train(
        d,
        Gpu(use=loop(0.15, 0.8), memory=20),
        Tree(main=60, helpers=1500, cores=16),
        command="python train.py --algo ppo --num-envs 16",
    )
)


@kind(
    "the machine's CPU is used up, no command was watched", "input-starved", "see-who-uses-the-cpu"
)
def _(d: Dice) -> Run:
    cores = d.choice((8, 16, 48))
    host = Host(cores=cores, others=cores * d.uniform(93, 99))
    gpu = Gpu(use=d.choice((d.uniform(25, 70), loop(0.3, 0.5))), weight=d.uniform(0.35, 0.8))
    return compose(d, [gpu], None, host, card=card(d), silent=("processes",))


kind("a notebook of somebody holds half of the memory", "memory-tight", "free-the-card")(
    lambda d: train(
        d,
        Gpu(
            use=d.uniform(55, 75),
            memory=99.2,
            holders=((4000, "python", "compute"), (991, "python3", "compute")),
        ),
        Tree(main=65, workers=4, each=25, ranks=1),
    )
)
kind(
    "a small network on data that are on the card already",
    "launch-bound",
    "larger-work",
    "compile-or-graphs",
)(
    lambda d: train(
        d,
        Gpu(use=d.uniform(45, 70), weight=0.6, memory=30, pcie=4e6),
        Tree(main=d.uniform(95, 100)),
    )
)
