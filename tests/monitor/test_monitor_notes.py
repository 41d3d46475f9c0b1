"""What a record shows beside its verdict."""

from __future__ import annotations

import random
from collections.abc import Callable

from each_row import each
from monitor_composer import RTX4090, TRAIN, Gpu, Run, Tree, compose, pausing

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import ProcessUse, Summary
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.summary import UNJUDGED, summarise

TREE = Tree(main=70, workers=4, each=20)


def run(gpu: Gpu, seconds: float = 90) -> Run:
    return compose(random.Random(5), [gpu], TREE, card=RTX4090, command=TRAIN, seconds=seconds)


def judged(run: Run) -> Summary:
    return summarise(RunTally(run.samples), replace(UNJUDGED, command=run.command, exit=run.exit))


SAID: dict[str, tuple[Callable[[], Run], str]] = {
    "locked clocks": (lambda: run(Gpu(use=97, clock=70, weight=0.6)), "SM clock at 70 %"),
    "pauses": (lambda: run(Gpu(use=pausing(96, 60, 12)), seconds=300), "paused 4 times, 1"),
}  # fmt: skip
"""What a good run has beside it, and the note of it."""


@each("name", SAID)
def test_what_stands_beside_a_good_run_is_a_note(name: str) -> None:
    make, said = SAID[name]
    told = judged(make())
    assert told.verdict == "good", told.evidence
    assert said in " ".join((*told.notes, told.evidence)), told.notes


def test_a_good_run_has_none_of_them() -> None:
    assert judged(run(Gpu(use=96, pcie=2e8))).notes == ()


def test_a_card_that_is_full_with_the_work_of_others_is_not_good() -> None:
    both = tuple(
        ProcessUse(pid=pid, name="python", kind="compute", sm_percent=48) for pid in (4000, 9000)
    )
    shared = compose(random.Random(1), [Gpu(use=97)], replace(TREE, ranks=1), command=TRAIN)
    samples = [replace(one, gpus=(replace(one.gpus[0], processes=both),)) for one in shared.samples]
    told = summarise(RunTally(samples), replace(UNJUDGED, command=shared.command))
    assert told.next and (told.verdict, told.next.id) == ("throttled", "free-the-card")


def test_a_start_in_which_nothing_moves_is_told_how_to_see_where_it_waits() -> None:
    use = Gpu(use=0, memory=lambda at: 1 if at < 10 else 6, weight=0)
    tree = Tree(main=lambda at: 100 if at < 8 else 2)
    told = judged(compose(random.Random(1), [use], tree, seconds=110, command=TRAIN))
    assert told.next and (told.verdict, told.next.id) == ("idle", "watch-longer")
    assert told.next.command == "py-spy dump --pid 4000"
