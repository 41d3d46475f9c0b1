"""The output of doctor's own questions is read when somebody pastes it back."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.causes import alike

ANSWERS = (
    # the question, its output, torch's version, whether torch sees a GPU
    (alike.WHICH_ROCM, "/x/bin/python 2.5.1+rocm6.2 6.2.41133-dd7 False", "2.5.1+rocm6.2", False),
    (alike.WHICH_ROCM, "/x/bin/python3.12 2.5.1+cu124 None False", "2.5.1+cu124", False),
    (alike.WHICH_ROCM, r"C:\x\python.exe 2.9.1+rocm7.2 7.2.1 True", "2.9.1+rocm7.2", True),
    (alike.TORCHS_XPU, "/x/bin/python 2.7.1+cpu False", "2.7.1+cpu", None),
    (alike.THIS_TORCH, "/x/bin/python 2.8.0+rocm6.4 ['gfx1030', 'gfx90a']", "2.8.0+rocm6.4", None),
    (
        alike.ROCM_COMPUTES,
        "2.8.0+rocm6.4 ['gfx1030'] [('RX 6600', 'gfx1032')]",
        "2.8.0+rocm6.4",
        None,
    ),
    (alike.TORCHS_MPS, "2.1.2 True", "2.1.2", None),
)


@each("question, output, version, sees", ANSWERS)
def test_the_answer_to_a_question_of_doctors_is_read(
    question: str, output: str, version: str, sees: bool | None
) -> None:
    torch = read_report(f"My GPU is not used\n$ {question}\n{output}").snapshot.torch
    assert torch.version == version
    if sees is not None:
        assert torch.cuda_available is sees


ASKED_ONCE = (
    # a post about one GPU, the answer to the first question: the next one must be another
    ("RX 6800 XT, Ubuntu. torch does not find my GPU", "2.5.1+rocm6.2 6.2.41133 False"),
    ("RX 6800 XT, Ubuntu. torch does not find my GPU", "2.5.1+cu124 None False"),
    ("Arc A770, Ubuntu. torch does not find my GPU", "2.7.1+xpu False"),
)


@each("post, output", ASKED_ONCE)
def test_an_answered_question_is_not_asked_again(post: str, output: str) -> None:
    first = read_report(post).next_reading
    assert first
    answered = read_report(f"{post}\n$ {first}\n/x/venv/bin/python {output}")
    assert answered.next_reading != first
