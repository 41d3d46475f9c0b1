"""Classes of texts that people's own sentences decide, without a program's line."""

from __future__ import annotations

from report_classes import NO_DRIVER, SMI_ONE, Class

SPOKEN: dict[str, Class] = {
    "memory of a GPU that does not suffice, as people say it": Class(
        "out-of-memory",
        (
            "Ran into an OOM error in multi-GPU fine-tuning via LoRA.\nTraceback (most recent call last):",
            "I have more than 4 gpus to run train.py, but it is still out of memory",
            "when I use profile 3, I get out of memory. My GPU is a 4090 and the machine has 256G",
        ),
        (
            "To avoid OOM on the GPU, lower the batch size. ImportError: libcudnn.so.9: cannot open shared object file",
            "The training on 4 GPUs was ended by the OOM killer\nKilled",
        ),
    ),
    "memory of the host that does not suffice, as people say it": Class(
        "host-out-of-memory dataloader-worker-killed",
        (
            "it is likely that you have unsufficient RAM and / or Reserved RAM allocation should be reduced",
            "loading the checkpoint I ran out of system RAM",
            "not enough CPU memory for the shards, 64 GB are there",
        ),
        (
            "not enough VRAM for this model",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
    ),
    "docker that knows no runtime of NVIDIA's": Class(
        "container-toolkit-missing",
        (
            "docker can not use the GPU\n$ docker info | grep -i runtime\n Runtimes: io.containerd.runc.v2 runc\n Default Runtime: runc",
            "My container doesn't see the NVIDIA GPU.\n Runtimes: runc io.containerd.runc.v2\n Default Runtime: runc",
            "containers cannot access the GPU\nRuntimes: runc\nDefault Runtime: runc",
        ),
        (
            "docker can not use the GPU\n Runtimes: io.containerd.runc.v2 nvidia runc\n Default Runtime: nvidia",
            "docker can not use the network\n Runtimes: io.containerd.runc.v2 runc\n Default Runtime: runc",
        ),
    ),
    "a wheel for the CPU that came in place of CUDA's": Class(
        "torch-cpu-build",
        (
            "CUDA PyTorch not detected on a GTX 1650. Note that the wheel for 2.9.1+cpu was installed.",
            "with --torch-backend=auto uv installs torch==2.9.1+cpu on my RTX 3060 machine",
            "every time pip picks 2.6.0+cpu although a 4090 is there",
        ),
        (
            "I want to install torch==2.6.0+cpu, there is no GPU here",
            "torch 2.6.0+cu124 was installed and torch.cuda.is_available() is True",
        ),
    ),
    "an apptainer that was started without its GPU": Class(
        "container-no-gpu program-sees-no-gpu",
        (
            "RuntimeError: Command ['singularity', '--silent', 'run', '/x/cactus.img', 'align'] exited 1: stderr=Using 2 threads\n        Error: No GPU device found!",
            "$ apptainer exec image.sif ./align\nError: No GPU devices found",
            "singularity run image.sif mask\nfatal: no GPU device detected",
        ),
        (
            "$ apptainer exec --nv image.sif ./align\nError: No GPU devices found",
            "$ ./align\nError: No GPU devices found",
        ),
    ),
    "a program that lacks a module of Python": Class(
        "program-requirement-missing",
        (
            "  File \"/x/ComfyUI/cuda_malloc.py\", line 6, in <module>\n    import comfy_aimdo.control\nModuleNotFoundError: No module named 'comfy_aimdo'",
            "python: Error while finding module specification for 'axolotl.cli.train' (ModuleNotFoundError: No module named 'axolotl')",
            "  File \"train.py\", line 3, in <module>\n    import wandb\nModuleNotFoundError: No module named 'wandb'",
        ),
        (
            "  File \"train.py\", line 1, in <module>\n    import torch\nModuleNotFoundError: No module named 'torch'",
            "ModuleNotFoundError: No module named 'triton'",
        ),
    ),
    "an AMD card for which NVIDIA's packages come": Class(
        "amd-gpu",
        (
            "webui.bat tries to download the nvidia version instead of using the AMD version, I believe",
            "the installer takes the CUDA build of torch instead of ROCm",
            "it fetches NVIDIA packages instead of the ROCm ones",
        ),
        (f"it uses the CPU instead of the NVIDIA card\n{SMI_ONE}",),
    ),
    "a container whose start gives it no GPU, as people say it": Class(
        "container-no-gpu",
        (
            "docker-compose: NVIDIA GPU not passed through to container, no GPU in the panel",
            "The service in docker-compose.yml has no NVIDIA device reservation",
            "the RTX 5080 of the host: GPU was not passed to the container",
        ),
        (
            "the argument was not passed to the container",
            "the compose file has a device reservation for the GPU",
        ),
    ),
    "a new card and an older torch, as people say it": Class(
        "arch-too-new-for-wheel",
        (
            "not runable with RTX 50XX Series\ncrashes with it. it need to update torch to 12.8",
            "It doesn't work on RTX 5090, one needs torch 2.7 with cu128",
            "crashes on my RTX 5070 Ti; please upgrade CUDA to 12.8",
        ),
        (
            "not runable with RTX 40XX Series, it need to update torch to 12.8",
            "torch 2.7.0+cu128 crashes on my RTX 5070 Ti, do I need CUDA 12.8?",
        ),
    ),
    "CUDA's libraries that are missing, as people say it": Class(
        "cuda-lib-missing",
        (
            "CUDA image unable to load libcudnn_cnn.so",
            "ONNX Runtime falls back to the CPU when CUDA DLLs are missing, without an error",
            "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: libdevice not found at ./libdevice.10.bc",
        ),
        ("unable to load libGL.so.1", "it takes long to load libcudnn_cnn.so.9, and works"),
    ),
    "conda that installs the build for the CPU, as people say it": Class(
        "torch-cpu-build",
        (
            "conda install pytorch==1.9.0 cudatoolkit=11.1 -c pytorch\nThis command installs cpu version instead of cuda.",
            "an env with pytorch from conda-forge: the CPU version is installed even if __cuda is defined",
            "torch with CUDA is asked for, and the CPU-only build gets installed",
        ),
        (
            "I only want to install the CPU version of torch",
            "installs the CPU version instead of the beta of my editor",
        ),
    ),
    "pip's isolated build, as people say it": Class(
        "build-isolation-no-torch",
        (
            "installing fails due to a pip setup install error for flash_attn relating to a failure of that module to find torch",
            "building the wheel of xformers fails since setup.py does not find torch",
            "pip install flash-attn: the build cannot find torch",
        ),
        ("python train.py fails: cannot find torch", "pip cannot find torch==9.9 on the index"),
    ),
    "a missing kernel of a GPU that is called by its generation": Class(
        "arch-too-new-for-wheel",
        (
            "CUDA error: no kernel image is available for execution on the device (Blackwell GPU)\ntorch was installed by pip",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device\nI have an RTX 50 series card",
            "My blackwell card: RuntimeError: CUDA error: no kernel image is available for execution on the device",
        ),
        (
            "CUDA error: no kernel image is available for execution on the device (Pascal GPU), torch 2.8.0+cu128",
            "my wheel has Blackwell support: CUDA error: no kernel image is available for execution on the device",
        ),
    ),
    "torch.compile on a GPU before Volta, as people say it": Class(
        "gpu-too-old-for-triton",
        (
            'linear_cross_entropy with my GTX 1070 fails with these errors:\n  File "cut_cross_entropy/torch_compile.py", line 66, in torch_compile_linear',
            "torch.compile does not work on my GTX 1080 Ti",
            "on a Tesla P100 it crashes when inductor starts",
        ),
        (
            "torch.compile does not work on my RTX 3060",
            "I replaced a GTX 1070 by an RTX 4090 and torch.compile fails",
        ),
    ),
    "a loader's worker that is killed, typed by hand": Class(
        "dataloader-worker-killed host-out-of-memory",
        (
            "RuntimeError: Dataloader worker (pid 15623) is killed by signaled: Killed",
            "the dataloader worker was killed, the GPU has room",
            "my dataloader workers get killed, after an hour",
        ),
        (
            "RuntimeError: DataLoader worker (pid 11011) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit",
        ),
    ),
    "a job that Slurm refuses": Class(
        "program-failed",
        (
            "sbatch: error: submitted a job to a gpu32 partition, without specifying a GPU32 Account.\nsbatch: error: Batch job submission failed: Unspecified error",
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "sbatch: error: QOSMaxGRESPerUser\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        ),
        ("sbatch job.sh\nRuntimeError: No CUDA GPUs are available",),
    ),
    "a compiled module whose name is not there": Class(
        "extension-not-built",
        (
            "NameError: name 'autogptq_cuda_256' is not defined",
            "  File \"x/qlinear_cuda_old.py\", line 83, in forward\nNameError: name 'autogptq_cuda_64' is not defined. Did you mean: 'autogptq_cuda_256'?",
            "NameError: name 'fused_layer_norm_cuda' is not defined",
        ),
        (
            "NameError: name 'cuda_device' is not defined",
            "NameError: name 'use_cuda' is not defined",
        ),
    ),
    "a build that looks for its architectures where no GPU is": Class(
        "build-without-gpu",
        (
            'CMake Error in ggml/src/ggml-cuda/CMakeLists.txt:\n  CUDA_ARCHITECTURES is set to "native", but no GPU was detected.',
            'CUDA_ARCHITECTURES is set to "native", but no GPU was detected.\nCMake Generate step failed.',
            'docker build\n  CUDA_ARCHITECTURES is set to "native", but no GPU was detected.',
        ),
        ("CMake Error: CMAKE_CUDA_ARCHITECTURES must be non-empty if set.",),
    ),
    "a program that sees none of the GPUs which nvidia-smi shows": Class(
        "unknown program-sees-no-gpu",
        (
            "No NVIDIA GPUs detected! nvidia-smi is not available on this system.\nHowever if i run nvidia-smi in a terminal i can see my two 3090, so nvidia-smi does detect my gpu.",
            "The app says: No NVIDIA GPU found. But nvidia-smi works fine.",
            "No NVIDIA GPU detected, yet nvidia-smi shows my RTX 3060",
        ),
        ("No NVIDIA GPU detected, and nvidia-smi is not there either: it is a laptop without one",),
    ),
    "a library of CUDA that is not found, as people and TensorFlow say it": Class(
        "cuda-lib-missing",
        (
            "not able to find libcudnn.so.7\nTensorFlow version: 2.3.1",
            "Dlerror: libcudnn.so.7: cannot open shared object file: No such file or directory;",
            "I tensorflow/stream_executor/dso_loader.cc:105] Couldn't open CUDA library libcudnn.so. LD_LIBRARY_PATH:",
        ),
        (
            "I tensorflow/stream_executor/dso_loader.cc:105] Couldn't open CUDA library libcupti.so.8.0. LD_LIBRARY_PATH:",
            "If it cannot find libcudnn.so.7, install cuDNN",
        ),
    ),
    "a library of CUDA that is older than the GPU": Class(
        "arch-too-new-for-wheel",
        (
            "RTX4060 could not run train.py\ncuda 10.0+cudnn7.4+tf-gpu1.14.0\nE tensorflow/stream_executor/cuda/cuda_blas.cc:428] failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED",
            "RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR\nPyTorch 1.13 on an RTX 4090",
            "failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED\nA4000\ncudatoolkit               10.0.130                      0",
        ),
        (
            "RTX 2080 Ti, cuda 10.0, tensorflow-gpu 1.14: failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED",
            "RTX 3090, torch 1.13.1+cu117\nRuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR",
        ),
    ),
    "an image that asks for a driver by its number": Class(
        "driver-too-old",
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: driver >= 410",
            "docker: Error response from daemon: OCI runtime create failed: stderr: exec command: [nvidia-container-cli --require=cuda>=10.0 brand=tesla,driver>=384,driver<385]\nnvidia-container-cli: requirement error: unsatisfied condition: driver >= 410",
            "requirement error: unsatisfied condition: driver>=450.80",
        ),
        ("nvidia-container-cli: requirement error: invalid expression: unknown.",),
    ),
    "a Mac before Apple's own processors": Class(
        "unknown no-nvidia-gpu",
        (
            "No External GPU detected...\nI have a MacBook Pro and a Geforce Titan Black card. Does the script support it?\nOSx 10.10.5",
            "eGPU is not recognized\nMac: MacBook Pro 13 Mid-2017, macOS Version: 10.13.6, Aorus GamingBox Nvidia GTX 1080",
            "pip install pynvx\ncreating build/lib.macosx-10.7-x86_64-3.6\nGPU not detected\nUsing an NVIDIA GT 750M",
        ),
        ("macOS 14.5\nAssertionError: Torch not compiled with CUDA enabled",),
    ),
    "memory of the GPU that grows until there is none": Class(
        "out-of-memory",
        (
            "GPU memory leaks and GPU memory keeps increasing\nIn the training GPU memory leaks and GPU memory keeps increasing until out of memory.",
            "The VRAM usage grows with every epoch until it runs out of memory",
            "GPU memory is increasing until OOM",
        ),
        (
            "The system memory keeps increasing until the OOM killer ends it",
            "My GPU memory slowly increased. I wonder if there is a leak",
        ),
    ),
    "a GPU that is gone after a crash, as people say it": Class(
        "gpu-fell-off-bus hardware-fault",
        (
            "During LoRA training the GPU enters an unrecoverable failure state. A CUDA error is raised, after which the NVIDIA driver can no longer access the GPU.",
            "The training crashes after an hour and then nvidia-smi can no longer see the GPU",
            "Hard crash in training, the system could no longer detect my GPU until a power cycle",
        ),
        ("I updated the kernel; now it crashes and nvidia-smi can no longer see the GPU",),
    ),
    "an onnxruntime that was built for the CPU": Class(
        "program-without-gpu-support",
        (
            "[ INFO ] GPU is not supported by your ONNXRuntime build. Fallback to CPU.",
            "GPU is not supported by your ONNX Runtime build",
            "CUDA support is not enabled in this ONNXRuntime build",
        ),
        ("If the GPU is not supported by your ONNXRuntime build, the CPU is taken",),
    ),
    "a machine without an NVIDIA GPU, as its owner says it": Class(
        "no-nvidia-gpu",
        (
            f"I don't have an NVIDIA GPU.\n{NO_DRIVER}",
            f"My laptop has no dedicated GPU, only Intel graphics\n{NO_DRIVER}",
            "I do not have a GPU.\nRuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        ),
        (
            f"It tells me I don't have an NVIDIA GPU, but there is an RTX 3060\n{NO_DRIVER}",
            f"The container says there is no NVIDIA GPU\n{NO_DRIVER}",
        ),
    ),
}
