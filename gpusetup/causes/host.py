"""What the host gives: shared and locked memory, disk; settings that make CUDA slow or imprecise."""

from __future__ import annotations

from gpusetup.causes.record import Cause, Message
from gpusetup.causes.sources import WHEELS
from gpusetup.evidence.places import IN_A_CONTAINER, IN_DOCKER, IN_PODMAN, no
from gpusetup.fixes.disk_space import making_room, short_disks
from gpusetup.messages.row import any_of
from gpusetup.model.finding import Severity

SHM = r"/dev/shm|torch_\d|</torch|shared memory|nccl|torch\.save|PytorchStreamWriter|save_checkpoint|save_pretrained|checkpoint-\d"
"""What else fills: shared memory, and the disk of a program that writes its own checkpoint."""


CAUSES = (
    Cause(
        "shm-too-small",
        title="A small /dev/shm: DataLoader workers and NCCL need more",
        means="DataLoader workers and NCCL share memory there; docker gives 64 MiB.",
        text="Start the container with more shared memory (`--shm-size=8g`; the command does it "
        "with a plain image), or use num_workers=0",
        proven_by="/dev/shm has 1 GiB or less in a container",
        explains=(
            "dataloader-worker-killed",
            "nccl-shm-error",
        ),
        commands=("docker run --rm --shm-size=8g --gpus all ubuntu df -h",),
        cases=(
            Message(
                where=(no(IN_A_CONTAINER),),
                title="A bus error: /dev/shm is small, or a file that a worker maps is cut",
                text="See first how large /dev/shm is. If it is small, start the container with "
                "`--shm-size=8g`, or use num_workers=0. If it is large, shared memory is not the "
                "reason: look for a full disk, or a dataset that is damaged or on a network disk",
                look=("df -h /dev/shm",),
                see="see how large it is",
            ),
            Message(
                where=(IN_PODMAN,),
                commands=(
                    "podman run --rm --shm-size=8g --device nvidia.com/gpu=all ubuntu df -h",
                ),
            ),
            Message(where=(no(IN_DOCKER), IN_A_CONTAINER)),
        ),
        alike={"df -h": ("pip-cache-disk-full",)},
        says=any_of(
            {
                "bus error": r"killed by signal: Bus error|bus error encountered in worker",
                "(sigbus)": r"Signal 7 \(SIGBUS\) received",
                "exitcode": r"exitcode\s{0,8}: ?-7\b",
                "insufficient shared memory": r"insufficient shared memory \(shm\)",
                "out of shared memory": r"workers are out of shared memory",
                "unable to write to file": r"unable to write to file </?torch_\w+>",
                "</torch_": r"unable to (?:mmap|resize|allocate|open).{0,80}</?torch_\w+>.{0,60}(?:No space|Cannot allocate)",
                "/dev/shm": r"No space left on device.{0,20}'/dev/shm/(?!nccl)",
            },
        ),
        examples=(
            "Signal 7 (SIGBUS) received by PID 4711",
            "exitcode  : -7 (pid: 4711)",
            "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
            "RuntimeError: unable to write to file </torch_812_3419>",
            "RuntimeError: unable to mmap 1024 bytes from file </torch_7_8_9>: Cannot allocate memory (12)",
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_ab12'",
        ),
    ),
    Cause(
        "rdma-memlock",
        title="Locked memory is limited: NCCL over InfiniBand fails",
        means="InfiniBand needs memory that stays in place (RDMA).",
        text="Raise the hard limit and log in again (a service: LimitMEMLOCK=infinity in its unit, "
        "also slurmd's)",
        proven_by="RLIMIT_MEMLOCK is below 64 MiB on a machine with eight GPUs",
        source="NCCL documentation, troubleshooting",
        stage="distributed",
        commands=(
            "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' "
            "| sudo tee /etc/security/limits.d/99-memlock.conf",
        ),
        needs_root=True,
        cases=(
            Message(
                where=(IN_A_CONTAINER,), text="Start the container again with `--ulimit memlock=-1`"
            ),
        ),
        says=any_of(
            {
                "ibv_reg_mr": r"ibv_reg_mr\w* failed",
                "ibv_create": r"ibv_create_\w+ failed.{0,40}Cannot allocate memory",
                "memlock": r"(?:RLIMIT_MEMLOCK|memlock limit).{0,60}(?:too (?:small|low)|exceed|insufficient)",
                "max locked memory": r"max locked memory.{0,60}(?:too (?:small|low)|exceed|insufficient)",
            },
        ),
        examples=(
            "NCCL WARN Call to ibv_reg_mr failed",
            "ibv_create_qp failed with error Cannot allocate memory",
            "RLIMIT_MEMLOCK is too small: 65536",
            "UCX WARN: max locked memory limit is too low",
        ),
    ),
    Cause(
        "pip-cache-disk-full",
        title="Little room for an install of torch",
        means="torch's wheels take 3 GiB, and 5 GiB more when they are unpacked.",
        text="Make room: clear the installers' caches, or set TMPDIR and the cache to a disk "
        "with room. An install needs up to 8 GiB next to the packages, 4 GiB in a cache and 1 GiB "
        "in the temporary folder",
        proven_by="The disk has less free space than that",
        source=WHEELS,
        explains=("download-hash-mismatch",),
        by_check=True,
        commands=lambda context: making_room(context, short_disks(context)),
        says=(
            any_of(
                {
                    "no space left on device": r"(?:\[Errno 28\] |os error 28|IOError|OSError|ERROR|error)?.{0,20}No space left on device(?::? '(?P<path>[^']{1,200})')?",
                    "errno 28": r"\[Errno 28\]",
                },
                unless=SHM,
            ),
            any_of(
                {
                    "112": r"\[?(?:WinError|os error) 112\b",
                    "nospacelefterror": "",
                    "not enough space on the disk": "",
                    "errno 122": r"\[Errno 122\] Disk quota exceeded",
                },
            ),
        ),
        examples=(
            "OSError: [Errno 28] No space left on device",
            "OSError: [WinError 112] There is not enough space on the disk",
            "conda.exceptions.NoSpaceLeftError: No space left on devices.",
            "OSError: [Errno 122] Disk quota exceeded",
        ),
    ),
    Cause(
        "cuda-launch-blocking",
        severity=Severity.WARNING,
        title="CUDA_LAUNCH_BLOCKING makes CUDA slow",
        means="The CPU waits for every kernel.",
        text="Unset it",
        proven_by="The variable is 1",
        source="CUDA C++ Programming Guide, environment variables",
    ),
    Cause(
        "memory-caching-off",
        severity=Severity.WARNING,
        title="PYTORCH_NO_CUDA_MEMORY_CACHING makes torch slow",
        means="The driver allocates every tensor.",
        text="Unset it",
        proven_by="The variable is 1",
        source="torch documentation, CUDA semantics",
    ),
    Cause(
        "tf32-precision",
        title="float32 products are computed in TF32: results differ in the third digit",
        means="GPUs do so from Ampere on; torch 1.7 to 1.11 does so for matrix products by default, every torch for convolutions. The GPU stack is healthy.",
        text="If you need exact float32: torch.backends.cuda.matmul.allow_tf32 = False and "
        'torch.backends.cudnn.allow_tf32 = False, or torch.set_float32_matmul_precision("highest")',
        proven_by="NVIDIA_TF32_OVERRIDE or TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is 1",
        source="torch documentation, CUDA semantics",
    ),
)
