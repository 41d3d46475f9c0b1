"""Calls of attention, recurrent networks, matrix products, convolutions and norms, in realistic
sizes.

Each function `draw_...` draws the arguments and options of one call. Do not change the order of its
draws, because a seed would then give other calls.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from .draw import MOST, Draw

Arguments = Tuple[Tuple[Any, ...], Dict[str, Any]]
"""The positional arguments of a call, and its options by name."""


def draw_attention(d: Draw, kind: str = "") -> Arguments:
    """Draw queries, keys and values, with or without a mask. `kind` is `decoding` for a single
    query, or `packed` for queries, keys and values that are views of one tensor."""
    heads = d.choice((1, 2, 3))
    groups = d.choice((1, 1, 2))
    width = d.choice((8, 16, 33, 64, 64, 128))
    keys = d.length(2100)
    # `many_queries` is one of the choices below: as many queries as keys, or 257 if there are 300
    # keys or more.
    many_queries = keys if keys < 300 else 257
    queries = d.choice((1, 7, 33, 65, min(keys, 129), many_queries))
    # A language model generates one token at a time.
    if kind == "decoding":
        queries = 1
    causal = d.flag() and d.flag() and queries > 1
    # Long sequences with one head test where the blocks of a causal mask meet.
    if keys > 1000 and queries > 1 and d.flag():
        causal, queries = True, d.choice((keys, 1024))
        heads, width, groups = 1, 16, 1
    mask = None
    if not causal and d.flag():
        mask = draw_attention_mask(d, queries, keys)

    def draw_heads(head_count: int, length: int) -> Any:
        if d.flag():
            return d.normal(1, length, head_count, width).transpose(1, 2)
        return d.normal(1, head_count, length, width)

    args: Tuple[Any, ...]
    # Many programs compute queries, keys and values with one matrix product, and use views of its
    # result.
    if kind == "packed" and keys < 600:
        groups, mask = 1, None
        # The third axis has one index each for queries, keys and values.
        packed = d.normal(1, keys, 3, heads, width)
        args = tuple(packed.permute(2, 0, 3, 1, 4))
    else:
        q = draw_heads(heads * groups, queries)
        k = draw_heads(heads, keys)
        v = draw_heads(heads, keys)
        args = (q, k, v)
    options = {
        "mask": mask,
        "causal": causal,
        "scale": d.choice((None, None, 0.3)),
        "grouped": groups > 1,
        "backend": d.choice((None, *BACKENDS)),
    }
    return args, options


def draw_attention_mask(d: Draw, queries: int, keys: int) -> Any:
    """Draw a mask that allows each query about two of three keys, as flags (True: allowed) or as
    numbers that are added to the scores."""
    t = d.torch
    shape = d.choice(((queries, keys), (1, 1, queries, keys), (1, keys)))
    is_seen = d.whole(0, 3, *shape) > 0
    # Always allow the first key, because the result of a query without any key is not defined.
    is_seen[..., 0] = True
    if d.flag():
        return is_seen
    return t.where(is_seen, d.normal(*is_seen.shape), t.tensor(float("-inf")))


BACKENDS = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
NOT_OFFERED = (
    *("No available kernel", "No viable backend", "cuDNN Frontend error", "No execution plan"),
)
"""Parts of torch's messages if a backend does not support a call."""


def attended(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, grouped: bool, backend: Any, **scale: Any
) -> Any:
    """Compute attention with this backend or, if it does not support the call, with one that torch
    chooses."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    compute = torch.nn.functional.scaled_dot_product_attention
    no_dropout = 0.0
    options = dict(scale)
    # Older torch releases do not have this option, so pass it only if it is needed.
    if grouped:
        options["enable_gqa"] = True
    # For the exact result, in float64, let torch choose the backend.
    if backend and q.dtype != torch.float64 and hasattr(SDPBackend, backend):
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return compute(q, k, v, mask, no_dropout, causal, **options)
        except RuntimeError as problem:
            if not any(words in str(problem) for words in NOT_OFFERED):
                raise
    return compute(q, k, v, mask, no_dropout, causal, **options)


def draw_recurrent(gates: int) -> Callable[[Draw], Arguments]:
    """Returns a function that draws the input, the initial state and the weights of a recurrent
    network with this number of gates."""

    def draw(d: Draw) -> Arguments:
        steps = d.choice((1, 3, 7))
        batch = d.choice((1, 2, 5))
        width = d.choice((3, 8, 17, 33))
        hidden = d.choice((4, 9, 16, 33, 65))
        both = d.flag()
        layers = d.choice((1, 2))
        directions = 2 if both else 1
        weights = []
        all_gates = gates * hidden
        for layer in range(layers):
            # The input of a later layer is the output of the previous layer, in all directions.
            input_width = width if layer == 0 else hidden * directions
            for _ in range(directions):
                # The weights for the input and for the state, and a bias for each.
                weights.append(0.3 * d.normal(all_gates, input_width))
                weights.append(0.3 * d.normal(all_gates, hidden))
                weights.append(0.3 * d.normal(all_gates))
                weights.append(0.3 * d.normal(all_gates))
        batch_first = d.flag()
        shape = (batch, steps, width) if batch_first else (steps, batch, width)
        x = d.normal(*shape)
        # The state of an LSTM (four gates) has a second part, its cell.
        state_count = 2 if gates == 4 else 1
        start = [d.normal(layers * directions, batch, hidden) for _ in range(state_count)]
        return (x, start, weights), {"layers": layers, "both": both, "first": batch_first}

    return draw


def run_net(name: str) -> Callable[..., Any]:
    """Returns torch's recurrent network with this name (`lstm` or `gru`) as a function of its
    weights."""

    def run(
        x: Any, start: List[Any], weights: List[Any], layers: int, both: bool, first: bool
    ) -> Any:
        import torch

        state = tuple(start) if name == "lstm" else start[0]
        has_biases = True
        dropout = 0.0
        train = False
        net = getattr(torch, name)
        return net(x, state, weights, has_biases, layers, dropout, train, both, first)

    return run


def draw_transformer(d: Draw) -> Arguments:
    """Draw tokens, the weights of one encoder layer, and a padding mask, an attention mask or None.
    In a mask, True hides a token, as in torch.

    The options are the number of heads, `first` (torch's `norm_first`: normalize before each part
    instead of after it), and `gelu` (otherwise ReLU).
    """
    heads = d.choice((1, 2, 4))
    # The width must be a multiple of the number of heads.
    width = heads * d.choice((8, 16, 33))
    inner = d.choice((8, 33, 64))
    # The shapes, in the order of the layer's parameters: attention, its output, two linear layers,
    # two norms.
    shapes: List[Tuple[int, ...]] = [
        *((3 * width, width), (3 * width,)),
        *((width, width), (width,)),
        *((inner, width), (inner,)),
        *((width, inner), (width,)),
        *((width,), (width,)),
        *((width,), (width,)),
    ]
    weights = [0.3 * d.normal(*shape) for shape in shapes]
    batch = d.choice((1, 2, 5))
    length = d.choice((1, 7, 33, 65))
    x = d.normal(batch, length, width)
    mask_shape = d.choice((None, (batch, length), (length, length)))
    mask = None
    if mask_shape:
        mask = d.whole(0, 3, *mask_shape) == 0
        # Never hide the first token, because the result is not defined if all tokens are hidden.
        mask[:, 0] = False
    options = {"heads": heads, "first": d.flag(), "gelu": d.flag()}
    return (x, weights, mask), options


def transformed(x: Any, weights: List[Any], mask: Any, heads: int, first: bool, gelu: bool) -> Any:
    """Compute the output of the encoder layer in `eval` mode, in which torch has a fast path if no
    gradient is needed."""
    import torch

    # `weights[5]` is the bias of the first linear layer after the attention, so it has this width.
    inner_width = len(weights[5])
    layer = torch.nn.TransformerEncoderLayer(
        d_model=x.shape[-1],
        nhead=heads,
        dim_feedforward=inner_width,
        dropout=0.0,
        activation="gelu" if gelu else "relu",
        batch_first=True,
        norm_first=first,
        device="meta",
    ).eval()
    parameters = {}
    for (name, _), weight in zip(layer.named_parameters(), weights):
        parameters[name] = weight
    # A square mask is an attention mask; any other mask is a padding mask.
    is_square = mask is None or len(mask) == mask.shape[1]
    masks = (mask,) if is_square else (None, mask)
    return torch.func.functional_call(layer, parameters, (x, *masks))


def draw_mm(d: Draw) -> Arguments:
    """Draw two matrices to multiply. Each is stored transposed in half of the calls."""
    n, k, m = d.shape(3)
    # Some inner lengths are one more than a multiple of a kernel's block.
    k = d.choice((k, k, 65, 129, 513, 1025))
    longest = MOST // k
    n, m = min(n, longest), min(m, longest)
    a = d.normal(n, k)
    b = d.normal(k, m)
    if d.flag():
        a = d.normal(k, n).t()
    if d.flag():
        b = d.normal(m, k).t()
    return (a, b), {}


def draw_bmm(d: Draw) -> Arguments:
    """Draw two batches of matrices. The left one may be a single matrix that is expanded."""
    n, k, m = d.shape(3, 2**14)
    count = d.choice((1, 2, 3, 7, 17))
    is_repeated = d.flag() and d.flag()
    a = d.normal(n, k) if is_repeated else d.normal(count, n, k)
    a = a.expand(count, n, k)
    is_transposed = d.flag()
    b = d.normal(count, m, k) if is_transposed else d.normal(count, k, m)
    if is_transposed:
        b = b.transpose(1, 2)
    return (a, b), {}


def draw_addmm(d: Draw) -> Arguments:
    """Draw two matrices and a bias for `addmm`, with factors `beta` and `alpha`."""
    (a, b), _ = draw_mm(d)
    beta = d.choice((0, 1, 0.5))
    alpha = d.choice((1, 1, 0.5))
    rows, columns = a.shape[0], b.shape[1]
    bias_shape = d.choice(((columns,), (rows, columns), (rows, 1)))
    bias = d.normal(*bias_shape)
    # With beta=0 the bias must be ignored, even if it is NaN.
    if not beta:
        bias.fill_(float("nan"))
    return (bias, a, b), {"beta": beta, "alpha": alpha}


def draw_linear(d: Draw) -> Arguments:
    """Draw the input, weight and optional bias of a linear layer."""
    (x, factor), _ = draw_mm(d)
    weight = factor.t()
    bias = d.normal(len(weight)) if d.flag() else None
    return (x, weight, bias), {}


def draw_convolution(transposed: bool) -> Callable[[Draw], Arguments]:
    """Returns a function that draws the input, weight and options of a convolution over 1 to 3
    axes."""

    def draw(d: Draw) -> Arguments:
        axes = d.choice((1, 2, 2, 2, 3))
        groups = d.choice((1, 1, 1, 2, 3))
        channels = d.choice((1, 3, 4, 8, 17, 33))
        out_channels = d.choice((1, 2, 5, 8, 17, 20, 24, 33))
        # Sometimes one channel per group: a depthwise convolution, as in MobileNet.
        if groups > 1 and d.flag():
            channels, out_channels = 1, d.choice((1, 2))
        # One length for each axis.
        kernel = [d.choice((1, 2, 3, 5)) for _ in range(axes)]
        sizes: Tuple[int, ...] = (6, 7, 8, 15, 16, 17, 33)
        # With three axes, the two largest sizes would take too long.
        if axes > 2:
            sizes = sizes[:5]
        size = [d.choice(sizes) for _ in range(axes)]
        x = d.normal(d.choice((1, 2, 5)), groups * channels, *size)
        if transposed:
            weight_shape = (groups * channels, out_channels)
        else:
            weight_shape = (groups * out_channels, channels)
        weight = 0.3 * d.normal(*weight_shape, *kernel)
        stride, dilation = d.choice((1, 1, 2)), d.choice((1, 1, 2))
        options = {
            "stride": stride,
            "padding": d.choice((0, 1, 2)),
            "groups": groups,
            "dilation": dilation,
        }
        # `output_padding` must be smaller than the stride.
        if transposed and stride > 1:
            options["output_padding"] = d.choice((0, 1))
        bias = d.normal(groups * out_channels) if d.flag() else None
        return (x, weight, bias), options

    return draw


def convolved(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    """Compute a convolution over all axes except batch and channels. It is a transposed convolution
    if `output_padding` is given."""
    import torch

    is_transposed = "output_padding" in options
    kind = "conv_transpose" if is_transposed else "conv"
    axes = x.dim() - 2
    convolve = getattr(torch.nn.functional, f"{kind}{axes}d")
    return convolve(x, weight, bias, **options)


def back_convolved(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    """Compute a transposed convolution."""
    options = {"output_padding": 0, **options}
    return convolved(x, weight, bias, **options)


def draw_image(d: Draw) -> Any:
    """Draw a batch of small random images."""
    batch = d.choice((1, 2, 3))
    channels = d.choice((1, 3, 4, 8, 12, 17, 33))
    height = d.choice((4, 5, 7, 9, 16, 17, 31))
    width = d.choice((4, 5, 7, 9, 16, 17, 31))
    return d.normal(batch, channels, height, width)


def draw_weight_and_bias(d: Draw, count: int) -> Tuple[Any, Any]:
    """Draw the weight and bias of a norm, or None for both."""
    if d.flag():
        return d.normal(count), d.normal(count)
    return None, None


def draw_batch_norm(d: Draw) -> Arguments:
    """Draw images or rows with running mean and variance, and either weight and bias or neither."""
    if d.flag():
        x = draw_image(d)
    else:
        rows = d.length(8193)
        channels = d.choice((2, 3, 9, 17))
        further_axes = d.choice(((), (3,)))
        x = d.normal(rows, channels, *further_axes)
    channels = x.shape[1]
    values_of_channel = x.shape[0] * x[0, 0].numel()
    # With fewer than four values, the variance may be almost 0, which magnifies errors.
    if values_of_channel < 4:
        x = d.normal(4, channels, 3)
    weight, bias = draw_weight_and_bias(d, channels)
    running_mean = d.normal(channels)
    running_variance = d.normal(channels).abs() + 0.5
    options = {"training": d.flag(), "momentum": d.choice((0.1, 0.5))}
    return (x, running_mean, running_variance, weight, bias), options


def draw_group_norm(d: Draw) -> Arguments:
    """Draw images for a group norm, with weight and bias."""
    groups = d.choice((1, 2, 3))
    batch, channels_of_group, height, width = draw_image(d).shape
    channels = groups * channels_of_group
    x = d.normal(batch, channels, height, width)
    weight = d.normal(channels)
    bias = d.normal(channels)
    return (x, groups, weight, bias), {}


def draw_layer_norm(d: Draw) -> Arguments:
    """Draw rows with a mean of about 0 or 3 for a layer norm, with either weight and bias or
    neither."""
    # With fewer than eight numbers, the variance may be almost 0, which magnifies errors.
    length = max(d.length(2**15), 8)
    rows = d.choice((2, 3, 5))
    x = d.normal(rows, length)
    mean = d.choice((0.0, 3.0))
    weight, bias = draw_weight_and_bias(d, length)
    return (x + mean, (length,), weight, bias), {}
