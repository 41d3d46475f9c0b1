"""A sweep on paper: who is measured next, and who is named."""

from __future__ import annotations

import pytest
from sweep_fleets import FAULTS, FLEETS, Fleet, blamed, count, messages, swept

from gpusetup.fleet.sweep.answer import answer
from gpusetup.render.fleet import sweep_screen

HIDDEN = {("5 hosts", "link at seven tenths"): 0}
"""So few measurements do not tell this loss from their scatter: how many of three are named."""


@pytest.mark.parametrize("fault", ["sound", *FAULTS])
@pytest.mark.parametrize("name", FLEETS)
@pytest.mark.one_in(8)
def test_what_is_planted_is_named_and_nothing_else(name: str, fault: str) -> None:
    found, false = count(name, fault, 3)
    assert false == 0
    assert found >= (HIDDEN.get((name, fault), 3) if fault in FAULTS else 0)


@pytest.mark.parametrize(
    ("hosts", "rounds"), [(64, 60), pytest.param(10_000, 60, marks=pytest.mark.slow)]
)
def test_rounds_grow_with_the_logarithm_and_messages_with_the_ranks(
    hosts: int, rounds: int
) -> None:
    fleet = Fleet(hosts, rack=8, oversubscribed=2.0, links={7: 0.5})
    fleet.hung[11] = 5
    sweep = swept(fleet, 3)
    assert blamed(sweep) == {("slow-link", (7,)), ("hung", (11,))}
    assert len(sweep.results) <= rounds
    assert messages(sweep.results) <= 3 * hosts * len(sweep.results)


def test_a_rack_with_a_slow_uplink_blames_none_of_its_nodes() -> None:
    assert swept(Fleet(64, rack=16, racks={2: 0.4}, disturbed=0.0), 1).faults() == ()


def test_two_ranks_are_not_compared_and_no_exchange_at_all_blames_nobody() -> None:
    assert swept(Fleet(2, links={1: 0.3}), 1).faults() == ()
    dead = swept(Fleet(6, links=dict.fromkeys(range(6), 0.0)), 1)
    assert [one.fault for one in dead.faults()] == ["unmeasured"]


def test_the_answer_names_nodes_and_how_to_leave_them_out() -> None:
    fleet = Fleet(12, ranks=8, links=dict.fromkeys((8, 16, 17), 0.5))
    hosts = {unit.rank: unit.host for unit in fleet.units}
    found = answer(swept(fleet, 1), {96: "it did not come within 5 s"}, hosts, 1.0)
    assert not found.ok
    assert [(one.fault, one.nodes, one.ranks) for one in found.findings] == [
        ("absent", (), (96,)),
        ("slow-link", ("n00001",), (8,)),
        ("slow-link", ("n00002",), (16, 17)),
        ("slow-link", ("n00001",), (8,)),
        ("slow-link", ("n00002",), (16, 17)),
    ]
    assert found.exclude.slurm == "--exclude=n[00001-00002]"
    screen = sweep_screen(found)
    for said in (
        "✗ slow-link: rank 8 on n00001: 105 GB/s with",
        "rank 16 on n00002 and rank 17 on n00002: ",
        "it did not come within 5 s",
        "sbatch '--exclude=n[00001-00002]' job.sh",
    ):
        assert said in screen, screen


def test_of_two_hosts_a_slow_rail_is_named_as_what_lies_between() -> None:
    rail = Fleet(2, ranks=8, paths={frozenset((3, 11)): 0.5})
    assert blamed(swept(rail, 1)) == {("slow-path", (3, 11))}
