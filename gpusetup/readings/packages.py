"""Which distributions matter to gpusetup, and how to read their names, versions and
requirements."""

from __future__ import annotations

import re
from functools import lru_cache

from gpusetup.accelerators.makers import LABEL


def backend_of(version: str | None, cuda: str | None, hip: str | None) -> str | None:
    """The backend in a version's local label, or else the one for its CUDA or HIP version; None if
    none is known.

    >>> backend_of("2.5.1+cu124", "12.4", None), backend_of("2.5.1", "12.4", None)
    ('cu124', 'cu124')
    >>> backend_of("2.9.0", None, "6.4.43483"), backend_of("2.9.0", None, None)
    ('rocm6.4', None)
    """
    if backend := re.match(rf"({LABEL})\b", (version or "").partition("+")[2]):
        return backend[1]
    # PyTorch's labels leave the dot of a CUDA version out: `cu124`, but `rocm6.4`.
    for label, number, dot in (("cu", cuda, ""), ("rocm", hip, ".")):
        if number:
            return label + dot.join(number.split(".")[:2])
    return None


INSTALLERS = frozenset(
    "pip uv conda mamba micromamba pixi poetry pdm hatch rye pipenv pipx develop setuptools "  # noqa: SIM905
    "distutils easy_install debian dpkg apt rpm dnf nix guix bazel spack other".split()
)
"""The names in INSTALLER files that are kept. In a record that is shared, `other` stands for any
other name."""
WATCHED = frozenset(
    "torch torchvision torchaudio torchtext torchdata torchcodec torchao functorch "  # noqa: SIM905
    "pytorch-triton pytorch-triton-rocm pytorch-triton-xpu triton triton-windows triton-rocm "
    "triton-xpu numpy mkl intel-openmp xformers flash-attn flash-attn-3 bitsandbytes apex "
    "transformer-engine vllm sgl-kernel sglang lmdeploy deepspeed lightning accelerate "
    "torch-tensorrt tensorrt onnxruntime-gpu cupy-cuda11x cupy-cuda12x cupy-cuda13x auto-gptq "
    "autoawq exllamav2 torch-scatter torch-sparse torch-cluster pyg-lib detectron2 mmcv natten "
    "intel-extension-for-pytorch torch-directml torch-xla torch-npu nccl pynvml cuda-python "
    "cuda-bindings cuda-toolkit cuda-pathfinder".split()
)
"""The normalised names of distributions that belong to the torch family or build on it."""
CONDA_WATCHED = frozenset(
    "pytorch -pytorch-select pytorch-cpu pytorch-gpu pytorch-cuda pytorch-mutex libtorch "  # noqa: SIM905
    "torchvision torchaudio torchtriton triton cuda-version cudatoolkit cuda-cudart cuda-runtime "
    "cuda-nvcc cudnn nccl libcublas libcusparse libcufft libcudnn libmagma magma mkl intel-openmp "
    "llvm-openmp numpy python libstdcxx libstdcxx-ng xformers flash-attn".split()
)
"""The names of the conda packages that matter to gpusetup."""


@lru_cache(maxsize=4096)
def normalised(name: str) -> str:
    """A distribution's name normalized as in PEP 503.

    `packaging.utils` has the same function, but its import adds six percent to the CPU time of
    `doctor`; `install` needs that module anyway and uses it.

    >>> normalised("nvidia_cublas.cu12")
    'nvidia-cublas-cu12'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def is_watched(name: str) -> bool:
    """Whether a record includes the package: it belongs to torch's family, needs torch, or is one
    of NVIDIA's libraries."""
    return name in WATCHED or name.startswith(("nvidia-", "jax-cuda"))


_REQUIRED = r"(?m)^Requires-Dist: *(torch(?:vision|audio)?\b *[^\w\s.-][^\r\n]*)"
"""Matches `Requires-Dist: torch (>=2.0)` and `Requires-Dist: torch==2.1`, but no longer name such
as `torch-geometric`."""


def parse_required(metadata: str) -> tuple[str, ...]:
    """The requirements on torch, torchvision and torchaudio that name a version. Requirements of
    extras are left out.

    >>> parse_required("Requires-Dist: torch==2.5.1\\nRequires-Dist: torch-x>1\\n\\nText")
    ('torch==2.5.1',)
    >>> parse_required("Requires-Dist: torch (>=2) ; extra == 'all'\\nRequires-Dist: torch\\n")
    ()
    """
    # Most distributions do not require torch, and the search below takes long.
    if "Requires-Dist: torch" not in metadata:
        return ()
    # The description after the first empty line may quote requirements.
    head = metadata.replace("\r\n", "\n").partition("\n\n")[0]
    requirements = []
    for match in re.finditer(_REQUIRED, head):
        requirement, _, marker = match[1].strip().partition(";")
        if "extra" not in marker and re.search("[<>=~!@]", requirement):
            requirements.append(match[1].strip())
    return tuple(requirements)
