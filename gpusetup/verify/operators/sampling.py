"""Which samples there are, and which of them a level takes."""

from __future__ import annotations

import random
from typing import Dict, Iterator, List, Sequence, Tuple

from . import rows_parameters as with_parameters
from .comparing import Sample
from .drawing import LAYOUTS
from .rows_arithmetic import ARITHMETIC, CASTS, INTEGERS, ODD
from .rows_cells import CELLS
from .rows_convolutions import CONVOLUTIONS
from .rows_factors import FACTORS, SHAPES
from .rows_functions import FUNCTIONS
from .rows_images import IMAGES
from .rows_indexing import INDEXING
from .rows_lists import LISTS
from .rows_losses import LOSSES
from .rows_moving import MOVING
from .rows_norms import NORMS
from .rows_orders import ORDERS
from .rows_plain import (
    FAR_CLASSES,
    FAR_MEANS,
    FAR_PLACES,
    FAR_SPREADS,
    GREAT_SCORES,
    LOGITS,
)
from .rows_pools import POOLS, RESIZING
from .rows_products import ALGEBRA, LINEAR
from .rows_ragged import RAGGED
from .rows_reductions import REDUCTIONS
from .rows_sequences import SEQUENCES
from .rows_sorting import SORTING
from .rows_sparse import SPARSE
from .rows_spectral import SPECTRAL
from .rows_statistics import STATISTICS
from .rows_views import VIEWS
from .table import Operator

FAMILIES: Dict[str, Tuple[Operator, ...]] = {
    "pointwise": (*(*FUNCTIONS, *ARITHMETIC, *INTEGERS, *CASTS, *ODD, *with_parameters.POINTWISE),),
    "lists": LISTS,
    "reductions": (*(*REDUCTIONS, *with_parameters.REDUCTIONS, *STATISTICS, FAR_SPREADS, LOGITS),),
    "products": (*LINEAR, *with_parameters.PRODUCTS),
    "algebra": (*ALGEBRA, *FACTORS, SHAPES),
    "spectral": SPECTRAL,
    "sparse": SPARSE,
    "moving": (*MOVING, *VIEWS),
    "indexing": (*INDEXING, *with_parameters.INDEXING, FAR_PLACES),
    "sorting": (*SORTING, *ORDERS),
    "convolutions": CONVOLUTIONS,
    "pools": (*POOLS, *RESIZING, *with_parameters.IMAGES, *IMAGES),
    "norms": (*NORMS, *with_parameters.NORMS, FAR_MEANS),
    "sequences": (*SEQUENCES, *CELLS, *RAGGED, GREAT_SCORES),
    "losses": (*LOSSES, FAR_CLASSES),
}
USED = {"float32": 4, "bfloat16": 3, "float16": 2, "float64": 1}
"""How often a format is drawn: by what training and inference use. Others count 1."""
LAID = {"contiguous": 3, "channels-last": 2}
QUICK = {"warp": 2, "tile": 2}
"""How often a size class is drawn: larger samples take many times as long."""


def every(family: str, turns: int = 1) -> Iterator[Sample]:
    """The whole census of a family."""
    for row in FAMILIES[family]:
        for place in range(CENSUS_EDGES if with_edges(family, row) else 0):
            yield Sample(
                row.name, row.dtypes[place % len(row.dtypes)], "contiguous", "edges", place
            )
        for dtype in row.dtypes:
            for size in row.sizes:
                for layout in layouts_of(family):
                    for turn in range(turns):
                        yield Sample(row.name, dtype, layout, size, turn)


def layouts_of(family: str) -> Tuple[str, ...]:
    images = family in ("convolutions", "pools", "norms", "moving", "pointwise")
    return LAYOUTS if images else LAYOUTS[:-1]


def drawn(family: str, count: int, seed: int) -> Tuple[Sample, ...]:
    """`count` samples: each operator once, the rest by weight; formats, sizes and layouts from
    shuffled decks, so that each comes as often as it should."""
    chance = random.Random(f"{seed}:{family}")
    rows = FAMILIES[family]
    order = list(rows)
    chance.shuffle(order)
    more = chance.choices(rows, [row.weight for row in rows], k=max(0, count - len(rows)))
    decks: Dict[Tuple[str, str], List[str]] = {}
    found = []
    for turn, row in enumerate([*order, *more][:count]):
        dtype = _dealt(decks, row, chance)
        size = _next(decks, (row.name, "size"), _often(row.sizes, QUICK), chance)
        layout = _next(decks, (row.name, "layout"), _often(layouts_of(family), LAID), chance)
        found.append(Sample(row.name, dtype, layout, size, turn))
    return (*found, *edges(family, decks, chance))


EDGES, CENSUS_EDGES = 6, 24
"""How many samples of an operator have lengths of the `edges`, at `standard` and at `census`."""


def with_edges(family: str, row: Operator) -> bool:
    return family not in ("algebra", "spectral", "sparse") and "tile" in row.sizes


def edges(
    family: str, decks: Dict[Tuple[str, str], List[str]], chance: random.Random
) -> Iterator[Sample]:
    for row in FAMILIES[family]:
        for turn in range(EDGES if with_edges(family, row) else 0):
            dtype = _next(decks, (row.name, "dtype"), _often(row.dtypes, USED), chance)
            layout = _next(decks, (row.name, "layout"), layouts_of(family), chance)
            yield Sample(row.name, dtype, layout, "edges", turn)


def _often(names: Sequence[str], weights: Dict[str, int]) -> List[str]:
    return [name for name in names for _ in range(weights.get(name, 1))]


def _dealt(decks: Dict[Tuple[str, str], List[str]], row: Operator, chance: random.Random) -> str:
    """Each format once, those that are used most first; then by how often they are used."""
    key = (row.name, "dtype")
    if key not in decks:
        first = sorted(row.dtypes, key=lambda name: USED.get(name, 1) * chance.random())
        decks[key] = [*first]
    return _next(decks, key, _often(row.dtypes, USED), chance)


def _next(
    decks: Dict[Tuple[str, str], List[str]],
    key: Tuple[str, str],
    cards: Sequence[str],
    chance: random.Random,
) -> str:
    if not decks.get(key):
        decks[key] = list(cards)
        chance.shuffle(decks[key])
    return decks[key].pop()


def row_of(family: str, name: str) -> Operator:
    return next(row for row in FAMILIES[family] if row.name == name)
