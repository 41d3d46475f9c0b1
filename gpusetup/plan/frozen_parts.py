"""The frozen parts of a model, which have no gradients and no optimizer states."""

from __future__ import annotations

import re

from gpusetup.configs.settings import FALSE, TRUE, name_of, words_of
from gpusetup.errors import UsageError
from gpusetup.plan.config_reader import Reader
from gpusetup.plan.shape import Shape

ALL, EMBEDDINGS = "all", "embeddings"
HINT = "`--freeze` alone, `--freeze embeddings`, `--freeze 10` (layers) or `--freeze 90%`"


def frozen_share(what: str, shape: Shape) -> float:
    """The share of a model's parameters that is frozen, from 0 to 1.

    `what` can be `all`, `embeddings`, a number of first layers (the embedding is then frozen too),
    `-2` for all layers but the last two, or a share such as `90%` or `0.9`. Raises UsageError for
    anything else.

    >>> from gpusetup.plan.models import model_named
    >>> gpt2 = model_named("gpt2")
    >>> [round(frozen_share(what, gpt2), 2) for what in ("all", "embeddings", "6", "-2", "90%")]
    [1.0, 0.31, 0.66, 0.89, 0.9]
    """
    text = what.strip().lower()
    if text in (ALL, "model", "1.0"):
        return 1.0
    embeddings = shape.outside / shape.parameters
    if text == EMBEDDINGS:
        return embeddings
    layer = (1 - embeddings) / shape.layers
    if re.fullmatch(r"-?\d{1,5}", text):
        layers = int(text)
        frozen_layers = layers if layers > 0 else shape.layers + layers
        if not 0 <= frozen_layers <= shape.layers:
            raise UsageError(
                f"`--freeze {what}`: {shape.name} has {shape.layers} layers", hint=HINT
            )
        return embeddings + layer * frozen_layers
    if hit := re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*%|(0?\.\d+)", text):
        percent, decimal = hit.groups()
        share = float(percent) / 100 if percent else float(decimal)
        if 0 < share <= 1:
            return share
    raise UsageError(f"`--freeze {what}` is not a part of a model", hint=HINT)


# --- in a config ----------------------------------------------------------------------------------

SWITCH_NAME = re.compile(r"freeze(?:_(\w+))?|(?:(\w+)_)?(?:is_)?frozen")
"""Switches that freeze a part: `freeze_gpt2: true`, `freeze: true`, `backbone_frozen: true`."""
TRAINED_NAME = re.compile(r"train(?:able)?_(\w+)|(\w+)_trainable|()trainable")
"""Switches that freeze a part if they are off: `train_backbone: false`, `encoder_trainable: false`,
`trainable: false`."""
LAYERS_NAME = re.compile(
    r"(?:num_|n_)?(?:frozen|freeze)_(?:first_)?(?:n_)?layers|freeze_(?:first_)?n_layers"
)
EMBEDDING_WORDS = frozenset(("embedding", "embeddings", "embed", "emb", "wte", "wordembeddings"))
WHOLE_MODEL = frozenset((
    "all", "backbone", "base", "bert", "decoder", "encoder", "language", "llm", "lm", "model",
    "network", "pretrained", "transformer", "trunk",
))  # fmt: skip
"""Words for the whole model; if it is frozen, only the parts added to it are trained."""


def frozen_in(reader: Reader, model: str | None) -> str | None:
    """The part that a config freezes, as a text that `frozen_share` reads; None if it freezes
    nothing.

    `model` is the model's name, because a key may contain it: `freeze_gpt2` freezes gpt2-medium.
    """
    frozen: str | None = None
    for setting in reader.config.settings:
        text = reader.text(setting)
        part = frozen_by(name_of(setting.path), text, model) if text else None
        if part is not None:
            reader.note(setting, f"not trained: {part}")
            # The first frozen part counts, except that a later part replaces the embeddings.
            if frozen in (None, EMBEDDINGS):
                frozen = part
    return frozen


def frozen_by(name: str, text: str, model: str | None) -> str | None:
    """The part of the model that one key with this value freezes; None if it freezes nothing.

    >>> frozen_by("freeze_gpt2", "true", "gpt2-medium"), frozen_by("train_bn", "false", None)
    ('all', None)
    """
    # A number of layers, at least 1; trlx sets the number of trained layers, where -1 means all.
    if LAYERS_NAME.fullmatch(name) or name == "num_layers_unfrozen":
        sign = "-" if name == "num_layers_unfrozen" else ""
        return f"{sign}{text}" if re.fullmatch(r"[1-9]\d{0,4}", text) else None
    names = {**dict.fromkeys(TRUE, SWITCH_NAME), **dict.fromkeys(FALSE, TRAINED_NAME)}
    switch = names[text].fullmatch(name) if text in names else None
    if switch is None:
        return None
    # The regex group that matched is the part's name; `freeze: true` names none and means all.
    part = next(filter(None, switch.groups()), "")
    words = words_of(part)
    if words & EMBEDDING_WORDS:
        return EMBEDDINGS
    letters = re.sub(r"[^a-z0-9]", "", part.lower())
    names_model = letters and letters in re.sub(r"[^a-z0-9]", "", (model or "").lower())
    return ALL if not part or words & WHOLE_MODEL or names_model else None
