"""Encoders with a classifier (BERT and its kin), and models of two stacks (T5, BART)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.plan.model.anatomy import Config, classes_of, named
from gpusetup.plan.model.families import Family
from gpusetup.plan.model.shape import BERTS, Shape

DISTIL_KEYS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}
ENCODER_KINDS: dict[str, Mapping[str, str]] = {
    **{kind: {} for kind in BERTS},
    "distilbert": DISTIL_KEYS,
}
"""Encoder's family -> its own names of the common keys."""

T5_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
}
BART_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_dim",
}
TWO_STACKS: dict[str, Mapping[str, str]] = {
    "t5": T5_KEYS, "mt5": T5_KEYS, "umt5": T5_KEYS, "longt5": T5_KEYS,
    "bart": BART_KEYS, "mbart": BART_KEYS, "pegasus": BART_KEYS, "m2m_100": BART_KEYS,
    "marian": BART_KEYS,
}  # fmt: skip
"""Encoder-decoder's family -> its own names of the common keys."""


def encoder_shape(values: Mapping[str, Any], kind: str, what: str) -> Shape:
    """An encoder with its classifier, as it is fine-tuned; `--mlm` gives it its other head.

    >>> encoder_shape({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    ...     "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512,
    ...     "type_vocab_size": 2}, "bert", "config.json").parameters
    109482240
    """
    config = Config(values, Family(model=kind, keys=ENCODER_KINDS[kind]), what)
    hidden, layers, inner = map(
        config.need, ("hidden_size", "num_hidden_layers", "intermediate_size")
    )
    table = config.need("vocab_size") * hidden
    length = config.get("max_position_embeddings", 512)
    block = 4 * hidden * (hidden + 1) + 2 * hidden * inner + inner + hidden + 4 * hidden
    rows = length + (0 if kind == "distilbert" else config.get("type_vocab_size", 2) + hidden + 1)
    total = table + (rows + 2) * hidden + layers * block
    return Shape(
        name=named(config, kind),
        kind=kind,
        parameters=total,
        active=total,
        largest_unit=max(table, block),
        layers=layers,
        hidden=hidden,
        heads=config.need("num_attention_heads"),
        query=hidden,
        key_value=hidden,
        intermediate=inner,
        gated=False,
        activation=str(values.get("hidden_act") or "gelu"),
        rms_norm=False,
        dropout=any(values.get(key, 0.1) for key in ("hidden_dropout_prob", "dropout")),
        classes=classes_of(config),
        native_context=length,
    )


def stacks_shape(values: Mapping[str, Any], kind: str, what: str) -> Shape:
    """An encoder and a decoder whose layers look at it, too.

    Layers of both are counted as one kind: three norms, and half of a second attention each.
    """
    keys = TWO_STACKS[kind]
    config = Config(values, Family(model=kind, keys=keys), what)
    hidden, encoder, heads, inner = map(
        config.need,
        ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    )
    t5 = keys is T5_KEYS
    decoder = config.get("num_decoder_layers" if t5 else "decoder_layers", encoder)
    width = heads * config.get("d_kv", hidden // heads)
    act = str(values.get("feed_forward_proj") or values.get("activation_function") or "relu")
    gated = t5 and act.startswith("gated")
    attention, mlp = 4 * hidden * width, (2 + gated) * hidden * inner
    table = config.need("vocab_size") * hidden
    tied = bool(values.get("tie_word_embeddings", True))
    blocks = (encoder + decoder) * (attention + mlp + 3 * hidden) + decoder * attention
    total = table * (1 if tied else 2) + blocks
    return Shape(
        name=named(config, kind),
        kind="t5" if t5 else "bart",
        parameters=total,
        active=total,
        largest_unit=max(table, 2 * attention + mlp),
        layers=encoder + decoder,
        hidden=hidden,
        heads=heads,
        query=width,
        key_value=width,
        intermediate=inner,
        gated=gated,
        activation="gelu" if "gelu" in act else act,
        rms_norm=t5,
        norms=3,
        dropout=bool(values.get("dropout_rate", values.get("dropout", 0.1))),
        vocabulary=config.need("vocab_size"),
        tied=tied,
        native_context=config.get("max_position_embeddings", 512),
        note=f"{kind} is read by the usual keys: layers of both stacks count as one kind",
    )
