"""Kinds of runs of cards that are held down, and of good ones."""

from __future__ import annotations

from monitor_composer import (
    A100,
    BIG,
    H100,
    HOST,
    RTX3060,
    RTX4090,
    TRAIN,
    UNSAID,
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
    ranks,
    some,
    steady,
    then,
    train,
    workers,
)

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


@kind("a training beside a display card", "good")
def _(d: Dice) -> Run:
    display = Gpu(
        use=lambda at: 3 + at % 4,
        weight=0.3,
        memory=d.uniform(4, 9),
        bus=2,
        card=RTX3060,
        holders=(
            (900, "/usr/lib/xorg/Xorg", "graphics"),
            (950, "/usr/bin/gnome-shell", "graphics"),
        ),
    )
    tree = Tree(main=70, workers=6, each=20)
    return compose(d, [Gpu(use=steady(d)), display], tree, HOST, card=RTX4090, command=TRAIN)


kind("one hot card of eight makes all ranks wait", "throttled", "cool")(
    lambda d: compose(
        d,
        ranks(
            8,
            Gpu(use=99, heat=90, clock=58, weight=0.7, reasons=("hw_thermal_slowdown",)),
            Gpu(use=d.choice((97, 65)), weight=0.55),
        ),
        Tree(main=100, helpers=700, ranks=8, cores=128),
        Host(cores=128),
        card=A100,
        command="torchrun --nproc_per_node=8 t.py",
    )
)

kind("the power supply brakes", "throttled", "check-the-supply")(
    lambda d: compose(
        d,
        [
            Gpu(
                use=97,
                clock=d.uniform(35, 60),
                weight=0.5,
                reasons=some(0.6, "hw_slowdown", "hw_power_brake_slowdown"),
            )
        ],
        card=card(d, BIG),
    )
)

kind("low clocks were set by hand", "throttled", "reset-the-clocks")(
    lambda d: compose(
        d,
        [
            Gpu(
                use=98,
                clock=d.uniform(40, 65),
                weight=0.5,
                reasons=("applications_clocks_setting",),
            )
        ],
        card=card(d, BIG),
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


kind("heat in the second half of the run", "throttled", "cool")(
    lambda d: compose(
        d,
        [
            Gpu(
                use=97,
                heat=88,
                clock=78,
                reasons=lambda at: ("sw_thermal_slowdown",) if at > 100 else (),
            )
        ],
        Tree(main=70, workers=4, each=20),
        HOST,
        card=RTX4090,
        seconds=200,
        command=TRAIN,
    )
)

kind("a card of no known name at its power limit, no rated power told", "good")(
    lambda d: compose(
        d,
        [Gpu(use=99, weight=1.0, clock=d.uniform(55, 75), reasons=("sw_power_cap",))],
        card=UNKNOWN,
        silent=UNSAID,
    )
)

kind("a card far below its rated power, no rated power told", "throttled", "raise-the-power-limit")(
    lambda d: compose(
        d,
        [
            Gpu(
                use=98,
                weight=1.0,
                limit=d.uniform(0.55, 0.7),
                clock=d.uniform(55, 70),
                reasons=("sw_power_cap",),
            )
        ],
        card=card(d, (RTX3090, A100)),
        silent=UNSAID,
    )
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


@kind("a card's clocks are locked far down, no reason is told", "throttled", "unlock-the-clocks")
def _(d: Dice) -> Run:
    gpu = Gpu(use=98, weight=d.uniform(0.25, 0.6), clock=d.uniform(35, 56))
    silent = d.choice(((), ("throttle_reasons",), ("processes",)))
    return compose(d, [gpu], card=card(d, BIG), silent=silent)


kind("a game or a viewer has the card to itself", "good")(
    lambda d: compose(
        d,
        [Gpu(use=d.uniform(55, 97), holders=((7, "Game.exe", d.choice(("graphics", "both"))),))],
        card=card(d, (RTX4090, RTX3060)),
    )
)
