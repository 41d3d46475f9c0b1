"""Messages of containers, rented machines, NCCL and multi-node jobs about where a program runs.

Sources: the error texts of moby, containerd, podman, libnvidia-container, nvidia-container-toolkit,
kube-scheduler, kubelet and the NVIDIA device plugin; the entry script of NVIDIA's images, kubectl.

Sources: NCCL 2.4 to 2.28 (bootstrap.cc, ibvwrap.cc), gloo, torch's TCPStore (socket.cpp).
"""

from __future__ import annotations

from gpusetup.messages.row import row

NOT_ONLY_THERE = r"\b(?:works?|worked|fine|not|also|either|limits) (?:on|in)\b|\b(?:Colab|Kaggle)\b.{0,12}?\b(?:also|works)\b|Colab\W{1,3}(?:and|or|/) Kaggle|Kaggle\W{1,3}(?:and|or|/) Colab"
"""Words beside a notebook service which say that the failure is, or is also, somewhere else."""


# `Connection refused`, `No route to host`.
HOW = (
    "(?P<how>Connection (?:refused|timed out|reset by peer)|No route to host|Network is unreachable"
    "|Software caused connection abort|Cannot assign requested address)"
)
"""The system's reason why a connection failed."""

ROWS = (
    row("gpu-image", r"(?<![\w/])/(?:vllm|sgl)-workspace/", example="/vllm-workspace/"),
    row("image-build", r"failed to solve: process|=> ERROR \[|The command '/bin/sh -c .{1,400}?returned a non-zero code|\bbuilding at STEP\b", example="The command '/bin/sh -c python x.py' returned a non-zero code"),
    row("no-nvidia-driver", r"load library failed: (?P<library>libnvidia-ml\.so[.\d]*)", place="host", example="load library failed: libnvidia-ml.so.1"),
    row("hosted-notebook", "google/colab", service="Google Colab"),
    row("hosted-notebook", r"\bcondacolab\b", service="Google Colab"),
    row("hosted-notebook", r"google\.colab", service="Google Colab"),
    row("hosted-notebook", r"(?<![\w./-])/content(?:/(?!images?/|media/)\w|[#$] )", service="Google Colab"),
    # `Platform:** Google Colab`, `on Kaggle`.
    row("hosted-notebook", r"\b(?:on|in|using|from|platform|environment|system|os)\W{1,6}(?:an? |the |my |free )?(?:Google )?Colab\b|\bColab (?:notebook|session|runtime|T4|GPU)|运行环境.{0,4}Colab", unless=NOT_ONLY_THERE, service="Google Colab"),
    row("hosted-notebook", r"\b(?:on|in|using|platform|environment|system|os)\W{1,6}(?:an? |the |my |free )?Kaggle\b(?! ?(?:data|competition|api\b|cli\b|[./_-]))|\bKaggle (?:notebook|session|kernel|P100|T4|GPU)", unless=NOT_ONLY_THERE, service="Kaggle"),
    row("gpu-not-chosen", r"[Cc]annot (?:currently )?connect to (?:a )?GPU backend", service="Google Colab"),
    row("gpu-not-chosen", "due to usage limits in colab", service="Google Colab"),
    row("hosted-notebook", r"(?<![\w.])/kaggle/(?:working|input|tmp)\b", service="Kaggle", example="/kaggle/working"),
    row("slurm-job", r"(?<![\w'\"])SLURM_JOB_?(?:ID|NAME|PARTITION|NODELIST)=\w"),
    row("slurm-job", r"#SBATCH +-"),
    row("slurm-job", r"\bsrun(?:: job \d| +-)"),
    row("slurm-job", r"\bsalloc(?:: (?:Granted|job \d)| +-)"),
    row("slurm-job", r"(?i)\b(?:through|via|with|under|by|using|our|an?) slurm\b|\bslurm (?:job|script|queue|cluster)\b|[$%>] (?:sinfo|squeue|sbatch)\b|\b(?:sinfo|squeue|sbatch) --?\w|\bscontrol show\b", "slurm", "sinfo", "squeue", "sbatch", "scontrol", gpus="not shown", example="through slurm"),
    row("slurm-job", r"\b(?:Alloc|Req)TRES=(?=\w)(?![^\n]*gres/gpu)", gave="none", example="AllocTRES=cpu=4,mem=16G,node=1"),
    row("slurm-job", r"\bCUDA_VISIBLE_DEVICES\}?\W{1,3}NoDevFiles\b", gave="none", example="CUDA_VISIBLE_DEVICES=NoDevFiles"),
    row("slurm-job", r"\b(?:Alloc|Req)TRES=[^\n]*gres/gpu", gpus="asked for"),
    row("slurm-job", r"--gres[= ]gpu", gpus="asked for"),
    row("slurm-job", r"--gpus-per-task[= ]\d|--gpu-bind[= ]\w", gpus="asked for"),
    row("slurm-job", r"(?:sbatch|srun|salloc)\b[^\n]{0,120}? --gpus(?:-per-\w{3,6})?[= ]\w", gpus="asked for"),
    row("slurm-job", r"SLURM_(?:JOB_GPUS|GPUS\w{0,12}|STEP_GPUS)[=:] ?\w", gpus="asked for"),
    row("shared-node", r"\b(?:(?:our|the|my|a|university|school|HPC|GPU|compute|computing|shared|lab)(?:'s)? )+cluster\b(?! cent)|\bHPC cluster", example="our cluster"),
    row("login-node", r"\blogin[ -]node\b|\w@[\w-]{0,20}login[\w-]{0,20}[.: ~]", "login", example="login-node"),
    row("gpus-not-given", r"(?:ray::|ray\.exceptions|RayTaskError).{0,550}?No CUDA GPUs are available", who="Ray"),
    row("nccl-connect-failed", r"Call to ibv_\w{3,30} failed(?: with error (?P<how>(?:Network is unreachable|Connection timed out|No route to host)))", unless=r"Cannot allocate memory", example="Call to ibv_modify_qp failed with error Connection timed out"),
    row("nccl-connect-failed", rf"Connect to (?P<peer>[\w.:%-]{{3,60}}<\d{{1,5}}>) failed ?: {HOW}"),
    row("nccl-connect-failed", rf"NCCL \w{{4}} Call to connect (?:to \S{{3,60}} )?(?:returned|failed:?) {HOW}"),
    row("nccl-connect-failed", rf"Net ?: Call to (?:recv from|send to) (?P<peer>[\w.:%-]{{3,60}}<\d{{1,5}}>) failed ?: {HOW}"),
    row("nccl-connect-failed", "gloo connectfullmesh failed"),
    row("nccl-connect-failed", r"client socket has failed to connect to \[?(?P<peer>[\w.:%-]{3,80}?)\]?:\d{1,5} \(errno: \d{1,3} - (?P<how>No route to host|Network is unreachable|Connection timed out)"),
    row("nccl-connect-failed", r"client socket has (?P<how>timed out) after \d{1,9}(?:ms|s) while trying to connect to \(?(?P<peer>[\w.:%\[\]-]{3,80}, \d{1,5})"),
)  # fmt: skip
