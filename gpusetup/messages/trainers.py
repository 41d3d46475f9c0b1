"""What trainers and the people who train say: a device by a word, a cure that tells the cause.

Sources, as of November 2026: ultralytics' and yolov5's torch_utils.py (select_device), titles and
first lines of threads in issue trackers, NVIDIA's manual of nvidia-smi (ECC, row remapping).
"""

from __future__ import annotations

from gpusetup.messages.own import own
from gpusetup.messages.row import row

A_NUMBER = "It takes a GPU by its number: `device=0`, or `0,1` for two; without it, it chooses one"
BY_A_WORD = (
    own(
        "The trainer",
        "invalid cuda",
        r"Invalid CUDA '?(?:--)?device[ =](?i:cuda|gpu)'? requested",
        says="takes no GPU of this name: `cuda` and `gpu` are no numbers",
        way=A_NUMBER,
    ),
)
BY_A_NUMBER = (
    row(
        "cuda-unavailable",
        "invalid cuda",
        r"Invalid CUDA '?(?:--)?device[ =](?!(?i:cuda|gpu)')[^\s{]{1,12} requested",
    ),
)

WORKS = r"(?:works?|worked|working|starts?|started|runs?|ran|solv(?:es|ed)|fix(?:es|ed)|helps?|helped|resum\w{1,3}|no longer hangs?|stopped hanging|did the trick|unblock\w{0,3})"
SETS = r"(?:export |set(?:ting|s)? |with |env |using |add(?:ing|ed)? )?[`'\"]{0,3}(?:export )?NCCL_P2P_DISABLE[`'\"]?(?: ?= ?| to )[`'\"]?(?:1|true)"
CURED = (
    row(
        "nccl-p2p-failure",
        "nccl_p2p_disable",
        rf"\b{WORKS}\b[^.\n]{{0,50}}?\b(?:after|with|when|once|if|by|using|setting|only|because)\b[^.\n]{{0,60}}?{SETS}"
        rf"|{SETS}[^.\n]{{0,60}}?\b{WORKS}\b",
        unless=r"\b(?:not|n't|never|still|did nothing|without success|no effect|tried|suggest\w*|should|try|neither)\b[^.\n]{0,40}NCCL_P2P|NCCL_P2P_DISABLE[^.\n]{0,60}\b(?:not|n't|never|nothing|no effect|neither|but)\b",
    ),
)
"""Somebody whose ranks go on without peer access: that was what failed."""

ECC_OF_A_GPU = r"(?:\bGPUs?\b|\bcards?\b|nvidia|\b[ABHVLT]\d{1,3}\b|VRAM|显存)"
NO_ECC_FAILURE = (
    r"(?<!un)correct(?:able|ed)\b|single[- ]bit|\b(?:no|without|zero|0|never|disabl\w+|enabl\w+|turn\w*|support\w*) (?:\S{1,16} ){0,3}?ECC"
    r"|ECC(?: errors?| mode)?(?: is| are| was|:)? ?(?:off\b|disabled|enabled|0\b|none)|ECC is on\b|\b(?:if|when|unless|in case|may|might|could)\b[^.\n]{0,40}ECC|没有"
)
ECC = (
    row(
        "ecc-error",
        "ecc",
        rf"{ECC_OF_A_GPU}.{{0,120}}?\bECC (?:memory )?(?:errors?|faults?|failures?)\b|\bECC (?:memory )?(?:errors?|faults?|failures?)\b.{{0,120}}?{ECC_OF_A_GPU}|ECC ?(?:错误|报错|异常)",
        unless=NO_ECC_FAILURE,
    ),
    row(
        "ecc-error",
        "uncorrected",
        r"\buncorrected (?:volatile |aggregate )?ECC errors?\b(?!s?\s{0,9}[:=] ?0\b)",
        unless=r"\bno (?:\w+ )?uncorrected|\buncorrected ECC errors?\s{0,9}[:=] ?(?:0|N/A)",
    ),
    row(
        "ecc-error",
        "row remap",
        r"\brow[- ]remap(?:ping|per)?s?\b[^.\n]{0,30}?\b(?:failed|failure occurred: ?yes|pending: ?yes|is pending)",
        unless=r"\bif\b[^.\n]{0,40}row[- ]remap",
    ),
)
"""A GPU's memory that fails, as somebody says it."""

TRITONS = (
    row(
        "program-release-too-old",
        "has no attribute",
        r"\b[`'\"]?triton(?:\.\w{2,30}){0,4}[`'\"]{0,2} (?:module )?has no attribute [`'\"]?\w{2,40}",
        beside="installed Triton: each torch brings its own",
    ),
)

ROWS = (*BY_A_WORD, *BY_A_NUMBER, *CURED, *ECC, *TRITONS)
