"""Compiled extensions of torch: which distribution a module belongs to, and how that is built."""

from __future__ import annotations

DISTRIBUTIONS = {
    "flash-attn": (
        "flash_attn_cuda flash_attn_2_cuda flash_attn_3_cuda dropout_layer_norm rotary_emb"
        " fused_dense_lib xentropy_cuda_lib"
    ),
    "causal-conv1d": "causal_conv1d_cuda",
    "mamba-ssm": "selective_scan_cuda",
    "exllamav2": "exllamav2_ext",
    "auto-gptq": "autogptq_cuda_64 autogptq_cuda_256 exllama_kernels exllamav2_kernels",
    "autoawq-kernels": "awq_ext awq_v2_ext",
    "git+https://github.com/NVIDIA/apex.git": (
        "apex apex_C amp_C fused_layer_norm_cuda fused_weight_gradient_mlp_cuda syncbn"
    ),
    "git+https://github.com/facebookresearch/detectron2.git": "detectron2",
    "git+https://github.com/facebookresearch/pytorch3d.git": "pytorch3d",
    "sageattention": "_qattn_sm80 _qattn_sm89 _qattn_sm90 _fused",
}
"""What pip installs -> the compiled modules in it whose names do not say so (their setup files)."""

PIN_THEIR_TORCH = ("vllm", "sgl-kernel", "lmdeploy")
"""Wheels that require one exact torch, which comes along when they are installed anew."""

OWNER = {module: name for name, modules in DISTRIBUTIONS.items() for module in modules.split()}

PYG = ("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv", "pyg-lib")
"""PyTorch Geometric has a page of wheels for each torch and CUDA."""


def distribution_of(module: str) -> str | None:
    """The distribution that a compiled module belongs to; None for a name that says nothing.

    >>> [distribution_of(name) for name in ("flash_attn_2_cuda", "torch_scatter", "_C")]
    ['flash-attn', 'torch-scatter', None]
    """
    top = module.partition(".")[0]
    if top in OWNER:
        return OWNER[top]
    return None if top.startswith("_") else top.replace("_", "-")
