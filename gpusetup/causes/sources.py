"""Where several causes are known from: the `source` of their records."""

from __future__ import annotations

CPP_EXTENSION = "messages of torch/utils/cpp_extension.py"
CUDA_RUNTIME = "CUDA Runtime API reference, cudaError"
CUDA_DRIVER = "CUDA Driver API reference, CUresult"
NCCL_DOC = "NCCL documentation, troubleshooting; NCCL's sources (WARN lines)"
PIP = "pip documentation; messages of pip's sources"
TOOLKIT = "NVIDIA Container Toolkit documentation, troubleshooting"
UV = "messages of uv and pip"
WHEELS = "the wheels and indexes of torch, read for the catalog"
