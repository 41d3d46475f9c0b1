"""Which GPUs CUDA_VISIBLE_DEVICES leaves visible."""

from __future__ import annotations

from collections.abc import Sequence


def visible_places(variable: str, gpus: Sequence[tuple[int | None, str | None]]) -> list[int]:
    """The places in `gpus` (their index and UUID) of those that the variable's value names, by
    index or by the beginning of a UUID, in the value's order and each once.

    CUDA ignores everything after the first word that names no GPU, such as `-1`.

    >>> visible_places("1,GPU-1", [(0, "GPU-1a"), (1, "GPU-2b")]), visible_places("-1,0", [(0, "")])
    ([1, 0], [])
    """
    places: dict[int, None] = {}
    for word in filter(None, map(str.strip, variable.split(","))):
        named = [
            place
            for place, (index, uuid) in enumerate(gpus)
            # `GPU-` alone would be the beginning of every UUID.
            if word == str(index) or (len(word) > len("GPU-") and (uuid or "").startswith(word))
        ]
        if len(named) != 1:
            break
        places[named[0]] = None
    return [*places]
