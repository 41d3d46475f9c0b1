"""The options of `gpusetup plan` that say what is trained, where, how, and what is asked."""

from __future__ import annotations

import argparse
from typing import Any


def tokens(text: str) -> int:
    """A number of tokens.

    >>> tokens("32k"), tokens("4096")
    (32768, 4096)
    """
    digits, thousands = (text[:-1], 1024) if text[-1:] in ("k", "K") else (text, 1)
    try:
        return int(digits) * thousands
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens") from None


class Checkpointing(argparse.BooleanOptionalAction):
    """`--checkpointing` alone or in a trainer's own words: `full`, `none`, or what it selects.

    torchtitan's `mode` is full, selective or none; Megatron-LM's granularity full.

    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--checkpointing", action=Checkpointing)
    >>> parser.parse_args(["--checkpointing", "full"]).checkpointing
    True
    >>> parser.parse_args(["--checkpointing", "selective"]).selective
    'op'

    Another word is argparse's own error, which names them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nargs, self.metavar = "?", "full"

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        word = (values or "full").lower()
        off = (option_string or "").startswith("--no-")
        if off or word in EVERY_UNIT or word in NO_UNIT:
            setattr(namespace, self.dest, word in EVERY_UNIT and not off)
        elif word in SELECTED or (word.isdecimal() and 1 <= int(word) <= MOST_UNITS):
            namespace.selective = SELECTED.get(word, word)
        else:
            known = f"full, none, selective, op, or 1 to {MOST_UNITS} (every how many units)"
            raise argparse.ArgumentError(self, f"{values!r} is none of {known}")


EVERY_UNIT = ("full", "yes", "true", "on", "all")
NO_UNIT = ("none", "no", "false", "off")
SELECTED = {"selective": "op", "op": "op"}
MOST_UNITS = 1000


def what_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is trained")
    group.add_argument("--model", metavar="NAME", help="qwen3-8b, or a config.json or its folder")
    group.add_argument("--params", metavar="124M", help="a model of this size, of the usual shape")
    group.add_argument(
        "--from-config", metavar="FILE", help="what a training config says: YAML, JSON or TOML"
    )
    group.add_argument("--code", metavar="MODULE:FUNCTION", help="what your own code needs")
    group.add_argument(
        "--serve",
        nargs="?",
        const="vllm",
        metavar="ENGINE",
        help="serve it: vllm (default), sglang, llama.cpp, transformers",
    )
    group.add_argument("--weights", metavar="TYPE", help="served weights: bf16, fp8, int4, q4_k_m")
    group.add_argument("--cache", metavar="TYPE", help="served cache: bf16, fp8, q8_0")
    group.add_argument("--users", type=int, metavar="N", help="rows of a user embedding beside it")
    group.add_argument("--items", type=int, metavar="N", help="rows of an item embedding beside it")
    group.add_argument("--embedding-dim", type=int, metavar="N", help="the width of these tables")
    group.add_argument(
        "--mlm", action="store_const", const=True, help="an encoder with its masked-language head"
    )
    group.add_argument("--classes", type=int, metavar="N", help="a classifier; 1: a reward model")
    group.add_argument(
        "--context", type=tokens, metavar="N", help="tokens of the longest sequence: 32768, 32k"
    )
    group.add_argument("--frames", type=int, metavar="N", help="of a video that a denoiser makes")
    group.add_argument("--size", metavar="HxW", help="its pixels, or an image's: 480x720")
    group.add_argument(
        "--batch", type=int, metavar="N", help="sequences a step on all GPUs together"
    )
    group.add_argument(
        "--varied", action="store_const", const=True, help="lengths differ: not padded, not packed"
    )
    group.add_argument(
        "--max-tokens", type=int, metavar="N", help="tokens a GPU at once (2 x context / SP)"
    )
    group.add_argument("--lora", type=int, metavar="RANK", help="train LoRA of this rank only")
    group.add_argument(
        "--frozen", type=float, default=0.0, metavar="SHARE", help="share not trained"
    )
    group.add_argument("--trained-layers", type=int, metavar="N", help="the last N alone")


def where_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where")
    group.add_argument("--gpu", metavar="NAME", help='a GPU by name: "A100 80GB"')
    group.add_argument("--gpu-mem", metavar="SIZE", help="a GPU by its memory: 24GiB")
    group.add_argument(
        "--beside", type=float, metavar="GIB", help="what other programs hold of each GPU"
    )
    group.add_argument("--gpus", type=int, metavar="N", help="how many of them train")


def how_options(parser: argparse.ArgumentParser) -> None:
    from gpusetup.configs.values import optimizer_named, strategy_named, targets_named
    from gpusetup.plan.memory.optimizers import OPTIMIZERS
    from gpusetup.plan.model.workload import STRATEGIES

    group = parser.add_argument_group("how")
    group.add_argument("--trainer", metavar="NAME", help="its defaults: hf, trl, torchtune, ...")
    strategies = (*STRATEGIES, "shard-grad-op")
    group.add_argument("--strategy", type=strategy_named, choices=strategies)
    group.add_argument("--optimizer", type=optimizer_named, choices=tuple(OPTIMIZERS))
    group.add_argument("--step", choices=("foreach", "fused", "loop", "backward"))
    group.add_argument("--accumulate", type=int, metavar="N", help="micro-batches a step")
    group.add_argument("--dtype", choices=("fp32", "bf16", "fp16"))
    group.add_argument("--amp", choices=("bf16", "fp16", "none"), help="mixed precision")
    group.add_argument("--quantize", choices=("nf4", "nf4-dq", "int4", "mxfp4", "int8", "fp8"))
    group.add_argument(
        "--checkpointing", action=Checkpointing, default=None, help="of each unit, or op, N"
    )
    group.add_argument("--selective", metavar="op|N", help="selective checkpointing")
    group.add_argument("--loss", metavar="NAME", help="eager, compiled, chunked, liger, cce, ...")
    group.add_argument(
        "--attention",
        choices=("flash", "sdpa", "eager", "written"),
        help="written: a softmax of one's own, by exp and a sum",
    )
    where = "a denoiser's text encoders and VAE: until the first step, or beside each"
    group.add_argument("--encoders", choices=("none", "loaded", "resident"), help=where)
    group.add_argument("--eval-batch", type=int, metavar="N", help="of one GPU, between steps")
    group.add_argument("--offload", action="append", choices=("optimizer", "checkpoints"))
    group.add_argument("--lora-targets", type=targets_named, choices=("all", "attention", "qv"))
    for flag in ("--dora", "--train-embeddings", "--compile", "--fused-kernels"):
        group.add_argument(flag, action="store_const", const=True)
    _parallel_options(parser.add_argument_group("among GPUs"))


def _parallel_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--sp", type=int, metavar="N", help="sequence parallelism of exactly N")
    group.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallelism")
    group.add_argument("--tp-sp", action="store_const", const=True, help="norms divided, too")
    group.add_argument("--pp", type=int, default=1, metavar="N", help="pipeline parallelism")
    group.add_argument("--cp", type=int, metavar="N", help="context parallelism")
    group.add_argument("--ep", type=int, metavar="N", help="expert parallelism")
    group.add_argument("--shard", type=int, metavar="N", help="GPUs that share a copy under hsdp")
    whole = "every GPU gets the whole model first: DeepSpeed without zero.Init"
    group.add_argument("--load-whole", action="store_const", const=True, help=whole)
    way = "layers are recomputed as transformers does, or by torch's checkpoint_wrapper"
    group.add_argument("--reentrant", action=argparse.BooleanOptionalAction, help=way)
    free = "what was gathered is freed after the forward pass: not under SHARD_GRAD_OP"
    group.add_argument("--reshard", action=argparse.BooleanOptionalAction, help=free)
    copy = "a frozen copy of the model stands beside it: DPO, RLHF with a KL term"
    group.add_argument("--reference", action="store_const", const=True, help=copy)


def answer_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answer")
    unknown = group.add_mutually_exclusive_group()
    for flag, name, text in (
        ("--max-context", "context", "find the longest context that fits"),
        ("--max-batch", "batch", "find the largest batch that fits"),
        ("--gpus-needed", "gpus", "find the fewest GPUs that do"),
    ):
        unknown.add_argument(flag, dest="solve", action="store_const", const=name, help=text)
    group.add_argument("--safe", action="store_true", help="leave 1 %% of the memory free")
    group.add_argument("--predict", action="store_true", help="leave the measured table aside")
    group.add_argument("--table", action="store_true", help="a grid of lengths and GPU counts")
    group.add_argument("--png", metavar="FILE", help="the grid as a picture")
    group.add_argument("--cells", metavar="CSV", help="answer every row of a file")
    group.add_argument("--calibrate", metavar="CSV", help="fit the constants to your own runs")
    group.add_argument("--constants", metavar="FILE", help="use what `--calibrate` found")
    group.add_argument("--format", choices=("text", "yaml"), default="text")
