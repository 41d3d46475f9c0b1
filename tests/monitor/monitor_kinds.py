"""Kinds of runs, each with the verdict and the next steps that are right for it.

The labels were written before any of them was judged, each for what happens in the run and not for
what a rule makes of it. A kind is composed several times, with other cards, lengths and noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from monitor_composer import (
    A100,
    BIG,
    H100,
    HOST,
    KINDS,
    L40S,
    RANKS,
    RTX3060,
    RTX4090,
    TRAIN,
    Card,
    Dice,
    Gpu,
    Host,
    Run,
    Tree,
    card,
    compose,
    kind,
    loop,
    pausing,
    ramp,
    random_bursts,
    ranks,
    some,
    steady,
    then,
    train,
    workers,
)

from gpusetup.model.frozen import replace

SEEDS = range(4)


def composed(name: str, seed: int) -> Run:
    return KINDS[name].make(random.Random(f"{name} {seed}"))


UNKNOWN = Card(name="NVIDIA Graphics Device", gib=48, watts=300, idle=25, mhz=2400)


RTX3090 = Card(name="NVIDIA GeForce RTX 3090", gib=24, watts=350, idle=25, mhz=2100)


LIMITS = ("power_limit_watts", "power_limit_default_watts", "power_limit_max_watts")


LAPTOP = Card(
    name="NVIDIA GeForce RTX 4070 Laptop GPU",
    gib=8,
    watts=100,
    idle=6,
    mhz=2250,
    most_watts=115,
)


def starved_of_power(d: Dice) -> Gpu:
    return Gpu(
        use=steady(d),
        weight=d.uniform(0.2, 0.4),
        clock=d.uniform(25, 45),
        heat=52,
        reasons=("sw_power_cap",),
    )


@kind("a steady training beside its workers", "good")
def _(d: Dice) -> Run:
    tree = Tree(main=d.uniform(40, 99), workers=workers(d), each=d.uniform(8, 40), reads=3e6)
    return train(d, Gpu(use=steady(d)), tree)


kind("a steady training, nobody watched its processes", "good")(
    lambda d: compose(d, [Gpu(use=steady(d), weight=d.uniform(0.7, 0.95))], card=card(d))
)


kind("pauses for evaluation and checkpoints", "good")(
    lambda d: train(
        d,
        Gpu(use=pausing(steady(d), d.uniform(50, 80), d.uniform(8, 14))),
        Tree(main=70, workers=4, each=20),
        seconds=320,
    )
)


@kind("the first epoch reads from a cold disk, later ones from memory", "good")
def _(d: Dice) -> Run:
    end = d.uniform(80, 140)
    return train(
        d,
        Gpu(use=then((end, loop(0.1, 0.4)), (9999, steady(d)))),
        Tree(
            main=40,
            workers=8,
            each=then((end, 10), (9999, 30)),
            reads=then((end, 9e7), (9999, 1e5)),
        ),
        seconds=400,
    )


@kind("a laptop that draws a third of its limit", "throttled", "plug-it-in")
def _(d: Dice) -> Run:
    silent = d.choice(((), LIMITS[1:], LIMITS[2:]))
    return compose(d, [starved_of_power(d)], card=LAPTOP, silent=silent)


kind("a node's power budget caps a card far below its limit", "throttled", "look-outside")(
    lambda d: compose(
        d,
        [
            Gpu(
                use=98,
                weight=d.uniform(0.35, 0.55),
                clock=d.uniform(40, 65),
                reasons=("sw_power_cap",),
            )
        ],
        Tree(main=60),
        HOST,
        card=card(d, (A100, H100)),
        command=TRAIN,
    )
)


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


kind("an offloaded optimizer steps on the CPU", "communication-bound", "stay-on-the-gpu")(
    lambda d: train(
        d,
        Gpu(use=loop(d.uniform(1, 2), d.uniform(1.5, 3)), memory=70, pcie=d.uniform(9e9, 16e9)),
        Tree(main=d.uniform(400, 1400), cores=32),
        seconds=150,
    )
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


DESKTOP = ((900, "explorer.exe", "both"), (950, "msedge.exe", "both"), (960, "dwm.exe", "both"))


def faint(d: Dice) -> Callable[[float], float]:
    return lambda at: max(0.0, d.gauss(d.uniform(3, 7), 4))


kind("torch computes on the CPU", "idle", "see-whether-torch-can")(
    lambda d: train(d, Gpu(use=0, memory=0.5, holders=()), Tree(main=d.uniform(700, 1500)))
)


kind("nothing runs and nobody holds the card", "idle", "watch-the-command", "")(
    lambda d: compose(d, [Gpu(use=0, memory=0.3, holders=())], card=card(d))
)


kind("a server waits for requests", "bursty idle", "send-more-requests")(
    lambda d: compose(
        d,
        [
            Gpu(
                use=random_bursts(d, 2, 6, 80),
                memory=90,
                holders=((5000, "VLLM::EngineCore", "compute"),),
            )
        ],
        Tree(main=d.uniform(10, 60)),
        HOST,
        card=card(d, BIG),
        seconds=180,
        command="python -m vllm.entrypoints.openai.api_server --model org/m",
    )
)


kind("a notebook whose cells are run by hand", "bursty idle", "release-between-cells")(
    lambda d: train(
        d,
        Gpu(use=random_bursts(d, 5, 20), memory=40),
        Tree(main=20),
        seconds=240,
        command="jupyter lab --no-browser",
    )
)


kind(
    "bursts that nobody watched the cause of",
    "bursty input-starved",
    "watch-the-command",
)(
    lambda d: compose(
        d, [Gpu(use=d.choice((loop(2, 3), loop(0.2, 0.3), random_bursts(d, 2, 3))))], card=card(d)
    )
)


@kind("checkpoints take half of the run", "bursty", "shorter-pauses")
def _(d: Dice) -> Run:
    work, rest = (d.uniform(15, 25), d.uniform(20, 30))
    return train(
        d,
        Gpu(use=pausing(97, work, rest)),
        Tree(
            main=60,
            workers=4,
            each=2,
            writes=lambda at: 6e8 if at % (work + rest) >= work else 0.0,
        ),
        seconds=400,
    )


kind("the data are tokenised for the whole time that was watched", "idle", "prepare-once")(
    lambda d: train(
        d, Gpu(use=0, memory=3), Tree(main=d.uniform(98, 101), helpers=d.uniform(200, 900), ranks=1)
    )
)


kind("the only card is lost in the middle of a good run", "faulty", "see-why-it-was-lost")(
    lambda d: train(
        d, Gpu(use=steady(d), lost_after=60), Tree(main=70, workers=4, each=20), seconds=90, exit=1
    )
)


kind("the model was left on the CPU, the card only holds a context", "idle", "move-to-the-gpu")(
    lambda d: train(d, Gpu(use=0, memory=2), Tree(main=d.uniform(700, 1500), workers=2, each=3))
)


kind("a desktop on Windows: all of its programs are of both kinds", "idle", "watch-the-command")(
    lambda d: compose(
        d,
        [Gpu(use=faint(d), weight=0.2, memory=d.uniform(5, 18), holders=DESKTOP)],
        card=card(d, (RTX4090, RTX3060)),
    )
)


kind("a program is watched for ten seconds of its start", "idle", "watch-longer")(
    lambda d: train(
        d,
        Gpu(use=0, memory=0.5, holders=()),
        Tree(main=d.uniform(60, 110), reads=5e7),
        seconds=10,
    )
)


kind("a notebook holds the card and nobody runs a cell", "idle", "release-between-cells")(
    lambda d: train(
        d,
        Gpu(use=0, memory=d.uniform(20, 80), holders=d.choice((None, ((5, "python", "compute"),)))),
        Tree(main=1, ranks=1),
        seconds=150,
        command="jupyter lab",
    )
)


kind("a program fails before it uses the card", "idle", "read-its-error")(
    lambda d: train(
        d,
        Gpu(use=0, memory=then((9, 1), (9999, d.choice((1, 12)))), holders=None),
        Tree(main=100, reads=1e8, ranks=1),
        seconds=20,
        exit=1,
    )
)


@kind(
    "a job stands still, and the record ends before anybody sees it", "bursty", "see-where-it-waits"
)
def _(d: Dice) -> Run:
    since = d.uniform(90, 200)
    return train(
        d,
        Gpu(use=then((since, steady(d)), (9999, 0))),
        Tree(main=then((since, 70), (9999, 0.3)), workers=4, each=then((since, 30), (9999, 0))),
        seconds=since + 150,
    )


kind("MIG is on: no utilisation is told", "none", "ask-the-driver")(
    lambda d: compose(
        d,
        [Gpu(use=60, memory=40)],
        card=card(d, (A100, H100)),
        silent=("utilization_percent", "memory_busy_percent"),
    )
)
