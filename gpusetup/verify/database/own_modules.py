"""Modules of more options and longer inputs than those of torch's database have.

The encoder's and the attention's fast paths want an even number of heads, the batch first, and no
gradients; recurrent nets choose other kernels by their options.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple


class Case(NamedTuple):
    """One module of the database and what it is called with, in float32."""

    made: Callable[[], Any]
    given: Tuple[Any, ...]
    options: Dict[str, Any]
    same: bool = False
    """Whether its one argument is query, key and value."""
    learns: bool = True
    """Whether its gradients are asked. Of tens of thousands of relus one stands so near its bend
    that a roundoff puts it on the other side."""


class Packed(NamedTuple):
    """A packed sequence; its sizes stay on the CPU."""

    data: Any
    sizes: Tuple[int, ...]


SHAPES = ((3, 9, 32), (5, 131, 64))
"""Batch, length and width of attention; the second has more than 32,768 numbers."""


def own(torch: Any, name: str) -> List[Case]:
    """Drawn from the global generator, in the same order each time."""
    row = ROWS.get(name)
    return [] if row is None else list(row(torch))


def _drawn(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape).requires_grad_()


def _smooth(torch: Any, shape: Tuple[int, ...], act: Any) -> bool:
    """Whether gradients are asked of so many of these activations."""
    return shape != SHAPES[1] or not (act == "relu" or isinstance(act, torch.nn.ReLU))


def _masks(torch: Any, batch: int, length: int) -> List[Any]:
    """Of padding: each line of another length, none empty."""
    lengths = [length - (2 * place) % length for place in range(batch)]
    return [None, torch.arange(length).expand(batch, length) >= torch.tensor(lengths)[:, None]]


def _causal(torch: Any, length: int) -> Any:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def encoder_layers(torch: Any) -> Iterator[Case]:
    nn = torch.nn
    activations = ("relu", "gelu", nn.functional.gelu, nn.functional.silu, nn.ReLU())
    for shape, act, first in product(SHAPES, activations, (False, True)):
        for padded in _masks(torch, *shape[:2]):
            options = {"activation": act, "norm_first": first, "batch_first": True}
            x = _drawn(torch, *shape)

            def made(width: int = shape[-1], options: Dict[str, Any] = options) -> Any:
                return nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, **options)

            learns = _smooth(torch, shape, act)
            yield Case(made, (x,), {"src_key_padding_mask": padded}, learns=learns)
        masks = {"src_mask": _causal(torch, shape[1])}
        yield Case(made, (_drawn(torch, *shape),), masks, learns=learns)


def encoders(torch: Any) -> Iterator[Case]:
    nn = torch.nn
    for shape, act, first in product(SHAPES, ("relu", "gelu"), (False, True)):
        for padded in _masks(torch, *shape[:2]):

            def made(width: int = shape[-1], act: str = act, first: bool = first) -> Any:
                layer = nn.TransformerEncoderLayer(
                    width, 4, 2 * width, 0.0, act, batch_first=True, norm_first=first
                )
                return nn.TransformerEncoder(layer, 2, nn.LayerNorm(width))

            masks = {"src_key_padding_mask": padded}
            learns = _smooth(torch, shape, act)
            yield Case(made, (_drawn(torch, *shape),), masks, learns=learns)


def decoder_layers(torch: Any) -> Iterator[Case]:
    nn = torch.nn
    for shape, act, first in product(SHAPES, ("relu", "gelu"), (False, True)):
        options = {"activation": act, "norm_first": first, "batch_first": True}

        def made(width: int = shape[-1], options: Dict[str, Any] = options) -> Any:
            return nn.TransformerDecoderLayer(width, 4, 2 * width, 0.0, **options)

        target, memory = _drawn(torch, *shape), _drawn(torch, *shape)
        masks = {"tgt_mask": _causal(torch, shape[1])}
        yield Case(made, (target, memory), masks, learns=_smooth(torch, shape, act))


def attentions(torch: Any) -> Iterator[Case]:
    nn = torch.nn
    ways: Tuple[Dict[str, Any], ...] = ({}, {"bias": False}, {"add_zero_attn": True})
    ways += ({"add_bias_kv": True},)
    for shape, way, weights in product(SHAPES, ways, (False, True)):
        for padded, causal in product(_masks(torch, *shape[:2]), (False, True)):

            def made(width: int = shape[-1], way: Dict[str, Any] = way) -> Any:
                return nn.MultiheadAttention(width, 4, batch_first=True, **way)

            options = {"need_weights": weights, "key_padding_mask": padded}
            if causal:
                options["attn_mask"] = _causal(torch, shape[1])
            if weights:
                options["average_attn_weights"] = not causal
            yield Case(made, (_drawn(torch, *shape),), options, same=True)
    for shape in SHAPES:
        (batch, length, width) = shape

        def crossed(width: int = width) -> Any:
            return nn.MultiheadAttention(width, 4, kdim=24, vdim=40, batch_first=True)

        given = (_drawn(torch, *shape), *(_drawn(torch, batch, length + 3, n) for n in (24, 40)))
        yield Case(crossed, given, {"need_weights": False})


def recurrent(kind: str) -> Callable[[Any], Iterator[Case]]:
    def rows(torch: Any) -> Iterator[Case]:
        flags = product((1, 2), (False, True), (False, True), (False, True), (False, True))
        for place, (layers, bias, first, both, started) in enumerate(flags):
            width, hidden = ((5, 7), (33, 31), (16, 64))[place % 3]
            options: Dict[str, Any] = {"num_layers": layers, "bias": bias, "batch_first": first}
            options["bidirectional"] = both
            if kind == "LSTM" and place % 2:
                options["proj_size"] = 6
            if kind == "RNN":
                options["nonlinearity"] = ("tanh", "relu")[place % 2]
            made = _net(torch, kind, width, hidden, options)
            batch, length = 3, 11
            x = _drawn(torch, *((batch, length) if first else (length, batch)), width)
            yield Case(made, (x, *_start(torch, kind, hidden, options, batch, started)), {})
            if place % 4 == 0:
                packed = Packed(_drawn(torch, 3 + 3 + 2 + 1, width), (3, 3, 2, 1))
                yield Case(made, (packed, *_start(torch, kind, hidden, options, 3, started)), {})
        long = {"num_layers": 1, "batch_first": True}
        yield Case(_net(torch, kind, 48, 65, long), (_drawn(torch, 70, 17, 48),), {})

    return rows


def _net(torch: Any, kind: str, width: int, hidden: int, options: Dict[str, Any]) -> Any:
    return lambda: getattr(torch.nn, kind)(width, hidden, **options)


def _start(
    torch: Any, kind: str, hidden: int, options: Dict[str, Any], batch: int, given: bool
) -> Tuple[Any, ...]:
    """The state to start from, or none."""
    if not given:
        return ()
    lines = options["num_layers"] * (2 if options["bidirectional"] else 1)
    out = options.get("proj_size", hidden)
    h = _drawn(torch, lines, batch, out)
    return ((h, _drawn(torch, lines, batch, hidden)),) if kind == "LSTM" else (h,)


def convolutions(rank: int, turned: bool) -> Callable[[Any], Iterator[Case]]:
    """Groups with a bias, strides and dilation at once."""

    def rows(torch: Any) -> Iterator[Case]:
        name = f"Conv{'Transpose' if turned else ''}{rank}d"
        for groups, stride, dilation, bias in product((1, 2, 8), (1, 2), (1, 2), (False, True)):
            options = {"stride": stride, "dilation": dilation, "groups": groups, "bias": bias}

            def made(options: Dict[str, Any] = options) -> Any:
                return getattr(torch.nn, name)(8, 16, 3, padding=1, **options)

            side = {1: 65, 2: 17, 3: 7}[rank]
            yield Case(made, (_drawn(torch, 3, 8, *[side] * rank),), {})

    return rows


ROWS: Dict[str, Callable[[Any], Iterator[Case]]] = {
    "nn.TransformerEncoderLayer": encoder_layers,
    "nn.TransformerEncoder": encoders,
    "nn.TransformerDecoderLayer": decoder_layers,
    "nn.MultiheadAttention": attentions,
    **{f"nn.{kind}": recurrent(kind) for kind in ("RNN", "LSTM", "GRU")},
    **{f"nn.Conv{n}d": convolutions(n, False) for n in (1, 2, 3)},
    **{f"nn.ConvTranspose{n}d": convolutions(n, True) for n in (1, 2, 3)},
}
