"""Which of aten's kernels for the CPU standard calls, and why it does not call the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from verify_faults.meets import plain
from verify_faults.runs import run

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import FAMILIES, layouts_of

AS_OF = "2026-11-22, torch 2.13.0"
TESTS = "a stub of torch's own tests"
NO_NUMBERS = "checks or asks something, and gives no numbers"
NESTED = "nested tensors: the jagged layout's kernels are called, these belong to the older one"
NOT_CALLED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("_foobar", "_test_functorch_fallback", "_test_optional_filled_intlist"),
            *("_test_optional_floatlist", "_test_optional_intlist"),
        ),
        TESTS,
    ),
    **dict.fromkeys(
        (
            *("_functional_assert_async", "_make_dep_token"),
            *("_efficientzerotensor", "_fused_sdp_choice", "_validate_compressed_sparse_indices"),
        ),
        NO_NUMBERS,
    ),
    **dict.fromkeys(
        (
            *("_nested_compute_contiguous_strides_offsets", "_nested_from_padded"),
            *("_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned"),
            "_nested_view_from_buffer",
        ),
        NESTED,
    ),
    "_dyn_quant_matmul_4bit": "only ARM's KleidiAI computes it",
    "_dyn_quant_pack_4bit_weight": "only ARM's KleidiAI computes it",
    "_scaled_mm_v2": "its recipes differ by release; `_scaled_mm` is called",
    "adaptive_avg_pool3d_backward": "`_adaptive_avg_pool3d_backward` is what autograd calls",
    "from_file": "maps a file; `save-load` reads files",
    "hash_tensor": "a hash that torch does not promise",
    "linalg__powsum": "a part of norms among ranks, without a public name",
    "native_dropout_backward": "what it multiplies, `mul` does on the CPU",
    "quantized_gru": "packed weights of quantized engines, which differ",
    "quantized_lstm": "packed weights of quantized engines, which differ",
    "to_mkldnn": "oneDNN's opaque layout, which no GPU has",
}
"""Names without overloads and in-place marks; other releases may lack some of them."""


def of_this_torch() -> set[str]:
    """The names of aten's kernels for the CPU."""
    found = torch._C._dispatch_get_registrations_for_dispatch_key("CPU")
    return {plain(name) for name in found if name.startswith("aten::")}


class Called:
    """Names of the operators that were called meanwhile, also from within others and backwards."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.profile = profile(activities=[ProfilerActivity.CPU], acc_events=False)

    def __enter__(self) -> Called:
        self.profile.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self.profile.__exit__(None, None, None)
        profiler: Any = self.profile.profiler
        names = (each.name() for each in profiler.kineto_results.events())
        self.names |= {plain(name) for name in names if name.startswith("aten::")}


def called_by(checks: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for check in checks:
        with Called() as called:
            run(check, None)
        found |= called.names
    return found


def called_by_rows() -> set[str]:
    """Each row of the census, in its first format, by few small samples."""
    found: set[str] = set()
    for family, rows in FAMILIES.items():
        for row in rows:
            with Called() as called:
                for turn in range(3):
                    sample = Sample(row.name, row.dtypes[0], "contiguous", row.sizes[0], turn)
                    compared(torch, "cpu", row, sample, turn, layouts_of(family))
            found |= called.names
    return found
