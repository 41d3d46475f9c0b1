"""Classes of texts in which a program, or somebody in a title, says that something failed."""

from __future__ import annotations

from report_classes import SMI_ONE, Class

VLLM = "INFO 08-02 02:39:50 [__init__.py:248] No platform detected, vLLM is running on UnspecifiedPlatform"

FAILURES: dict[str, Class] = {
    "a call to the GPU's firmware with the status of a lost GPU": Class(
        "gpu-fell-off-bus",
        (
            "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 76 sequence 12!",
            "NVRM: GPU1 rpcRmApiFree_GSP: GspRmFree failed: hClient=0xc1d0; hObject=0x5c; paramsStatus=0x00000000; status=0x0000000f",
            "kernel: NVRM: GPU0 _issueRpcAndWait: rpcRecvPoll failed with status 0x0000000f for fn 10!",
        ),
        (
            "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x00000065 for fn 76",
            "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x000000f1 for fn 76",
        ),
    ),
    "a number of CUDA's in a sentence": Class(
        "ptx-unsupported-toolchain",
        (
            "CUDA initialization failure with error: 222. Please check the installation",
            "[x] cudaLaunchKernel failed with error code 222",
            "CUDA: cuModuleLoadData returned status 222",
        ),
        ("CUDA error rate: 222.5 per hour", "cuda download failed: HTTP status of 2220 bytes"),
    ),
    "a library of CUDA that is said not to be found": Class(
        "cuda-lib-missing",
        (
            "Unable to load cuSPARSE. Is it installed?",
            "the cuSPARSE library cannot be found, and JAX falls back to the CPU",
            "Error: cuSOLVER library could not be loaded",
        ),
        ("the cuSPARSE library is slower than ours", "a tokenizer library cannot be found"),
    ),
    "vLLM in a container that was started without GPUs": Class(
        "container-no-gpu",
        (
            f"# docker run -p 8000:8000 me/served:1\n{VLLM}",
            f"$ docker run --rm -it vllm/vllm-openai:v0.10.0 --model x\n{VLLM}\nRuntimeError: Failed to infer device type",
            "ImportError('/usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short')",
        ),
        (VLLM, "libfoo.so.1: file too short"),
    ),
    "a program that says it sees no GPU": Class(
        "program-sees-no-gpu",
        (
            f"{SMI_ONE}\n(vllm) ValueError: Current node has no GPU available. current_node_resource={{}}",
            f'{SMI_ONE}\nollama: msg="failure during GPU discovery" error="failed to finish discovery before timeout"',
            f"{SMI_ONE}\nLlama(model_path=p, n_gpu_layers=20)\nwhy is it not using the gpu?",
        ),
        (
            f"{SMI_ONE}\nLlama(model_path=p, n_gpu_layers=20)\nllm_load_tensors: offloaded 33/33 layers to GPU, not using the gpu fully",
        ),
    ),
    "a package whose record is missing": Class(
        "program-requirement-missing",
        (
            "importlib.metadata.PackageNotFoundError: flashinfer",
            "importlib.metadata.PackageNotFoundError: No package metadata was found for bitsandbytes",
            "Exception: flashinfer_python with minimum required version 0.2.5 is not installed.",
        ),
        ("PackagesNotFoundError: The following packages are not available: cudatoolkit",),
    ),
    "a Blackwell card whose picture is gone after the driver": Class(
        "gpu-not-supported-by-driver",
        (
            "RTX 5070: installed driver 570 on Debian, after the reboot a black screen",
            "Black screen after installation of the 575 driver\n- GPU: RTX 5090",
            "I have an RTX 5080. The driver installed, then reboot: black screen with a cursor",
        ),
        (
            "RTX 3070: installed driver 570 on Debian, after the reboot a black screen",
            "RTX 5070: installed nvidia-open 575, after the reboot a black screen",
        ),
    ),
    "an Arc that is not found": Class(
        "intel-gpu",
        (
            "ComfyUI cannot find my Arc B580 on Ubuntu",
            "OpenVINO fails to detect the Intel Arc A770",
            "Arc B570 is not detected by torch",
        ),
        ("ComfyUI cannot find my RTX 3060; the Arc one in the other box is quick",),
    ),
    "a new card that is only named": Class(
        "arch-too-new-for-wheel",
        (
            "After changing to a new GPU (GeForce RTX 5060 Ti):\nCUDA error: no kernel image is available for execution on the device",
            "  00000000:01:00.0 0: NVIDIA GeForce RTX 5070 Ti [120] 15 GB\nRuntimeError: CUDA error: no kernel image is available for execution on the device",
            "broken since the RTX 5090 came\nCUDA error: no kernel image is available for execution on the device",
        ),
        (
            "RTX 5090 and RTX 3060: CUDA error: no kernel image is available for execution on the device",
            "(/b/third_party/flash-attention/hopper/flash_fwd_launch_template.h:167) RTX 5080: CUDA error: no kernel image is available for execution on the device",
        ),
    ),
    "a failure outside of the GPU's stack that a row tells": Class(
        "program-failed",
        (
            "Faulting application name: Sing.exe, version: 1.0.0.0, time stamp: 0x652f4a81\nFaulting module name: c10_cuda.dll, version: 0.0.0.0, time stamp: 0x6356f675\nException code: 0xc0000005",
            "RuntimeError: use_libuv was requested but PyTorch was built without libuv support",
            "gres.conf: Name=gpu Type=a100 File=/dev/nvidia0\n$ scontrol show node\n   Gres=(null)",
        ),
        (
            "Faulting application name: Sing.exe, version: 1.0.0.0, time stamp: 0x6\nFaulting module name: KERNELBASE.dll, version: 0",
            "$ scontrol show node\n   Gres=(null)",
        ),
    ),
}
