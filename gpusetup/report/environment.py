"""Reads environment variables that a text sets."""

from __future__ import annotations

import re

from gpusetup.messages.search import Text
from gpusetup.report.facts import CHARACTERS_READ, Claim, Facts

# The names of the variables that are kept: all of NCCL's (`NCCL_P2P_DISABLE`) and those listed
# here.
VARIABLES = re.compile(
    r"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES|CUDA_HOME|CUDA_PATH|CUDA_DEVICE_ORDER"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PYTORCH_(?:CUDA_)?ALLOC_CONF|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    r"|CUDA_LAUNCH_BLOCKING|PYTORCH_NO_CUDA_MEMORY_CACHING|CUDA_DISABLE_PTX_JIT|CUDA_FORCE_PTX_JIT|CUDA_MODULE_LOADING"
    r"|CONDA_OVERRIDE_CUDA|HSA_OVERRIDE_GFX_VERSION|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|NCCL_[A-Z0-9_]{2,30}|TORCH_CUDA_ARCH_LIST|PYTHONPATH|PIP_EXTRA_INDEX_URL|UV_EXTRA_INDEX_URL"
    r"|WORLD_SIZE|LOCAL_RANK|KUBERNETES_SERVICE_HOST"
)
NAME = r"[A-Z][A-Z0-9_]{3,40}"
# The forms of an assignment. a: `export CUDA_VISIBLE_DEVICES=2`; b: `os.environ["CUDA_HOME"] =
# "/usr/local/cuda"`; c: `echo $PATH`, followed by its output; d:
# `print(repr(os.environ.get("PATH")))`, followed by its output; e: `CUDA_VISIBLE_DEVICES: all` of a
# compose file. Each form has a group for the name and one for the value.
ASSIGNED = re.compile(
    rf"(?<!consider passing )(?:(?<![\w'\"$])(?P<a>{NAME})=(?P<q>['\"]?)(?P<av>[^\s'\";&]{{0,400}})(?P=q)"
    rf"|environ(?:\.get\()?\[?['\"](?P<b>{NAME})['\"][\])]\s?[:=]\s?(?:[frb]?['\"](?=[^'\"]*['\"]))?(?P<bv>[^\s'\")]{{0,400}})"
    rf"|echo \$\{{?(?P<c>{NAME})\}}?\s+(?P<cv>\S{{1,1000}})"
    rf"|environ\.get\(['\"](?P<d>{NAME})['\"]\)+['\"]?\s+['\"](?P<dv>[^\s'\"]{{1,400}})['\"]"
    r"|(?P<e>(?:CUDA|NVIDIA)_VISIBLE_DEVICES):\s['\"]?(?P<ev>all|none|void|-?\d+(?:,\d+)*)\b)"
)
"""An environment variable and its value, as shells, Python and programs show it.

The advice in torch's own errors ("consider passing CUDA_LAUNCH_BLOCKING=1") is left out, because it
sets nothing.
"""
UNSET = ("none", "<not", "not", "unset", "(not", "n/a", "undefined", "...", "$")


def variables(text: Text) -> Facts:
    """A claim for each variable in `VARIABLES`, with its first value in the text.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(variables(text_of("$ CUDA_VISIBLE_DEVICES=2 python main.py"))).value
    '2'
    """
    # The pattern for assignments is slow, and most texts contain none of the variables.
    if not VARIABLES.search(text.flat):
        return
    already_read: set[str] = set()
    for match in ASSIGNED.finditer(text.flat, 0, CHARACTERS_READ):
        for form in "abcde":
            name, value = match[form], match[f"{form}v"]
            if not name or name in already_read or not VARIABLES.fullmatch(name):
                continue
            if not value.lower().startswith(UNSET):
                already_read.add(name)
                yield Claim(f"environment.{name}", value, text.source(match.start()))
