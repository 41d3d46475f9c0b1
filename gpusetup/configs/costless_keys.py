"""Recognises keys of training configs that are known not to need GPU memory.

A key needs none if every word of its name is known to be harmless (`output_dir`, `logging_steps`),
if it is in a map about data, logging or the like, or if its value switches it off. The words are in
`data/plan/costless_keys.json`. If plan does not
understand a key and this module does not know it either, the plan is not certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path as FilePath

from gpusetup.configs.keys import is_other_phase, key_of
from gpusetup.configs.settings import EMPTY, FALSE, Path, words_of
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen

ROWS = FilePath(__file__).resolve().parents[1] / "data" / "plan" / "costless_keys.json"


class CostlessKeys(Frozen):
    """The words and names of keys that need no GPU memory; each text is a list of words, separated
    by blanks."""

    as_of: str
    roles: tuple[str, ...]
    """Roles of keys (`data/plan/keys.json`) that do not affect GPU memory."""
    purposes: tuple[str, ...]
    """Words that, at the start of a key, tell its purpose whatever follows
    (`save_adapter_weights_only`)."""
    maps: tuple[str, ...]
    """Maps whose keys never need GPU memory, whatever their names are."""
    names: tuple[str, ...]
    """Full names of keys that need no GPU memory in addition to what plan counts."""
    words: tuple[str, ...]
    """Words that do not refer to GPU memory. Words that sometimes do are left out: `model`,
    `reward`, `quant`, `bits`, `offload`, `generations`, `expert`, `ema`, `lora`, `cached`, `size`,
    `memory`."""


@lru_cache(maxsize=1)
def costless_keys() -> Mapping[str, frozenset[str]]:
    """The table of costless keys, from the package's data: field of `CostlessKeys` -> words."""
    table = from_json(ROWS.read_bytes(), CostlessKeys, what=ROWS.name)
    return {
        field: frozenset(" ".join(getattr(table, field)).split())
        for field in ("roles", "purposes", "maps", "names", "words")
    }


OFF = frozenset((*FALSE, *EMPTY, "0", "0.0", "none", "no", "disabled", "-1"))
"""Values that switch a key off."""


def is_switched_off(text: str) -> bool:
    """Whether a value switches its key off, such as `false`, `0` or `none`."""
    return text.strip().strip("'\"").lower() in OFF


def takes_no_memory(path: Path) -> bool:
    """Whether a key is known not to need GPU memory.

    >>> takes_no_memory(("output_dir",)), takes_no_memory(("data", "frames"))
    (True, True)
    >>> takes_no_memory(("reward_model_path",)), takes_no_memory(("use_galore",))
    (False, False)
    """
    parts = [part for part in path if isinstance(part, str)]
    # Evaluation has a separate batch and no gradients.
    if not parts or any(map(is_other_phase, parts)):
        return True
    *maps, name = (part.lower().replace("-", "_").lstrip("_") for part in parts)
    costless = costless_keys()
    if name in costless["names"] or not costless["maps"].isdisjoint(maps):
        return True
    key = key_of(path)
    if key is not None and key.role in costless["roles"]:
        return True
    words = words_of(name)
    # A name without words, such as a number, does not show what the key is for.
    has_purpose = name.partition("_")[0] in costless["purposes"]
    return bool(words) and (has_purpose or words <= costless["words"])
