"""How a text names the GPU: in another script, as a setting that is off, or not at all."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report

NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"
SENTENCES = (
    # a sentence beside torch's error, the cause
    ("我用的是苹果M1芯片，已经改成MPS了", "apple-silicon"),
    ("英特尔锐炫A770显卡，Windows11，怎么解决？", "intel-gpu"),
    ("电脑是锐龙7840HS核显780M", "amd-gpu"),
)


@each("sentence, cause", SENTENCES)
def test_a_gpu_is_found_in_a_sentence_of_any_script(sentence: str, cause: str) -> None:
    answer = read_report(f"{sentence}\n{NOT_COMPILED}")
    assert answer.cause == cause


NO_DRIVER = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU "
    "and installed a driver from http://www.nvidia.com/Download/index.aspx"
)
LABELLED = (
    # a line of the text, torch's error, the cause
    ("GPU: Intel(R) Arc(TM) A770 Graphics", NO_DRIVER, "intel-gpu"),
    ("**GPU:** MI50", NOT_COMPILED, "amd-gpu"),
    ("### GPU\n\nNVIDIA RTX 3060", NO_DRIVER, "driver-missing"),
)


@each("line, error, cause", LABELLED)
def test_the_gpu_of_a_label_or_a_fork_is_the_texts_gpu(line: str, error: str, cause: str) -> None:
    assert read_report(f"{line}\n{error}").cause == cause


ON_A_MAC = (
    # the text, the cause: every Mac has no CUDA, so this explains only what looked for it
    (
        "Apple M2 Pro\nOMP: Error #15: Initializing libomp.dylib, but found libomp.dylib",
        "openmp-twice",
    ),
    (f"Apple M2 Pro\n{NOT_COMPILED}", "apple-silicon"),
)


@each("text, cause", ON_A_MAC)
def test_a_mac_is_the_cause_only_of_what_looked_for_a_gpu(text: str, cause: str) -> None:
    assert read_report(text).cause == cause
