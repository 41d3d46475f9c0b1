"""Attention, recurrent nets, products, convolutions and norms, in the sizes of programs."""

from __future__ import annotations

from typing import Any, Callable, List

from .draw import MOST, Draw


def draw_attention(d: Draw, kind: str = "") -> Any:
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
        "backend": d.choice((None, *BACKENDS)),
    }


BACKENDS = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
NOT_OFFERED = (
    *("No available kernel", "No viable backend", "cuDNN Frontend error", "No execution plan"),
)


def attended(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, grouped: bool, backend: Any, **scale: Any
) -> Any:
    """By one backend, or, if that does not offer itself, by the one that torch chooses."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    more = {"enable_gqa": True, **scale} if grouped else scale
    compute = torch.nn.functional.scaled_dot_product_attention
    if backend and q.dtype != torch.float64 and hasattr(SDPBackend, backend):
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return compute(q, k, v, mask, 0.0, causal, **more)
        except RuntimeError as problem:
            if not any(words in str(problem) for words in NOT_OFFERED):
                raise
    return compute(q, k, v, mask, 0.0, causal, **more)


def draw_recurrent(gates: int) -> Callable[[Draw], Any]:
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


def run_net(name: str) -> Callable[..., Any]:
    def run(
        x: Any, start: List[Any], weights: List[Any], layers: int, both: bool, first: bool
    ) -> Any:
        import torch

        state = tuple(start) if name == "lstm" else start[0]
        return getattr(torch, name)(x, state, weights, True, layers, 0.0, False, both, first)

    return run


def draw_transformer(d: Draw) -> Any:
    heads = d.choice((1, 2, 4))
    wide, inner = heads * d.choice((8, 16, 33)), d.choice((8, 33, 64))
    halves: List[Any] = [((3 * wide, wide), (3 * wide,)), ((wide, wide), (wide,))]
    halves += [((inner, wide), (inner,)), ((wide, inner), (wide,)), *[((wide,), (wide,))] * 2]
    weights = [0.3 * d.normal(*shape) for half in halves for shape in half]
    x = d.normal(d.choice((1, 2, 5)), d.choice((1, 7, 33, 65)), wide)
    shape = d.choice((None, x.shape[:2], (x.shape[1],) * 2))
    mask = d.whole(0, 3, *shape) == 0 if shape else None
    if mask is not None:
        mask[:, 0] = False
    return (x, weights, mask), {"heads": heads, "first": d.flag(), "gelu": d.flag()}


def transformed(x: Any, weights: List[Any], mask: Any, heads: int, first: bool, gelu: bool) -> Any:
    """A layer as `eval` computes it: by its fast path where no gradient is asked."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(
        *(x.shape[-1], heads, len(weights[5]), 0.0, "gelu" if gelu else "relu"),
        batch_first=True,
        norm_first=first,
        device="meta",
    ).eval()
    names = [name for name, _ in layer.named_parameters()]
    masks = (mask,) if mask is None or len(mask) == mask.shape[1] else (None, mask)
    return torch.func.functional_call(layer, dict(zip(names, weights)), (x, *masks))


def draw_mm(d: Draw) -> Any:
    n, k, m = d.shape(3)
    k = d.choice((k, k, 65, 129, 513, 1025))
    n, m = min(n, MOST // k), min(m, MOST // k)
    a, b = d.normal(n, k), d.normal(k, m)
    a = d.normal(k, n).t() if d.flag() else a
    return (a, d.normal(m, k).t() if d.flag() else b), {}


def draw_bmm(d: Draw) -> Any:
    n, k, m = d.shape(3, 2**14)
    count = d.choice((1, 2, 3, 7, 17))
    a = d.normal(n, k).expand(count, n, k) if d.flag() and d.flag() else d.normal(count, n, k)
    return (a, d.normal(count, m, k).transpose(1, 2) if d.flag() else d.normal(count, k, m)), {}


def draw_addmm(d: Draw) -> Any:
    (a, b), _ = draw_mm(d)
    beta, alpha = d.choice((0, 1, 0.5)), d.choice((1, 1, 0.5))
    bias = d.normal(*d.choice(((b.shape[1],), (a.shape[0], b.shape[1]), (a.shape[0], 1))))
    if not beta:
        bias.fill_(float("nan"))
    return (bias, a, b), {"beta": beta, "alpha": alpha}


def draw_linear(d: Draw) -> Any:
    (a, b), _ = draw_mm(d)
    return (a, b.t(), d.normal(b.shape[1]) if d.flag() else None), {}


def draw_convolution(transposed: bool) -> Callable[[Draw], Any]:
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


def convolved(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    import torch

    name = "conv_transpose" if "output_padding" in options or options.pop("back", False) else "conv"
    return getattr(torch.nn.functional, f"{name}{x.dim() - 2}d")(x, weight, bias, **options)


def back_convolved(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    return convolved(x, weight, bias, **{"output_padding": 0, **options})


def draw_image(d: Draw) -> Any:
    return d.normal(
        d.choice((1, 2, 3)),
        d.choice((1, 3, 4, 8, 12, 17, 33)),
        *(d.choice((4, 5, 7, 9, 16, 17, 31)) for _ in "ab"),
    )


def draw_batch_norm(d: Draw) -> Any:
    x = (
        draw_image(d)
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


def draw_group_norm(d: Draw) -> Any:
    groups = d.choice((1, 2, 3))
    x = draw_image(d)
    n = groups * x.shape[1]
    x = d.normal(x.shape[0], n, *x.shape[2:])
    return (x, groups, d.normal(n), d.normal(n)), {}


def _lines(d: Draw) -> Any:
    n = d.length(2**15)
    return d.normal(d.choice((2, 3, 5)), max(n, 8))


def draw_layer_norm(d: Draw) -> Any:
    x = _lines(d)
    n = x.shape[1]
    return (
        x + d.choice((0.0, 3.0)),
        (n,),
        *((d.normal(n), d.normal(n)) if d.flag() else (None, None)),
    ), {}
