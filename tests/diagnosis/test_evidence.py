"""No answer is stronger than its evidence: refuted causes, owners of files, needs of a change.

Each text shows a mechanism from outside, with a text next to it in which one fact differs.
"""

from __future__ import annotations

import pytest
from each_row import each

from gpusetup.catalog.file import load_catalog
from gpusetup.commands.doctor import exit_code
from gpusetup.commands.report import snapshot_of
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines
from gpusetup.render.doctor import doctor_screen

SMI = (
    "| NVIDIA-SMI 565.57.01       Driver Version: 565.57.01       CUDA Version: {cuda}     |\n"
    "|   0  NVIDIA GeForce RTX 4080        Off |   00000000:01:00.0  On |                  N/A |\n"
)
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
NMS = "RuntimeError: operator torchvision::nms does not exist\n"
CUBLAS = "ImportError: libcublas.so.12: cannot open shared object file: No such file or directory\n"
LISTED = "/opt/app/.venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.12\n"
NO_DEVICE_DRIVER = (
    "$ docker run --gpus all ubuntu nvidia-smi\ndocker: Error response from daemon: "
    'could not select device driver "" with capabilities: [[gpu]].\n'
)


def answered(text: str) -> DoctorAnswer:
    catalog = load_catalog()
    return diagnose(snapshot_of(text.encode()), catalog)


def commands_of(answer: DoctorAnswer) -> str:
    return "\n".join(line for finding in answer.findings for line in command_lines(finding.fix))


def screen_of(answer: DoctorAnswer) -> str:
    return " ".join(doctor_screen(answer).shown(width=100, colour=False).split())


# --- a cause that a reading denies ----------------------------------------------------------------

REFUTED = [
    # what the text shows, the cause, what is ruled out
    (f"{NO_KERNEL}PyTorch version: 2.9.1+cu128\nRTX 5090\n", "extension-arch-mismatch", True),
    (
        f"{CUBLAS}torch 2.5.1+cu124\n$ find / -name 'libcublas*'\n{LISTED}",
        "library-not-on-path",
        True,
    ),
    (f"{CUBLAS}torch 2.5.1+cu124\n", "cuda-lib-missing", False),
    (f"nvidia-container-toolkit-1.17.8-1.x86_64\n{NO_DEVICE_DRIVER}", "docker-other-daemon", True),
    (NO_DEVICE_DRIVER, "container-toolkit-missing", False),
]


@each("text, cause, is_refuted", REFUTED)
def test_a_cause_that_a_reading_denies_is_not_given(
    text: str, cause: str, is_refuted: bool
) -> None:
    answer = answered(text)
    assert answer.cause == cause
    assert bool(answer.ruled_out) is is_refuted
    if is_refuted:
        # Nothing is installed over what was read to be right, and the answer says why.
        assert "install" not in commands_of(answer)
        assert answer.ruled_out[0].because in screen_of(answer)


# --- whose file it is -----------------------------------------------------------------------------


def test_pip_is_not_told_to_change_a_store() -> None:
    store = "/nix/store/abcdefghijklmnopqrstuvwxyz012345-python3.11-torchaudio-2.5.1"
    answer = answered(
        f"ImportError: {store}/lib/python3.11/site-packages/torchaudio/lib/libtorchaudio.so: "
        "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocation\ntorch 2.6.0+cu124\n"
    )
    assert "pip install" not in commands_of(answer)
    assert "Nix" in screen_of(answer)


# --- a change only for what was read --------------------------------------------------------------


def test_a_companion_waits_for_the_torch_that_is_there() -> None:
    answer = answered(f"my conda env is fresh, and then\n{NMS}")
    fix = answer.findings[0].fix
    assert answer.cause == "torchvision-mismatch" and fix is not None
    assert [(need.what, need.state) for need in fix.needs] == [("torch", "unread")]
    assert fix.commands == () and "torch.__version__" in (answer.next_reading or "")
    known = answered(f"{NMS}torch   2.6.0+cu124\ntorchvision   0.20.1+cu124\n")
    assert "torchvision==0.21.0" in commands_of(known)


PLUGIN = (
    "kubectl -n kube-system logs nvidia-device-plugin-x\nE factory.go:88] If this is a GPU node, "
    "did you configure the NVIDIA Container Toolkit?\nI main.go:346] No devices found. Waiting "
    "indefinitely.\n"
)


@pytest.mark.parametrize("engine", ["crio", "containerd"])
def test_a_node_is_configured_for_its_own_engine(engine: str) -> None:
    shown = commands_of(answered(f"{PLUGIN}The node's runtime is {engine}, Ubuntu 24.04.\n"))
    assert f"--runtime={engine}" in shown and f"restart {engine}" in shown


def test_a_screen_that_cannot_be_reached_enrols_no_key() -> None:
    text = (
        "SecureBoot enabled\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
        "driver.\nUbuntu 22.04{where}\n"
    )
    there = answered(text.format(where=" on a VM at Azure, I only have ssh to the machine."))
    assert "mokutil --import" not in commands_of(there)
    assert "signed kernel modules" in screen_of(there)
    assert "mokutil --import" in commands_of(answered(text.format(where=" on the PC at my desk.")))


# --- certain, healthy, asked ----------------------------------------------------------------------

HEALTHY = [
    "torch 2.9.1+rocm6.4, torch.cuda.is_available() True, RX 7900 XTX, Ubuntu 24.04. Works great.",
    "Do I need CUDA 12.4 if my driver is 570.86.10? I want torch 2.5.1 built for CUDA 12.4.",
    "torch: 2.6.0+cu124, RTX 4070\nModuleNotFoundError: No module named 'triton'\n"
    "100%|##########| 20/20 [00:02<00:00,  8.61it/s]\n",
]


@pytest.mark.parametrize("text", HEALTHY)
def test_a_working_stack_and_a_plain_question_end_with_0(text: str) -> None:
    judged = diagnose(snapshot_of(text.encode()), load_catalog())
    assert (judged.cause, exit_code(judged, strict=False)) == ("ok", 0)
    assert judged.next_reading is None


@each(
    "text, asks",
    [
        ("8x H100, torch 2.7.1+cu128, the training freezes at its first step.", "NCCL_DEBUG=INFO"),
        ("lxc ml ERROR conf.c:lxc_setup:3940 - Failed to run mount hooks", "nvidia-container-cli"),
        ("hi, my RTX 4090 does not work with this program, please help", "torch.__version__"),
        ("my RTX 5090 gives errors in this program, please help", "torch.__version__"),
    ],
)
def test_an_unknown_answer_asks_by_stage(text: str, asks: str) -> None:
    answer = answered(text)
    assert answer.cause == "unknown"
    assert asks in (answer.next_reading or "")


# --- live answers that misled ---------------------------------------------------------------------


def test_a_full_dev_shm_is_enlarged_and_not_opened_to_all() -> None:
    segment = "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a (size 9637888)"
    full = answered(f"{segment}: No space left on device\n")
    assert full.cause == "nccl-shm-error" and "chmod" not in commands_of(full)
    assert "chmod" in commands_of(answered(f"{segment}: Permission denied\n"))
