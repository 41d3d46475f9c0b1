"""Who wrote a line, and what a line names: a title, an installer's tail, a trade mark, a fence."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.causes import alike

PTXAS = "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"
TITLED = f"{PTXAS}\n\n### Describe the bug\n\n```\nPTXASError: PTXAS error\n{PTXAS}\n```\n"


def test_a_title_that_repeats_a_programs_line_takes_no_certainty_away() -> None:
    answer = read_report(TITLED)
    assert (answer.cause, answer.certainty) == ("jit-arch-rejected", "certain")


@each(
    "printed, cause",
    [
        ("2.6.0+cu124 ['sm_50', 'sm_80', 'sm_90'] (12, 0)", "arch-too-new-for-wheel"),
        ("2.9.1+cu128 ['sm_70', 'sm_90', 'sm_120'] (6, 1)", "arch-too-old-for-wheel"),
        ("2.9.1+cu128 ['sm_70', 'sm_90', 'sm_120'] (9, 0)", "unknown"),
    ],
)
def test_the_output_that_is_asked_for_decides(printed: str, cause: str) -> None:
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    answer = read_report(f"{error}$ {alike.TORCHS_KERNELS}\n{printed}\n")
    assert answer.cause == cause or (cause == "unknown" and not answer.cause.startswith("arch"))
