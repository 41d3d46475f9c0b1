"""Which distribution a compiled module belongs to, and how it is rebuilt."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.catalog.facts import EXTENSION_TOOLS, extension, extension_modules
from gpusetup.evidence.command_values import is_a_version
from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import paste
from gpusetup.model.shell import Lines

NAMED_AS_MODULES = frozenset((
    "auto-gptq", "autoawq", "bitsandbytes", "causal-conv1d", "deepspeed", "diffusers",
    "exllamav2", "flash-attn", "gptqmodel", "gsplat", "llama-cpp-python", "lmdeploy",
    "mamba-ssm", "mmcv", "mmcv-full", "natten", "onnxruntime-gpu", "pyg-lib",
    "sgl-kernel", "sglang", "spconv", "tensorrt-llm", "torch-cluster", "torch-geometric",
    "torch-scatter", "torch-sparse", "torch-spline-conv", "torchao", "torchaudio", "torchcodec",
    "torchvision", "transformer-engine", "triton", "vllm", "xformers",
))  # fmt: skip
"""Packages on PyPI whose modules have the package's name. Other names are never installed, because
the name of a folder or a program may belong to an unrelated package on PyPI. As of 2026-11-22."""


def distribution_of(module: str) -> str | None:
    """The distribution that a compiled module belongs to; None if it is not known.

    >>> [distribution_of(name) for name in ("flash_attn_2_cuda", "torch_scatter", "ggml-cuda")]
    ['flash-attn', 'torch-scatter', None]
    """
    top = module.partition(".")[0]
    if distribution := extension_modules().get(top):
        return distribution
    name = top.replace("_", "-").lower()
    return name if name in NAMED_AS_MODULES else None


WHEELS_ONLY = frozenset((
    "bitsandbytes", "onnxruntime-gpu", "sgl-kernel", "tensorrt-llm", "torchao", "torchaudio",
    "torchcodec", "torchvision", "triton",
))  # fmt: skip
"""Packages whose current releases are wheels only. With --no-binary, the index would offer an old
release or none (their file lists, as of 2026-11-22)."""

REPLACING = ("--no-deps", "--force-reinstall", "--no-cache-dir")
"""Options that build only this package again. Without --no-cache-dir, pip would reuse the wheel
that it built for another torch."""


def rebuild_commands(context: RuleContext, module: str | None) -> Lines:
    """The commands that build a compiled module for this torch; none for an unknown package."""
    distribution = distribution_of(module or "")
    if not distribution:
        return ()
    if distribution == "xformers" or extension(distribution).pins_torch:
        # Each wheel of this package requires one torch release.
        return (paste.gpusetup(context, distribution),)
    torch = context.torch.version or ""
    # PyG publishes wheels for each torch and CUDA, such as `torch-2.5.1+cu124`.
    if extension(distribution).page_of_wheels and "+" in torch and is_a_version(torch):
        page = f"https://data.pyg.org/whl/torch-{torch}.html"
        return (paste.pip(context, "install", *REPLACING, distribution, "-f", page),)
    if distribution in WHEELS_ONLY:
        return (paste.pip(context, "install", *REPLACING, distribution),)
    words = ("--no-binary", distribution, "--no-build-isolation", *REPLACING, distribution)
    return (paste.pip(context, "install", *EXTENSION_TOOLS), paste.pip(context, "install", *words))


def rebuild_of(kind: str) -> Callable[[RuleContext], Lines]:
    """For the record of a cause: a function that returns the commands for a machine. They rebuild
    the module that an event of this kind names."""

    def commands(context: RuleContext) -> Lines:
        # The message with the most values identifies the module most exactly.
        fullest = max(events(context, kind), key=lambda event: len(event.values))
        return rebuild_commands(context, fullest.values.get("module"))

    return commands
