"""The pages of the findings solve what their title says, as a visitor of the site reads them."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import finding_cases
import finding_groups
import finding_pages
import finding_words
import findings_reference
import messages_searched
import site_search

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.explanations import records
from gpusetup.report.read import read_bytes

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = ROOT / "docs" / "findings"
SEARCHED = json.loads((ROOT / "web" / "messages.json").read_text(encoding="utf-8"))
WITHOUT_COMMAND = "There is no command to paste here, because "


@cache
def pages() -> dict[str, str]:
    """Each page by the finding's id."""
    files = sorted(FINDINGS.glob("*.md"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files if file.stem != "index"}


def section(page: str, title: str) -> str:
    """What stands under a heading, up to the next of its level."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def prose_lines(page: str) -> Iterator[str]:
    """The lines outside blocks of code."""
    yield from re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", page).splitlines()


def plain(text: str) -> str:
    """Letters as a search compares them: on one line, without colons and the marks of code."""
    return " ".join(text.replace(":", " ").replace("`", " ").split())


def headings(page: str) -> list[str]:
    return [plain(line.lstrip("# ")) for line in prose_lines(page) if line.startswith("#")]


def test_every_finding_has_a_page() -> None:
    assert set(pages()) == {record.id for record in records()}


def test_every_page_has_a_command_that_fixes_it_or_says_why_there_is_none() -> None:
    silent = []
    for id, page in pages().items():
        fix = section(page, "How to fix it")
        has_commands = re.search(r"(?m)^```(?:sh|powershell)$", fix)
        if not has_commands and WITHOUT_COMMAND not in fix:
            silent.append(id)
        assert not (has_commands and WITHOUT_COMMAND in fix), id
    assert silent == []


def test_most_pages_have_a_command_that_fixes_it() -> None:
    with_commands = [id for id, page in pages().items() if WITHOUT_COMMAND not in page]
    assert len(with_commands) >= 0.75 * len(pages())


def test_every_page_shows_how_to_check_and_what_the_command_prints() -> None:
    for id, page in pages().items():
        check = section(page, "Check that this is your problem")
        assert re.search(r"(?m)^```sh$", check), id
        assert id == "ok" or re.search(r"(?m)^```text$", check) or "gpusetup doctor" in check, id


def test_every_page_ends_with_the_next_step() -> None:
    for id, page in pages().items():
        assert page.rstrip().splitlines()[-1].startswith("**Next step:** "), id


def test_no_paragraph_is_half_a_sentence() -> None:
    halves = []
    for id, page in pages().items():
        for line in prose_lines(page):
            text = line.strip()
            is_heading_or_id = text.startswith(("#", "Finding: "))
            if text and not is_heading_or_id and not re.search(r"[.!?:]\)?$", text):
                halves.append((id, text))
    assert halves == []


def test_what_ends_with_a_colon_is_followed_by_code_or_a_list() -> None:
    for id, page in pages().items():
        blocks = re.split(r"\n\n+", page)
        for block, following in pairwise(blocks):
            if block.endswith(":") and not block.startswith("#"):
                assert following.startswith(("```", "- ")), (id, block, following)


def test_no_heading_stands_alone() -> None:
    """A section, other than a message that has its page's check and fix, says something."""
    for id, page in pages().items():
        assert not re.search(r"(?m)^##+ [^`\n]*\n\n## ", page), id


def test_each_message_is_a_heading_of_exactly_one_page() -> None:
    by_heading: dict[str, list[str]] = {}
    for id, page in pages().items():
        for heading in headings(page):
            by_heading.setdefault(heading, []).append(id)
    for row in SEARCHED:
        places = by_heading.get(plain(row["message"]), [])
        assert len(places) == 1, (row["message"], places)


def test_the_index_has_each_message_with_its_id() -> None:
    index = (FINDINGS / "index.md").read_text(encoding="utf-8")
    lines = [plain(line) for line in index.splitlines() if line.startswith("- ")]
    for row in SEARCHED:
        message = plain(row["message"])
        found = [line for line in lines if message in line]
        assert found and all(re.search(r"\( [a-z0-9-]+ \)$", line) for line in found), message
    linked = set(re.findall(r"\]\(([a-z0-9-]+)\.md\)", index))
    assert linked == set(pages())


def test_the_index_is_grouped_by_where_the_message_comes_from() -> None:
    index = (FINDINGS / "index.md").read_text(encoding="utf-8")
    groups = re.findall(r"(?m)^## (.*)$", index)
    assert groups == list(finding_groups.GROUPS)
    of_drivers = section(index, "Driver and hardware")
    assert "driver-not-loaded" in of_drivers and "gpu-fell-off-bus" in of_drivers
    assert "nccl-timeout" in section(index, "Several GPUs")
    assert "container-toolkit-missing" in section(index, "Containers, Kubernetes and WSL")


def test_a_fix_that_depends_on_the_machine_names_the_machine_and_what_to_change() -> None:
    page = pages()["torch-cpu-build"]
    windows = section(page, "How to fix it").partition("### On Windows")[2].partition("###")[0]
    assert "For example, on Windows 11 with an NVIDIA GeForce RTX 3050 Laptop GPU" in windows
    assert "driver 581.29" in windows and "```powershell\ngpusetup install --python C:" in windows
    assert "with the Python of your environment" in windows
    for heading in ("### On Linux", "### With conda", "### With uv"):
        assert heading in page


def test_an_example_shows_no_name_of_an_event_and_no_placeholder() -> None:
    by_id = {record.id: record for record in records()}
    for id, page in pages().items():
        check = section(page, "Check that this is your problem")
        for kind in by_id[id].kinds:
            assert not re.search(rf"(?m)^  {re.escape(kind)}  \(", check), id
        for line in prose_lines(page):
            without_code = re.sub(r"`+[^`]*`+", "", line)
            assert not re.search(r"\{\w+\}", without_code), (id, line)


def test_a_page_about_another_makers_gpu_does_not_ask_for_an_nvidia_gpu() -> None:
    for id in ("amd-gpu", "intel-gpu", "apple-silicon", "maker-wrong-build", "rocm-arch-missing"):
        assert "CUDA needs an NVIDIA GPU" not in pages()[id], id
    assert 'sudo usermod -aG render,video "$USER"' in pages()["maker-device-permission"]
    assert "sudo modprobe amdgpu" in pages()["maker-driver-not-loaded"]


def test_windows_commands_are_not_for_a_linux_driver() -> None:
    for id, page in pages().items():
        windows = page.partition("### On Windows\n")[2].partition("\n#")[0]
        assert not re.search(r"driver \d{3}\.\d{2,3}\.\d{2}\b", windows), id


def test_a_titles_placeholder_without_a_value_is_replaced_by_the_plain_title() -> None:
    assert (
        "driver-does-not-answer: The driver does not respond" in pages()["driver-does-not-answer"]
    )
    assert "GPU None" not in "".join(pages().values())
    assert "Install torch  again" not in "".join(pages().values())


def test_the_example_of_a_log_is_the_message_in_the_title() -> None:
    for id in ("amd-gpu", "gpu-init-failed", "cuda-init-out-of-memory", "nccl-timeout"):
        title = plain(pages()[id].splitlines()[0].lstrip("# "))
        check = section(pages()[id], "Check that this is your problem")
        assert title in plain(check), id


def test_the_most_searched_findings_are_checked_without_gpusetup() -> None:
    names = messages_searched.MOST_SEARCHED
    by_id = {record.id: record for record in records()}
    assert len(names) == 20
    for id in names:
        check = by_id[id].check
        assert check is not None and "gpusetup" not in check.command, id
        assert check.prints.splitlines()[0] in pages()[id], id


def test_the_examples_in_the_scripts_hold() -> None:
    for module in (finding_cases, finding_pages, finding_words, findings_reference, site_search):
        assert doctest.testmod(module).failed == 0, module.__name__


# The output alone does not prove these causes: it lacks the GPU, the torch or the error beside it.
NOT_PROVEN_BY_THE_CHECK = frozenset(
    (
        "bf16-unsupported",
        "cuda-lib-missing",
        "cuda-visible-devices-hidden",
        "dataloader-worker-killed",
        "docker-other-daemon",
        "driver-call-unsupported",
        "driver-too-old",
        "externally-managed",
        "gpu-unused",
        "invalid-device-ordinal",
        "maker-device-permission",
        "maker-driver-not-loaded",
        "maker-wrong-build",
        "no-kernel-image",
        "other-gpu-used",
        "other-torch-imported",
        "out-of-memory",
        "apple-silicon",
        "rocm-arch-missing",
        "rocm-override-wrong",
        "source-checkout-imported",
        "tf32-precision",
        "wrong-libcuda-loaded",
    )
)
"""Findings that doctor does not name if it reads only the page's check and its output. The list may
only get shorter."""


def findings_in_the_check(record: Cause) -> set[str]:
    """What doctor finds in a paste of the page's check command and what it prints."""
    assert record.check is not None
    pasted = f"$ {record.check.command}\n{record.check.prints}\n"
    diagnosis = diagnose(read_bytes(pasted.encode()), load_catalog())
    return {finding.id for finding in diagnosis.findings}


def test_doctor_names_the_finding_in_the_output_of_its_pages_check() -> None:
    missed = set()
    for record in records():
        if record.check and not findings_in_the_check(record) & {record.id, record.kind_of}:
            missed.add(record.id)
    assert missed == NOT_PROVEN_BY_THE_CHECK
