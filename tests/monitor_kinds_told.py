"""A fourth portion, labelled before it was judged: what a record shows beside the utilisation (who
holds a card, what it draws, its clocks and links), and what a source does not tell."""

from __future__ import annotations

import random
from collections.abc import Callable

from monitor_composer import (
    A100,
    H100,
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
    random_bursts,
    then,
)
from monitor_kinds import HOST, TRAIN, card, kind, steady

from gpusetup.model.frozen import replace

RANKS = "torchrun --nproc_per_node=4 train.py"
LIMITS = ("power_limit_watts", "power_limit_default_watts", "power_limit_max_watts")
BARE = (*LIMITS, "name", "uuid", "memory_total_bytes", "clock_sm_max_mhz", "throttle_reasons",
        "processes", "temperature_slowdown_celsius")  # fmt: skip
"""What `nvidia-smi dmon` does not tell."""
LAPTOP = Card(name="NVIDIA GeForce RTX 4070 Laptop GPU", gib=8, watts=100, idle=6, mhz=2250,
              slowdown=87, most_watts=115)  # fmt: skip
BIG = (A100, H100, L40S)
Dice = random.Random


# --- hangs, as sources tell them ------------------------------------------------------------------


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


@kind("two cards spin in the last quarter of a log", "communication-bound", "see-where-it-waits")
def _(d: Dice) -> Run:
    since = d.uniform(160, 220)
    gpus = [spinning(d, since)] * 2
    silent = ("processes",)
    run = compose(d, gpus, card=card(d, BIG), seconds=since + d.uniform(48, 80), silent=silent)
    return touching(run, since)


@kind("one rank saves while the others wait, and the log ends", "good uneven", "",
      "balance-the-work")  # fmt: skip
def _(d: Dice) -> Run:
    since = d.uniform(200, 260)
    saves = Gpu(use=then((since, steady(d)), (9999, 0)), pcie=2e6)
    gpus = [saves, *[spinning(d, since)] * 3]
    return touching(compose(d, gpus, card=card(d, BIG), seconds=since + 60), since)


# --- power and clocks -----------------------------------------------------------------------------


def starved_of_power(d: Dice) -> Gpu:
    return Gpu(use=steady(d), weight=d.uniform(0.2, 0.4), clock=d.uniform(25, 45), heat=52,
               reasons=("sw_power_cap",))  # fmt: skip


@kind("a laptop that draws a third of its limit", "throttled", "plug-it-in")
def _(d: Dice) -> Run:
    silent = d.choice(((), LIMITS[1:], LIMITS[2:]))
    return compose(d, [starved_of_power(d)], card=LAPTOP, silent=silent)


@kind("a node's power budget caps a card far below its limit", "throttled", "look-outside")
def _(d: Dice) -> Run:
    gpu = Gpu(use=98, weight=d.uniform(0.35, 0.55), clock=d.uniform(40, 65),
              reasons=("sw_power_cap",))  # fmt: skip
    return compose(d, [gpu], Tree(main=60), HOST, card=card(d, (A100, H100)), command=TRAIN)


@kind("a laptop whose limit was set low", "throttled", "draw-less")
def _(d: Dice) -> Run:
    gpu = Gpu(use=98, weight=1.0, limit=d.uniform(0.35, 0.5), clock=d.uniform(35, 55),
              reasons=("sw_power_cap",))  # fmt: skip
    return compose(d, [gpu], card=LAPTOP)


@kind("a card's clocks are locked far down, no reason is told", "throttled", "unlock-the-clocks")
def _(d: Dice) -> Run:
    gpu = Gpu(use=98, weight=d.uniform(0.25, 0.6), clock=d.uniform(35, 56))
    silent = d.choice(((), ("throttle_reasons",), ("processes",)))
    return compose(d, [gpu], card=card(d, BIG), silent=silent)


# --- pauses ---------------------------------------------------------------------------------------


def blips(d: Dice, use: float, work: float, pause: float) -> Callable[[float], float]:
    """Pauses in which now and then next to nothing runs."""
    return lambda at: use if at % (work + pause) < work else max(0.0, d.gauss(2, 2))


@kind("metrics on one core take a third of the time", "bursty", "shorter-pauses")
def _(d: Dice) -> Run:
    work, share = d.uniform(15, 60), d.uniform(0.28, 0.36)
    pause = work * share / (1 - share)
    use = blips(d, 96, work, pause) if d.random() < 0.5 else pausing(96, work, pause)
    tree = Tree(main=lambda at: 40 if at % (work + pause) < work else 100, workers=2, each=10)
    return compose(d, [Gpu(use=use)], tree, HOST, card=card(d), seconds=420, command=TRAIN)


@kind("a renderer prepares each frame on one core", "bursty", "overlap-the-pauses")
def _(d: Dice) -> Run:
    work, share = d.uniform(14, 30), d.uniform(0.3, 0.5)
    pause = work * share / (1 - share)
    tree = Tree(main=lambda at: 30 if at % (work + pause) < work else 100)
    use = pausing(97, work, pause)
    return compose(d, [Gpu(use=use, memory=40)], tree, HOST, card=card(d, (RTX4090, RTX3060)),
                   seconds=300, command="blender -b scene.blend -a")  # fmt: skip


@kind("a few seconds of work now and then on a card that holds a model", "bursty",
      "watch-the-command")  # fmt: skip
def _(d: Dice) -> Run:
    gpu = Gpu(use=random_bursts(d, 3, 9, 60), memory=45)
    return compose(d, [gpu], card=card(d), seconds=300, silent=("processes",))


# --- desktops -------------------------------------------------------------------------------------

DESKTOP = ((900, "explorer.exe", "both"), (950, "msedge.exe", "both"), (960, "dwm.exe", "both"))


def faint(d: Dice) -> Callable[[float], float]:
    return lambda at: max(0.0, d.gauss(d.uniform(3, 7), 4))


@kind("a desktop on Windows: all of its programs are of both kinds", "idle", "watch-the-command")
def _(d: Dice) -> Run:
    gpu = Gpu(use=faint(d), weight=0.2, memory=d.uniform(5, 18), holders=DESKTOP)
    return compose(d, [gpu], card=card(d, (RTX4090, RTX3060)))


# --- the machine beside it ------------------------------------------------------------------------


@kind("the machine's CPU is used up, no command was watched", "input-starved",
      "see-who-uses-the-cpu")  # fmt: skip
def _(d: Dice) -> Run:
    cores = d.choice((8, 16, 48))
    host = Host(cores=cores, others=cores * d.uniform(93, 99))
    gpu = Gpu(use=d.choice((d.uniform(25, 70), loop(0.3, 0.5))), weight=d.uniform(0.35, 0.8))
    return compose(d, [gpu], None, host, card=card(d), silent=("processes",))


# --- nothing ran so far ---------------------------------------------------------------------------


@kind("a program is watched for ten seconds of its start", "idle", "watch-longer")
def _(d: Dice) -> Run:
    tree = Tree(main=d.uniform(60, 110), reads=5e7)
    gpu = Gpu(use=0, memory=0.5, holders=())
    return compose(d, [gpu], tree, HOST, card=card(d), seconds=10, command=TRAIN)


@kind("a server waits for requests, no process is listed", "idle", "send-more-requests")
def _(d: Dice) -> Run:
    command = d.choice(("vllm serve org/model", "uvicorn app:app --port 80", "ollama serve"))
    gpu = Gpu(use=0, memory=d.uniform(30, 92), holders=None)
    tree = Tree(main=2, ranks=1)
    return compose(d, [gpu], tree, HOST, card=card(d, BIG), seconds=180, command=command)


@kind("a training holds its memory and rests, no process is listed", "idle", "see-where-it-waits")
def _(d: Dice) -> Run:
    gpu = Gpu(use=0, memory=d.uniform(30, 92), holders=None)
    tree = Tree(main=2, ranks=1)
    return compose(d, [gpu], tree, HOST, card=card(d, BIG), seconds=180, command=TRAIN)


@kind("a notebook holds the card and nobody runs a cell", "idle", "release-between-cells")
def _(d: Dice) -> Run:
    gpu = Gpu(
        use=0, memory=d.uniform(20, 80), holders=d.choice((None, ((5, "python", "compute"),)))
    )
    tree = Tree(main=1, ranks=1)
    return compose(d, [gpu], tree, HOST, card=card(d), seconds=150, command="jupyter lab")


@kind("a program fails before it uses the card", "idle", "read-its-error")
def _(d: Dice) -> Run:
    gpu = Gpu(use=0, memory=then((9, 1), (9999, d.choice((1, 12)))), holders=None)
    tree = Tree(main=100, reads=1e8, ranks=1)
    return compose(d, [gpu], tree, HOST, card=card(d), seconds=20, command=TRAIN, exit=1)


@kind("a game or a viewer has the card to itself", "good")
def _(d: Dice) -> Run:
    gpu = Gpu(use=d.uniform(55, 97), holders=((7, "Game.exe", d.choice(("graphics", "both"))),))
    return compose(d, [gpu], card=card(d, (RTX4090, RTX3060)))


@kind("a job stands still, and the record ends before anybody sees it", "bursty",
      "see-where-it-waits")  # fmt: skip
def _(d: Dice) -> Run:
    since = d.uniform(90, 200)
    gpu = Gpu(use=then((since, steady(d)), (9999, 0)))
    tree = Tree(main=then((since, 70), (9999, 0.3)), workers=4, each=then((since, 30), (9999, 0)))
    return compose(d, [gpu], tree, HOST, card=card(d), seconds=since + 150, command=TRAIN)


# --- engines, instances, links --------------------------------------------------------------------


@kind("a transcoder fills the encoder, kernels run a little", "good", "spread-the-streams")
def _(d: Dice) -> Run:
    gpu = Gpu(use=d.uniform(4, 30), weight=0.5, memory=20, encoder=d.uniform(80, 99))
    return compose(d, [gpu], card=card(d), silent=BARE)


@kind("MIG is on: no utilisation is told", "none", "ask-dcgm")
def _(d: Dice) -> Run:
    silent = ("utilization_percent", "memory_busy_percent")
    return compose(d, [Gpu(use=60, memory=40)], card=card(d, (A100, H100)), silent=silent)


@kind("an old card tells no utilisation", "none", "ask-the-driver")
def _(d: Dice) -> Run:
    silent = ("utilization_percent", "memory_busy_percent", "power_watts", "clock_sm_mhz")
    return compose(d, [Gpu(use=60, memory=40)], card=card(d, (RTX3060, RTX4090)), silent=silent)


@kind("a card behind a riser exchanges with its host in every step", "communication-bound",
      "look-at-the-link")  # fmt: skip
def _(d: Dice) -> Run:
    link = d.choice((0.98e9, 1.97e9, 3.9e9))
    gpu = Gpu(use=d.uniform(50, 80), weight=0.3, bus=12, pcie=link * d.uniform(1.2, 1.8), link=link)
    tree = Tree(main=100)
    command = "python sample_with_offload.py"
    return compose(d, [gpu], tree, HOST, card=RTX4090, command=command)
