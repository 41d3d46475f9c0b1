"""What users asked for beyond the guides: texts that doctor reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


@pytest.mark.parametrize(
    "csv",
    [
        "name, driver_version, compute_cap\n{}, 580.95.05, 8.9\n{}, 580.95.05, 6.1",
        "index, uuid, driver_version, name, memory.total [MiB]\n"
        "0, GPU-aaaaaaaa-0000-0000-0000-000000000001, 580.95.05, {}, 24564 MiB\n"
        "1, GPU-aaaaaaaa-0000-0000-0000-000000000002, 580.95.05, {}, 11264 MiB",
    ],
    ids=["heading", "uuids"],
)
def test_the_csv_of_nvidia_smi_names_the_cards_and_the_driver(csv: str, reads: Any) -> None:
    """ask-3: any columns above a kernel error."""
    cards = ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce GTX 1080 Ti")
    text = f"{csv.format(*cards)}\n>>> torch.__version__\n2.9.1+cu130\n{NO_KERNEL}\n"
    answer = reads(text).answer
    assert [gpu["name"] for gpu in answer["snapshot"]["gpus"]] == list(cards)
    assert answer["snapshot"]["driver"]["version"] == "580.95.05"
    assert answer["cause"] == "arch-too-old-for-wheel"


TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tSYS\tPXB\t0-15,32-47\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tPXB\t0-15,32-47\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\t16-31,48-63\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
"""


ONE_GPU = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n"


def test_the_topology_of_nvidia_smi_tells_links_and_numa_nodes(reads: Any) -> None:
    """ask-30: pasted `nvidia-smi topo -m`, and the matrix of one GPU."""
    read = reads(TOPOLOGY)
    machine = read.answer["snapshot"]
    assert [gpu["numa_node"] for gpu in machine["gpus"]] == [0, 0, 1]
    links = [(one["first"], one["second"], one["kind"]) for one in machine["gpu_links"]]
    assert links == [(0, 1, "NV12"), (0, 2, "SYS"), (1, 2, "SYS")]
    assert "GPU 0-1 12 NVLinks (NV12)" in read.screen
    assert "NUMA node 1: GPU 2" in read.screen
    alone = reads(ONE_GPU)
    assert [gpu["numa_node"] for gpu in alone.answer["snapshot"]["gpus"]] == [0]


@pytest.mark.parametrize("word", ["False", ">>> False", "false\n", "Out[3]: False", "None", "cpu"])
def test_a_bare_answer_of_torch_gets_the_command_that_decides(word: str, reads: Any) -> None:
    """ask-33: torch sees no GPU, if the word is its answer; one command tells why."""
    read = reads(word)
    assert read.answer["symptom"] == "torch-sees-no-gpu"
    assert "torch.cuda.init()" in read.answer["next_reading"]
    assert "torch cannot find a GPU" in read.screen


def test_a_bare_true_is_no_proof_without_its_question_and_a_sentence_no_answer(reads: Any) -> None:
    """ask-33: the good answer, if it is one; a sentence that begins with the word is none."""
    read = reads("True\n")
    assert read.cause == "ok" and "if torch printed `True`" in read.screen
    assert reads("False alarm").answer["symptom"] is None


@pytest.mark.parametrize(
    ("machine", "is_said"), [("linux-rtx3090-550.163.01-no-uvm", True), ("rtx3050-laptop", False)]
)
def test_doctor_says_what_install_leaves_to_you(machine: str, is_said: bool, says: Any) -> None:
    """ask-20: of a cause beside torch the commands are yours, of a wrong build install's."""
    recorded = Path(__file__).parents[1] / "machines" / machine / "snapshot.json"
    said = says("doctor", "--from", str(recorded) if recorded.exists() else machine)
    assert (
        "Run the commands above yourself (`gpusetup install` does not run them)" in said.words
    ) is is_said
