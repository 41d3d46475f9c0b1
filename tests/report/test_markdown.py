"""A reply for a thread: short, whole, and inert whatever stood in the text that it answers."""

from __future__ import annotations

import re

from each_row import each
from hypothesis import given
from hypothesis import strategies as st
from judging import event, judged, spoken_of
from report_messages import MESSAGES

from gpusetup.model.machine import Os, Snapshot
from gpusetup.render.doctor import WHAT_IT_IS, doctor_markdown, doctor_screen
from gpusetup.report.read import read_report


def reply(machine: Snapshot) -> list[str]:
    return doctor_markdown(judged(machine)).splitlines()


@each("cause, machine", lambda: [(cause, read_report(said)) for cause, said in MESSAGES[::2]])
def test_a_reply_names_the_cause_and_what_to_post_next(cause: str, machine: Snapshot) -> None:
    lines, answer = reply(machine), judged(machine)
    assert spoken_of(answer) == cause
    assert lines[0] == f"**{answer.cause}**"
    assert "gpusetup snapshot" in lines[-1]


@each("machine", lambda: [read_report(said) for _, said in MESSAGES[1::2]])
def test_a_reply_says_all_that_the_screen_says_above_the_machine(machine: Snapshot) -> None:
    answer = judged(machine)
    screen = doctor_screen(answer).lines
    said = screen[: [*map(str, screen)].index("This machine")]
    told = bare(doctor_markdown(answer))
    assert [row for row in said if bare(row) not in told] == []


def bare(text: str) -> str:
    """A text, however it was spaced."""
    return " ".join(text.split())


FOREIGN = st.text(st.sampled_from("ab `*_[]()<>#!|~@&$\\\n\x1b"), max_size=60)


@given(FOREIGN)
def test_nothing_that_a_text_says_stands_outside_of_the_block(said: str) -> None:
    events = event("build-isolation-no-torch", said, package=said)
    machine = Snapshot(origin="report", events=events, os=Os(family="linux"))
    first, _, opened, *rest = reply(machine)
    fence = opened.removesuffix("text")
    assert set(fence) == {"`"} and re.fullmatch(r"\*\*[a-z-]+\*\*", first)
    block = rest[: rest.index(fence)]
    assert not any(line.lstrip().startswith(fence) for line in block)
    assert "\x1b" not in "".join(block)
    assert rest[len(block) + 1 :][1] == WHAT_IT_IS
