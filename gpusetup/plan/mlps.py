"""Counts the parameters of a model's MLPs and experts, from the keys of its `config.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.plan.mixers import ONLY_MLP, is_state_space_alone
from gpusetup.plan.model_keys import ModelConfig


class Mlp(NamedTuple):
    """The MLPs of a model: how many layers have which kind, and the parameters of each kind per
    layer."""

    dense_layers: int
    dense: int
    expert_layers: int
    experts: int
    """All experts of a layer and their router."""
    active: int
    """The experts that one token passes, and the router."""
    width: int
    """Elements that one token passes at once."""

    @property
    def largest(self) -> int:
        """The parameters of the MLP in the largest layer."""
        if self.dense_layers == 0:
            return self.experts
        return max(self.dense, self.experts)


def mlp_of(config: ModelConfig, matrices: int, mixers: Sequence[str]) -> Mlp:
    """The MLPs of a model; `matrices` is the number of weight matrices in an MLP or expert: 3 with
    a gate, otherwise 2."""
    layers = layers_with_mlp(config, mixers)
    width = dense_width(config)
    # A unit of width has a column in each matrix.
    unit = matrices * config.hidden
    if not config.get("num_experts"):
        return Mlp(layers, unit * width, 0, 0, 0, width)
    expert_layers = layers_with_experts(config, layers)
    passed, all_experts = expert_widths(config, width)
    router = config.hidden * config.get("num_experts")
    return Mlp(
        dense_layers=layers - expert_layers,
        dense=unit * width,
        expert_layers=expert_layers,
        experts=router + unit * all_experts,
        active=router + unit * passed,
        width=max(passed, width) if expert_layers < layers else passed,
    )


def dense_width(config: ModelConfig) -> int:
    """The width of a dense MLP, which processes every token."""
    width = config.get("intermediate_size") or default_mlp_width(config)
    if config.values.get("block_auto_adjust_ff_dim"):
        # LFM2 uses two thirds of what its config says, in whole blocks.
        block = config.get("block_multiple_of", 256)
        blocks = -(-(2 * width // 3) // block)
        return blocks * block
    return width


def default_mlp_width(config: ModelConfig) -> int:
    """The width of an MLP if the config does not give it: the config's ratio, or 4, times the
    model's width."""
    for key in ("expansion_ratio", "mlp_ratio"):
        ratio = config.values.get(key)
        if isinstance(ratio, (int, float)) and 0 < ratio < LARGEST_RATIO:
            return round(ratio * config.hidden)
    # As in the first transformers.
    return 4 * config.hidden


LARGEST_RATIO = 1000
"""An MLP is a few times as wide as its model."""


def expert_widths(config: ModelConfig, width: int) -> tuple[int, int]:
    """The summed width of the experts that process one token, and of all experts in a layer, each
    with the shared experts."""
    expert = config.get("moe_intermediate_size", width)
    # Qwen says the width of its shared expert, others how many of the usual width there are.
    shared = config.get("n_shared_experts") * expert
    if shared == 0:
        shared = config.get("shared_expert_intermediate_size")
    passed = config.need("num_experts_per_tok") * expert
    routed = config.get("num_experts") * expert
    return passed + shared, routed + shared


def layers_with_mlp(config: ModelConfig, mixers: Sequence[str]) -> int:
    """The number of layers with an MLP: all, only the pure MLP layers (Nemotron-H), or none
    (Mamba)."""
    if ONLY_MLP in mixers:
        return mixers.count(ONLY_MLP)
    if is_state_space_alone(config) and not config.values.get("intermediate_size"):
        return 0
    return len(mixers)


PERIODS = (
    "expert_layer_period", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq",
)  # fmt: skip
"""Keys for how many layers there are to one with experts."""


def layers_with_experts(config: ModelConfig, layers: int) -> int:
    """The number of layers whose MLP is a mixture of experts; some models have dense layers first
    or in between."""
    dense_layers = config.first("first_k_dense_replace", "num_dense_layers")
    only_dense = config.values.get("mlp_only_layers")
    if dense_layers == 0 and isinstance(only_dense, list):
        dense_layers = len(only_dense)
    # A config may list more dense layers than it has.
    layers_left = max(layers - dense_layers, 0)
    period = config.first(*PERIODS) or 1
    return layers_left // period
