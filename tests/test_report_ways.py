"""The ways out that a text is given: of its notebook, its program, its package, its system."""

from __future__ import annotations

import re

from each_row import each
from message_samples import samples
from report_asked import NO_DRIVER, NO_KERNEL, NOT_FOUND, UNAVAILABLE, answered

from gpusetup.catalog.facts import extension_modules
from gpusetup.findings.lenders import LENDERS
from gpusetup.findings.libraries.distributions import CALLED_ALIKE
from gpusetup.model.finding import typed
from gpusetup.render.text import answering, doctor_screen


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


def test_windows_is_not_suspected_of_what_only_linux_has() -> None:
    answer = answered(f"Windows 11\n{UNAVAILABLE}")
    assert "torch-cpu-build" in answer.other_causes
    assert not {"container-no-gpu", "driver-not-loaded"} & set(answer.other_causes)
    inside = f"Windows 11\nroot@3f2a9c1b7d4e:/app# nvidia-smi\n{NOT_FOUND}"
    assert answered(inside).cause == "container-no-gpu"


@each(
    "text, program",
    [
        ("python app.py\nValueError: bad\nComfyUI and other repositories work fine here", None),
        ("it crashes, while ComfyUI works fine", None),
        ("ComfyUI does not work fine any more", "ComfyUI"),
        ("ComfyUI stops at the start", "ComfyUI"),
    ],
)
def test_a_program_that_works_is_not_the_one_that_failed(text: str, program: str | None) -> None:
    assert answered(text).program == program


def test_a_build_beside_torch_is_told_how_it_is_asked_for() -> None:
    text = (
        "File \"<string>\", line 24, in <module>\nModuleNotFoundError: No module named 'torch'\n"
        "[end of output]\npip list\ntorch                2.6.0+cu126"
    )
    seen = answering(answered(text))
    assert seen is not None and seen.id == "build-isolation-no-torch" and seen.fix is not None
    assert "`--no-build-isolation`" in seen.fix.text


def test_what_the_first_line_says_is_not_found_once_more() -> None:
    text = "python app.py\nTraceback (most recent call last):\nValueError: bad size 7"
    answer = answered(text)
    shown = doctor_screen(answer).shown(width=None, colour=False)
    assert answer.cause == "ok" and shown.count("ValueError: bad size 7") == 1


def test_a_variable_that_the_code_sets_is_taken_out_of_the_code() -> None:
    sets = "os.environ['LD_LIBRARY_PATH'] = f\"/opt/x/lib:{os.environ.get('LD_LIBRARY_PATH', '')}\""
    failed = "libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink"
    seen = answering(answered(f"{sets}\nImportError: {failed}.so.12"))
    assert seen is not None and seen.fix is not None and "own code" in seen.fix.text
    seen = answering(answered(f"export LD_LIBRARY_PATH=/opt/x/lib\nImportError: {failed}.so.12"))
    assert seen is not None and seen.fix is not None and "own code" not in seen.fix.text
