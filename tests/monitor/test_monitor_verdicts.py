"""Verdicts that a mechanism decides, each on runs beside the line that divides them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from monitor_composer import RTX4090, TRAIN, Gpu, Host, Run, Tree, compose, loop

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import Summary
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.summary import UNJUDGED, summarise


def judged(run: Run, **more: Any) -> Summary:
    story = replace(UNJUDGED, command=run.command, exit=run.exit, **more)
    return summarise(RunTally(run.samples), story)


def run(gpus: list[Gpu], tree: Tree | None = None, host: Host | None = None, **more: Any) -> Run:
    more = {"card": RTX4090, "command": TRAIN, **more}
    return compose(random.Random(5), gpus, tree, host or Host(), **more)


SMALL = Gpu(use=20, weight=0.8, memory=25, pcie=2e8)


@pytest.mark.parametrize(("inputs", "verdict"), [(1e6, "launch-bound"), (9e7, "input-starved")])
def test_a_full_core_is_the_loader_only_if_it_reads(inputs: float, verdict: str) -> None:
    """003-1: a small model, one full core, no loader, hardly any input: the launches rule."""
    summary = judged(run([SMALL], Tree(main=99, inputs=inputs)))
    assert summary.verdict == verdict, summary.evidence


@pytest.mark.parametrize(("cpu", "step"), [(30, "load-with-workers"), (8, "see-where-it-waits")])
def test_a_process_that_waits_in_each_step_is_told_to_be_looked_at(cpu: float, step: str) -> None:
    """One that prepares its batches between the steps is told to leave that to workers."""
    summary = judged(run([Gpu(use=loop(0.05, 0.1))], Tree(main=cpu)))
    assert (summary.verdict, summary.cause) == ("input-starved", "each-step"), summary.evidence
    assert summary.next and summary.next.id == step


CPU_RUNS: dict[str, tuple[Tree, Host, str]] = {
    "workers are behind": (Tree(main=30, workers=2, each=96), Host(), "input-starved/workers"),
    "a slow disk": (Tree(main=20, workers=4, each=5, reads=5e7, blocked=3), Host(),
                    "input-starved/storage"),
    "the network": (Tree(main=20, blocked=1), Host(network=9e7), "input-starved/network"),
    "another program's download": (Tree(main=20), Host(network=9e7), "bursty/waits"),
    "all cores compute": (Tree(main=1550), Host(), "cpu-bound/computes"),
    "one core computes": (Tree(main=100), Host(), "cpu-bound/computes"),
    "it waits": (Tree(main=3), Host(), "idle/waits"),
    "the memory is full": (Tree(main=100), Host(memory=97), "memory-tight/host-memory"),
    "others use the CPU": (Tree(main=60), Host(others=1500), "input-starved/cores"),
}  # fmt: skip


@pytest.mark.parametrize("name", CPU_RUNS)
def test_without_a_gpu_the_command_is_judged_by_cpu_loader_disk_and_network(name: str) -> None:
    """003-3: without NVIDIA's library, and without any GPU, monitor still gives a verdict."""
    tree, host, verdict = CPU_RUNS[name]
    summary = judged(run([], tree, host), source="machine")
    assert f"{summary.verdict}/{summary.cause}" == verdict, summary.evidence
    assert "no GPU was watched" in summary.evidence and summary.next is not None
    assert "?" not in summary.evidence + summary.next.text
