"""Batches whose lengths rise, fall, are equal or mixed: alignments, and packed sequences."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .drawing import Draw
from .pairs import by_calls
from .rows_cells import step, weights

OFTEN = 0.01
"""One sample has every call: `standard` has no need of a second one."""
ORDERS = ("rising", "falling", "equal", "mixed")
COUNT = 4


def _ordered(d: Draw, order: str, least: int, most: int) -> List[int]:
    """Lengths of which one at least is the greatest; `mixed`: neither rising nor falling."""
    found = sorted(d.chance.sample(range(least, most), COUNT - 1))
    if order == "equal":
        return [most] * COUNT
    if order == "mixed":
        return [found[1], most, found[0], found[2]]
    return [*found, most] if order == "rising" else [most, *reversed(found)]


def _aligned(d: Draw, order: str) -> Tuple[List[Any], Dict[str, Any]]:
    """Sounds in this order; words in any other, one of which has no letter."""
    steps, classes = d.choice((10, 12)), d.choice((3, 5))
    words = [0, *(d.choice((0, 1, 2, 3)) for _ in range(COUNT - 1))]
    d.chance.shuffle(words)
    sounds = _ordered(d, order, 6, steps)
    x, labels = d.normal(steps, COUNT, classes), d.whole(1, classes, COUNT, 3)
    return [x, labels], {"sounds": sounds, "words": words}


def _ctc(t: Any, x: Any, labels: Any, sounds: List[int], words: List[int]) -> List[Any]:
    call, logs = t.nn.functional.ctc_loss, x.log_softmax(-1)
    joined = t.cat([row[:count] for row, count in zip(labels, words)])
    numbers = t.tensor(sounds), t.tensor(words)
    return [
        call(logs, labels, sounds, words, reduction="none"),
        call(logs, labels, *numbers, reduction="sum"),
        call(logs, joined, *numbers, reduction="mean"),
    ]


ALIGNED = by_calls(
    "ctc_loss of lengths in each order",
    lambda d: [{"order": order} for order in ORDERS],
    _aligned,
    _ctc,
    None,
    dtypes=("float32",),
    slack=64.0,
    weight=OFTEN,
)

# --- packed sequences ----------------------------------------------------------------------------

SOME = ("rising", "mixed")
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}


def _batch(d: Draw, kind: str, order: str) -> Tuple[List[Any], Dict[str, Any]]:
    lengths, inputs, hidden = _ordered(d, order, 1, 5), d.choice((3, 8)), d.choice((4, 16))
    layer = weights(d, GATES[kind], inputs, hidden)
    tensors = [d.normal(COUNT, 5, inputs), d.normal(COUNT, hidden), *layer]
    return tensors, {"kind": kind, "lengths": lengths}


def _packed(t: Any, x: Any, h: Any, *layer: Any, kind: str, lengths: List[int]) -> List[Any]:
    """Packed, put in order, computed, and put back."""
    of = t.nn.utils.rnn
    packed = of.pack_padded_sequence(x, t.tensor(lengths), True, enforce_sorted=False)
    state = h.index_select(0, packed.sorted_indices).unsqueeze(0)
    start = (state, -state) if kind == "lstm" else state
    options = (list(layer), True, 1, 0.0, True, False)
    data, *last = getattr(t, kind)(packed.data, packed.batch_sizes, start, *options)
    again = of.PackedSequence(
        data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
    )
    padded, counts = of.pad_packed_sequence(again, True)
    ends = [each[0].index_select(0, packed.unsorted_indices) for each in last]
    return [padded, counts, *ends]


def _each_alone(t: Any, x: Any, h: Any, *layer: Any, kind: str, lengths: List[int]) -> List[Any]:
    lines, ends = [], []
    for sample, state, count in zip(x, h, lengths):
        new, kept = state.unsqueeze(0), -state.unsqueeze(0)
        seen = []
        for place in range(count):
            new, kept = step(kind, t, sample[place : place + 1], new, kept, *layer)
            seen.append(new)
        rest = t.zeros(max(lengths) - count, h.shape[1], dtype=x.dtype)
        lines.append(t.cat([*seen, rest]))
        ends.append(t.stack([new[0], kept[0]]))
    last = t.stack(ends, 1)
    states = last if kind == "lstm" else last[:1]
    return [t.stack(lines), t.tensor(lengths), *states]


PACKED = by_calls(
    "packed sequences in each order",
    lambda d: [
        {"kind": kind, "order": order}
        for kind, order in zip(d.chance.sample(sorted(GATES), len(GATES)), ("mixed", *SOME))
    ],
    _batch,
    _packed,
    _each_alone,
    dtypes=("float32",),
    slack=8.0,
    weight=OFTEN,
    arithmetic="product",
)
