"""What users asked for beyond the guides: texts that doctor reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main

NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def doctor_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> tuple[dict[str, Any], str]:
    """Doctor's answer to a text as JSON, and as a screen."""
    file = tmp_path / "report.txt"
    file.write_text(text, encoding="utf-8")
    main(["doctor", "--report", str(file), "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    main(["doctor", "--report", str(file)])
    return answer, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "csv",
    [
        "name, driver_version, compute_cap\n{}, 580.95.05, 8.9\n{}, 580.95.05, 6.1",
        "index, uuid, driver_version, name, memory.total [MiB]\n"
        "0, GPU-aaaaaaaa-0000-0000-0000-000000000001, 580.95.05, {}, 24564 MiB\n"
        "1, GPU-aaaaaaaa-0000-0000-0000-000000000002, 580.95.05, {}, 11264 MiB",
        "0, {}, 580.95.05, 24564, 8.9\n1, {}, 580.95.05, 11264, 6.1",
        "{}, 580.95.05, 24564 MiB\n{}, 580.95.05, 11264 MiB",
    ],
    ids=["heading", "uuids", "noheader nounits", "noheader"],
)
def test_the_csv_of_nvidia_smi_names_the_cards_and_the_driver(
    csv: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ask-3: any columns, with and without heading and units, above a kernel error."""
    cards = ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce GTX 1080 Ti")
    text = f"{csv.format(*cards)}\n>>> torch.__version__\n2.9.1+cu130\n{NO_KERNEL}\n"
    answer, _ = doctor_reads(tmp_path, capsys, text)
    assert [gpu["name"] for gpu in answer["snapshot"]["gpus"]] == list(cards)
    assert answer["snapshot"]["driver"]["version"] == "580.95.05"
    assert answer["cause"] == "arch-too-old-for-wheel"


@pytest.mark.parametrize(
    "text",
    [
        "name, version, comment\nI have an RTX 4090, driver 580, and it fails",
        "pid, process_name, used_gpu_memory [MiB]\n4711, python, 6144 MiB",
        "NVIDIA GeForce RTX 4090, and it is slow",
    ],
)
def test_a_sentence_with_commas_or_another_query_lists_no_cards(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ask-3: neighbours."""
    answer, _ = doctor_reads(tmp_path, capsys, text)
    listed = answer["snapshot"]["gpus"] or ()
    assert all(gpu["nvml_index"] is None for gpu in listed)


TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tSYS\tPXB\t0-15,32-47\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tPXB\t0-15,32-47\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\t16-31,48-63\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
"""


def test_the_topology_of_nvidia_smi_tells_links_and_numa_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ask-30: pasted `nvidia-smi topo -m`."""
    answer, screen = doctor_reads(tmp_path, capsys, TOPOLOGY)
    machine = answer["snapshot"]
    assert [gpu["numa_node"] for gpu in machine["gpus"]] == [0, 0, 1]
    links = [(one["first"], one["second"], one["kind"]) for one in machine["gpu_links"]]
    assert links == [(0, 1, "NV12"), (0, 2, "SYS"), (1, 2, "SYS")]
    assert "GPU 0-1 12 NVLinks (NV12)" in screen
    assert "NUMA node 1: GPU 2" in screen


def test_one_gpu_has_no_line_of_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ask-30: a neighbour, the matrix of one GPU."""
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n"
    answer, screen = doctor_reads(tmp_path, capsys, text)
    assert [gpu["numa_node"] for gpu in answer["snapshot"]["gpus"]] == [0]
    assert " links " not in screen


@pytest.mark.parametrize("word", ["False", ">>> False", "false\n", "Out[3]: False", "None", "cpu"])
def test_a_bare_answer_of_torch_gets_the_command_that_decides(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ask-33: torch sees no GPU, if the word is its answer; one command tells why."""
    answer, screen = doctor_reads(tmp_path, capsys, word)
    assert answer["symptom"] == "torch-sees-no-gpu"
    assert "torch.cuda.init()" in answer["next_reading"]
    assert "torch sees no GPU here" in screen


def test_a_bare_true_is_no_proof_without_its_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ask-33: the good answer, if it is one."""
    answer, screen = doctor_reads(tmp_path, capsys, "True\n")
    assert answer["cause"] == "ok"
    assert "if torch printed `True`" in screen


def test_a_sentence_that_begins_with_the_word_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ask-33: a neighbour."""
    answer, _ = doctor_reads(tmp_path, capsys, "False alarm")
    assert answer["symptom"] is None


def test_doctor_says_what_install_leaves_to_you(capsys: pytest.CaptureFixture[str]) -> None:
    """ask-20: of a cause beside torch the commands are yours, of a wrong build install's."""
    machines = Path(__file__).parents[1] / "machines"
    said = "`gpusetup install` changes torch and its companions only"
    module = machines / "linux-rtx3090-550.163.01-no-uvm" / "snapshot.json"
    main(["doctor", "--from", str(module)])
    assert said in " ".join(capsys.readouterr().out.split())
    main(["doctor", "--from", "rtx3050-laptop"])
    assert said not in " ".join(capsys.readouterr().out.split())
