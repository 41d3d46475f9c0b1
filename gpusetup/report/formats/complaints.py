"""Whether somebody complains in a text at all: then nothing of it is healthy by a table alone.

A healthy `nvidia-smi` stands in most texts of people whose program does not work. This reader says
only that something is wrong, in a program's words or in theirs; what is wrong say the messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.failing import COMPLAINT, SUBJECT
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Claim, Fact
from gpusetup.report.text import Text

SAYS_SO = lazy(
    r"\btraceback \(most recent|segfault|aborted|core dumped|\bcrash\w*|out of memory|\boom\b"
    r"|(?<!ecc )(?<!bus )\b(?:[a-z]{2,40})?errors?[\])]?: (?!0|n/a|none|no\b)|(?<!without )(?<!no )exceptions?\b"
    r"|\b(?:an|this|that|these|same|some|following|fatal|with|get|gets|got|getting|gives?|throws?|raises?|shows?|see|hits?|still) (?:\S{1,30} ){0,3}?errors?\b"
    r"|\bfail(?:s|ed|ing|ure)?\b(?! ?(?:occurred)? *:)|^\W*false\W*$|# ?false\b|\b(?:cuda|gpu)\b.{0,40}\bfalse\b|device_count\(\)\W{1,12}0(?!\d)"
    r"|\bexit(?:ed)?(?: with)?(?: (?:code|status))?:? ?-?[1-9]\d{0,2}\b|\bbugs?\b(?!.report\.sh)|(?<!no )(?<!any )(?<!without )\b(?:issues?|problems?|trouble)\b(?!/)"
    r"|n(?:o|')t (?:work|run|start|detect|recogni|find|us(?:e|ed|ing)\b|see(?:n|s|ing)?\b)|(?<!: )\bnot found\b|\b(?:gpu|cuda|card|device)\b[^.\n]{0,40}?\bnot support"
    r"|\bcannot (?!collect)|can't |(?<!warning: )\bunable to\b|without gpu|\bno gpus?\b|\bcpu only\b|instead of|\bwrong\b|\bstuck\b|\b(?:hangs|hanging|hung|hang)\b|\bfr(?:eez|oz)\w+"
    r"|\b(?:runs?|running|only|still|entirely|computes?|everything) on (?:the )?cpu\b|\b(?:using|uses|use|runs?|running|only|still|entirely|back|falls?|instead)\b[^.\n]{0,30}\bthe cpu\b"
    r"|\b(?:so|very|too|really|extremely|painfully|is|much|how)\b ?slow|\bslow(?:er|ness|down)\b(?! ?(?:threshold|temp)? *:)|\blow gpu (?:usage|util)"
    r"|\bwhy (?:is|are|does|do|did|can|it|this|my|the)\b|报错|错误|失败|无法|不能|卡住|很慢|エラー|できない|ошибк|не работ|не вид|\bfehler|funktioniert n|\berreur|ne fonctionne|no funciona|não funciona|오류",
)
OF_A_TABLE = ("|", "+-", "+=", "Vulnerability ", "[pip3]", "[conda]")
"""How the lines begin of what is only printed: nvidia-smi's tables, lscpu's, lists of packages."""


def complaints(text: Text) -> Iterator[Fact]:
    """The first line that complains."""
    for number, line in enumerate(text.lines, 1):
        if not line.lstrip().startswith(OF_A_TABLE) and SAYS_SO.search(line.lower()):
            yield Claim(subject=COMPLAINT, value=True, source=f"report, line {number}")
            return


SUBJECTS = {
    "slow": r"(?:gpu|train|infer|cuda)\w* (?:[\w']+ ){0,6}slow\b|slow (?:\w+ ){0,4}(?:gpu|train|infer|cuda)"
    r"|gpus? (?:\w+ )?idle|idle gpu|low gpu u|gpu[- ]?(?:util|usage)\w* (?:is|stays|at|of|only|around|below|drops)\b",
    "install": r"\b(?:pip3?|uv|conda|mamba) (?:install|add|sync|create|pip)\b[^\n]{0,80}\b(?:fail|error|does ?n[o']t work|stuck)|subprocess-exited-with-error|resolutionimpossible",
    "Slurm": r"slurm|sbatch|srun |salloc|scontrol|gres=",
    "Kubernetes": r"kube|k8s|failedscheduling|nvidia\.com/gpu\b(?!=)",
    "podman": r"podman",
    "docker": r"docker",
    "nvidia": r"nvidia|geforce|rtx|gtx",
    "amd": r"rocm|radeon|amdgpu",
    "intel": r"xpu|sycl|oneapi|intel arc|intel\(r\) arc",
    "apple": r"mps backend|mps device|'mps'|device mps|apple silicon|macbook",
    "gpu": r"gpu|cuda|vram|torch|tensor|\bdrivers?\b|cudnn|cublas|cufft|cusparse|nccl|nvml|nvrm|nvcc|nvlink|nvjit"
    r"|graphics card|vbios|\bs?xid\b|ptx|triton|flash.?att|llama|vllm|sgl_|turbomind|\bjax|numba|c10\b|xformers"
    r"|for extension|bf16|tf32|kv cache|\+cpu|hip[ls]|\bhsa_|\brock\b|rminit|pcie|comfy|\b[abhlvt]\d{1,2}0*\b"
    r"|\b[1-5]0[5-9]0\b|显|驱动|видеокарт|grafikkarte",
}
"""Whose words a text has, what fails last before what lies under it; a text of none is no GPU's."""


def subjects(text: Text) -> Iterator[Fact]:
    """The first of them."""
    for subject, words in SUBJECTS.items():
        if re.search(words, text.low):
            yield Claim(subject=SUBJECT, value=subject, source="report")
            return
