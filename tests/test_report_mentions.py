"""An error that a text only speaks of is none of this machine; one that it reports stays one."""

from __future__ import annotations

from functools import cache

import pytest
from each_row import each
from judging import spoken_of
from report_messages import MESSAGES
from writers import collect_env, machines, smi_table

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.report.cleaning.negation import mentions
from gpusetup.report.read import read_report
from gpusetup.report.text import text_of

HEALTHY = (
    "PyTorch version: 2.7.0+cu126\nIs CUDA available: True\n"
    "GPU models and configuration: GPU 0: NVIDIA A40\nNvidia driver version: 560.35.03\n"
)
SHORT = 160
ERRORS = tuple(
    {
        cause: said
        for cause, said in MESSAGES
        if said.startswith(("RuntimeError: CUDA", "ImportError: ", "CUDA error: ", "Failed to "))
        and not set(said) & set("\n`'\"(") and len(said) < SHORT
    }.items()
)  # fmt: skip
SPOKEN_OF = (
    "If you see `{}` then you need another driver.",
    "if you get {}, please open another issue",
    "Should you encounter {}, reboot.",
    "In case of {} you have to reboot.",
    "You might see an error like `{}`.",
    "Some people get {} with this card.",
    "This could lead to {} on some machines.",
    "To avoid `{}`, lower the batch size.",
    "This is not the '{}' problem.",
    "It is not related to {}.",
    "I don't get {}.",
    "Unlike #4711 ({}) here the loss is NaN.",
    "No more `{}` after the update.",
    'I already fixed the "{}" error by reinstalling.',
    "Previously I got {}, but that is over.",
    "I used to see {}, but not any more.",
    "The error `{}` is solved now, thanks!",
    "- Fixed a bug where users got {} (#1234)",
    "Installing the newest torch is the most common reason for {} here.",
    "This paper delves into the common causes of {} errors.",
    "The error {} is fixed in the next release.",
    "The {} error typically occurs when the batch is too large.",
    "* Fixes {} on Windows",
    "> have you tried a reboot? When you get {} it helps",
    "It once said {}, but that was last month, before I updated.",
    "On our other server I see {}.",
    "My colleague gets {} with the same code.",
)
REPORTED = (
    "What should I do if you get\n{}",
    "When I run train.py I get {}",
    "As you can see, I get {}",
    "It works on my other machine, but here I get {}",
    "You can see the error below:\n{}",
    "It is not working: {}",
    "This problem is not fixed: {}",
    "It is not the driver: {}",
    "It's not the first time that I get {}",
    "I don't know why I get {}",
    "I don't get it. {}",
    "How can I avoid {}",
    "I fixed the driver, now\n{}",
    "I solved the first problem but now {}",
    "I used to get something else, but now I see {}",
    "#4711 was fixed but I still get {}",
    "This might cause trouble:\n{}",
    "Is it related to the driver?\n{}",
    "if you need more information let me know\n\n{}",
    "{}\nThis is not the first time.",
    "{} is not solved by a reboot",
)


@cache
def cause(text: str) -> str:
    return spoken_of(diagnose(read_report(text), load_catalog()))


def test_there_is_enough_to_speak_of() -> None:
    assert len(ERRORS) > 8


@each("sentence", SPOKEN_OF)
def test_an_error_that_is_only_spoken_of_is_no_cause(sentence: str) -> None:
    found = {said: cause(f"{HEALTHY}\n{sentence.format(said)}\n") for _, said in ERRORS}
    assert set(found.values()) == {"ok"}, found


@each("sentence", REPORTED)
def test_an_error_that_is_reported_is_one_whatever_the_words_around_it(sentence: str) -> None:
    found = {said: cause(sentence.format(said)) for _, said in ERRORS}
    assert found == {said: wanted for wanted, said in ERRORS if cause(said) == wanted}


@pytest.mark.parametrize("sentence", SPOKEN_OF[::3])
@pytest.mark.one_in(12)
def test_a_cause_stays_the_one_beside_another_that_is_only_spoken_of(sentence: str) -> None:
    for wanted, said in ERRORS:
        for _, other in ERRORS:
            spoken = sentence.format(other)
            assert cause(f"{said}\n\n{spoken}\n") == cause(f"{spoken}\n\n{said}\n") == wanted


def test_a_remark_ends_where_its_line_ends_and_the_next_one_begins_anew() -> None:
    said = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    assert cause(f"A warning: this may cause a slow start\n{said}") == "ecc-error"
    assert cause(f"if you get an idea\n\n{said}") == "ecc-error"
    assert cause(f"{HEALTHY}\nIf you see\n`{said}`\nthen replace the card.") == "ok"


def test_what_somebody_did_about_an_error_is_kept() -> None:
    text = text_of("I resolved the CUDA error 804 by removing the compat package")
    assert text.flat.split() == ["I", "resolved", "by", "removing", "the", "compat", "package"]


def test_every_other_place_keeps_its_line() -> None:
    text = text_of("one\nIf you see CUDA error 804. Do reboot.\nthree")
    assert "804" not in text.flat and "reboot" in text.flat
    assert [text.line_at(text.flat.index(word)) for word in ("one", "reboot", "three")] == [0, 1, 2]


def test_a_build_for_another_makers_gpu_is_no_complaint_and_one_that_looks_in_vain_is() -> None:
    packages = "numpy==2.1.2\ntorch==2.8.0+xpu\ntorchvision==0.23.0+xpu"
    assert cause(packages) in ("ok", "unknown")
    assert cause(f"{packages}\nRuntimeError: No XPU devices are available.") == "intel-gpu"
    works = "PyTorch version: 2.6.0+rocm6.2\nROCM used to build PyTorch: 6.2\nIs CUDA available: "
    assert cause(f"{works}True") in ("ok", "unknown")
    assert cause(f"{works}False\nOS: Ubuntu 24.04") == "amd-gpu"


def test_a_mac_on_which_cuda_ran_is_not_blamed_for_its_maker() -> None:
    lost = "CUDA out of memory. Tried to allocate 20.00 MiB"
    path = "/Users/user/x/train.py"
    assert cause(f"OS: macOS 10.13\n{path}\nRuntimeError: {lost}") == "out-of-memory"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("ecc-error", "CUDA error: uncorrectable ECC error encountered"),
        ("no-kernel-image", "CUDA error: no kernel image is available for execution on the device"),
        ("out-of-memory", "CUDA out of memory. Tried to allocate 20.00 MiB"),
        ("container-no-gpu", "No CUDA GPUs are available"),
    ],
)
def test_an_image_without_nvidia_smi_may_have_a_gpu(wanted: str, said: str) -> None:
    looked = "root@0123456789ab:/# nvidia-smi\nbash: nvidia-smi: command not found"
    assert cause(f"{looked}\nRuntimeError: {said}") == wanted
    assert cause(f"RuntimeError: {said}\n\n{looked}") == wanted


def test_a_driver_is_not_advised_for_a_gpu_of_which_no_architecture_is_known() -> None:
    text = (
        ">>> torch.cuda.is_available()\nTrue\n"
        "Found GPU%d %s which is of cuda capability %d.%d.\n"
        "PyTorch no longer supports this GPU because it is too old.\n"
        "NVIDIA-SMI 450.51.06   Driver Version: 450.51.06   CUDA Version: 11.0\n"
        "GPU 0: Tesla K20m"
    )
    root = next(one for one in diagnose(read_report(text), load_catalog()).findings if one.root)
    assert root.id == "arch-too-old-for-wheel"
    assert root.fix and root.fix.min_driver is None and not root.fix.needs_reboot


@pytest.mark.parametrize("form", ["new", "old", "vllm"])
def test_what_programs_print_about_a_machine_is_no_remark(form: str) -> None:
    for machine in machines():
        text = text_of("\n".join((collect_env(machine, form=form), smi_table(machine))))
        assert mentions(text.flat, text.low, text.starts) == []


def test_what_a_try_by_the_way_failed_with_is_no_cause() -> None:
    tried = "It runs on the CPU. I also tried `cuda:1` in case it helps, but that failed with {}."
    said = "RuntimeError: CUDA error: invalid device ordinal"
    assert diagnose(read_report(tried.format(f"`{said}`")), load_catalog()).cause == "unknown"
    assert diagnose(read_report(said), load_catalog()).cause == "invalid-device-ordinal"
