"""Who is slow, by the outputs of nccl-tests and DCGM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.fleet.sweep.plan import matching
from gpusetup.readings.dcgm import parse_dcgm
from gpusetup.readings.nccl_tests import parse_nccl_tests

# --- what others measured -------------------------------------------------------------------------

HEAD = """\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
{ranks}
#
#                                                              out-of-place          in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)
        1024           256     float     sum      -1    20.27    0.05    0.09      0    19.5 \
   0.05    0.10      0
  1073741824     268435456     float     sum      -1    44123   24.33   {rate:5.2f}      \
{wrong}    44101   24.35   {rate:5.2f}      {wrong}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.1
#
"""
OLD = """\
#   Rank  0 Pid  31415 on node-a device  0 [0x07] Tesla V100-SXM2-32GB
#                                               out-of-place                in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw
    33554432       8388608   float     sum    421.5   79.61  139.31  0e+00    420.1   79.87  \
139.77  0e+00
"""


def nccl_output(hosts: tuple[str, ...], rate: float = 24.0, wrong: object = 0) -> str:
    ranks = "\n".join(
        f"#  Rank {rank:2} Group  0 Pid {9000 + rank} on {host:>10} device  {rank % 8} "
        "[0000:07:00] NVIDIA H100 80GB HBM3"
        for rank, host in enumerate(hosts)
    )
    return HEAD.format(ranks=ranks, rate=rate, wrong=wrong)


def from_folder(
    capsys: pytest.CaptureFixture[str], folder: Path, files: dict[str, str]
) -> tuple[int, dict[str, Any]]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    code = main(["fleet", "sweep", "--from", str(folder), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def pairs_of(hosts: int, slow: dict[int, float], **more: Any) -> dict[str, str]:
    """Two turns of pairs, and a third of neighbours."""
    names = [f"gpu{number:03}" for number in range(hosts)]
    wanted = [pair for turn in range(3) for pair in matching(tuple(range(hosts)), turn)]
    return {
        f"{one}-{other}.txt": nccl_output(
            (names[one], names[other]), 24.0 * min(slow.get(one, 1), slow.get(other, 1)), **more
        )
        for one, other in wanted
    }


def test_a_slow_node_is_named_from_outputs_of_nccl_tests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, found = from_folder(capsys, tmp_path, {**pairs_of(8, {3: 0.5}), "README.md": "hello"})
    assert code == 1
    assert [(one["fault"], one["nodes"]) for one in found["findings"]] == [
        ("slow-link", ["gpu003"])
    ]
    assert found["findings"][0]["rate"] == 12.0 and found["exclude"]["slurm"] == "--exclude=gpu003"
    assert found["left_out"] == ["README.md"] and found["files"] == 12
    assert [pair[0] for pair in found["measure_next"]] == ["gpu003"]


def test_of_one_slow_pair_no_end_is_blamed_and_the_next_pairs_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rates = {("a", "b"): 24.0, ("c", "d"): 24.1, ("e", "f"): 11.0, ("g", "h"): 23.9}
    files = {f"{x}{y}.txt": nccl_output((x, y), rate) for (x, y), rate in rates.items()}
    code, found = from_folder(capsys, tmp_path, files)
    assert (code, [one["fault"] for one in found["findings"]]) == (1, ["slow-pair"])
    assert {pair[0] for pair in found["measure_next"]} == {"e", "f"}
    assert found["exclude"]["names"] == []


def test_sound_outputs_blame_nobody(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = from_folder(capsys, tmp_path, pairs_of(8, {}, wrong="N/A"))
    assert (code, found["findings"]) == (0, [])


def test_wrong_values_and_a_failed_run_are_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = pairs_of(8, {})
    files["again.txt"] = nccl_output(("gpu001", "gpu002"), wrong=7)
    down = nccl_output(("gpu000", "gpu009")).partition("  1073741824")[0]
    files["down.txt"] = f"{down}gpu009: Test NCCL failure common.cu:958 'unhandled system error'\n"
    code, found = from_folder(capsys, tmp_path, files)
    assert code == 1
    assert {one["fault"] for one in found["findings"]} == {"wrong-values", "slow-pair"}


def test_an_old_output_without_groups_is_read() -> None:
    run = parse_nccl_tests(OLD)
    assert run and (run.hosts, run.device) == (("node-a",), "Tesla V100-SXM2-32GB")
    assert run.rate == pytest.approx(139.77e9) and run.size_bytes == 33554432


@pytest.mark.parametrize("text", ["", "# Rank 0", "{}", '{"DCGM Diagnostic": 3}', "| a | b |"])
def test_foreign_text_is_no_output(text: str) -> None:
    assert parse_nccl_tests(text) is None
    assert parse_dcgm(text) is None


TABLE = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| NVML Library              | Pass                                           |
|-----  Hardware  ----------+------------------------------------------------|
| GPU Memory                | Fail - GPU: 2                                  |
| Warning                   | GPU 2 DBE volatile errors                      |
|                           | were found                                     |
| Pulse Test                | Pass - All                                     |
| pcie                      | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU5: Fail                                     |
+---------------------------+------------------------------------------------+
"""
DCGM_3 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {"category": "Deployment", "tests": [
                {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}]},
            {"category": "Stress", "tests": [
                {"name": "Targeted Power", "results": [
                    {"gpu_id": "0", "status": "Pass"},
                    {"gpu_id": "1", "status": "Fail", "warnings": [
                        {"error_id": 14, "warning": "Max power of 412 W did not reach 630 W"}]},
                ]}]},
        ],
        "version": "3.3.5",
    }
}  # fmt: skip
DCGM_4 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {"category": "Integration", "tests": [
                {"name": "pcie", "results": [
                    {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 3,
                     "status": "Fail", "warnings": [{"warning": "bandwidth", "error_id": 45}]},
                    {"entity_group": "CPU", "entity_id": 0, "status": "Skip"}],
                 "test_summary": {"status": "Fail"}}]},
        ],
    },
    "metadata": {"version": "4.2.3"},
}  # fmt: skip


def test_what_dcgm_failed_is_said_with_its_gpus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = {
        "n1.txt": TABLE, "n2.json": json.dumps(DCGM_3), "n3.json": json.dumps(DCGM_4),
        "n4.txt": TABLE.replace("Fail - GPU: 2", "Pass").replace("Fail", "Pass"),
    }  # fmt: skip
    code, found = from_folder(capsys, tmp_path, files)
    assert code == 1
    assert [(one["title"], one["detail"]) for one in found["findings"]] == [
        ("n1: DCGM's test GPU Memory failed on GPU 2", "GPU 2 DBE volatile errors were found"),
        ("n1: DCGM's test pcie failed on GPU 5", ""),
        ("n2: DCGM's test Targeted Power failed on GPU 1",
         "Max power of 412 W did not reach 630 W"),
        ("n3: DCGM's test pcie failed on GPU 3", "bandwidth"),
    ]  # fmt: skip
    assert found["exclude"]["names"] == ["n1", "n2", "n3"]


SKIPPED: dict[str, Any] = {"name": "pcie", "results": [{"gpu_id": "0", "status": "Skip"}]}


def dcgm(*tests: object) -> str:
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": list(tests)}]}})


@pytest.mark.parametrize(
    "text",
    [
        '{"DCGM Diagnostic": {"test_categories": 7}}', dcgm(), dcgm(SKIPPED),
        dcgm({"name": "x", "results": [None]}),
        "| Diagnostic | Result |\n| Memory | Skip - All |\n",
        nccl_output(("n1",)).partition("        1024")[0],
    ],
)  # fmt: skip
def test_an_output_in_which_nothing_was_judged_is_not_ok(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n1.txt").write_text(text, encoding="utf-8")
    assert main(["fleet", "sweep", "--from", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "nothing to judge in n1.txt (" in said.err and not said.out
    (tmp_path / "n2.txt").write_text(dcgm(DCGM_SOUND), encoding="utf-8")
    assert main(["fleet", "sweep", "--from", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "nothing to judge in n1.txt (" in said.err and "1 outputs read" in said.out


DCGM_SOUND = {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}


def test_a_folder_without_any_output_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    assert main(["fleet", "sweep", "--from", str(tmp_path)]) == 2
    assert main(["fleet", "sweep", "--from", str(tmp_path / "absent")]) in (2, 3)
    assert "no output of nccl-tests" in capsys.readouterr().err
