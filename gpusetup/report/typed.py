"""What typed commands and their output show, beyond what a line of it would show alone."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import LABEL
from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event, Gpu
from gpusetup.model.versions import Capability
from gpusetup.report.facts import HINT, SURE, USUAL, Claim, Facts, Gpus

# `2.6.0+cu124 12.4 True`, `/x/bin/python 2.6.0+cu124 ['sm_50', 'sm_90'] (12, 0)`: what the commands
# print that doctor suggests. After the version come CUDA's or HIP's, what torch sees, its kernels,
# the GPU's capability; a command prints some of them.
OF_TORCH = re.compile(
    r"^\W{0,6}(?P<python>\S{1,300}[/\\]python[\d.]*(?:\.exe)? )?"
    rf"(?:(?P<version>\d\.\d{{1,2}}\.\d[\w.]{{0,20}}(?:\+(?P<label>{LABEL}))?)(?= ))?"
    r"(?: (?P<runtime>None|\d{1,2}\.\d[\w.-]{0,40}))?(?: (?P<sees>True|False))?"
    r"(?: ?\[(?P<kernels>'(?:sm|compute|gfx)_?\d\w{1,5}'(?:, ?'\w{5,12}'){0,24})\])?"
    r"(?: \((?P<major>\d{1,2}), ?(?P<minor>\d)\))?\s*$"
)
# `$ python3 -c "..."`.
OTHER_PYTHON = re.compile(r"^\s*\S{0,40}\$ (python3(?:\.\d{1,2})?) -c\b")
# `$ python -c "..."`, `>>> torch.cuda.is_available()`.
PROMPT = re.compile(r"^\s*(?:[\w@.:~-]{0,60}[$#>]|>>>) ")


def typed(text: Text) -> Facts:
    """What torch says of itself in the output of typed commands.

    >>> from gpusetup.report.cleaning import text_of
    >>> [type(fact).__name__ for fact in typed(text_of("2.6.0 ['sm_90'] (12, 0)"))]
    ['Claim', 'Claim', 'Gpus']
    """
    above = ""
    for number, line in enumerate(text.lines, 1):
        # The first line below a command is its output.
        command = above if PROMPT.search(above) or "import torch" in above else ""
        yield from _torchs_answer(line, command, line_source(number))
        above = line


def _torchs_answer(line: str, command: str, source: str) -> Facts:
    """torch's version, CUDA or HIP, whether it sees a GPU, its kernels and the GPU's capability, in
    one line of output. `command` is the line above it, if that is a command."""
    answer = OF_TORCH.search(line)
    if answer is None:
        return
    version, runtime = answer["version"], answer["runtime"]
    # Two numbers in a line, such as `1.2.3 4.5`, may be any program's; so may a version alone.
    is_torchs = bool(answer["python"] or answer["label"] or answer["kernels"] or "torch" in command)
    if version and is_torchs and (runtime or answer["sees"] or answer["kernels"]):
        yield Claim("torch.version", version, source, SURE if answer["python"] else USUAL)
        yield from _runtime(answer, line, source)
        # If the command asked for a Mac's device, the answer says nothing about CUDA.
        if answer["sees"] and "mps" not in command:
            yield Claim("torch.cuda_available", answer["sees"] == "True", source, SURE)
        # The environment that the text is about is the one whose torch sees no GPU.
        other_python = OTHER_PYTHON.search(command)
        if other_python and answer["sees"] == "False":
            yield Claim("python.executable", other_python[1], source, HINT)
    if answer["kernels"]:
        kernels = answer["kernels"].replace("'", "").replace(",", " ").split()
        yield Claim("torch.kernels", " ".join(kernels), source, SURE)
        if answer["major"]:
            capability = Capability(int(answer["major"]), int(answer["minor"]))
            yield Gpus((Gpu(name="the GPU", compute_capability=capability),), source, HINT)


def _runtime(answer: re.Match[str], line: str, source: str) -> Facts:
    """The CUDA or HIP version that torch prints after its own; `None` in a build without either."""
    runtime, label = answer["runtime"], answer["label"] or ""
    if not runtime:
        return
    yield Event(kind="output-shown", values={"what": "torch"}, source=source, text=line)
    if runtime != "None":
        subject = "torch.hip" if label.startswith("rocm") else "torch.cuda"
        yield Claim(subject, ".".join(runtime.split(".")[:2]), source, USUAL)
    # A ROCm or XPU build also prints None for CUDA, but its label says what it is.
    elif not label:
        yield Claim("torch.backend", "cpu", source, HINT)
