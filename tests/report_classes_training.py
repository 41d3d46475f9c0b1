"""Classes of texts of people who train: what they ask, what cures it, what a trainer refuses."""

from __future__ import annotations

from report_classes import NO_IMAGE, Class

TRAINING: dict[str, Class] = {
    "somebody asks whether memory is the reason": Class(
        "unknown",
        (
            "my machine restarts when I start training. Is it because of insufficient GPU memory?",
            "training on two 3090s stops without a word, could it be due to not enough VRAM?",
            "训练时电脑会自动重启，是不是显存不够？",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\nIs it because of insufficient GPU memory?",
        ),
    ),
    "an assertion after a card with more memory was taken": Class(
        "cuda-program-error",
        (
            "RuntimeError: CUDA error: device-side assert triggered\n4张3090 显存不够换到了 4张A40, 出现上述错误",
            "显存不够，换了A100之后 CUDA error: device-side assert triggered",
            "RuntimeError: CUDA error: device-side assert triggered\n之前显存不足就换成了80G的卡",
        ),
    ),
    "a new card by its series, or by the older line's name": Class(
        "arch-too-new-for-wheel",
        (
            f"GTX 5090, newest driver\n{NO_IMAGE}",
            f"CUDA 12.8 for the RTX5000 ({NO_IMAGE})\nGPU/VRAM: RTX 5090 / 32GB",
            f"my nvidia gtx 5080 says: {NO_IMAGE}",
        ),
        (f"GTX 1080 and RTX 5090\n{NO_IMAGE}",),
    ),
    "a torch that its distribution builds without CUDA": Class(
        "torch-cpu-build",
        (
            "my distribution doesn't compile pytorch with cuda by default",
            "the package manager does not ship torch with CUDA",
            "It ends in something about Torch not being compiled with CUDA enabled",
        ),
        ("how does my distribution compile pytorch with cuda?",),
    ),
    "one device where MIG is on": Class(
        "mig-misconfigured",
        (
            "torch.cuda.device_count() shows only one gpu in MIG A100",
            "We split our H100 with MIG into seven, but torch sees only 1 device",
            "MIG is configured with two slices. device_count() returns only one GPU",
        ),
        ("torch.cuda.device_count() shows only one gpu of my two RTX 3090",),
    ),
    "a MIG instance named in the environment that computes": Class(
        "ok",
        tuple(
            f"{front}CUDA_VISIBLE_DEVICES=MIG-feee0c61-26ec-5616-bb59-b6d777cc4f34 ipython\nGPU: A100\nIn [8]: torch.rand(2).cuda()\nOut[8]: tensor([0.4866, 0.3877], device='cuda:0')"
            for front in ("", "$ ", "export ")
        ),
        (
            "CUDA_VISIBLE_DEVICES=MIG-feee0c61-26ec-5616-bb59-b6d777cc4f34 python x.py\nA100\nRuntimeError: No CUDA GPUs are available",
        ),
    ),
    "torch's list of kernels without the line above it": Class(
        "arch-too-new-for-wheel",
        tuple(
            f"When I use my {gpu} I get:\nThe current PyTorch install supports CUDA capabilities {listed}."
            for gpu, listed in (
                ("NVIDIA RTX A6000", "sm_37 sm_50 sm_60 sm_70"),
                ("RTX 5090", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"),
                ("RTX 5070 Ti", "sm_75 sm_80 sm_86 sm_90"),
            )
        ),
        (
            "With my RTX 3090 I get: The current PyTorch install supports CUDA capabilities sm_75 sm_80 sm_86 sm_90.",
        ),
    ),
    "a hosted notebook whose memory ran out": Class(
        "host-out-of-memory",
        (
            "Google Colab: Your session crashed after using all available RAM.",
            "The session crashed after using all available RAM at model.fit, T4 runtime",
            "Your session crashed after using all available RAM. If you are interested in access to high-RAM runtimes, you may want to check out Colab Pro.",
        ),
        ("Your session crashed for an unknown reason.",),
    ),
    "a trainer that takes a GPU by its number": Class(
        "program-failed",
        (
            "ValueError: Invalid CUDA 'device=cuda' requested. Use 'device=cpu' or pass valid CUDA device(s) if available",
            "AssertionError: Invalid CUDA '--device gpu' requested, use '--device cpu' or pass valid CUDA device(s)",
            "AssertionError: Invalid CUDA '--device cuda' requested, use '--device cpu' or pass valid CUDA device(s)",
        ),
        (
            "ValueError: Invalid CUDA 'device=0' requested. Use 'device=cpu' or pass valid CUDA device(s) if available\ntorch.cuda.is_available(): False",
            "AssertionError: Invalid CUDA '--device 0' requested, use '--device cpu' or pass valid CUDA device(s)",
        ),
    ),
    "ranks that go on without peer access": Class(
        "nccl-p2p-failure",
        (
            "Training hangs with two GPUs. The training started after I set export NCCL_P2P_DISABLE=1",
            "freezes at init with 4 RTX 4090; setting NCCL_P2P_DISABLE=1 solved it",
            "DDP is stuck. It works with NCCL_P2P_DISABLE=1 only.",
        ),
        (
            "Training hangs with two GPUs. I tried NCCL_P2P_DISABLE=1, it still hangs",
            "hangs, NCCL_P2P_DISABLE=1 did not help",
        ),
    ),
    "a GPU's memory that fails, in somebody's words": Class(
        "ecc-error",
        (
            "nvidia-smi -q shows ECC errors on GPU 3 and training crashes",
            "显卡报ECC错误，训练中断",
            "A100 in node 4: volatile uncorrected ECC errors : 4",
        ),
        (
            "ECC is disabled on this GPU, training is slow",
            "0 ECC errors on my A100, it still hangs",
        ),
    ),
    "a Triton of another release": Class(
        "program-release-too-old",
        (
            "`triton.language' has no attribute cast`",
            "AttributeError: module 'triton.language' has no attribute 'constexpr_function'",
            "AttributeError: module 'triton' has no attribute 'jit'",
        ),
        ("AttributeError: module 'mytriton.utils' has no attribute 'cast'",),
    ),
    "an exception below a list of versions": Class(
        "program-failed",
        (
            "- PyTorch version: 2.6.0+cu126 (GPU)\n- GPU type: NVIDIA GeForce RTX 3060\n- GPU number: 1\n- Bitsandbytes version: 0.45.3\n\nAttributeError: Can't get local object 'A.post_init.<locals>.set_device_hook'",
            "PyTorch version: 2.6.0+cu126 (GPU)\nGPU type: NVIDIA H20\nDeepSpeed version: 0.15.4\nKeyError: 'qwen3_next'",
            "* CUDA version: 12.4\n* GPU name: A100\nTypeError: forward() got an unexpected keyword argument 'num_items'",
        ),
        (f"- PyTorch version: 2.6.0+cu126 (GPU)\n- GPU type: NVIDIA GeForce RTX 5090\n{NO_IMAGE}",),
    ),
    "an instruction that a GPU does not take": Class(
        "cuda-program-error ok",
        (
            'flash3 bwd failed with "RuntimeError: CUDA error: an illegal instruction was encountered"?',
            "torch.AcceleratorError: CUDA error: an illegal instruction was encountered",
            "CUDA_ERROR_ILLEGAL_INSTRUCTION in my fused kernel on the RTX 5090",
        ),
        ("Illegal instruction (core dumped)",),
    ),
    "a machine that slept": Class(
        "cuda-unknown-error",
        (
            "after suspend ollama only uses the CPU, I have to reboot completely",
            "Each time my laptop wakes up torch says CUDA not available until I run sudo rmmod nvidia_uvm",
            "GPU is no longer found when the PC resumes from sleep; a restart of the machine, or sudo modprobe -r nvidia_uvm, helps",
        ),
        (
            "I call time.sleep(5) and then the GPU is not used, I have to reboot",
            "vLLM sleep mode: after wake up the GPU memory is not released, restart the server",
        ),
    ),
    "a number of a type that an operation does not take": Class(
        "program-failed",
        (
            "RuntimeError: \"triu_tril_cuda_template\" not implemented for 'BFloat16'",
            "NotImplementedError: \"bitwise_and_cuda\" not implemented for 'Float'",
            "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Int'",
        ),
    ),
    "a model that does not fit, as a verb": Class(
        "out-of-memory",
        (
            "Fine-tuning on 4xA100 works fine, but OOM when trying to load the model from a checkpoint",
            "In fact, it OOMs even on a full 8xA100 80GB node",
            "The run OOMed on my RTX 4090 at step 300",
        ),
        (
            "Would it OOM on a single A100?",
            "Smaller batches, so that it never OOMs on the A100",
        ),
    ),
    "a Mac's paths in a failure that is about no GPU": Class(
        "unknown ok",
        tuple(
            f'  File "/Users/me/opt/{where}/lib/python3.11/site-packages/batchgenerators/x.py", line 103, in results_loop\nRuntimeError: One or more background workers are no longer alive. Exiting.'
            for where in ("anaconda3/envs/nn", "miniconda3/envs/seg", "anaconda3")
        ),
    ),
    "a kernel that the prebuilt part of an extension has not": Class(
        "extension-arch-mismatch",
        tuple(
            f"[WARNING]your gpu arch ({arch}) isn't compiled in prebuilt, may cause invalid device function. available: {{(6, 1), (7, 0), (8, 6)}}. I'm using a {gpu}"
            for arch, gpu in (("8, 9", "RTX 4090 GPU"), ("12, 0", "RTX 5090"), ("9, 0", "H100"))
        ),
    ),
    "memory in italics": Class(
        "out-of-memory",
        (
            "Step 3. Re-run the training\n**=>** _Out of memory ERROR!!!_\nI checked the GPU state by nvidia-smi",
            "the GPU is at 17 GiB, _out of memory error_ again",
            "*Out of memory error* on the GPU at epoch 2",
        ),
    ),
    "an old card that FlashAttention does not serve": Class(
        "gpu-too-old-for-flash-attention",
        (
            "FlashAttention is not supported on V100",
            "my RTX 2080 Ti does not support flash attention 2, how do I train?",
            "v100不支持flash-attn，要训练的话怎么设置",
        ),
        ("flash-attn is not supported on Windows", "Is FlashAttention supported on H100?"),
    ),
    "numbers that change between two GPUs": Class(
        "nccl-p2p-failure",
        (
            "When I transfer data from GPU to GPU the values are getting modified randomly",
            "peer-to-peer (P2P) access is not supported between the GPU devices, 4x RTX 4090",
            "tensor([ 1.5336, 0.8161], device='cuda:0')\ntensor([0., 0., 0., 0., 0.], device='cuda:1')   # ???",
        ),
        (
            "How can I copy a tensor from GPU to GPU without a change of its values?",
            "tensor([0., 0., 0.], device='cuda:0')\ntensor([0., 0., 0.], device='cuda:1')",
        ),
    ),
    "the user's own torch under an environment's package": Class(
        "torch-outside-environment",
        (
            '  File "/home/me/anaconda3/envs/seg/lib/python3.10/site-packages/torchvision/__init__.py", line 6\n  File "/home/me/.local/lib/python3.10/site-packages/torch/library.py", line 133, in register\nRuntimeError: operator torchvision::nms does not exist',
            '  File "/srv/x/.venv/lib/python3.11/site-packages/torchvision/__init__.py", line 10\n  File "/root/.local/lib/python3.11/site-packages/torch/_ops.py", line 9\nRuntimeError: operator torchvision::nms does not exist',
            "File ~/.conda/envs/a/lib/python3.11/site-packages/torchvision/__init__.py:6\nFile ~/.local/lib/python3.11/site-packages/torch/_custom_ops.py:253\nRuntimeError: operator torchvision::nms does not exist",
        ),
        (
            '  File "/home/me/.local/lib/python3.10/site-packages/torchvision/__init__.py", line 6\n  File "/home/me/.local/lib/python3.10/site-packages/torch/library.py", line 133, in register\nRuntimeError: operator torchvision::nms does not exist',
        ),
    ),
    "a package that a trainer asks for": Class(
        "program-requirement-missing",
        (
            "ImportError: No bitsandbytes / bitsandbytesがインストールされていないようです",
            "ImportError: No xformers / xformersがインストールされていないようです",
            'raise ImportError("No dadaptation / dadaptation がインストールされていないようです")\nImportError: No dadaptation / dadaptation がインストールされていないようです',
        ),
    ),
}
