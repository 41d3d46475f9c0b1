"""Kinds of runs in which little happens, or nobody tells what."""

from __future__ import annotations

from collections.abc import Callable

from monitor_composer import (
    A100,
    BIG,
    H100,
    HOST,
    L40S,
    RTX3060,
    RTX4090,
    TRAIN,
    Dice,
    Gpu,
    Run,
    Tree,
    card,
    compose,
    kind,
    loop,
    pausing,
    random_bursts,
    steady,
    then,
    train,
    workers,
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


@kind(
    "saving takes half the run and no writes are told",
    "bursty",
    "shorter-pauses",
    "see-where-it-waits",
)
def _(d: Dice) -> Run:
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


kind("the only card is lost in the middle of a good run", "faulty", "see-why-it-was-lost")(
    lambda d: train(
        d, Gpu(use=steady(d), lost_after=60), Tree(main=70, workers=4, each=20), seconds=90, exit=1
    )
)

kind("the model was left on the CPU, the card only holds a context", "idle", "move-to-the-gpu")(
    lambda d: train(d, Gpu(use=0, memory=2), Tree(main=d.uniform(700, 1500), workers=2, each=3))
)


@kind("a renderer prepares each frame on one core", "bursty", "overlap-the-pauses")
def _(d: Dice) -> Run:
    work, share = (d.uniform(14, 30), d.uniform(0.3, 0.5))
    pause = work * share / (1 - share)
    return compose(
        d,
        [Gpu(use=pausing(97, work, pause), memory=40)],
        Tree(main=lambda at: 30 if at % (work + pause) < work else 100),
        HOST,
        card=card(d, (RTX4090, RTX3060)),
        seconds=300,
        command="blender -b scene.blend -a",
    )


kind(
    "a few seconds of work now and then on a card that holds a model", "bursty", "watch-the-command"
)(
    lambda d: compose(
        d,
        [Gpu(use=random_bursts(d, 3, 9, 60), memory=45)],
        card=card(d),
        seconds=300,
        silent=("processes",),
    )
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


@kind("a server waits for requests, no process is listed", "idle", "send-more-requests")
def _(d: Dice) -> Run:
    command = d.choice(("vllm serve org/model", "uvicorn app:app --port 80", "ollama serve"))
    gpu = Gpu(use=0, memory=d.uniform(30, 92), holders=None)
    tree = Tree(main=2, ranks=1)
    return compose(d, [gpu], tree, HOST, card=card(d, BIG), seconds=180, command=command)


kind("a training holds its memory and rests, no process is listed", "idle", "see-where-it-waits")(
    lambda d: compose(
        d,
        [Gpu(use=0, memory=d.uniform(30, 92), holders=None)],
        Tree(main=2, ranks=1),
        HOST,
        card=card(d, BIG),
        seconds=180,
        command=TRAIN,
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
