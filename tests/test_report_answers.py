"""What an answer to a text says: each line once, one command that decides, a way for this place."""

from __future__ import annotations

import re
import shlex

from each_row import each
from message_samples import samples

from gpusetup.catalog.facts import extension_modules
from gpusetup.catalog.file import load_catalog
from gpusetup.commands.doctor_answer import document, exit_code
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.doubt import BY_ONE_MESSAGE, DOUBTS
from gpusetup.diagnosis.failing import NAMED
from gpusetup.diagnosis.next_reading import IN_A_NOTEBOOK, IN_WSL, ON_MACS
from gpusetup.evidence.wording import place_of
from gpusetup.findings.lenders import LENDERS
from gpusetup.findings.libraries.distributions import CALLED_ALIKE
from gpusetup.findings.record import RECORDS
from gpusetup.messages.programs import PROGRAMS
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Severity, typed
from gpusetup.model.frozen import replace
from gpusetup.readings.nvidia_smi.wsl import SEEN
from gpusetup.render.text import answering, doctor_screen
from gpusetup.report.read import read_report

NOT_FOUND = "bash: nvidia-smi: command not found"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran for 600001 milliseconds"
)
WRONG_ADDRESS = "CUDA error: an illegal memory access was encountered"
UNAVAILABLE = "torch.cuda.is_available()\nFalse"


def answered(text: str) -> DoctorAnswer:
    catalog = load_catalog()
    return document(diagnose(read_report(text), catalog), catalog)


@each(
    "text",
    [
        f">>> {UNAVAILABLE}",
        "print(torch.cuda.is_available()) False",
        "torch.cuda.is_available() returns False on my machine, RTX 3060, Ubuntu 22.04",
        "after the update torch.cuda.is_available() always returns False",
        "This container was built for NVIDIA Driver Release 575.57 or later, but version 535.183 "
         "was detected and compatibility mode is FAILED.",
        "Nvidia driver version: 440.33.01\nCUDA driver version is insufficient for CUDA runtime "
         "version",
    ],
)  # fmt: skip
def test_a_line_of_the_text_is_evidence_once(text: str) -> None:
    seen = answering(answered(text))
    assert seen is not None
    places = [place_of(one.source) for one in seen.evidence]
    assert places and len(set(places)) == len(places), seen.evidence


def test_two_facts_of_a_line_are_both_evidence() -> None:
    answer = answered("NVIDIA-SMI 440.59       Driver Version: 550.100      CUDA Version: N/A")
    seen = answering(answer)
    assert seen is not None and len(seen.evidence) == 2


def test_every_reading_is_one_command() -> None:
    of_doubts = [row.next_reading for row in (*DOUBTS.values(), *BY_ONE_MESSAGE.values())]
    places = [typed for table in (ON_MACS, IN_WSL, IN_A_NOTEBOOK) for typed in table.values()]
    for reading in (*of_doubts, *places, *(one.reading for one in PROGRAMS)):
        words = list(shlex.shlex(reading, posix=True, punctuation_chars=";&"))
        assert not [word for word in words if set(word) <= set(";&")], reading


@each(
    "text, reading",
    [
        (UNAVAILABLE, r'python -c "import torch; .*torch\.cuda\.init\(\)"'),
        (f"Windows 11\n{UNAVAILABLE}", r'python -c "import torch; .*torch\.cuda\.init\(\)"'),
        (f"Windows 11\n{NO_DRIVER}", "Get-CimInstance .*"),
        (TIMEOUT, r"export NCCL_DEBUG=INFO .*  # .*"),
        (f"Windows 11\n{TIMEOUT}", r"\$env:NCCL_DEBUG = 'INFO'; \$env:.*  # .*"),
        (f"using Google Colab\n{UNAVAILABLE}", "!python -c .*"),
        (f"Linux-5.15.167.4-microsoft-standard-WSL2-x86_64\n{NO_KERNEL}", "python -c .*"),
        ("root@3f2a9c1b7d4e:/workspace# python t.py\nRuntimeError: CUDA error: initialization "
         "error", r"sudo dmesg .*  # on the host"),
        ("Linux-5.15.167.4-microsoft-standard-WSL2-x86_64\nRuntimeError: CUDA error: "
         "initialization error", "sudo dmesg . grep -i dxg"),
        ("RuntimeError: CUDA error: initialization error", "sudo dmesg .*nvrm.*"),
    ],
)  # fmt: skip
def test_the_reading_is_one_of_the_place_that_the_text_shows(text: str, reading: str) -> None:
    told = answered(text).next_reading
    assert told is not None and re.fullmatch(reading, told), told


@each(
    "text",
    [
        UNAVAILABLE,
        NO_KERNEL,
        TIMEOUT,
        "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "level=INFO source=gpu.go msg=\"no compatible GPUs were discovered\"",
        "RuntimeError: No CUDA GPUs are available\n  File \"/kaggle/working/train.py\", line 12",
    ],
)  # fmt: skip
def test_an_open_answer_names_one_command_to_run_first(text: str) -> None:
    answer = answered(text)
    seen = answering(answer)
    assert answer.next_reading and seen is not None and seen.fix is not None
    assert seen.fix.looks == ()


COMPOSE = f"""\
services:
  train:
    image: registry.example.com/train:4
    command: python train.py

train-1  | {NO_DRIVER}
"""
SMI = (
    "| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: 12.8 |\n"
    "|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |      N/A |\n"
)


@each(
    "text",
    [
        f"root@3f2a9c1b7d4e:/workspace# nvidia-smi\n{NOT_FOUND}",
        f"(base) jovyan@9d0a1b2c3d4e:~/work$ nvidia-smi\n{NOT_FOUND}",
        f"$ docker run -it --rm my/image bash\n# nvidia-smi\n{NOT_FOUND}",
        f"$ podman run --rm my/image python train.py\n{NO_DRIVER}",
        f"# ls /.dockerenv\n/.dockerenv\n# nvidia-smi\n{NOT_FOUND}",
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
         f"root@8c1f0a2b3d4e:/workspace# nvidia-smi\n{NOT_FOUND}",
        COMPOSE,
        f"Inside my docker container torch says\n{NO_DRIVER}",
    ],
)  # fmt: skip
def test_a_container_that_was_given_no_gpu_comes_before_a_host_without_a_driver(text: str) -> None:
    answer = answered(text)
    assert (answer.cause, answer.certainty) == ("container-no-gpu", "likely")
    assert "driver-missing" in answer.other_causes
    assert answer.next_reading == "nvidia-smi  # on the host"


@each(
    "text, cause",
    [
        (f"me@ubuntu:~$ nvidia-smi\n{NOT_FOUND}", "driver-missing"),
        (f"it works in my docker container, but on the host\n{NO_DRIVER}", "driver-missing"),
        (COMPOSE.replace("    command", "    gpus: all\n    command"), "unknown"),
        (COMPOSE.replace("    command", "    runtime: nvidia\n    command"), "unknown"),
        (f"the services: we use\nimage: none\n{NO_DRIVER}", "driver-missing"),
        (f"$ docker run --gpus all my/image nvidia-smi\n{SMI}", "ok"),
    ],
)  # fmt: skip
def test_a_host_or_a_container_with_a_gpu_is_not_one_without(text: str, cause: str) -> None:
    assert answered(text).cause == cause


def test_a_container_beside_a_host_whose_driver_answers_is_certain() -> None:
    inside = f"$ docker run -it my/image bash\nroot@3f2a9c1b7d4e:/# nvidia-smi\n{NOT_FOUND}"
    answer = answered(f"{inside}\n\non the host:\n{SMI}")
    assert (answer.cause, answer.certainty) == ("container-no-gpu", "certain")
    assert answer.other_causes == ()


@each(
    "said, lender",
    [
        ("I run this on Google Colab with a T4", "Google Colab"),
        ("On Google Colab (T4 runtime) I get this", "Google Colab"),
        ("**Platform:** Google Colab", "Google Colab"),
        ("the Colab notebook stops here", "Google Colab"),
        ("Kaggle notebook with P100", "Kaggle"),
        ("Environment: Kaggle Notebooks, GPU T4 x2", "Kaggle"),
        ("in a Kaggle session", "Kaggle"),
        ("it works on Colab, but not on my own machine", None),
        ("On Google Colab I also tried, same error", None),
        ("the bug happens with Colab and Kaggle, or any time", None),
        ("the data are from Kaggle", None),
        ("https://colab.research.google.com/github/x/y", None),
    ],
)
def test_a_lent_notebook_is_known_by_a_sentence(said: str, lender: str | None) -> None:
    answer = answered(f"{said}\n{NO_DRIVER}")
    seen = answering(answer)
    assert seen is not None and seen.fix is not None
    if lender is None:
        assert "notebook" not in seen.title and "Install the NVIDIA driver" in seen.fix.text
        return
    assert lender in seen.title and seen.fix.text == LENDERS[lender].gives_a_gpu
    assert answer.next_reading in (None, "!nvidia-smi")
    assert not {"container-no-gpu", "driver-not-loaded"} & set(answer.other_causes)


LENT = "I run this on Google Colab with a T4"


@each(
    "text, told, command",
    [
        (f"Kaggle notebook with P100\n{NO_KERNEL}", "start the session anew (in the Run menu)",
         "!gpusetup install --yes"),
        (f"{LENT}\nAssertionError: Torch not compiled with CUDA enabled\ntorch 2.5.1+cpu",
         "start the session anew (Runtime, Restart session)", "!gpusetup install"),
        (f"{LENT}\nThe detected CUDA version (12.2) mismatches the version that was used to compile "
         "PyTorch (11.7).", "until the session ends", "%env CUDA_HOME=/usr/local/cuda-11.7"),
        (f"{LENT}\nFailed to initialize NVML: Driver/library version mismatch",
         "Runtime, Disconnect and delete runtime", ""),
        (f"{LENT}\nCUDA error: CUDA driver version is insufficient for CUDA runtime version",
         "nobody can update it there", ""),
        (f"{LENT}\nNVRM: Xid (PCI:0000:00:04): 79, GPU has fallen off the bus.",
         "Runtime, Disconnect and delete runtime", ""),
    ],
)  # fmt: skip
def test_a_lent_notebook_has_ways_of_its_own(text: str, told: str, command: str) -> None:
    seen = answering(answered(text))
    assert seen is not None and seen.fix is not None and told in seen.fix.text
    assert any(line.startswith(command) for line in seen.fix.commands) or not command
    assert command or not seen.fix.commands


def test_no_answer_of_a_lent_notebook_touches_its_host() -> None:
    kinds: dict[frozenset[str], str] = {}
    for sample in samples():
        kinds.setdefault(sample.kinds, sample.text)
    touched = re.compile(r"\b(?:reboot|modprobe|dkms|mokutil|Download it from)\b")
    for text in list(kinds.values())[::3]:
        for found in answered(f"{LENT}\n{text}").findings:
            if found.root and found.fix and not found.id.startswith(("wsl", "container")):
                shown = [found.fix.text, *typed(found.fix)]
                assert not any(map(touched.search, shown)), (text, shown)
                assert all(re.match(r"!|%|import os; ", line) for line in typed(found.fix))


@each(
    "text, cause, code",
    [
        (f"llama-server\n{WRONG_ADDRESS}", "cuda-program-error", 1),
        ("RuntimeError: Could not load libtorchcodec. Likely causes: 1. FFmpeg is not properly "
         "installed in your environment.", "program-requirement-missing", 1),
        ("UserWarning: Specified provider 'CUDAExecutionProvider' is not in available provider "
         "names.", "program-without-gpu-support", 1),
        (UNAVAILABLE, "unknown", 1),
        ("", "unknown", 1),
        ("GPU computation test: PASSED\nPyTorch version: 2.5.1+cu124\nCUDA available: True\n"
         "GPU Name: NVIDIA L4", "ok", 0),
    ],
)  # fmt: skip
def test_what_is_named_as_the_cause_is_no_wherever_it_lies(
    text: str, cause: str, code: int
) -> None:
    answer = diagnose(read_report(text), load_catalog())
    assert answer.cause in cause.split()
    assert exit_code(answer, strict=False) == code


def test_every_failure_outside_the_stack_has_the_same_exit_code() -> None:
    for id in NAMED:
        found = replace(RECORDS[id].found("it failed"), severity=Severity.NOTE)
        named = replace(diagnose(read_report(""), load_catalog()), cause=id, findings=(found,))
        assert exit_code(named, strict=False) == 1


def test_a_failure_outside_the_stack_is_marked_as_one() -> None:
    screen = doctor_screen(answered(f"llama-server\n{WRONG_ADDRESS}"))
    assert screen.shown(width=80, colour=False).startswith("✗ cuda-program-error")


BANNER = "| NVIDIA-SMI {}       Driver Version: {}      CUDA Version: 12.6      |"
VERSIONS = (
    "NVIDIA-SMI version  : {}\nNVML version        : 580.82\nDRIVER version      : {}\n"
    "CUDA Version        : 13.0"
)


def test_an_nvidia_smi_of_another_version_than_its_driver_is_no_disagreement() -> None:
    in_an_image = ("535.104.05", "550.54.14")
    for own, driver in (*((pair.own, pair.driver) for pair in SEEN), in_an_image):
        for form in (BANNER, VERSIONS, f"Nvidia driver version: {driver}\n{BANNER}"):
            answer = answered(form.format(own, driver))
            assert answer.snapshot.driver.version == driver
            assert "sources-disagree" not in {one.id for one in answer.findings}


def test_two_drivers_in_a_text_are_a_disagreement() -> None:
    answer = answered(f"Nvidia driver version: 535.54.03\n{BANNER.format('580.82.10', '581.29')}")
    assert "sources-disagree" in {one.id for one in answer.findings}


def test_a_banner_without_its_drivers_version_says_it_by_its_own() -> None:
    assert answered("| NVIDIA-SMI 535.104.05 |").snapshot.driver.version == "535.104.05"


def test_no_name_is_installed_that_is_not_known_to_be_a_distribution() -> None:
    known = CALLED_ALIKE | set(extension_modules().values())
    kinds = {"extension-arch", "no-kernel-image", "extension-abi-mismatch", "extension-not-built"}
    asked = 0
    for text in (sample.text for sample in samples() if kinds & sample.kinds):
        for found in answered(text).findings:
            if not found.id.startswith("extension-") or found.fix is None:
                continue
            for line in typed(found.fix):
                words = line.partition("pip install ")[2].split()
                names = {word for word in words if re.fullmatch(r"[a-zA-Z][\w-]*", word)}
                asked += len(names)
                assert names <= known | {"openmim", "triton"}, (text, line)
    assert asked > 20


@each(
    "text, reading",
    [
        ("pip install llama-cpp-python\nERROR: Failed building wheel for llama-cpp-python",
         "python -m pip install -v llama-cpp-python"),
        ("RuntimeError: Error compiling objects for extension",
         "python -m pip install -v --no-build-isolation ."),
        ("ERROR: Failed building wheel for torch-scatter",
         "python -m pip install -v --no-build-isolation torch-scatter"),
        ("gpu-operator-657c5b798d-xgvgc  0/1  CrashLoopBackOff  12\nkubectl get pods",
         "kubectl describe nodes | grep nvidia.com/gpu"),
        ("Windows 11\nkubectl get pods\ngpu-operator-657c5b798d-xgvgc  0/1  CrashLoopBackOff",
         "kubectl describe nodes | findstr nvidia.com/gpu"),
    ],
)  # fmt: skip
def test_an_unknown_asks_for_what_shows_the_stage_that_failed(text: str, reading: str) -> None:
    answer = answered(text)
    assert (answer.cause, answer.next_reading) == ("unknown", reading)


def test_the_extension_that_asks_for_a_library_is_what_is_mended() -> None:
    missing = "ImportError: libcudart.so.10.0: cannot open shared object file: No such file"
    traced = (
        '  File "/env/lib/python3.7/site-packages/mmcv/ops/__init__.py", line 1, in <module>\n'
        "    from .bbox import bbox_overlaps\n"
        '  File "/env/lib/python3.7/importlib/__init__.py", line 127, in import_module\n'
        "    return _bootstrap._gcd_import(name[level:], package, level)"
    )
    seen = answering(answered(f"{traced}\n{missing}"))
    assert seen is not None and seen.fix is not None
    assert seen.fix.text.startswith("mmcv asks for it") and not seen.fix.commands
    seen = answering(answered(missing))
    assert seen is not None and seen.fix is not None and "Else:" in seen.fix.text


def test_a_gpu_that_no_text_shows_is_not_spoken_of() -> None:
    seen = answering(answered(NO_DRIVER))
    assert seen is not None and seen.title == "No NVIDIA driver was found"
    seen = answering(answered(f"RTX 4090\n{NO_DRIVER}"))
    assert seen is not None and "RTX 4090" in seen.title


def test_a_count_of_no_gpus_gives_none() -> None:
    text = f"docker run --rm --gpus 0 my/image python train.py\n{NO_DRIVER}"
    answer = answered(text)
    assert answer.cause == "container-no-gpu"
    assert answered(text.replace("--gpus 0", "--gpus 1")).cause != "container-no-gpu"


def test_a_container_quotes_the_line_that_came_to_no_gpu() -> None:
    said = "RuntimeError: No CUDA GPUs are available"
    seen = answering(answered(f"root@3f2a9c1b7d4e:/app# python train.py\n{said}"))
    assert seen is not None and any(said in one.text for one in seen.evidence)


TOO_NEW = (
    "NVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with the current "
    "PyTorch installation."
)


@each(
    "text, command",
    [
        (f"$ vllm serve Qwen/Qwen3-8B\n{TOO_NEW}", "gpusetup install vllm"),
        (f"python -m sglang.launch_server --model x\n{TOO_NEW}", "gpusetup install sglang"),
        (f"root@3f2a9c1b7d4e:/vllm-workspace# vllm serve x\n{TOO_NEW}", None),
        (TOO_NEW, "gpusetup install"),
    ],
)
def test_torch_moves_with_the_program_that_requires_it(text: str, command: str | None) -> None:
    seen = answering(answered(text))
    assert seen is not None and seen.fix is not None
    assert seen.fix.commands[:1] == ((command,) if command else ())


def test_a_portable_package_is_changed_by_its_own_python() -> None:
    at = r'File "F:\a b\ComfyUI_windows_portable\ComfyUI\main.py", line 5, in <module>'
    text = f"{at}\n    import sqlalchemy\nModuleNotFoundError: No module named 'sqlalchemy'"
    path = answered(text).snapshot.python.executable
    assert path == r"F:\a b\ComfyUI_windows_portable\python_embeded\python.exe"
    assert answered(text.replace("_windows_portable", "")).snapshot.python.executable is None


def test_bfloat16_on_a_mac_is_not_answered_with_a_devices_name() -> None:
    seen = answering(answered("my Mac M1\nTypeError: BFloat16 is not supported on MPS"))
    assert seen is not None and seen.fix is not None
    assert "float16" in seen.fix.text and "cuda" not in seen.fix.text
    assert any("BFloat16" in one.text for one in seen.evidence)
