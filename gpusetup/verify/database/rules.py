"""The entries in torch's operator database that are skipped or judged more leniently, each with its
reason.

Without these rules, a healthy machine fails. They were found on a CPU with torch 2.5.1, 2.9.1,
2.13.0 and 2.15.0 in November 2026.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, NamedTuple, Tuple

SINCE = (2, 5)
"""The first release whose database is used. In 1.13.1, a dozen of the samples have wrong results
(distances and remainders of 16-bit numbers, `masked_select`'s gradient, norms of one number)."""
HALVES = ("bfloat16", "float16")
WHOLE = ("int8", "int16", "int32", "int64", "uint8")
BYTES = ("int8", "uint8")


def release(torch: Any) -> Tuple[int, ...]:
    """The major and minor version of torch.

    >>> from types import SimpleNamespace
    >>> release(SimpleNamespace(__version__="2.13.0+cpu"))
    (2, 13)
    """
    version = str(torch.__version__)
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


class Rule(NamedTuple):
    """Entries that are skipped, by name and format, with the reason. A `*` at the end of a name
    matches anything."""

    reason: str
    names: Tuple[str, ...]
    formats: Tuple[str, ...] = ()
    """The formats that the rule applies to; empty means all formats."""


LEFT_OUT: Tuple[Rule, ...] = (
    Rule(
        "draws random numbers; `chance` judges those",
        (
            *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal*"),
            *("uniform", "multinomial", "rand_like", "randint*", "randn*", "*dropout*"),
            *("nn.functional.dropout*", "nn.functional.alpha_dropout", "nn.functional.rrelu"),
            *("nn.functional.feature_alpha_dropout*", "nn.functional.fractional_max_pool*"),
            *("svd_lowrank", "pca_lowrank"),
        ),
    ),
    Rule(
        "its result has undefined content",
        ("empty*", "new_empty*", "resize_", "resize_as_", "nn.functional.max_unpool*_undefined"),
    ),
    Rule("eigenvalues come in any order", ("linalg.eig", "linalg.eigvals")),
    Rule("needs a compiler on a GPU", ("jiterator*", "bmm.triton_optimized")),
    Rule(
        "reads bytes as another format, which float64 cannot follow",
        ("view_as_dtype", "hash_tensor"),
    ),
    Rule("computes in formats of eight bits", ("torch._scaled_mm*",)),
    Rule("first rounds fractional bounds to whole numbers", ("arange",), WHOLE),
    Rule(
        "gives NaN in half precision (torch 2.13.0: for norms of 6 and more)",
        ("matrix_exp",),
        HALVES,
    ),
    Rule(
        "rounds the position in the image, so it reads another pixel",
        ("nn.functional.grid_sample", "grid_sampler_*"),
        HALVES,
    ),
    Rule(
        "differences of bytes overflow",
        (
            *("nn.functional.margin_ranking_loss", "nn.functional.triplet_margin*"),
            *("nn.functional.pairwise_distance", "trapz", "trapezoid", "cumulative_trapezoid"),
            *("nn.functional.softmin*", "masked.softmin", "nn.functional.cosine_embedding_loss"),
        ),
        BYTES,
    ),
    Rule("its gradient is NaN if a row is zero (torch 2.13.0)", ("renorm",), ("complex64",)),
    Rule(
        "fills masked elements with the smallest byte",
        ("masked.argmax", "masked.argmin", "masked.logsumexp"),
        BYTES,
    ),
    Rule("adds whole numbers up in their own format (2.5.1)", ("masked.mean",), WHOLE),
    Rule("its bins end at rounded places", ("histc",), HALVES),
    Rule("accepts only certain strides", ("torch.ops.aten._scaled_dot_product*",)),
    Rule("reads memory outside its argument", ("as_strided.partial_views",)),
    Rule("its samples take seconds to make", ("linalg.pinv.singular",)),
    Rule("accepts only line search, sparse gradients or matrices", ("LBFGS", "SparseAdam", "Muon")),
)
NO_GRADIENT: Tuple[Rule, ...] = (
    Rule(
        "uses exponentials of differences of logarithms, which lose much precision",
        ("logcumsumexp",),
    ),
    Rule("uses exponentials of differences of logarithms", ("logsumexp",), ("complex64",)),
    Rule("gives NaN for some bases and powers", ("__rpow__", "pow", "float_power", "_foreach_pow")),
    Rule(
        "applies reflections one after the other, which adds up errors",
        ("linalg.householder_product", "ormqr"),
    ),
    Rule(
        "subtracts nearly equal numbers if one score is far above the others",
        ("nn.functional.multi_head_attention_forward",),
    ),
)
"""Entries whose gradients are not compared, because computing them loses more digits than a
roundoff of the arguments explains."""
BY_SIGN = ("symeig", "linalg.eigh", "linalg.svd", "svd", "linalg.qr", "qr")
"""Entries that return vectors whose sign is arbitrary. Only the part that is unique according to
torch's database is compared."""
SCALE_OF_ARGUMENTS = (
    *("native_layer_norm", "native_batch_norm", "_native_batch_norm_legit"),
    *("_batch_norm_with_update", "special.ndtr", "nn.functional.batch_norm*"),
    *("nn.functional.layer_norm", "nn.functional.group_norm", "nn.functional.instance_norm"),
    *("native_group_norm", "signal.windows.*", "nn.functional.normalize"),
    *("nn.functional.cosine_similarity", "nn.functional.rms_norm", "cov", "corrcoef"),
    *("nn.functional.binary_cross_entropy_with_logits", "nn.functional.linear_cross_entropy*"),
    *("nn.functional.cross_entropy", "log_softmax*", "nn.functional.tanhshrink"),
)
"""Entries whose allowed error depends on the size of their arguments, because their result is a
small difference of large numbers: a number minus the mean of its row, 1 minus a probability, or a
logit minus the logarithm of its sigmoid. For window functions (`signal.windows`), the size is 1."""
SLOPE_WITHOUT_SPREAD = 16.0
"""The slope of a norm if all numbers in a row are equal: 1 / sqrt(eps) for the usual eps, divided
by the factor 20 in `Comparison.least_size`. Such a gradient is a small difference of numbers of
that size."""
ROOM: Dict[str, float] = {
    "nn.functional.ctc_loss": 100.0,
    "nn.functional.scaled_dot_product_attention": 10.0,
    "lstm-net": 4.0,
    "gru-net": 4.0,
    "transformer-layer": 8.0,
}
"""Factors for the error allowed in entries whose steps lose more digits than a roundoff of the
arguments explains."""


def matches(name: str, patterns: Tuple[str, ...]) -> bool:
    """Whether a name matches one of the patterns. A `*` at the end of a pattern matches anything.

    >>> matches("grid_sampler_2d", ("grid_sampler_*",)), matches("mm", ("m",))
    (True, False)
    """
    for pattern in patterns:
        is_prefix = pattern.endswith("*")
        if is_prefix and name.startswith(pattern[:-1]):
            return True
        if name == pattern:
            return True
    return False


@functools.lru_cache(maxsize=None)
def reason(rules: Tuple[Rule, ...], name: str, dtype: str = "") -> str:
    """Returns the reason why an entry is skipped in a format; empty if it is not skipped.

    >>> reason(LEFT_OUT, "rand_like"), reason(LEFT_OUT, "mm", "float32")
    ('draws random numbers; `chance` judges those', '')
    """
    for rule in rules:
        has_format = not rule.formats or dtype in rule.formats
        if has_format and matches(name, rule.names):
            return rule.reason
    return ""
