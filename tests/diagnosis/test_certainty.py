"""How sure an answer is and what it changes: by what a text shows, whoever owns what failed."""

from __future__ import annotations

from pathlib import Path

from each_row import each
from judging import judged
from machines_named import FOLDERS, snapshot_of

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, command_lines


def root_of(answer: DoctorAnswer) -> Finding:
    return next(finding for finding in answer.findings if finding.root)


def commands_of(answer: DoctorAnswer) -> str:
    lines = [line for f in answer.findings if f.fix for line in command_lines(f.fix)]
    return "\n".join(lines)


def way_of(answer: DoctorAnswer) -> str:
    fix = root_of(answer).fix
    assert fix is not None
    return fix.text


# --- refuted --------------------------------------------------------------------------------------

REFUTED = [
    # what the text shows, the cause that is not given, what is asked
    ("My program ignores my Radeon RX 6800, it falls back to CPU.", "amd-gpu", "version.hip"),
    (
        "UserWarning: cudaGetDeviceCount() returned cudaErrorNotSupported, likely using older "
        "driver "
        "or on CPU machine",
        "vgpu-no-compute",
        "nvidia-smi",
    ),
]  # fmt: skip


@each("text, cause, question", REFUTED)
def test_a_makers_name_or_one_word_is_no_cause(text: str, cause: str, question: str) -> None:
    answer = read_report(text)
    assert answer.cause == "unknown"
    assert cause in {ruled_out.id for ruled_out in answer.ruled_out}
    assert question in (answer.next_reading or "")


# --- what is changed ------------------------------------------------------------------------------

UNCHANGED = [
    # what the text shows, what is in no command, what the way says
    (
        "uv sync\nerror: Distribution `decord==0.6.0 @ registry+https://x.example/simple` can't be "
        "installed because it doesn't have a source distribution or wheel for the current "
        "platform\n"
        "hint: You're on Linux (`manylinux_2_39_aarch64`), but `decord` (v0.6.0) only has "
        "wheels for "
        "the following platforms: `manylinux2010_x86_64`",
        "gpusetup install",
        "torch is not at fault",
    ),
    (
        "My job on a rented node of RunPod (8x H100 SXM) ends with Error 802: system not yet "
        "initialized\nfabric manager never reported Completed",
        "systemctl",
        "provider",
    ),
    (
        "hint: You're on Linux (`musllinux_1_2_x86_64`), but `torch` (v2.6.0) only has wheels for "
        "the following platforms: `manylinux_2_28_x86_64`",
        "gpusetup install",
        "with glibc",
    ),
]


@each("text, absent, way", UNCHANGED)
def test_only_what_failed_and_can_be_reached_is_changed(text: str, absent: str, way: str) -> None:
    answer = read_report(text)
    assert absent not in commands_of(answer)
    assert way in way_of(answer)


# --- a full GPU -----------------------------------------------------------------------------------

OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 23.64 GiB of which 1.10 GiB is free. Of the allocated memory {used} is allocated "
    "by PyTorch, and {unused} is reserved by PyTorch but unallocated."
)

MEMORY = [
    # what stands beside the message, torch's unused memory, whether the allocator is set, the way
    ("", "9.00 GiB", True, "in pieces that are too small"),
    ("", "60.00 MiB", False, "smaller batch"),
    ('  File "/opt/ComfyUI/comfy/model_management.py", line 9', "60.00 MiB", False, "--lowvram"),
]  # fmt: skip


@each("beside, unused, is_set, way", MEMORY)
def test_a_full_gpu_is_answered_by_the_texts_numbers(
    beside: str, unused: str, is_set: bool, way: str
) -> None:
    answer = read_report(f"{beside}\n{OUT.format(used='20.00 GiB', unused=unused)}")
    assert answer.cause == "out-of-memory"
    assert ("expandable_segments" in commands_of(answer)) is is_set
    assert way in way_of(answer)


# --- one screen -----------------------------------------------------------------------------------


@each("folder", FOLDERS)
def test_a_screen_prints_each_step_once_and_one_installation(folder: Path) -> None:
    diagnosis = judged(snapshot_of(folder))
    installations = set()
    for finding in diagnosis.findings:
        if finding.fix is None:
            continue
        assert len(set(finding.fix.commands)) == len(finding.fix.commands)
        installations |= {c for c in finding.fix.commands if c.startswith("gpusetup install")}
    assert len(installations) <= 1


# --- certain only by proof ------------------------------------------------------------------------

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total "
    "capacity of 23.99 GiB of which {free} is free."
)
PROVEN_AND_NOT = [
    # the cause, the text that proves it, the text that only suggests it
    ("out-of-memory", FULL.format(asked="512.00 MiB", free="80.00 MiB"), "CUDA out of memory."),
    (
        "extension-abi-mismatch",
        "xFormers was built for:\n    PyTorch 2.4.0+cu121 with CUDA 1201 (you have 2.3.1+cu121)\n"
        "    Python  3.10.14 (you have 3.10.12)",
        "ImportError: flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN3c104cuda14ExchangeDeviceEa",
    ),
    (
        "torch-cpu-build",
        "RTX 3090\nAssertionError: Torch not compiled with CUDA enabled",
        "AssertionError: Torch not compiled with CUDA enabled",
    ),
]


@each("cause, proven, suggested", PROVEN_AND_NOT)
def test_a_cause_is_certain_where_its_text_proves_it(
    cause: str, proven: str, suggested: str
) -> None:
    certain, likely = read_report(proven), read_report(suggested)
    assert (certain.cause, certain.certainty) == (cause, "certain")
    assert (likely.cause, likely.certainty) == (cause, "likely")
