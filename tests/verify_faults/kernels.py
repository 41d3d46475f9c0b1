"""Which of aten's kernels for the CPU verify calls, and why it does not call the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from verify_faults.meets import plain
from verify_faults.runs import run

from gpusetup.verify.checks.database import known_to
from gpusetup.verify.database.comparing import compared as of_database
from gpusetup.verify.database.sampling import calls
from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import FAMILIES, layouts_of

AS_OF = "2026-11-22, torch 2.13.0"
TESTS = "a stub of torch's own tests"
NO_NUMBERS = "checks or asks something, and gives no numbers"
FORMATS = ("float32", "int32", "complex64")
NESTED = "nested tensors: the jagged layout's kernels are called, these belong to the older one"
SELDOM = "few programs call it, and no entry of torch's database does"
NOT_CALLED: dict[str, str] = {
    **dict.fromkeys(
        (
            "__lshift",
            "_addmm_activation",
            "_convert_weight_to_int4pack_for_cpu",
            "_empty_affine_quantized",
            "_empty_per_channel_affine_quantized",
            "_jagged_to_padded_dense_forward",
            "_masked_softmax",
            "_masked_softmax_backward",
            "_native_multi_head_attention",
            "_padded_dense_to_jagged_forward",
            "_scaled_mm",
            "_transform_bias_rescale_qkv",
            "_transformer_encoder_layer_fwd",
            "_upsample_bicubic2d_aa",
            "_upsample_bicubic2d_aa_backward",
            "_weight_int4pack_mm_for_cpu",
            "_weight_int8pack_mm",
            "dequantize",
            "fake_quantize_per_channel_affine_cachemask",
            "fake_quantize_per_tensor_affine_cachemask",
            "fractional_max_pool2d",
            "fractional_max_pool2d_backward",
            "fractional_max_pool3d",
            "fractional_max_pool3d_backward",
            "histogram",
            "quantize_per_channel",
            "quantize_per_tensor",
            "slow_conv_dilated3d",
            "__ilshift",
            "__irshift",
            "_add_relu",
            "_aminmax",
            "_compute_linear_combination",
            "_dirichlet_grad",
            "_fake_quantize_learnable_per_channel_affine",
            "_fake_quantize_learnable_per_channel_affine_backward",
            "_fake_quantize_learnable_per_tensor_affine",
            "_fake_quantize_learnable_per_tensor_affine_backward",
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            "_fused_moving_avg_obs_fq_helper",
            "_histogramdd_bin_edges",
            "_histogramdd_from_bin_cts",
            "_histogramdd_from_bin_tensors",
            "_make_per_channel_quantized_tensor",
            "_make_per_tensor_quantized_tensor",
            "_spdiags",
            "_stack",
            "_standard_gamma_grad",
            "_to_sparse_bsc",
            "_to_sparse_bsr",
            "_to_sparse_csc",
            "_upsample_lanczos2d_aa",
            "_upsample_lanczos2d_aa_backward",
            "_weight_norm_interface",
            "_weight_norm_interface_backward",
            "batch_norm_update_stats",
            "embedding_renorm",
            "glu_backward_jvp",
            "glu_jvp",
            "is_set_to",
            "nextafter",
            "quantize_per_tensor_dynamic",
            "range",
            "sspaddmm",
            "unique_dim_consecutive",
        ),
        SELDOM,
    ),
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
            *("_fused_sdp_choice", "_validate_compressed_sparse_indices"),
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
    "_scaled_mm_v2": "its recipes differ by release",
    "adaptive_avg_pool3d_backward": "`_adaptive_avg_pool3d_backward` is what autograd calls",
    "from_file": "maps a file; `save-load` reads files",
    "hash_tensor": "a hash that torch does not promise",
    "linalg__powsum": "a part of norms among ranks, without a public name",
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


def called_by_database() -> set[str]:
    """Each entry of torch's database, in up to two formats, by its first samples."""
    found: set[str] = set()
    for entry in known_to(torch).values():
        for dtype in [each for each in FORMATS if each in entry.formats(torch, "cpu")][:2]:
            with Called() as called:
                for _, call in islice(calls(torch, "cpu", entry, dtype, 1), 4):
                    with contextlib.suppress(Exception):
                        of_database(torch, "cpu", entry, call, dtype, "words")
            found |= called.names
    return found
