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
DATABASE, SELDOM = (
    "torch's own database calls it, at the level `census`",
    "few programs call it, and no entry of torch's database does",
)
NOT_CALLED: dict[str, str] = {
    **dict.fromkeys(
        (
            *(
                "_batch_norm_with_update",
                "_cdist_backward",
                "_convert_indices_from_csr_to_coo",
                "_ctc_loss",
                "_ctc_loss_backward",
                "_embedding_bag_per_sample_weights_backward",
                "_native_batch_norm_legit",
                "_pdist_backward",
                "_segment_reduce_backward",
                "_unique",
                "adaptive_max_pool2d_backward",
                "adaptive_max_pool3d_backward",
                "batch_norm_backward",
                "bitwise_left_shift",
                "bitwise_right_shift",
                "cholesky",
                "conj_physical",
                "heaviside",
                "igamma",
                "igammac",
                "index_reduce",
                "isposinf",
                "logaddexp2",
                "max_unpool3d",
                "multi_margin_loss",
                "multi_margin_loss_backward",
                "multilabel_margin_loss_backward",
                "multilabel_margin_loss_forward",
                "mvlgamma",
                "nll_loss2d_backward",
                "nonzero_static",
                "segment_reduce",
                "slow_conv3d_forward",
                "slow_conv_dilated2d",
                "slow_conv_dilated3d",
                "triangular_solve",
                "vdot",
            ),
            *(
                f"special_{name}"
                for name in (
                    "airy_ai",
                    "bessel_j0",
                    "bessel_j1",
                    "bessel_y0",
                    "bessel_y1",
                    "chebyshev_polynomial_t",
                    "chebyshev_polynomial_u",
                    "chebyshev_polynomial_v",
                    "chebyshev_polynomial_w",
                    "entr",
                    "erfcx",
                    "hermite_polynomial_h",
                    "hermite_polynomial_he",
                    "i0e",
                    "i1e",
                    "laguerre_polynomial_l",
                    "legendre_polynomial_p",
                    "log_ndtr",
                    "modified_bessel_i0",
                    "modified_bessel_i1",
                    "modified_bessel_k0",
                    "modified_bessel_k1",
                    "ndtri",
                    "scaled_modified_bessel_k0",
                    "scaled_modified_bessel_k1",
                    "shifted_chebyshev_polynomial_t",
                    "shifted_chebyshev_polynomial_u",
                    "shifted_chebyshev_polynomial_v",
                    "shifted_chebyshev_polynomial_w",
                    "spherical_bessel_j0",
                    "xlog1py",
                    "zeta",
                )
            ),
        ),
        DATABASE,
    ),
    **dict.fromkeys(
        (
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
