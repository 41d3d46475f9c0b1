"""What was asked, checked: from the words of the command line to a workload."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen
from gpusetup.plan.model.workload import Strategy

MOST: dict[str, int] = {
    "context": 10**8,
    "batch": 10**8,
    "tokens": 10**9,
    "gpus": 10**5,
    "tensor_parallel": 1024,
    "pipeline_parallel": 1024,
    "shard": 10**5,
    "lora": 10**5,
    "accumulate": 10**6,
    "context_parallel": 1024,
    "expert_parallel": 1024,
    "eval_batch": 10**6,
    "classes": 10**7,
    "trained_layers": 1024,
    "users": 10**12,
    "items": 10**12,
    "frames": 10**6,
    "embedding_dim": 10**6,
}
"""The largest number that means anything; beyond it is a slip of the finger."""


class Question(Frozen):
    """The words of `gpusetup plan`; None where nothing was said."""

    model: str | None = None
    params: str | None = None
    users: int | None = None
    items: int | None = None
    embedding_dim: int | None = None
    classes: int | None = None
    """The outputs of a sample in place of logits: a classifier's, a reward model's one."""
    frames: int | None = None
    """Frames of a video."""
    size: str | None = None
    """Height and width in pixels of what a denoiser makes: `480x720`."""
    encoders: str | None = None
    """Where a denoiser's encoders of text and its VAE are."""
    mlm: bool | None = None
    """Whether an encoder has its masked-language head."""
    context: int | None = None
    batch: int | None = None
    tokens: int | None = None
    gpus: int | None = None
    sp: int | None = None
    strategy: Strategy | None = None
    trainer: str | None = None
    optimizer: str | None = None
    dtype: str | None = None
    amp: str | None = None
    checkpointing: bool | None = None
    loss: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    shard: int | None = None
    lora: int | None = None
    frozen: float = 0.0
    accumulate: int | None = None
    quantize: str | None = None
    selective: str | None = None
    attention: str | None = None
    fused_kernels: bool | None = None
    compile: bool | None = None
    step: str | None = None
    lora_targets: str | None = None
    dora: bool | None = None
    load_whole: bool | None = None
    reentrant: bool | None = None
    reshard: bool | None = None
    eval_batch: int | None = None
    beside: float | None = None
    varied: bool | None = None
    reference: bool | None = None
    """Whether a frozen copy of the model stands beside it."""
    trained_layers: int | None = None
    """The last layers where they alone are trained."""
    trained_embeddings: bool | None = None
    sequence_parallel: bool | None = None
    context_parallel: int | None = None
    expert_parallel: int | None = None
    offload: tuple[str, ...] = ()
    """What is kept on the host by the trainer: `optimizer`, `checkpoints`."""
    solve: str | None = None
    """`context`, `batch` or `gpus` where that is the unknown."""
    yarn: tuple[float, int | None] | None = None
    """The factor of a config's YaRN, and the length that it multiplies."""
    grid: bool = False
    """Whether every length is asked about."""

    @property
    def smallest(self) -> int:
        """The fewest GPUs that its parallelism can do with."""
        inner = self.tensor_parallel * self.pipeline_parallel * (self.context_parallel or 1)
        return inner * (self.sp or 1) * (self.shard or 1)
