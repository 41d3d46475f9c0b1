"""Counts the parameters of a model's MLPs and experts, from the keys of its `config.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.plan.mixers import is_state_space_alone
from gpusetup.plan.model_keys import ModelConfig


class Mlp(NamedTuple):
    """The MLPs of a model: how many layers have which kind, and the parameters of each kind per
    layer."""

    dense_layers: int
    dense: int
    expert_layers: int
    experts: int
    """The parameters of all experts in a layer and of their router."""
    active: int
    """The parameters of the experts that one token uses, and of the router."""
    width: int
    """The inner width that one token uses: of the dense MLP, or of all its experts together."""

    @property
    def largest(self) -> int:
        """The parameters of the MLP in the largest layer."""
        if self.dense_layers == 0:
            return self.experts
        return max(self.dense, self.experts)


def mlp_of(config: ModelConfig, matrices: int, mixers: Sequence[str]) -> Mlp:
    """The MLPs of a model; `matrices` is the number of weight matrices in an MLP or expert: 3 with
    a gate, otherwise 2."""
    layers = len(mixers)
    # A pure Mamba has no MLPs.
    if is_state_space_alone(config) and not config.values.get("intermediate_size"):
        layers = 0
    width = dense_width(config)
    # The parameters per unit of inner width: one column or row in each matrix.
    unit = matrices * config.hidden
    if not config.get("num_experts"):
        return Mlp(
            dense_layers=layers,
            dense=unit * width,
            expert_layers=0,
            experts=0,
            active=0,
            width=width,
        )
    expert_layers = layers_with_experts(config, layers)
    expert_widths = expert_widths_of(config, width)
    router = config.hidden * config.get("num_experts")
    widest = expert_widths.active
    # A dense layer may be wider than the experts that a token uses.
    if expert_layers < layers:
        widest = max(widest, width)
    return Mlp(
        dense_layers=layers - expert_layers,
        dense=unit * width,
        expert_layers=expert_layers,
        experts=router + unit * expert_widths.all,
        active=router + unit * expert_widths.active,
        width=widest,
    )


def dense_width(config: ModelConfig) -> int:
    """The width of a dense MLP, which processes every token."""
    return config.get("intermediate_size") or default_mlp_width(config)


def default_mlp_width(config: ModelConfig) -> int:
    """The width of an MLP if the config does not give it: the model's width times the config's
    ratio, or times 4."""
    for key in ("expansion_ratio", "mlp_ratio"):
        ratio = config.values.get(key)
        if isinstance(ratio, (int, float)) and 0 < ratio < LARGEST_RATIO:
            return round(ratio * config.hidden)
    # The original transformer used a factor of 4.
    return 4 * config.hidden


LARGEST_RATIO = 1000
"""A larger ratio must be a mistake, because an MLP is only a few times as wide as its model."""


class ExpertWidths(NamedTuple):
    """The summed widths of experts in a layer, the shared experts included."""

    active: int
    """The summed width of the experts that process one token."""
    all: int


def expert_widths_of(config: ModelConfig, width: int) -> ExpertWidths:
    """The summed widths of the experts in a layer. `width` is the width of a dense MLP, which is
    also used for an expert if the config does not set an expert's width."""
    expert = config.get("moe_intermediate_size", width)
    # Qwen configs give the width of the shared expert, others the number of shared experts.
    shared = config.get("n_shared_experts") * expert
    if shared == 0:
        shared = config.get("shared_expert_intermediate_size")
    active = config.need("num_experts_per_tok") * expert
    routed = config.get("num_experts") * expert
    return ExpertWidths(active=active + shared, all=routed + shared)


PERIODS = (
    "expert_layer_period", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq",
)  # fmt: skip
"""Keys for the period of layers with experts: one in this many layers has experts."""


def layers_with_experts(config: ModelConfig, layers: int) -> int:
    """The number of layers whose MLP is a mixture of experts; some models have dense layers first
    or in between."""
    dense_layers = config.first("first_k_dense_replace", "num_dense_layers")
    only_dense = config.values.get("mlp_only_layers")
    if dense_layers == 0 and isinstance(only_dense, list):
        dense_layers = len(only_dense)
    # The result must not be negative, because a config may list more dense layers than the model
    # has layers.
    layers_left = max(layers - dense_layers, 0)
    period = config.first(*PERIODS) or 1
    return layers_left // period
