"""Classes of texts that somebody's own words decide, or one line of a linker or a compiler."""

from __future__ import annotations

from report_classes import NO_IMAGE, Class

LD = "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status\n"
NO_TORCH = "ModuleNotFoundError: No module named 'torch'"
NCCL_SYSTEM = "NCCL error: /x/NCCLUtils.hpp:317, NCCL version 2.22.3 ncclSystemError: System call (e.g. socket, malloc) or external library call failed"
AMPERE = "ValueError: bf16 requested, but AMP is not supported on this GPU. Requires Ampere series or above."

TITLES: dict[str, Class] = {
    "an extension that is linked where no libcuda.so is": Class(
        "cuda-lib-missing",
        (
            f"g++ a.o b.o -shared -lcuda -lcudart -o ops.so\n{LD}ninja: build stopped: subcommand failed.",
            f"      {LD}      error: command '/usr/bin/g++' failed with exit code 1\n  ERROR: Failed building wheel for ownkernels",
            f"{LD}make: *** [Makefile:31: bench] Error 1",
        ),
        (
            f"torch._inductor.exc.InductorError: CalledProcessError\n{LD}'/usr/bin/gcc', '/tmp/tmp1/main.c', '-lcuda'",
            "/usr/bin/ld: cannot find -lcudart\ncollect2: error: ld returned 1 exit status\nninja: build stopped: subcommand failed.",
        ),
    ),
    "pip that builds without the torch which is there": Class(
        "build-isolation-no-torch",
        (
            f"pip install -r needs.txt always tells me {NO_TORCH}. But torch is in this environment.",
            f"When I run `pip install rasteriser` I get the following error: {NO_TORCH}",
            f"{NO_TORCH} when running pip install -e .",
        ),
        (
            f"pip install numpy\npython train.py\nTraceback (most recent call last):\n{NO_TORCH}",
            f"python -c 'import torch'\n{NO_TORCH}",
        ),
    ),
    "XLA's assembler is older than the GPU": Class(
        "jit-arch-rejected",
        (
            'asm_compiler.cc:231] Falling back to the CUDA driver for PTX compilation; ptxas does not support CC 8.6\ncuda_driver.cc:628] failed to get PTX kernel "concatenate" from module: CUDA_ERROR_NOT_FOUND: named symbol not found',
            "tensorflow: ptxas does not support CC 8.9\nFalling back to the CUDA driver",
            "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0.\nInternalError: 'cuLaunchKernel(function)' failed with 'CUDA_ERROR_INVALID_HANDLE'",
        ),
        (
            "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 9.0. CUDA kernels will be jit-compiled from PTX",
            "cuda_driver.cc:628] failed: CUDA_ERROR_NOT_FOUND: named symbol not found",
        ),
    ),
    "JAX finds a CUDA that is older than its own": Class(
        "ld-library-path-conflict",
        (
            "CUDA backend failed to initialize: Found CUDA version 12020, but JAX was built against version 12030, which is newer.",
            "RuntimeError: Unable to initialize backend 'cuda': Found CUDA version 11040, but JAX was built against version 11080, which is newer.",
            "jax warns: Found CUDA version 12010, but jaxlib was built against version 12020\nand it runs on the CPU",
        ),
        ("JAX found CUDA version 12.4, which is what it needs",),
    ),
    "memory of the GPU that does not suffice, in a sentence": Class(
        "out-of-memory",
        (
            "It says insufficient graphics memory when I press start",
            "Training CUDA OutOfMemoryError\n训练到第三轮出现显存不足",
            "not enough VRAM for the second model, and it ends",
        ),
        (
            "Can I avoid to run out of VRAM? So far all is well.",
            "Use the small model if there is not enough VRAM.",
        ),
    ),
    "an Intel GPU on which a CUDA program was tried": Class(
        "no-nvidia-gpu intel-gpu",
        (
            "Error CUDA driver version is insufficient for CUDA runtime version at line 167 in file csrc\\ops.cu\nI'm using an integrated Intel GPU on Windows 11",
            "CUDA driver version is insufficient for CUDA runtime version. My notebook has only Intel UHD",
            "RuntimeError: Found no NVIDIA driver on your system. I am on an Intel iGPU",
        ),
        (
            "CUDA driver version is insufficient for CUDA runtime version. I have Intel graphics and a GeForce GTX 1650",
            "CUDA driver version is insufficient for CUDA runtime version. The processor is Intel's",
        ),
    ),
    "ports that are closed between the ranks": Class(
        "nccl-no-socket-interface",
        (
            f"{NCCL_SYSTEM}\nOnly ports 30000-30100 are open on our cluster.",
            f"{NCCL_SYSTEM}\nthe firewall is active between the two nodes",
            f"Most ports here are blocked.\n{NCCL_SYSTEM}",
        ),
        (NCCL_SYSTEM,),
    ),
    "a model over several GPUs that hangs without a word": Class(
        "nccl-p2p-failure",
        (
            "vLLM hangs with --tensor-parallel-size 2, one GPU works",
            "With tensor_parallel_size=4 the server is stuck after NCCL version 2.21.5+cuda12.4",
            "INFO: vLLM is using nccl==2.21.5\nNCCL version 2.21.5+cuda12.4\nand there it hangs for hours",
        ),
        (
            "vLLM with --tensor-parallel-size 2 answers twice as fast",
            "vLLM hangs with --tensor-parallel-size 2\nWatchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
        ),
    ),
    "Triton's helper that lacks a header or a symbol": Class(
        "triton-build-failed",
        (
            "torch.compile: triton is missing Python.h on our cluster",
            "ImportError: /root/.triton/cache/0a/cuda_utils.so: undefined symbol: cuModuleGetFunction",
            "Triton compilation fails with undefined symbol: `cuLaunchKernel`",
        ),
        (
            "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E",
            "triton 3.2 works, Python.h is there",
        ),
    ),
    "torch that became one for the CPU": Class(
        "torch-cpu-build",
        (
            "After I installed the node it went back to using pytorch CPU",
            "the update switched to the CPU version of torch",
            "pip replaced it with the CPU-only torch",
        ),
        ("torch went back to full speed", "we changed the CPU of the torch server"),
    ),
    "an old Quadro, for which a program beside torch has no kernels": Class(
        "arch-too-old-for-wheel",
        (
            "[E:onnxruntime:, sequential_executor.cc:514] CUDA error cudaErrorNoKernelImageForDevice:no kernel image is available for execution on the device\nmy notebook has a quadro M1200",
            f"{NO_IMAGE}\nThe card is a Quadro M2200.",
            f"Quadro K2200. {NO_IMAGE}",
        ),
        (f"{NO_IMAGE}\nThe card is an RTX 3090.",),
    ),
    "a package of which somebody says that this system has no wheel": Class(
        "no-wheel-for-platform",
        (
            "There are no prebuilt wheels for xformers 0.0.28 on Windows with this CUDA.\nERROR: No matching distribution found for xformers==0.0.28",
            "The cause is the lack of precompiled wheels for xformers on aarch64",
            "No wheels for flash-attn on Windows, so that the installation ends",
        ),
        ("Here are prebuilt wheels for xformers on Windows, which work",),
    ),
    "a slow program that uses the GPU": Class(
        "ok",
        (
            "torch: 2.7.1+cu128, RTX 5090. Speech takes half a minute. It is definitely using my GPU.",
            "I can confirm that it's using the GPU, and yet a picture takes five minutes",
            "It's clearly using the GPU, only slowly",
        ),
        (
            "I am not sure that it is using the GPU",
            "It is definitely using my GPU until it ends: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
    ),
    "the driver's own pod, in which no driver runs": Class(
        "driver-not-loaded",
        (
            "microk8s kubectl exec nvidia-driver-daemonset-x1 -c nvidia-driver-ctr -- nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "kubectl exec -n gpu-operator nvidia-driver-daemonset-77 -- nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
            "pod/nvidia-driver-daemonset-2: CrashLoopBackOff\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        ),
        ("kubectl exec trainer-0 -- nvidia-smi\nFailed to initialize NVML: Unknown Error",),
    ),
}
