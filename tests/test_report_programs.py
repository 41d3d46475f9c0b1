"""Which program a text is about, and at what it failed; the way out is that program's."""

from __future__ import annotations

import pytest
from each_row import each
from judging import spoken_of
from program_texts import SAID, SMI, Said
from report_asked import judged

from gpusetup.diagnosis.knowledge import records
from gpusetup.messages.programs import PROGRAMS
from gpusetup.model.finding import typed

FAILURES = {record.id for record in records() if record.failure}


@each("said", SAID)
def test_a_text_of_a_program_has_its_program_its_stage_and_its_cause(said: Said) -> None:
    answer = judged(said.text)
    assert (answer.program, answer.stage) == (said.program, said.stage)
    about = spoken_of(answer)
    assert ("ok" if about in FAILURES else about) in said.causes.split()


@each("said", SAID)
def test_what_does_not_stand_on_torch_is_not_mended_by_torch(said: Said) -> None:
    rows = {program.name: program for program in PROGRAMS}
    program = rows.get(said.program or "")
    if program is None or program.on_torch:
        return
    commands = [line for f in judged(said.text).findings for line in typed(f.fix)]
    assert not [line for line in commands if "gpusetup install" in line or " torch" in line]


@pytest.mark.parametrize(
    ("id", "said", "neighbour"),
    [
        ("program-without-gpu-support",
         "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.",
         "RuntimeError: Unable to load cuSPARSE. Is it installed?\na CUDA-enabled jaxlib is not installed. Falling back to cpu."),
        ("program-requirement-missing",
         "Preparing metadata (setup.py) ... error\nModuleNotFoundError: No module named 'wheel'",
         "ModuleNotFoundError: No module named 'wheel'"),
        ("program-release-too-old",
         "Warp CUDA error: Failed to get driver entry point 'cuDeviceGetUuid' (CUDA error 1)",
         "Warp CUDA error: Failed to get driver entry point 'cuInit' (CUDA error 34)"),
        ("program-sees-no-gpu",
         SMI + "msg=\"no compatible GPUs were discovered\"",
         "foreign: AMD Radeon RX 6600\nRuntimeError: No HIP GPUs are available\nmsg=\"no compatible GPUs were discovered\""),
    ],
)  # fmt: skip
def test_a_finding_about_a_program_has_its_text_and_a_neighbour_without(
    id: str, said: str, neighbour: str
) -> None:
    assert id in {finding.id for finding in judged(said).findings}
    assert id not in {finding.id for finding in judged(neighbour).findings}


def test_a_line_that_another_program_logs_is_not_the_program_that_failed() -> None:
    beside = "I tensorflow/tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be used.\n"
    torchs = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    answer = judged(beside + torchs)
    assert (answer.program, answer.stage) == ("torch", "first-kernel")


# --- what a text leaves open ---------------------------------------------------------------------

STUB = "I tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be used."


@pytest.mark.parametrize(
    ("said", "cause", "certainty", "others"),
    [
        (STUB, "cuda-lib-missing", "likely", ("driver-missing",)),
        (STUB + "\nCannot dlopen some GPU libraries.", "cuda-lib-missing", "certain", ()),
        (SMI + STUB, "cuda-lib-missing", "certain", ()),
        (STUB + "\nbash: nvidia-smi: command not found", "driver-missing", "likely", ("cuda-lib-missing",)),
        ("bash: nvidia-smi: command not found", "driver-missing", "likely", ("no-nvidia-gpu",)),
        ("Command 'nvidia-smi' not found, but can be installed with:", "driver-missing", "likely", ("no-nvidia-gpu",)),
        ("Linux-5.15.153.1-microsoft-standard-WSL2-x86_64\nbash: nvidia-smi: command not found", "wsl-driver", "certain", ()),
    ],
)  # fmt: skip
def test_a_driver_is_missing_for_sure_only_where_the_text_says_so(
    said: str, cause: str, certainty: str, others: tuple[str, ...]
) -> None:
    answer = judged(said)
    assert (answer.cause, answer.certainty) == (cause, certainty)
    assert set(others) <= set(answer.other_causes)


def test_a_cause_that_stands_alone_is_certain() -> None:
    answer = judged("Failed to initialize NVML: Driver/library version mismatch")
    assert (answer.certainty, answer.other_causes) == ("certain", ())


IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
WEAK_AND_PROVEN = (
    ("no-nvidia-gpu", "setup: No NVIDIA GPU detected", "Cannot connect to GPU backend"),
    ("gpu-init-failed", "$ nvidia-smi\nNo devices were found",
     "No devices were found\nNVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"),
    ("host-out-of-memory", "container exited with code 137", "Reason: OOMKilled"),
    ("module-shadowed", "AttributeError: module 'torch' has no attribute 'Tensor'",
     "cannot import name 'randbits' from 'secrets' (/home/u/w/secrets.py)"),
    ("windows-dll-missing", "libloading: (os error 126)",
     'OSError: [WinError 126] The specified module could not be found. Error loading "C:\\x\\torch\\lib\\fbgemm.dll" or one of its dependencies.'),
    ("triton-no-compiler", "FileNotFoundError: [Errno 2] No such file or directory: 'gcc'",
     "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler"),
    ("container-driver-capability-missing", "NVIDIA_DRIVER_CAPABILITIES=utility",
     "NVIDIA_DRIVER_CAPABILITIES=utility\nRuntimeError: Found no NVIDIA driver on your system."),
    ("system-not-ready-fabric-manager", "systemd[1]: Failed to start NVIDIA fabric manager service.",
     "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"),
    ("extension-arch-mismatch", f"$ pip install mamba-ssm\n{IMAGE}",
     f'  File "/x/site-packages/causal_conv1d/causal_conv1d_interface.py", line 9, in forward\n{IMAGE}'),
)  # fmt: skip
"""A cause, a text that makes it likely, and one that proves it."""


@each("cause, weak, proven", WEAK_AND_PROVEN)
def test_one_weak_reading_makes_a_cause_likely_and_a_second_one_certain(
    cause: str, weak: str, proven: str
) -> None:
    found = [(answer.cause, answer.certainty) for answer in map(judged, (weak, proven))]
    assert found == [(cause, "likely"), (cause, "certain")]


@each(
    "text",
    [
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "zipfile.BadZipFile: File is not a zip file",
        "RuntimeError: [enforce fail at inline_container.cc:603] PytorchStreamWriter failed writing file data/3\nOSError: [Errno 28] No space left on device",
    ],
)
def test_a_setting_or_a_programs_own_file_is_no_cause(text: str) -> None:
    assert judged(text).cause in ("unknown", "ok")
