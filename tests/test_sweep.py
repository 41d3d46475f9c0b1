"""A sweep on paper: who is measured next, and who is named."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_fleets import FAULTS, FLEETS, Fleet, count, messages, swept

from gpusetup.fleet.sweep.answer import Course, SweepAnswer, answer
from gpusetup.fleet.sweep.decide import (
    COMPUTES,
    COMPUTES_AGAIN,
    MOST_AGAIN,
    MOST_PASSES,
    next_round,
)
from gpusetup.fleet.sweep.judge import compute_scores
from gpusetup.fleet.sweep.plan import MORE_TURNS, matching, turns
from gpusetup.fleet.sweep.values import Result, Round, Unit
from gpusetup.fleet.sweep.verdict import NOTES, Named, verdict
from gpusetup.render.sweep import sweep_screen

Told = set[tuple[str, tuple[int, ...]]]


def told(named: tuple[Named, ...]) -> Told:
    return {(one.fault, one.ranks) for one in named if one.fault not in NOTES}


# --- the course of a sweep, on paper --------------------------------------------------------------


@given(st.integers(2, 40))
def test_no_rank_is_in_two_pairs_of_a_turn_and_no_pair_comes_twice(n: int) -> None:
    met: set[frozenset[int]] = set()
    for turn in range(turns(n)):
        pairs = matching(tuple(range(n)), turn)
        assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs) == n - n % 2
        assert not met & {frozenset(pair) for pair in pairs}
        met |= {frozenset(pair) for pair in pairs}


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 10**6))
@settings(max_examples=12)
def test_a_course_ends_and_asks_each_rank_once_a_round(hosts: int, ranks: int, seed: int) -> None:
    draw = random.Random(seed)
    fleet = Fleet(hosts, ranks=ranks, spread=draw.choice((0.0, 0.05, 0.5)))
    for plant in draw.sample(list(FAULTS.values()), 2) if hosts > 1 else ():
        plant(fleet, draw)
    for result in swept(fleet, seed)[1]:
        assert len(set(result.round.asked)) == len(result.round.asked) > 0


@pytest.mark.parametrize("fault", ["sound", *FAULTS])
@pytest.mark.parametrize("name", FLEETS)
@pytest.mark.one_in(8)
def test_what_is_planted_is_named_and_nothing_else(name: str, fault: str) -> None:
    seeds = 3
    found, false = count(name, fault, seeds)
    assert false == 0
    if ":1" in name and fault in SOMETIMES_HIDDEN:
        assert found >= SOMETIMES_HIDDEN[fault]
        return
    assert found == (seeds if fault in FAULTS and (name, fault) not in HIDDEN else found)


SOMETIMES_HIDDEN = {"link at half": 1, "link at seven tenths": 0, "path at half": 0}
"""Where half of the pairs are slower by design some stay unnamed: how many of the three are named
at least."""
HIDDEN = {("5 hosts", "link at seven tenths")}
"""A loss that so few measurements do not tell from their scatter."""


def longest(hosts: int) -> int:
    """Rounds of the longest course of so many hosts."""
    passes = ((hosts - 1).bit_length() + MORE_TURNS + COMPUTES) * MOST_PASSES
    return passes + COMPUTES_AGAIN + MOST_AGAIN


@pytest.mark.parametrize(
    "hosts", [64, *(pytest.param(n, marks=pytest.mark.slow) for n in (1000, 10_000))]
)
def test_rounds_grow_with_the_logarithm_and_messages_with_the_ranks(hosts: int) -> None:
    fleet = Fleet(hosts, rack=8, oversubscribed=2.0, links={7: 0.5}, computing={9: 0.5})
    fleet.hung[11] = 5
    named, results = swept(fleet, 3)
    assert {("slow-link", (7,)), ("slow-compute", (9,)), ("hung", (11,))} <= told(named)
    assert len(results) <= longest(hosts)
    assert messages(results) <= 3 * hosts * len(results)


def test_many_faults_at_once_are_all_named() -> None:
    fleet = Fleet(40, links={3: 0.5, 8: 0.0, 21: 0.6}, computing={5: 0.5}, hung={30: 4})
    assert told(swept(fleet, 1)[0]) == {
        ("slow-link", (3,)), ("broken-link", (8,)), ("slow-link", (21,)), ("slow-compute", (5,)),
        ("hung", (30,)),
    }  # fmt: skip


def test_a_rack_with_a_slow_uplink_blames_none_of_its_nodes() -> None:
    named, _ = swept(Fleet(64, rack=16, racks={2: 0.4}, disturbed=0.0), 1)
    assert told(named) == set()
    apart = next(one for one in named if one.fault == "apart")
    assert set(apart.ranks) == set(range(32, 48))


def test_where_nothing_is_exchanged_nobody_is_blamed() -> None:
    named, _ = swept(Fleet(6, links=dict.fromkeys(range(6), 0.0)), 1)
    assert [one.fault for one in named] == ["unmeasured"]


def test_two_ranks_are_not_compared() -> None:
    named, results = swept(Fleet(2, links={1: 0.3}, computing={0: 0.3}), 1)
    assert named == ()
    assert any(result.exchanged for result in results)


def test_a_rank_that_was_silent_once_is_asked_again_and_not_blamed() -> None:
    class Late(Fleet):
        def measured(self, asked: Any, draw: random.Random) -> Result:
            self.hung = {3: 0} if asked.number == 4 else {}
            return super().measured(asked, draw)

    named, results = swept(Late(8), 1)
    assert told(named) == set()
    assert 3 in results[4].silent
    assert any(3 in pair.group and pair.rate for r in results[5:] for pair in r.exchanged)


def test_a_slow_gpu_is_compared_with_its_own_kind() -> None:
    units = [Unit(rank=r, host=f"n{r}", device="A100" if r < 6 else "H100") for r in range(12)]
    results: list[Result] = []
    while asked := next_round(units, results):
        fleet = Fleet(12, computing=dict.fromkeys(range(6), 0.4) | {9: 0.5}, disturbed=0.0)
        results.append(fleet.measured(asked, random.Random(len(results))))
    assert told(verdict(units, results)) == {("slow-compute", (9,))}


# --- the answer -----------------------------------------------------------------------------------


def judged(fleet: Fleet, seed: int = 1, **more: Any) -> SweepAnswer:
    results = tuple(swept(fleet, seed)[1])
    hosts = {unit.rank: unit.host for unit in fleet.units}
    return answer(Course(units=fleet.units, results=results, hosts=hosts, **more))


def test_the_answer_names_nodes_and_how_to_leave_them_out() -> None:
    found = judged(Fleet(9, links={4: 0.5}), absent={9: "it did not come within 5 s"})
    assert not found.ok
    assert [(one.fault, one.nodes, one.ranks) for one in found.findings] == [
        ("absent", (), (9,)), ("slow-link", ("n00004",), (4,)),
    ]  # fmt: skip
    assert found.exclude.slurm == "--exclude=n00004"
    screen = sweep_screen(found)
    assert "✗ slow-link: rank 4 on n00004 exchanges at" in screen
    assert "it did not come within 5 s" in screen
    assert "sbatch --exclude=n00004 job.sh" in screen


def test_a_node_with_several_bad_ranks_is_said_once() -> None:
    found = judged(Fleet(12, ranks=4, computing=dict.fromkeys((8, 9, 10), 0.5)))
    assert [one.title.split(" computes")[0] for one in found.findings] == [
        "ranks 8, 9 and 10 on n00002"
    ]


def test_a_sound_fleet_says_how_slow_a_rank_would_have_been_named() -> None:
    found = judged(Fleet(16))
    assert found.ok and not found.findings
    assert [round(level.sees_below, 1) for level in found.levels] == [0.8, 0.8]
    assert {rank.node for rank in found.ranks} == {unit.host for unit in Fleet(16).units}


def halving(slow: int | None, seed: int) -> list[Result]:
    """Rounds of a host whose clock halves now and then, for all ranks of a round."""
    draw = random.Random(seed)
    return [
        Result(
            round=Round(
                number=number, stage="", kind="compute", turn=number, ranks=tuple(range(8))
            ),
            computed={
                rank: (1.0 if number % 2 else 0.5)
                * (0.5 if rank == slow else 1.0)
                * draw.uniform(0.95, 1.05)
                for rank in range(8)
            },
        )
        for number in range(15)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_rank_is_told_by_its_share_of_each_round_though_the_rounds_differ(seed: int) -> None:
    slow = seed % 8
    assert compute_scores(halving(slow, seed), range(8)).slow == (slow,)
    assert compute_scores(halving(None, seed), range(8)).slow == ()


def sinking(slow: int | None, rounds: int, seed: int) -> list[Result]:
    """Rounds of 64 hosts, three in ten of which have a clock that has sunk just then."""
    draw, ranks = random.Random(seed), tuple(range(64))
    return [
        Result(
            round=Round(number=number, kind="compute", turn=number, ranks=ranks),
            computed={
                rank: draw.choices((1.0, 0.62), (7, 3))[0]
                * (0.5 if rank == slow else 1.0)
                * draw.uniform(0.98, 1.02)
                for rank in ranks
            },
        )
        for number in range(rounds)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_clocks_that_sink_for_moments_here_and_there_make_no_rank_slow(seed: int) -> None:
    for rounds in (COMPUTES, COMPUTES * MOST_PASSES):
        assert compute_scores(sinking(None, rounds, seed), range(64)).slow == ()
    many = sinking(seed, COMPUTES * MOST_PASSES, seed)
    assert compute_scores(many, range(64)).slow == (seed,)
