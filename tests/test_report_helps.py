"""A help text that was pasted along names every error there is; none of them happened."""

from __future__ import annotations

from test_report_ok import cause_of

from gpusetup.report.cleaning.helps import without_help
from gpusetup.report.read import read_report

FIELDS = """\
Section about ecc.errors properties
NVIDIA GPUs can provide error counts for various types of ECC errors.
Double bit ECC errors are uncorrectable.

"ecc.errors.uncorrected.volatile.device_memory" or "ecc.errors.uncorrected.volatile.dram"
An uncorrectable ECC error in global device memory.

"retired_pages.double_bit.count" or "retired_pages.dbe"
The number of GPU device memory pages retired due to double bit ECC errors.

"clocks_event_reasons.hw_slowdown"
GPU is lost. GPU requires reset. Xid 79.
"""
OPTIONS = """\
NVIDIA System Management Interface -- v535.261.03
    -p    --reset-ecc-errors=   Reset ECC error counts: 0/VOLATILE, 1/AGGREGATE
    -r    --gpu-reset           Can be used to clear uncorrectable ECC errors. GPU requires reset.
"""
TABLE = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-12345678-0000-0000-0000-000000000000)\n"


def kinds(text: str) -> set[str]:
    return {event.kind for event in read_report(text).events}


def test_a_help_text_is_no_event() -> None:
    assert kinds(f"$ nvidia-smi --help-query-gpu\n{FIELDS}$ nvidia-smi -L\n{TABLE}") == set()
    assert kinds(f"$ nvidia-smi -h\n{OPTIONS}\n{TABLE}") == set()


def test_a_piece_of_a_help_text_is_none_either() -> None:
    assert kinds(FIELDS.partition("\n\n")[2]) == set()


def test_what_stands_after_a_help_is_read() -> None:
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.\n"
    assert "gpu-fell-off-bus" in kinds(f"$ nvidia-smi -h\n{OPTIONS}user@box:~$ nvidia-smi\n{lost}")
    assert read_report(f"{FIELDS}\n{TABLE}").gpus is not None
    xid = "[   12.512345] NVRM: Xid (PCI:0000:07:00): 48, pid=1234, DBE (double bit error) ECC\n"
    assert "xid" in kinds(f"{FIELDS}$ dmesg\n{xid}")


def test_a_count_of_zero_is_no_error() -> None:
    assert kinds("Double Bit ECC errors: 0\nUncorrectable ECC errors : 0\n") == set()
    assert kinds("Double Bit ECC errors: 3\n") == {"ecc-error"}


def test_lines_keep_their_numbers() -> None:
    lines = FIELDS.splitlines()
    assert len(without_help([*lines, "$ ls", "boom"])) == len(lines) + 2


def test_a_collector_that_lacked_a_module_and_reported_then_is_no_failed_program() -> None:
    lacks = "$ python {}\nTraceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n"
    report = "Collecting environment information...\nIs CUDA available: True\n"
    for script in ("collect_env.py", "-m torch.utils.collect_env", "tools/collect_env.py"):
        assert cause_of(lacks.format(script) + report) == "ok"
    assert cause_of(lacks.format("train.py") + report) != "ok"
