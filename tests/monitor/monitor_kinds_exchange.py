"""Kinds of runs in which GPUs wait for each other or for their host."""

from __future__ import annotations

from monitor_composer import (
    A100,
    BIG,
    HOST,
    L40S,
    RANKS,
    RTX4090,
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
    ranks,
    steady,
    then,
    train,
)

from gpusetup.model.frozen import replace


def hung(d: Dice, since: float) -> Gpu:
    return Gpu(
        use=then((since, steady(d)), (9999, 100)),
        weight=then((since, 0.85), (9999, 0.08)),
        bus=45,
        nvlink=lambda at: 8e10 if at < since else None,
    )


def spinning(d: Dice, since: float) -> Gpu:
    return Gpu(
        use=then((since, steady(d)), (9999, 100)),
        weight=then((since, d.uniform(0.75, 0.9)), (9999, d.uniform(0.1, 0.16))),
        bus=45,
        pcie=2e6,
    )


def touching(run: Run, since: float) -> Run:
    """From then on no memory is touched."""
    samples = tuple(
        sample if sample.seconds < since else replace(
            sample, gpus=tuple(replace(gpu, memory_busy_percent=0) for gpu in sample.gpus))
        for sample in run.samples
    )  # fmt: skip
    return replace(run, samples=samples)


kind(
    "ranks wait for each other over slow links", "communication-bound", "fewer-bytes-between-gpus"
)(
    lambda d: compose(
        d,
        ranks(
            4,
            Gpu(
                use=99,
                weight=d.uniform(0.18, 0.3),
                bus=15,
                pcie=d.uniform(9e9, 20e9),
            ),
        ),
        Tree(main=100, helpers=300, workers=16, each=10, ranks=4, cores=64),
        Host(cores=64),
        card=card(d, (RTX4090, L40S)),
        command=RANKS,
    )
)

kind(
    "NCCL spins, no link counters, the threads tell",
    "communication-bound",
    "fewer-bytes-between-gpus",
)(
    lambda d: compose(
        d,
        ranks(4, Gpu(use=99, weight=d.uniform(0.18, 0.28), bus=14)),
        Tree(main=100, helpers=300, ranks=4, cores=64),
        Host(cores=64, network=d.choice((2e5, 9e8))),
        card=A100,
        command=RANKS,
    )
)

kind("parameters stay on the CPU and travel each step", "communication-bound", "stay-on-the-gpu")(
    lambda d: compose(
        d,
        [
            Gpu(
                use=d.uniform(35, 75),
                weight=0.3,
                bus=15,
                pcie=d.uniform(15e9, 25e9),
            )
        ],
        Tree(main=d.uniform(100, 600), workers=2, each=5),
        HOST,
        card=card(d, BIG),
        command="deepspeed train.py --deepspeed z3.json",
    )
)

kind(
    "a collective hangs: kernels spin and nothing moves",
    "communication-bound idle",
    "see-where-it-waits",
)(
    lambda d: compose(
        d,
        ranks(4, Gpu(use=100, weight=0.14, bus=0, nvlink=0.0, pcie=1e6)),
        Tree(main=100, helpers=300, ranks=4, cores=64),
        Host(cores=64),
        card=A100,
        command=RANKS,
    )
)

kind("one rank works while the others spin and wait", "uneven", "balance-the-work")(
    lambda d: compose(
        d,
        ranks(4, Gpu(use=99, weight=0.88), Gpu(use=100, weight=d.uniform(0.1, 0.22), bus=6)),
        Tree(main=100, helpers=300, ranks=4, cores=64),
        Host(cores=64),
        card=A100,
        command=RANKS,
    )
)

kind("the second card holds the process and is left out", "uneven", "one-process-each")(
    lambda d: compose(
        d,
        [Gpu(use=steady(d)), Gpu(use=0, memory=2)],
        Tree(main=80, workers=4, each=20, ranks=1),
        HOST,
        card=A100,
        command=TRAIN,
    )
)

kind(
    "four ranks over PCIe, the cards half idle", "communication-bound", "fewer-bytes-between-gpus"
)(
    lambda d: compose(
        d,
        ranks(
            4,
            Gpu(
                use=d.uniform(55, 75),
                weight=0.7,
                bus=20,
                pcie=d.uniform(12e9, 20e9),
            ),
        ),
        Tree(main=100, helpers=300, workers=16, each=12, ranks=4, cores=64),
        Host(cores=64),
        card=RTX4090,
        command=RANKS,
    )
)


@kind(
    "a collective hangs after healthy work, the run is killed",
    "communication-bound",
    "see-where-it-waits",
)
def _(d: Dice) -> Run:
    since = d.uniform(80, 150)
    return compose(
        d,
        ranks(4, hung(d, since)),
        Tree(
            main=100,
            helpers=300,
            workers=8,
            each=then((since, 30), (9999, 0)),
            ranks=4,
            cores=64,
        ),
        HOST,
        card=A100,
        seconds=since + 190,
        command=RANKS,
        exit=137,
    )


@kind(
    "one card of eight falls off the bus, the ranks spin, the run ends with an error",
    "faulty",
    "see-why-it-was-lost",
)
def _(d: Dice) -> Run:
    since = d.uniform(60, 120)
    gpus = ranks(8, hung(d, since))
    gpus[5] = Gpu(use=97, lost_after=since, nvlink=80e9)
    return compose(
        d,
        gpus,
        Tree(main=100, helpers=700, ranks=8, cores=64),
        HOST,
        card=A100,
        seconds=220,
        command=RANKS,
        exit=1,
    )


@kind(
    "a card behind a riser exchanges with its host in every step",
    "communication-bound",
    "look-at-the-link",
)
def _(d: Dice) -> Run:
    link = d.choice((98e7, 197e7, 39e8))
    return compose(
        d,
        [
            Gpu(
                use=d.uniform(50, 80),
                weight=0.3,
                bus=12,
                pcie=link * d.uniform(1.2, 1.8),
                link=link,
            )
        ],
        Tree(main=100),
        HOST,
        card=RTX4090,
        command="python sample_with_offload.py",
    )


@kind(
    "one rank saves while the others wait, and the log ends", "good uneven", "", "balance-the-work"
)
def _(d: Dice) -> Run:
    since = d.uniform(200, 260)
    return touching(
        compose(
            d,
            [
                Gpu(use=then((since, steady(d)), (9999, 0)), pcie=2e6),
                *[spinning(d, since)] * 3,
            ],
            card=card(d, BIG),
            seconds=since + 60,
        ),
        since,
    )


kind("an offloaded optimizer steps on the CPU", "communication-bound", "stay-on-the-gpu")(
    lambda d: train(
        d,
        Gpu(use=loop(d.uniform(1, 2), d.uniform(1.5, 3)), memory=70, pcie=d.uniform(9e9, 16e9)),
        Tree(main=d.uniform(400, 1400), cores=32),
        seconds=150,
    )
)
