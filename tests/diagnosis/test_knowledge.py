"""What doctor knows is complete, explained, and a document of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.diagnosis.explanations import record, records
from gpusetup.diagnosis.precedence import consequences

CAUSES = [
    "amd-gpu", "apple-silicon", "arch-too-new-for-wheel", "arch-too-old-for-wheel",
    "bf16-unsupported", "build-isolation-no-torch", "compute-mode-exclusive",
    "conda-cuda-virtual-missing", "container-cdi-unresolvable",
    "container-driver-capability-missing", "container-no-gpu", "container-nvml-lost",
    "container-toolkit-missing", "cuda-fork-reinit", "cuda-init-out-of-memory", "cuda-lib-missing",
    "cuda-toolkit-mismatch-extension-build", "cuda-toolkit-missing", "cuda-unknown-error",
    "cuda-visible-devices-hidden", "dataloader-worker-killed", "device-permission",
    "download-hash-mismatch", "download-network-error", "driver-missing", "driver-not-loaded",
    "driver-too-old", "ecc-error", "extension-abi-mismatch", "extension-arch-mismatch",
    "forward-compat-unsupported", "glibc-too-old", "gpu-fell-off-bus", "gpu-init-failed",
    "gpu-too-old-for-triton", "gsp-timeout", "hardware-fault", "hybrid-gpu-off", "intel-gpu",
    "invalid-device-ordinal", "jetson-wrong-wheel", "jit-arch-rejected", "k8s-gpu-not-allocatable",
    "ld-library-path-conflict", "libcuda-driver-mismatch", "libcuda-stub", "mig-misconfigured",
    "mixed-conda-pip", "mkl-version-mismatch", "module-shadowed", "mps-server",
    "nccl-duplicate-gpu", "nccl-no-socket-interface", "nccl-p2p-failure", "nccl-shm-error",
    "nccl-unavailable-windows", "no-nvidia-gpu", "no-wheel-for-platform", "numpy-abi-mismatch",
    "nvml-mismatch", "os-call-failed", "out-of-memory", "pcie-degraded", "pip-cache-disk-full",
    "pip-missing", "power-thermal-throttle", "ptx-unsupported-toolchain", "python-32bit",
    "python-no-wheel", "resolver-conflict", "rocm-wheel-on-nvidia",
    "secure-boot-rejected", "shm-too-small",
    "system-not-ready-fabric-manager", "tf32-precision", "torch-cpu-build", "torch-missing",
    "torchaudio-mismatch", "torchvision-mismatch", "triton-build-failed", "triton-missing-windows",
    "triton-no-compiler", "uvm-missing", "vgpu-no-compute", "vgpu-unlicensed",
    "windows-dll-missing", "windows-pagefile-too-small", "wrong-index", "wsl-driver",
]  # fmt: skip
"""The ids that are promised: they are never renamed."""


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["doctor", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_every_promised_cause_can_be_the_root() -> None:
    assert set(CAUSES) <= {row.id for row in records() if row.place}
    assert len(CAUSES) == len(set(CAUSES)) == 89


def test_an_explanation_is_one_document_with_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    id = "driver-too-old"
    document = said(["--explain", id], capsys)
    assert next(iter(document)) == "schema" and document["schema"] == "gpusetup.finding/1"
    assert document["finding"]["id"] == id
    assert document["finding"]["explains"] == list(consequences(record(id)))
