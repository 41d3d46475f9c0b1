"""Builds the request to the child process that traces the user's code, and parses the result. Pure
functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.errors import BadInput, Blocked, GpuSetupError, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen

OPTIMIZERS = ("adamw", "adam", "sgd", "adafactor")


class TraceRequest(Frozen):
    """The code to trace, and the batch, optimizer and precision to train it with."""

    code: str
    """`MODULE:FUNCTION`; MODULE may be the path of a file."""
    batch: int
    """The number of samples."""
    amp: Literal["bf16", "fp16"] | None = None
    checkpointing: bool = False
    optimizer: str = "adamw"
    line: bool = True
    """Whether to trace the code a second time with twice the batch, because the search for the
    largest batch needs two batch sizes."""


class TracedStep(Frozen):
    """The memory of one training step with one batch size on a single GPU, in bytes."""

    batch: int
    phases: Mapping[str, int]
    """Phase (`forward`, `backward`, `optimizer`) -> its peak memory."""
    transient: Mapping[str, int]
    """Phase -> its peak memory without weights, gradients and optimizer states."""
    activations: int
    """The bytes that the forward pass keeps for the backward pass."""
    states: int
    """The bytes of weights, buffers and optimizer states."""
    gradients: int
    parameters: int
    """The number of parameters."""
    values_read: int = 0
    """How often the code read a tensor's value. A trace has no values, so each read returned 1.0.
    """
    compiled: bool = False
    """Whether the code called `torch.compile`, which the trace skips."""
    convolves: bool = False
    """Whether the model has more convolutions than linear layers."""


class Trace(Frozen):
    """Traces of the same code with different batch sizes; the requested batch comes first."""

    torch: str
    traces: tuple[TracedStep, ...]
    refused: str | None = None
    """Why a second batch size could not be traced; None if it was traced or not needed."""

    @property
    def asked(self) -> TracedStep:
        return self.traces[0]


class TraceProblem(Frozen):
    problem: str
    message: str
    where: str = ""
    trace: str = ""


class CodeFailed(BadInput):
    """The user's code raised an error; `trace` is its traceback, shown with `-v`."""

    def __init__(self, message: str, hint: str | None = None, trace: str = "") -> None:
        super().__init__(message, hint)
        self.trace = trace


OVERRIDES = {
    "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled", "PYTHONIOENCODING": "utf-8",
}  # fmt: skip
"""Environment variables of the child process, which hide all GPUs and forbid downloads."""


def check_request(request: TraceRequest) -> None:
    """Raise UsageError if a request cannot be traced: a malformed `--code`, an unknown
    optimizer, or a batch below 1."""
    module, _, function = request.code.rpartition(":")
    if not module or not function:
        raise UsageError(
            f"`--code {request.code}` is not MODULE:FUNCTION",
            hint="for example `--code train:build`, or `--code path/to/train.py:build`",
        )
    if request.optimizer not in OPTIMIZERS:
        raise UsageError(
            f"`--optimizer {request.optimizer}` cannot be traced from code",
            hint=f"a trace knows {', '.join(OPTIMIZERS)}",
        )
    if request.batch < 1:
        raise UsageError("the batch is at least 1")


def read_trace(request: TraceRequest, stdout: str, stderr: str, code: int | None) -> Trace:
    """The trace that the child process printed; raises the error that the child reported or ended
    with."""
    # The user's code may print other lines before, so the child's answer is the last line.
    last_line = stdout.strip().rpartition("\n")[2]
    if last_line.startswith('{"problem"'):
        problem = from_json(last_line, TraceProblem, what="the trace's answer")
        raise error_of(request, problem)
    if last_line.startswith("{"):
        return from_json(last_line, Trace, what="the trace's answer")
    if "No module named 'torch'" in stderr:
        raise Blocked(
            "The environment has no torch, which `--code` needs",
            hint="`gpusetup install`, or activate the environment that your code runs in",
        )
    # If a signal ended the child, subprocess returns the signal's number as a negative exit code.
    killed = code is not None and code < 0
    end = f"killed by signal {-(code or 0)}" if killed else f"exit {code}"
    raise CodeFailed(
        f"`{request.code}` ended the trace ({end})",
        trace=stderr[-LONGEST_TRACEBACK:],
    )


LONGEST_TRACEBACK = 4000
"""The number of characters shown from the end of the child's messages."""
HINTS: dict[str, str] = {
    "Contract": "the function takes the batch size (or nothing) and returns (model, batch), "
    "(model, batch, loss) or (model, batch, loss, optimizer)",
    "NoLoss": "also return a loss: a function of the model's output and the target (for a pair) "
    "or the whole batch, which gives one number",
    "TouchesGpu": "the tracing process sees no GPU: build the model and the batch on the CPU",
    "NoNetwork": "build the model from its configuration, or from files on this machine",
    "DataDependentOutputException": "a trace has shapes and no values: in place of a branch on a "
    "tensor's value write `torch.where(condition, a, b)`, or leave the check out of the step",
    "DynamicOutputShapeException": "a trace has shapes and no values: in place of a result whose "
    "length depends on values (`x[mask]`, `nonzero`, `unique`) write `x * mask` or "
    "`torch.where(mask, x, 0)`",
}
"""The child's name for a problem -> a hint for the user."""
PROBLEM_BY_WORDS = {
    "a trace makes no connection": "NoNetwork",
    "cuda": "TouchesGpu",
    "NVIDIA": "TouchesGpu",
}
"""Words in an error message -> the problem, for errors that a library raised under another name."""


SAYS_ALL = ("Contract", "NoLoss", "TouchesGpu")
"""Problems whose message is clear without the error's name in front of it."""


def error_of(request: TraceRequest, problem: TraceProblem) -> GpuSetupError:
    """The exception to raise for a problem that the child process reported, with a hint."""
    message = problem.message
    if problem.problem == "Question":
        return UsageError(message)
    hint = HINTS.get(problem_by_words(problem))
    if problem.problem not in SAYS_ALL:
        message = f"{problem.problem}: {message}".rstrip(": ")
    line_of_code = f" ({problem.where})" if problem.where else ""
    return CodeFailed(
        f"`{request.code}` cannot be traced: {message}{line_of_code}",
        hint=hint,
        trace=problem.trace,
    )


def problem_by_words(problem: TraceProblem) -> str:
    """The key of a problem in `HINTS`. If a library raised its own error, words in the message
    determine the key. Otherwise, the key is the child's name for the problem."""
    for words, name in PROBLEM_BY_WORDS.items():
        if words in problem.message:
            return name
    return problem.problem
