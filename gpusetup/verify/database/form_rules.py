"""Which parts of a form are not asked of which entries, each with its reason."""

from __future__ import annotations

from typing import NamedTuple, Tuple

from .numbers import KINDS, POSITIONS
from .rules import HALVES, WHOLE, matches

PLACES = (
    *("argmax", "argmin", "argsort", "sort", "topk", "kthvalue", "median", "nanmedian", "mode"),
    *("max.*", "min.*", "max_reduction*", "min_reduction*", "cummax", "cummin", "aminmax"),
    *("nn.functional.max_pool*", "nn.functional.adaptive_max_pool*", "max_pool2d_with_indices*"),
    *("quantile", "nanquantile", "masked.median", "masked.argmax", "masked.argmin", "msort"),
)
"""They answer where something stands, or give its gradient there: their numbers stay apart, as of
equal ones any may be the one that is found."""


DECOMPOSITIONS = (
    *("linalg.*", "qr", "svd", "lu*", "cholesky*", "geqrf", "ormqr", "pinverse", "logdet", "det"),
    *("slogdet", "inverse", "triangular_solve", "matrix_exp", "symeig", "lobpcg", "norm.nuc"),
)


UNCHECKED = (
    *("lu_unpack", "lu_solve", "linalg.ldl_solve", "linalg.lu_solve", "_segment_reduce*"),
    *("segment_reduce*", "_unsafe_*", "nn.functional.max_unpool*", "to_sparse*", "sparse*"),
    *("nn.functional.ctc_loss", "nn.functional.linear_cross_entropy*", "tensor_split"),
)
BATCH_NORMS = (
    *("native_batch_norm", "_native_batch_norm*", "_batch_norm_with_update*"),
    *("nn.functional.batch_norm*", "native_group_norm", "native_layer_norm"),
)
EMPTY = ("long-0", "runs-0")
LONG = ("long-4097", "long-5003", "long-8193", "long-9000")
LENGTHS = ("long*", "runs*", "wide")


class Rule(NamedTuple):
    reason: str
    names: Tuple[str, ...]
    parts: Tuple[str, ...]
    formats: Tuple[str, ...] = ()


LEFT_OUT: Tuple[Rule, ...] = (
    Rule(
        "of two numbers written to one place either may be the last",
        (
            *("index_put", "put", "scatter", "index_copy", "take_along_dim", "__setitem__"),
            *("nn.functional.max_unpool*", "scatter_reduce*", "masked_scatter", "select_scatter"),
        ),
        ("long*", "runs*", "wide", "same-index", "index-*", "expanded"),
    ),
    Rule(
        "adds one by one in half precision, which stops growing",
        (
            *("index_add", "scatter_add", "index_put", "put", "scatter_reduce*", "index_reduce*"),
            *("addbmm", "nn.functional.embedding_bag", "dist"),
        ),
        (*LENGTHS, "same-index", "expanded"),
        HALVES,
    ),
    Rule(
        "where lines are alike or whole numbers meet, no inverse, or pivots that are equal",
        DECOMPOSITIONS,
        (*LENGTHS, "equal", "whole", "fractions", "special", "large", "expanded", "sorted"),
    ),
    Rule(
        "sums of small whole numbers wrap around",
        ("index_reduce*", "scatter_reduce*", "index_add", "scatter_add", "put", "index_put"),
        (*LENGTHS, "same-index", "expanded"),
        WHOLE,
    ),
    Rule(
        "adds one by one in half precision where the axis has gaps (2.13.0)",
        ("nanmean", "nansum"),
        LENGTHS,
        HALVES,
    ),
    Rule(
        "takes an exponential or a power that ends",
        ("nn.functional.soft_margin_loss", "logaddexp*"),
        ("large",),
    ),
    Rule("its parts end before the answer does", ("*",), ("large",), ("complex64",)),
    Rule("infinite at some numbers, which a roundoff decides", ("mvlgamma*",), tuple(KINDS)),
    Rule(
        "the place between two numbers is rounded: the further, the coarser",
        ("nn.functional.interpolate*", "nn.functional.upsample*", "nn.functional.grid_sample"),
        LENGTHS,
    ),
    Rule("another transform needs other windows", ("stft", "istft"), ("option", "expanded")),
    Rule(
        "takes seconds in half precision and of complex numbers on a CPU",
        ("nn.functional.conv*",),
        (*LONG, "runs*", "wide"),
        (*HALVES, "complex64"),
    ),
    Rule(
        "a norm of lines that are alike", ("nn.functional.triplet_margin*",), ("expanded", "equal")
    ),
    Rule(
        "writes its running statistics",
        ("nn.functional.instance_norm",),
        ("option", "expanded", "broadcast", "equal", *LENGTHS),
    ),
    Rule("divides by a count less a number", ("masked.std", "masked.var"), ("option",)),
    Rule(
        "reads outside of its memory where a position is not what it believes (2.13.0)",
        UNCHECKED,
        (*LENGTHS, *POSITIONS, "option", "broadcast", "expanded", "fractions", "large"),
    ),
    Rule(
        "believes that its statistics and counts fit its channels",
        BATCH_NORMS,
        (*LENGTHS, "broadcast", "option", "special", "equal", "expanded"),
    ),
    Rule(
        "dies of an axis without elements, or answers what its memory held (2.13.0)",
        (
            *("nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss"),
            *("nn.functional.embedding_bag", "nn.functional.pdist"),
        ),
        EMPTY,
    ),
    Rule(
        "private: takes its argument for one in the order of its axes",
        ("native_group_norm",),
        ("layout", "expanded"),
    ),
    Rule("of equal numbers any may be the one that is found", PLACES, ("expanded",)),
    Rule(
        "infinity times 0 in some way of computing a sum of products, none in another",
        (
            *("nn.functional.conv*", "nn.functional.scaled_dot*", "nn.functional.multi_head*"),
            *("nn.functional.linear*", "nn.functional.bilinear", "fft.*", "stft", "istft", "cdist"),
            *("mm", "bmm", "addmm*", "addbmm", "baddbmm", "addmv", "mv", "dot", "vdot", "matmul"),
            *("__rmatmul__", "einsum", "tensordot", "inner", "outer", "kron", "chain_matmul"),
            *("cov", "corrcoef", "nn.functional.interpolate*", "nn.functional.upsample*"),
            *("nn.functional.grid_sample", "grid_sampler*", "_upsample*", "addr", "trapz"),
        ),
        ("special",),
    ),
    Rule("takes strides as its argument", ("as_strided*",), ("*",)),
    Rule(
        "grows by a power of the length",
        ("combinations", "cartesian_prod", "masked_select"),
        LENGTHS,
    ),
    Rule(
        "its bags begin one after the other; dies where they do not",
        ("nn.functional.embedding_bag",),
        (*POSITIONS, *LENGTHS, "broadcast", "option", "expanded"),
    ),
    Rule("no number below 0 in this format", ("nn.functional.threshold",), ("option",), ("uint8",)),
    Rule("compares each class with each", ("nn.functional.multilabel_margin_loss",), LENGTHS),
    Rule("takes seconds on a CPU", ("nn.functional.conv_transpose*",), (*LONG, "runs*", "wide")),
    Rule("a number less what it is nearly", ("nn.functional.tanhshrink",), ("fractions",)),
    Rule(
        "goes around more than once: the rest is left as it was (2.13.0)",
        ("nn.functional.pad.circular",),
        LENGTHS,
    ),
    Rule(
        "a sum of gradients in half precision, or of like numbers",
        (
            *("nn.functional.triplet_margin*", "nn.functional.cosine_embedding_loss"),
            *("fmod", "remainder", "nn.functional.tanhshrink"),
        ),
        (*LENGTHS, "fractions"),
        HALVES,
    ),
    Rule(
        "a gradient by a power of the norm, which halves cannot hold for every order",
        (
            *("norm*", "linalg.norm*", "linalg.vector_norm", "linalg.matrix_norm", "_foreach_norm"),
            *("renorm", "dist", "cdist", "nn.functional.pdist"),
        ),
        ("option",),
        HALVES,
    ),
    Rule("steps of complex numbers, slowly", ("dist", "cdist"), LENGTHS, ("complex64",)),
    Rule(
        "of whole numbers it is a sum in float32",
        ("nn.functional.pairwise_distance",),
        LENGTHS,
        WHOLE,
    ),
    Rule(
        "grows by a power of the length",
        ("cov", "corrcoef"),
        (*LONG, "runs*", "wide"),
    ),
    Rule(
        "thousands of factors end in float32, also of complex numbers", ("prod",), (*LONG, "runs*")
    ),
    Rule(
        "is a whole number that is cut off, which a roundoff decides",
        ("masked.logsumexp",),
        (*LENGTHS, "equal"),
        WHOLE,
    ),
    Rule(
        "searches what is in order",
        ("searchsorted", "bucketize"),
        ("whole", "fractions", "large", "equal", "special", "long*", "wide", "index-mixed"),
    ),
)


def without(entry: str, dtype: str, part: str) -> str:
    """Why a part is not asked of an entry in a format; empty where it is.

    >>> without("scatter", "float32", "long-33"), without("scatter_add", "float32", "long-33")
    ('of two numbers written to one place either may be the last', '')
    """
    for rule in LEFT_OUT:
        fits = matches(entry, rule.names) and matches(part, rule.parts)
        if fits and (not rule.formats or dtype in rule.formats):
            return rule.reason
    return ""
