"""A reply for a thread: short, whole, and inert whatever stood in the text that it answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import HEALTHY, changed, event, judged
from test_rules_said import ROOTS, named, text

from gpusetup.catalog_file import load_catalog
from gpusetup.commands.doctor_answer import document
from gpusetup.model import Snapshot, Torch
from gpusetup.render.markdown import LINES, doctor_markdown


def reply(machine: Snapshot) -> list[str]:
    return doctor_markdown(document(judged(machine), load_catalog())).splitlines()


@pytest.mark.parametrize(("cause", "machine"), [row[:2] for row in ROOTS], ids=named)
def test_a_reply_names_the_cause_quotes_its_evidence_and_asks_for_what_is_missing(
    cause: str, machine: Snapshot
) -> None:
    lines = reply(machine)
    assert len(lines) <= LINES and lines[0].startswith(f"**{cause}**: ")
    assert sum(line.startswith("```") for line in lines) % 2 == 0
    assert "gpusetup snapshot" in lines[-1]
    if cause not in ("ok", "unknown"):
        assert lines[2].startswith("```") and lines[3].strip("`")


def test_a_machine_is_asked_for_its_own_record_and_a_text_for_what_it_lacks() -> None:
    assert reply(changed(torch=Torch(installed=False)))[-1].endswith("of `gpusetup snapshot`.")
    assert reply(text(event("cuda-out-of-memory")))[-1].endswith("collect_env` and `nvidia-smi`.")
    known = text(event("cuda-out-of-memory"), torch=HEALTHY.torch, driver=HEALTHY.driver)
    assert reply(known)[-1].endswith("of `gpusetup snapshot`.")
    assert reply(text())[-1].startswith("Please post the whole error")


FOREIGN = st.text(st.sampled_from("ab `*_[]()<>#!|~@&$\\\n\x1b"), max_size=60)


@given(FOREIGN)
def test_nothing_that_a_text_says_acts_as_markdown_outside_of_code(said: str) -> None:
    machine = text(event("build-isolation-no-torch", said, package=said))
    fence, outside = "", []
    for line in reply(machine):
        if not fence and line.startswith("```"):
            fence = line.rstrip("sh")
        elif fence and line == fence:
            fence = ""
        elif not fence:
            outside.append(line)
    assert not fence and "\x1b" not in "".join(outside)
    for line in outside[1:]:
        spans = line.replace("\\`", "").split("`")
        plain_parts = spans[::2] if len(spans) % 2 else spans
        for part in plain_parts:
            bare = part.replace("\\\\", "")
            for mark in "<[":
                assert bare.count(mark) == bare.count(f"\\{mark}")
