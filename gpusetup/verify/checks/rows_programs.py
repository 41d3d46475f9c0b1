"""The rows about large sizes, repetition, chance and small programs that are trained."""

from __future__ import annotations

from typing import Tuple

from ..values import Check

BOTH = ("cuda", "cpu")
READY = ("properties", "arch")
AGAIN = "run it again; where it fails again, look for Xid and ECC in `dmesg` and change the build"

PROGRAMS: Tuple[Check, ...] = (
    Check(
        "clock",
        "checks.moving:clock",
        on=BOTH,
        needs=READY,
        proves="the clocks that programs measure with do not go back",
        means="timeouts, rates and schedules would be wrong",
        then="`dmesg | grep -i clocksource`; in a virtual machine look at its host",
    ),
    Check(
        "whole-products",
        "checks.whole:whole_products",
        on=BOTH,
        needs=READY,
        proves="products up to 4096 a side, and 131072 terms long, are right at every element",
        means="large layers would compute wrong numbers now and then",
        then=AGAIN,
    ),
    Check(
        "repeats",
        "checks.whole:repeats",
        on=BOTH,
        needs=READY,
        proves="the same call gives the same bits, many times, on other threads and streams",
        means="results would change from call to call, or between threads",
        then=AGAIN,
    ),
    Check(
        "chance",
        "checks.whole:chance",
        on=BOTH,
        needs=READY,
        proves="random numbers of every kind and dropout follow law and seed, repeat no part",
        means="initial weights, dropout and sampling would be skewed, or repeat themselves",
        then=AGAIN,
    ),
    Check(
        "language-model",
        "checks.trained:language_model",
        on=BOTH,
        needs=READY,
        scratch=True,
        proves="a small language model of today trains as it does in float64",
        means="language models would be trained wrongly",
        then=AGAIN,
    ),
    Check(
        "optimizers",
        "checks.trained:optimizers",
        on=BOTH,
        needs=READY,
        scratch=True,
        proves="ten optimizers, plain, all at once and fused, change every tensor rightly",
        means="weights would be updated wrongly, or not at all",
        then="pass `foreach=False` or `fused=False` to the optimizer, and install another build",
    ),
    Check(
        "training-loop",
        "checks.trained:training_loop",
        on=BOTH,
        needs=READY,
        scratch=True,
        proves="clipping, accumulation, checkpointing, averages, schedules and resuming are exact",
        means="training would silently do something else than the program says",
        then=AGAIN,
    ),
)
