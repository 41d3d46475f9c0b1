"""Every message that people search for has one entry, whose answer is doctor's for that text."""

from __future__ import annotations

import doctest
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))
import faq_page  # noqa: E402
from faq_page import GROUPS, entries, group_of, plain  # noqa: E402
from finding_pages import SYSTEMS, messages  # noqa: E402

from gpusetup.cli import main  # noqa: E402
from gpusetup.diagnosis.knowledge import records  # noqa: E402
from gpusetup.report.read import read_bytes  # noqa: E402

FAQ = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
EVERY = [entry for rows in entries().values() for entry in rows]
SHARE = 4
SECTIONS = {part.partition('"')[0]: part for part in FAQ.split('<a id="')[1:]}


def test_every_message_stands_once_under_an_anchor_of_its_own() -> None:
    assert sum(len(entry.rows) for entry in EVERY) == len(messages()) >= 40
    assert len({entry.anchor for entry in EVERY}) == len(EVERY)
    assert {entry.anchor for entry in EVERY} <= set(SECTIONS)


def test_every_group_has_messages_and_every_beginning_takes_a_finding() -> None:
    assert all(entries().values())
    ids = [row.id for row in records()]
    for group in GROUPS:
        assert [start for start in group.ids if not any(i.startswith(start) for i in ids)] == []


def test_a_finding_belongs_to_the_group_that_names_it_before_that_of_its_layer() -> None:
    assert group_of("triton-missing").title == "Kernels, torch.compile and Triton"
    assert group_of("cuda-lib-missing").title == "Libraries beside torch"


def test_an_entry_says_what_else_it_may_be_and_the_same_by_pip() -> None:
    stub = SECTIONS["could-not-find-cuda-drivers-on-your-machine-gpu-will-not-be"]
    assert "Or it is [`driver-missing`]" in stub and "What decides: `nvidia-smi`" in stub
    assert (
        "Or the same by pip (torch from its own index first"
        in SECTIONS["assertionerror-torch-not-compiled-with-cuda-enabled"]
    )


def test_no_entry_has_windows_look_for_libraries_as_linux_does() -> None:
    assert "Env:LD_LIBRARY_PATH" not in FAQ
    assert "On Windows" not in SECTIONS["bash-nvidia-smi-command-not-found"].split("### ")[1]


def test_the_examples_of_its_functions_hold() -> None:
    assert doctest.testmod(faq_page).failed == 0


@pytest.mark.parametrize("start", range(SHARE))
def test_an_answer_is_what_the_command_says(
    start: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person's way: the text in a file, the command, the words of its answer in the entry."""
    for entry in EVERY[start :: SHARE * 4]:
        row = entry.rows[-1]
        report = tmp_path / "report.txt"
        told = read_bytes(row.text.encode()).os.family is not None
        system = "" if told else SYSTEMS["Linux"]
        report.write_text(f"{row.text}\n{system}\n", encoding="utf-8")
        main(["doctor", "--report", str(report), "--json"])
        found = json.loads(capsys.readouterr().out)["findings"]
        one = next(one for one in found if one["id"] == row.finding)
        if one["fix"]:
            assert plain(one["fix"]["text"]) in SECTIONS[entry.anchor], row
            for command in one["fix"]["commands"]:
                assert command in SECTIONS[entry.anchor], row
