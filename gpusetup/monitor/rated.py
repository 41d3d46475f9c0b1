"""What a card is rated at, by its name, where no source told it: the catalog's dated table."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=64)
def rated_watts(name: str | None) -> float | None:
    """Watts; None where the name is not in the catalog, or is that of cards rated differently, as
    laptops are by their makers.

    >>> rated_watts("Tesla T4"), rated_watts("NVIDIA Graphics Device"), rated_watts(None)
    (70.0, None, None)
    """
    if not name:
        return None
    from gpusetup.catalog.file import load_catalog
    from gpusetup.catalog.gpus import rows_or_none, tokens

    if "laptop" in tokens(name):
        return None
    told = {row.tdp_w for row in rows_or_none(name, load_catalog().gpus)}
    watts = told.pop() if len(told) == 1 else None
    return None if watts is None else float(watts)
