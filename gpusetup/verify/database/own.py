"""Our own entries: what programs compute most, in the sizes of programs.

torch's database has small samples; of these kernels each length, each layout and each option
matters.
"""

from __future__ import annotations

import random
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .calls import Call, replaced
from .forms import LENGTHS, Form, Maker, Question, form, numbered
from .ways import Way, after_other_numbers, directly, for_inference, on_a_thread

FLOATS = ("float32", "bfloat16", "float32", "float16")
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
MOST = 2**17
"""The most numbers of one tensor."""


class Draw:
    """What an entry draws its call with."""

    def __init__(self, torch: Any, words: str, lengths: Tuple[int, ...]) -> None:
        self.torch, self.lengths = torch, lengths
        self.chance = random.Random(words)
        self.choice = self.chance.choice
        self.made = torch.Generator().manual_seed(self.chance.getrandbits(62))

    def length(self, most: int = MOST) -> int:
        """A length of the question's class, if it is not too long."""
        return int(
            self.choice(
                [n for n in self.lengths if n <= most]
                or [n for n in LENGTHS[1] + SMALL if n <= most]
            )
        )

    def shape(self, count: int, most: int = MOST) -> List[int]:
        """One length of the class, others small, in any order."""
        found = [self.length(most)]
        while len(found) < count:
            most //= found[-1]
            found.append(self.choice([n for n in (*SMALL, 64, 65, 130) if n <= most] or [1]))
        self.chance.shuffle(found)
        return found

    def normal(self, *shape: int) -> Any:
        return self.torch.randn(shape, generator=self.made)

    def whole(self, low: int, high: int, *shape: int) -> Any:
        return self.torch.randint(low, high, shape, generator=self.made)

    def flag(self) -> bool:
        return self.chance.random() < 0.5


class Own(NamedTuple):
    """An entry; the shape of what `compared` takes."""

    name: str
    draw: Callable[[Draw], Tuple[Tuple[Any, ...], Dict[str, Any]]]
    """What it is called with, in float32."""
    run: Callable[..., Any]
    dtypes: Tuple[str, ...] = FLOATS
    once: bool = False
    """Whether half precision is rounded once, all else being done in float32."""
    learns: bool = True
    room: float = 1.0
    unique: bool = True

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[Question]:
        words = f"{seed}:{self.name}:{turn}"
        dtype = self.dtypes[(turn + turn // 4) % len(self.dtypes)]
        wanted = form(turn)
        if wanted.numbers not in ("ties", "equal", "steps"):
            wanted = wanted._replace(numbers="")
        if dtype == "float16":
            wanted = wanted._replace(numbers="")
        draw = Draw(torch, words, wanted.lengths)
        given, options = self.draw(draw)
        low = getattr(torch, dtype)

        def lowered(x: Any) -> Any:
            return x.to(low) if x.dtype == torch.float32 and low.is_floating_point else x

        call = replaced(torch, Call(given, options, lambda x: x), lowered)
        if turn % 2 and any(x.dim() == 4 for x in given if hasattr(x, "dim")):
            wanted = wanted._replace(layout="channels-last")
        if wanted.numbers:
            call = numbered(Maker(torch, draw.chance, draw.made), call, wanted.numbers)
        learns = self.learns and not wanted.numbers and low.is_floating_point

        def learning(x: Any) -> Any:
            return x.requires_grad_(learns and x.is_floating_point())

        return Question(self, dtype, turn, replaced(torch, call, learning), words, wanted)

    def other_ways(self, asked: Question) -> Iterator[Tuple[str, Way, str, bool]]:
        yield from plain_ways(asked.form)


def plain_ways(form: Form) -> Iterator[Tuple[str, Way, str, bool]]:
    """The ways that each entry has."""
    found = {"thread": on_a_thread, "again": after_other_numbers, "inference": for_inference}
    way = found.get(form.way, directly)
    learns = form.way in ("gradient", "out")
    if way is not directly or form.layout:
        yield form.way if way is not directly else "", way, form.layout, learns


def _attention(d: Draw, kind: str = "") -> Any:
    t = d.torch
    heads, groups, width = (
        d.choice((1, 2, 3)),
        d.choice((1, 1, 2)),
        d.choice((8, 16, 33, 64, 64, 128)),
    )
    keys = d.length(2100)
    queries = d.choice((1, 7, 33, 65, min(keys, 129), keys if keys < 300 else 257))
    queries = 1 if kind == "decoding" else queries
    causal = d.flag() and d.flag() and queries > 1
    if keys > 1000 and queries > 1 and d.flag():
        causal, queries = True, d.choice((keys, 1024))
        heads, width, groups = 1, 16, 1
    mask = None
    if not causal and d.flag():
        mask = d.whole(0, 3, *d.choice(((queries, keys), (1, 1, queries, keys), (1, keys)))) > 0
        mask[..., 0] = True
        mask = mask if d.flag() else t.where(mask, d.normal(*mask.shape), t.tensor(float("-inf")))

    def part(h: int, n: int) -> Any:
        if d.flag():
            return d.normal(1, n, h, width).transpose(1, 2)
        return d.normal(1, h, n, width)

    if kind == "packed" and keys < 600:  # of one product, as programs have it
        queries, groups, mask = keys, 1, None
        packed = d.normal(1, keys, 3, heads, width).permute(2, 0, 3, 1, 4)
        given = tuple(packed)
    else:
        given = (part(heads * groups, queries), part(heads, keys), part(heads, keys))
    return given, {
        "mask": mask,
        "causal": causal,
        "scale": d.choice((None, None, 0.3)),
        "grouped": groups > 1,
    }


def _attended(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, grouped: bool) -> Any:
    import torch

    more = {"enable_gqa": True} if grouped else {}
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, 0.0, causal, scale=scale, **more
    )


def _recurrent(gates: int) -> Callable[[Draw], Any]:
    def draw(d: Draw) -> Any:
        steps, batch, wide, hidden = (
            d.choice((1, 3, 7)),
            d.choice((1, 2, 5)),
            d.choice((3, 8, 17, 33)),
            d.choice((4, 9, 16, 33, 65)),
        )
        both, layers = d.flag(), d.choice((1, 2))
        weights = []
        for layer in range(layers):
            for _ in range(1 + both):
                inner = wide if not layer else hidden * (1 + both)
                shapes = (
                    (gates * hidden, inner),
                    (gates * hidden, hidden),
                    (gates * hidden,),
                    (gates * hidden,),
                )
                weights += [0.3 * d.normal(*shape) for shape in shapes]
        first = d.flag()
        x = d.normal(*((batch, steps, wide) if first else (steps, batch, wide)))
        start = [
            d.normal(layers * (1 + both), batch, hidden) for _ in range(2 if gates == 4 else 1)
        ]
        return (x, start, weights), {"layers": layers, "both": both, "first": first}

    return draw


def _run_net(name: str) -> Callable[..., Any]:
    def run(
        x: Any, start: List[Any], weights: List[Any], layers: int, both: bool, first: bool
    ) -> Any:
        import torch

        state = tuple(start) if name == "lstm" else start[0]
        return getattr(torch, name)(x, state, weights, True, layers, 0.0, False, both, first)

    return run


def _mm(d: Draw) -> Any:
    n, k, m = d.shape(3)
    k = d.choice((k, k, 65, 129, 513, 1025))
    n, m = min(n, MOST // k), min(m, MOST // k)
    a, b = d.normal(n, k), d.normal(k, m)
    a = d.normal(k, n).t() if d.flag() else a
    return (a, d.normal(m, k).t() if d.flag() else b), {}


def _bmm(d: Draw) -> Any:
    n, k, m = d.shape(3, 2**14)
    count = d.choice((1, 2, 3, 7, 17))
    a = d.normal(n, k).expand(count, n, k) if d.flag() and d.flag() else d.normal(count, n, k)
    return (a, d.normal(count, m, k).transpose(1, 2) if d.flag() else d.normal(count, k, m)), {}


def _addmm(d: Draw) -> Any:
    (a, b), _ = _mm(d)
    beta, alpha = d.choice((0, 1, 0.5)), d.choice((1, 1, 0.5))
    bias = d.normal(*d.choice(((b.shape[1],), (a.shape[0], b.shape[1]), (a.shape[0], 1))))
    if not beta:
        bias.fill_(float("nan"))
    return (bias, a, b), {"beta": beta, "alpha": alpha}


def _linear(d: Draw) -> Any:
    (a, b), _ = _mm(d)
    return (a, b.t(), d.normal(b.shape[1]) if d.flag() else None), {}


def _convolution(transposed: bool) -> Callable[[Draw], Any]:
    def draw(d: Draw) -> Any:
        axes = d.choice((1, 2, 2, 2, 3))
        groups = d.choice((1, 1, 1, 2, 3))
        each, out = d.choice((1, 3, 4, 8, 17, 33)), d.choice((1, 2, 5, 8, 17, 20, 24, 33))
        if groups > 1 and d.flag():
            each, out = 1, d.choice((1, 2))
        kernel = tuple(d.choice((1, 2, 3, 5)) for _ in range(axes))
        size = tuple(d.choice((6, 7, 8, 15, 16, 17, 33)[: 7 - 2 * (axes > 2)]) for _ in range(axes))
        x = d.normal(d.choice((1, 2, 5)), groups * each, *size)
        shape = (groups * each, out) if transposed else (groups * out, each)
        weight = 0.3 * d.normal(*shape, *kernel)
        stride, dilation = d.choice((1, 1, 2)), d.choice((1, 1, 2))
        options = {
            "stride": stride,
            "padding": d.choice((0, 1, 2)),
            "groups": groups,
            "dilation": dilation,
        }
        if transposed and stride > 1:
            options["output_padding"] = d.choice((0, 1))
        return (x, weight, d.normal(groups * out) if d.flag() else None), options

    return draw


def _convolved(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    import torch

    name = "conv_transpose" if "output_padding" in options or options.pop("back", False) else "conv"
    return getattr(torch.nn.functional, f"{name}{x.dim() - 2}d")(x, weight, bias, **options)


def _back_convolved(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    return _convolved(x, weight, bias, **{"output_padding": 0, **options})


def _image(d: Draw) -> Any:
    return d.normal(
        d.choice((1, 2, 3)),
        d.choice((1, 3, 4, 8, 12, 17, 33)),
        *(d.choice((4, 5, 7, 9, 16, 17, 31)) for _ in "ab"),
    )


def _batch_norm(d: Draw) -> Any:
    x = (
        _image(d)
        if d.flag()
        else d.normal(d.length(8193), d.choice((2, 3, 9, 17)), *d.choice(((), (3,))))
    )
    n = x.shape[1]
    if x.shape[0] * x[0, 0].numel() < 4:
        x = d.normal(4, n, 3)
    affine = (d.normal(n), d.normal(n)) if d.flag() else (None, None)
    return (x, d.normal(n), d.normal(n).abs() + 0.5, *affine), {
        "training": d.flag(),
        "momentum": d.choice((0.1, 0.5)),
    }


def _group_norm(d: Draw) -> Any:
    groups = d.choice((1, 2, 3))
    x = _image(d)
    n = groups * x.shape[1]
    x = d.normal(x.shape[0], n, *x.shape[2:])
    return (x, groups, d.normal(n), d.normal(n)), {}


def _lines(d: Draw) -> Any:
    n = d.length(2**15)
    return d.normal(d.choice((2, 3, 5)), max(n, 8))


def _layer_norm(d: Draw) -> Any:
    x = _lines(d)
    n = x.shape[1]
    return (
        x + d.choice((0.0, 3.0)),
        (n,),
        *((d.normal(n), d.normal(n)) if d.flag() else (None, None)),
    ), {}


def _along(d: Draw) -> Any:
    shape = d.shape(d.choice((1, 2, 3)), 2**18)
    return (d.normal(*shape), d.choice(range(len(shape)))), {}


def _tied(d: Draw) -> Any:
    """Whole numbers of which many are alike."""
    shape = d.shape(d.choice((1, 2, 2, 3)), 2**16)
    return (d.whole(-9, d.choice((9, 200)), *shape).float(), d.choice(range(len(shape)))), {}


def _apart(d: Draw) -> Any:
    shape = d.shape(d.choice((1, 2, 2)), 2**16)
    count = 1
    for n in shape:
        count *= n
    x = d.torch.randperm(count, generator=d.made).reshape(shape).float()
    dim = d.choice(range(len(shape)))
    return (x, d.choice((1, min(5, shape[dim]), (shape[dim] + 1) // 2)), dim, d.flag()), {}


def _rows(d: Draw) -> Any:
    rows, width = d.choice((5, 1025, 40_009, 70_001, 70_001)), d.choice((1, 2, 3))
    places = d.whole(0, rows, d.length(2**15))
    places[-1] = rows - 1
    return d.normal(rows, width), places


def _looked_up(d: Draw) -> Any:
    table, places = _rows(d)
    return (places, table), {"padding_idx": d.choice((None, 0, 3)), "scale_grad_by_freq": d.flag()}


def _bag(d: Draw) -> Any:
    table, places = _rows(d)
    starts = d.whole(0, len(places), d.choice((1, 3, 17))).sort()[0]
    starts[0] = 0
    return (places, table, starts), {"mode": d.choice(("sum", "mean"))}


def _added(d: Draw) -> Any:
    table, places = _rows(d)
    places = places % d.choice((3, len(table)))
    return (table, places, d.normal(len(places), table.shape[1])), {}


def _picked(d: Draw) -> Any:
    table, places = _rows(d)
    return (table, places), {}


def _lists(count: int, positive: bool = False) -> Callable[[Draw], Any]:
    def draw(d: Draw) -> Any:
        many = d.choice((1, 3, 17, 70))
        sizes = [d.choice((1, 7, 33, 65, 129)) for _ in range(many)]
        sizes[-1] = d.length(8193)
        given = tuple([d.normal(n) for n in sizes] for _ in range(count))
        return ((*given[:-1], [x.abs() + 0.5 for x in given[-1]]) if positive else given), {}

    return draw


def _int8(d: Draw) -> Any:
    n, k, m = 17 + d.length(200), 8 * d.choice((1, 2, 9, 33, 65)), 8 * d.choice((1, 2, 5, 17))
    a, b = d.whole(-128, 128, n, k).to(d.torch.int8), d.whole(-128, 128, m, k).to(d.torch.int8).t()
    return (a, b), {}


def _int_product(a: Any, b: Any) -> Any:
    import torch

    return torch._int_mm(a, b) if a.dtype == torch.int8 else torch.mm(a.double(), b.double()).int()


def _sparse(d: Draw) -> Any:
    n, m = d.length(257), d.choice((3, 17, 65))
    kept = d.whole(0, 4, n, m) == 0
    return (d.normal(n, m) * kept, d.normal(m, d.choice((1, 3, 17)))), {
        "kind": d.choice(("coo", "csr", "sum", "add"))
    }


def _sparsely(x: Any, y: Any, kind: str) -> Any:
    import torch

    if kind == "csr":
        return x.to_sparse_csr() @ y
    if kind == "sum":
        return torch.sparse.sum(x.to_sparse(), 1).to_dense()
    if kind == "add":
        return (x.to_sparse() + x.flip(0).to_sparse()).to_dense()
    return torch.sparse.mm(x.to_sparse(), y)


def _ragged(d: Draw) -> Any:
    width = d.choice((3, 17, 64))
    return (
        [d.normal(d.choice((1, 2, 7, 33)), width) for _ in range(d.choice((2, 3, 9)))],
        d.normal(d.choice((5, 33)), width),
    ), {}


def _padded(parts: List[Any], weight: Any) -> Any:
    import torch

    made = torch.nested.as_nested_tensor(list(parts))
    return torch.nested.to_padded_tensor(torch.nn.functional.linear(made, weight), 0.0)


def _parts(d: Draw) -> Any:
    dim, count = d.choice((0, 1)), d.choice((2, 3, 33, 129, 140))
    shapes = [[d.choice((1, 2, 5)), 3] for _ in range(count)]
    parts = [d.normal(*(shape if not dim else shape[::-1])) for shape in shapes]
    return (parts, dim), {}


def _resized(d: Draw) -> Any:
    mode = d.choice(("nearest", "bilinear", "bicubic", "area"))
    aligned = d.flag() if mode in ("bilinear", "bicubic") else None
    return (_image(d),), {
        "size": [d.choice((3, 8, 13, 32)) for _ in "ab"],
        "mode": mode,
        "align_corners": aligned,
    }


def _pooled(d: Draw) -> Any:
    kernel = d.choice((2, 3))
    return (_image(d), kernel, d.choice((1, 2)), d.choice((0, 1))), {}


def _classes(d: Draw) -> Any:
    classes = d.length(8193) if d.flag() else d.choice((2, 10, 33))
    rows = d.choice((3, 8, 33))
    wanted = d.whole(0, classes, rows)
    wanted[0] = d.choice((-100, 0))
    return (d.normal(rows, max(classes, 2)), wanted), {
        "reduction": d.choice(("mean", "sum", "none")),
        "label_smoothing": d.choice((0.0, 0.1)),
    }


def in_place_of(run: Any, first: List[Any], *others: List[Any]) -> List[Any]:
    """As optimizers call it."""
    mine = [x.clone() for x in first]
    run(mine, *others, 0.5)
    return mine


def own(torch: Any) -> Dict[str, Any]:
    """By name."""
    f, t = torch.nn.functional, torch
    full = ("float32",)
    rows = (
        Own("attention in use", _attention, _attended),
        Own("attention decoding", lambda d: _attention(d, "decoding"), _attended),
        Own("attention packed", lambda d: _attention(d, "packed"), _attended),
        Own("lstm net", _recurrent(4), _run_net("lstm"), room=4.0),
        Own("gru net", _recurrent(3), _run_net("gru"), room=4.0),
        Own("rnn net", _recurrent(1), _run_net("rnn_tanh"), room=4.0),
        Own("product", _mm, t.mm, once=True),
        Own("products of a batch", _bmm, t.bmm, once=True),
        Own("product added", _addmm, t.addmm),
        Own("linear layer", _linear, f.linear),
        Own(
            "product with a line",
            lambda d: ((d.normal(*(s := d.shape(2))), d.normal(s[1])), {}),
            t.mv,
            once=True,
        ),
        Own(
            "product of lines",
            lambda d: ((d.normal(n := d.length(2**19)), d.normal(n)), {}),
            t.dot,
            once=True,
        ),
        Own("convolution layer", _convolution(False), _convolved),
        Own("convolution back", _convolution(True), _back_convolved),
        Own("batch norm layer", _batch_norm, f.batch_norm),
        Own("group norm layer", _group_norm, f.group_norm),
        Own("layer norm layer", _layer_norm, f.layer_norm),
        Own("softmax in use", _along, t.softmax),
        Own("log softmax in use", _along, t.log_softmax),
        Own("sum along", _along, t.sum, once=True),
        Own("mean along", _along, t.mean, once=True),
        Own("running sum", _along, t.cumsum),
        Own("norm along", _along, lambda x, dim: t.linalg.vector_norm(x, dim=dim)),
        Own(
            "variance along",
            _along,
            lambda x, dim: t.var_mean(x, dim) if x.shape[dim] > 1 else x.sum(),
        ),
        Own(
            "greatest of ties",
            _tied,
            lambda x, dim: (t.argmax(x, dim), t.argmin(x, dim), t.amax(x, dim)),
            learns=False,
        ),
        Own("sort of ties", _tied, lambda x, dim: t.sort(x, dim=dim, stable=True), learns=False),
        Own("first few", _apart, lambda x, k, dim, largest: t.topk(x, k, dim, largest)),
        Own("lookup", _looked_up, f.embedding),
        Own("bags", _bag, f.embedding_bag),
        Own(
            "added at places",
            _added,
            lambda x, i, y: (
                x.index_add(0, i, y),
                x.index_put((i,), y, True),
                x.scatter_add(0, i[:, None].expand_as(y), y),
            ),
        ),
        Own(
            "picked rows",
            _picked,
            lambda x, i: (
                x.index_select(0, i),
                x[i],
                x.gather(0, i[:, None].expand(-1, x.shape[1])),
            ),
        ),
        Own(
            "lists with quotients", _lists(3, True), lambda *x: in_place_of(t._foreach_addcdiv_, *x)
        ),
        Own("lists with products", _lists(3), lambda *x: in_place_of(t._foreach_addcmul_, *x)),
        Own("norms of lists", _lists(1), t._foreach_norm),
        Own("product of bytes", _int8, _int_product, ("int8",), learns=False),
        Own("sparse matrices", _sparse, _sparsely, full, learns=False),
        Own("ragged lines", _ragged, _padded),
        Own("many parts", _parts, t.cat),
        Own("resized", _resized, f.interpolate),
        Own(
            "pooled",
            _pooled,
            lambda x, k, s, p: (
                f.max_pool2d(x, k, s, p, return_indices=True),
                f.avg_pool2d(x, k, s, p),
            ),
        ),
        Own("classes", _classes, f.cross_entropy),
    )
    return {
        row.name.replace(" ", "-"): row._replace(name=row.name.replace(" ", "-")) for row in rows
    }
