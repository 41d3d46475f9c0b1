"""Small programs as people write them, trained on the device and in float64 on the CPU."""

from __future__ import annotations

import copy
from math import sqrt
from typing import Any, Callable, Dict, Iterator, List, Tuple

from ..judging.precision import UNIT_ROUNDOFF, read_precision
from ..judging.refusals import lacks_form
from ..judging.tolerance import ROUNDOFF, Part, agree, holds, judged, numbers, same, source
from ..values import Outcome, asked
from .computing import capability_of

STEPS = 4
ROUGH = 2.0**6
"""Roundings that a step may lose: the gradients go through some ten products and norms."""


def roughness(torch: Any, device: str) -> float:
    u = UNIT_ROUNDOFF[read_precision(torch, device, capability_of(torch, device)).name]
    return float(ROUGH * u)


def _weights(torch: Any, shapes: Dict[str, Tuple[int, ...]], salt: int) -> Dict[str, Any]:
    made = {}
    for place, (name, shape) in enumerate(shapes.items()):
        scale = 1.0 if len(shape) == 1 else 1 / sqrt(shape[-1])
        made[name] = numbers(torch, *shape, salt=salt + place).double() * scale
    return {name: x + 1 if name.endswith("norm") else x for name, x in made.items()}


Loss = Callable[[Any, Dict[str, Any], List[Any]], Any]


def _stepped(torch: Any, loss: Loss, start: Dict[str, Any], data: List[Any]) -> Dict[str, Any]:
    """Momentum, clipped gradients, and two parts of the batch accumulated in each step."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in start.items()}
    optimizer = torch.optim.SGD(list(leaves.values()), lr=0.05, momentum=0.9, weight_decay=0.01)
    kept: Dict[str, Any] = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in data[2 * (step % 2) : 2 * (step % 2) + 2]:
            kept[f"loss {step}"] = loss(torch, leaves, part)
            (kept[f"loss {step}"] / 2).backward()
        kept[f"norm {step}"] = torch.nn.utils.clip_grad_norm_(list(leaves.values()), 0.5)
        optimizer.step()
    return {
        **{n: x.detach() for n, x in kept.items()},
        **{n: x.detach() for n, x in leaves.items()},
    }


def _compared(torch: Any, device: str, loss: Loss, start: Dict[str, Any], data: Any) -> List[Part]:
    exact = _stepped(torch, loss, start, data)
    here = {name: x.float().to(device) for name, x in start.items()}
    moved = [[_to(x, device) for x in part] for part in data]
    found = _stepped(torch, loss, here, moved)
    share = roughness(torch, device)
    return [
        agree(name, found[name], wanted, share * (wanted.abs() + wanted.square().mean().sqrt()))
        for name, wanted in exact.items()
    ]


def _to(x: Any, device: str) -> Any:
    return (x.float() if x.is_floating_point() else x).to(device)


WORDS, WIDTH, HEADS, GROUPS, DEPTH = 211, 64, 4, 2, 2
LENGTH = 33
LANGUAGE = {
    "words": (WORDS, WIDTH),
    "last norm": (WIDTH,),
    **{
        f"{layer} {name}": shape
        for layer in range(DEPTH)
        for name, shape in {
            "q": (WIDTH, WIDTH),
            "kv": (2 * GROUPS * WIDTH // HEADS, WIDTH),
            "o": (WIDTH, WIDTH),
            "first norm": (WIDTH,),
            "second norm": (WIDTH,),
            "router": (4, WIDTH),
            "up": (4, 2 * WIDTH, WIDTH),
            "down": (4, WIDTH, WIDTH),
        }.items()
    },
}


def language_model(device: str) -> Outcome:
    """A transformer as they are today: grouped queries, rotated positions, RMS norm, a mixture of
    gated experts, tied words; accumulated and clipped gradients."""
    import torch

    start = _weights(torch, LANGUAGE, 400)
    made = source(torch, 430)
    data = [[torch.randint(0, WORDS, (2, LENGTH + 1), generator=made)] for _ in range(4)]
    return judged(_compared(torch, device, _language_loss, start, data), "float64 on the CPU")


def _language_loss(torch: Any, w: Dict[str, Any], data: List[Any]) -> Any:
    functional = torch.nn.functional
    x = functional.embedding(data[0][:, :-1], w["words"])
    for layer in range(DEPTH):
        mine = {name.partition(" ")[2]: each for name, each in w.items() if name[0] == str(layer)}
        x = x + _attended(torch, _rms(torch, x, mine["first norm"]), mine)
        x = x + _experts(torch, _rms(torch, x, mine["second norm"]), mine)
    logits = functional.linear(_rms(torch, x, w["last norm"]), w["words"])
    return functional.cross_entropy(logits.flatten(0, 1), data[0][:, 1:].flatten())


def _rms(torch: Any, x: Any, w: Any) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w


def _rotated(torch: Any, x: Any) -> Any:
    """Rotary positions, in pairs of halves."""
    half = x.shape[-1] // 2
    count = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device).unsqueeze(1)
    turn = count * 100.0 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * turn.cos() - b * turn.sin(), b * turn.cos() + a * turn.sin()], -1)


def _attended(torch: Any, x: Any, w: Dict[str, Any]) -> Any:
    functional, each = torch.nn.functional, WIDTH // HEADS
    n, length, _ = x.shape
    q = functional.linear(x, w["q"]).view(n, length, HEADS, each).transpose(1, 2)
    kv = functional.linear(x, w["kv"]).view(n, length, 2, GROUPS, each).permute(2, 0, 3, 1, 4)
    k, v = (part.repeat_interleave(HEADS // GROUPS, 1) for part in (_rotated(torch, kv[0]), kv[1]))
    q = _rotated(torch, q)
    if hasattr(functional, "scaled_dot_product_attention"):
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-1, -2) / sqrt(each)).masked_fill(hidden, float("-inf"))
        out = scores.softmax(-1) @ v
    return functional.linear(out.transpose(1, 2).reshape(n, length, WIDTH), w["o"])


def _experts(torch: Any, x: Any, w: Dict[str, Any]) -> Any:
    """Each word goes to the two experts that its position in the text names, with routed shares.

    The choice is not left to the numbers: a tie would be broken by the last bit.
    """
    functional = torch.nn.functional
    flat = x.reshape(-1, WIDTH)
    shares = functional.linear(flat, w["router"]).softmax(-1)
    out = torch.zeros_like(flat)
    for expert in range(4):
        count = torch.arange(flat.shape[0], device=x.device)
        mine = ((count % 4 == expert) | ((count + 1) % 4 == expert)).nonzero().flatten()
        gate, up = functional.linear(flat[mine], w["up"][expert]).chunk(2, -1)
        made = functional.linear(functional.silu(gate) * up, w["down"][expert])
        out = out.index_add(0, mine, made * shares[mine, expert : expert + 1])
    return out.view(x.shape)


OPTIMIZERS: Tuple[Tuple[str, Dict[str, Any]], ...] = (
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01}),
    ("Adamax", {"lr": 0.01}),
    ("Adagrad", {"lr": 0.1}),
    ("Adadelta", {"lr": 1.0}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
    ("ASGD", {"lr": 0.1}),
    ("Rprop", {"lr": 0.01}),
)
FORMS: Tuple[Dict[str, bool], ...] = ({"foreach": False}, {"foreach": True}, {"fused": True})
SHAPES = ((70_001,), (257, 129), (3,), (1,), (64, 64), (33, 5, 7), *(((17,),) * 40))
"""More tensors than one launch takes, and lengths that no chunk divides."""


def optimizers(device: str) -> Outcome:
    """Every optimizer of torch, plain, all at once and fused, against the plain one in float64."""
    import torch

    parts: List[Part] = []
    for name, options in OPTIMIZERS:
        kind = getattr(torch.optim, name, None)
        if kind is None:
            continue
        exact = _optimized(torch, kind, "cpu", torch.float64, {**options, "foreach": False})
        for form in FORMS:
            try:
                found = _optimized(torch, kind, device, torch.float32, {**options, **form})
            except (TypeError, RuntimeError, ValueError) as problem:
                if lacks_form(problem):
                    continue
                raise
            label = f"{name} {', '.join(key for key, on in form.items() if on) or 'plain'}"
            parts += [_near(torch, label, i, *pair) for i, pair in enumerate(zip(found, exact))]
    return judged(parts, "the plain formula in float64")


def _near(torch: Any, label: str, place: int, found: Any, exact: Any) -> Part:
    u = ROUNDOFF["float32"]
    return agree(f"{label}, tensor {place}", found, exact, 64 * u * (exact.abs() + 1))


def _optimized(
    torch: Any, kind: Any, device: str, dtype: Any, options: Dict[str, Any]
) -> List[Any]:
    leaves = [
        numbers(torch, *shape, salt=500 + i).to(dtype).to(device).requires_grad_()
        for i, shape in enumerate(SHAPES)
    ]
    optimizer = kind(leaves, **options)
    for step in range(3):
        for i, leaf in enumerate(leaves):
            # Far from 0: where a gradient vanishes, Adam divides what is left of it by itself.
            raw = numbers(torch, *SHAPES[i], salt=600 + 60 * step + i)
            leaf.grad = (raw.sign() * (raw.abs() + 0.5)).to(dtype).to(device)
        optimizer.step()
    return [leaf.detach() for leaf in leaves]


def training_loop(device: str) -> Outcome:
    """What stands around the arithmetic: clipping, accumulation, checkpointing, averages,
    schedules, a state that is saved and loaded."""
    import torch

    parts = [
        *_clipped(torch, device),
        *_accumulated(torch, device),
        *_checkpointed(torch, device),
        *_averaged(torch, device),
        *_continued(torch, device),
        *_scheduled(torch, device),
    ]
    return judged(parts, "the definition")


def _clipped(torch: Any, device: str) -> Iterator[Part]:
    for kind in (2.0, float("inf")):
        leaves = [numbers(torch, *shape, salt=700 + i) for i, shape in enumerate(SHAPES)]
        sizes = torch.stack([x.double().norm(kind) for x in leaves])
        total = sizes.norm(kind)
        here = [x.to(device).requires_grad_() for x in leaves]
        for leaf in here:
            leaf.grad = leaf.detach().clone()
        found = torch.nn.utils.clip_grad_norm_(here, 1.0, norm_type=kind)
        yield agree(f"norm {kind}", found, total, 1e-5 * total)
        for i, (leaf, raw) in enumerate(zip(here, leaves)):
            wanted = raw.double() / (total + 1e-6)
            yield agree(
                f"clipped {kind}, tensor {i}", leaf.grad, wanted, 1e-5 * wanted.abs() + 1e-12
            )
    leaf = numbers(torch, 1001, salt=760).to(device).requires_grad_()
    leaf.grad = leaf.detach() * 3
    wanted = leaf.grad.cpu().clamp(-1, 1)
    torch.nn.utils.clip_grad_value_([leaf], 1.0)
    yield same("clipped by value", leaf.grad, wanted)


def _accumulated(torch: Any, device: str) -> Iterator[Part]:
    """Gradients add up over calls, and go away when they are told to."""
    x = torch.arange(1.0, 1001.0, device=device).requires_grad_()
    for factor in (1, 2, 4):
        (x * factor).sum().backward()
    yield same("accumulated", x.grad, torch.full((1000,), 7.0))
    optimizer = torch.optim.SGD([x], lr=1.0)
    optimizer.zero_grad(set_to_none=False)
    yield same("set to zero", x.grad, torch.zeros(1000))
    (x * 3).sum().backward()
    yield same("after zero", x.grad, torch.full((1000,), 3.0))


def _checkpointed(torch: Any, device: str) -> Iterator[Part]:
    """A checkpointed layer with dropout gives the bits of the same layer without."""
    from torch.utils.checkpoint import checkpoint

    w = numbers(torch, 65, 65, salt=770).to(device)

    def layer(x: Any) -> Any:
        return torch.nn.functional.dropout(torch.tanh(x @ w), 0.3)

    found = []
    for run in (layer, lambda x: checkpoint(layer, x, use_reentrant=False)):
        torch.manual_seed(asked().seed % 2**63)
        x = numbers(torch, 33, 65, salt=771).to(device).requires_grad_()
        run(x).sum().backward()
        found.append(x.grad)
    yield same("checkpointed", found[1], found[0].cpu())


def _averaged(torch: Any, device: str) -> Iterator[Part]:
    from torch.optim.swa_utils import AveragedModel

    model = torch.nn.Linear(33, 17).to(device)
    exact = model.weight.detach().cpu().double()
    mean = AveragedModel(model, avg_fn=lambda kept, new, count: 0.9 * kept + 0.1 * new)
    mean.update_parameters(model)
    for step in range(3):
        with torch.no_grad():
            model.weight.add_(step + 1.0)
        mean.update_parameters(model)
        exact = 0.9 * exact + 0.1 * model.weight.detach().cpu().double()
    yield agree("moving average", mean.module.weight, exact, 1e-5 * (exact.abs() + 1))


def _continued(torch: Any, device: str) -> Iterator[Part]:
    """A training that is saved and loaded in the middle goes on as if it were not."""

    def step(model: Any, optimizer: Any, salt: int) -> None:
        optimizer.zero_grad()
        model(numbers(torch, 9, 33, salt=salt).to(device)).square().mean().backward()
        optimizer.step()

    model = torch.nn.Linear(33, 17).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step(model, optimizer, 780)
    other = torch.nn.Linear(33, 17).to(device)
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    again = torch.optim.AdamW(other.parameters(), lr=0.5)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(model, optimizer, 781)
    step(other, again, 781)
    for name, wanted in model.state_dict().items():
        yield same(f"continued {name}", other.state_dict()[name], wanted.cpu())


def _scheduled(torch: Any, device: str) -> Iterator[Part]:
    from math import cos, pi

    leaf = torch.zeros(3, device=device, requires_grad=True)
    leaf.grad = torch.ones(3, device=device)
    optimizer = torch.optim.SGD([leaf], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    total = 0.0
    for step in range(10):
        total += (1 + cos(pi * step / 10)) / 2
        optimizer.step()
        schedule.step()
    yield agree("cosine schedule", leaf, torch.full((3,), -total).double(), 1e-5 * total)
    yield holds("schedule's end", abs(optimizer.param_groups[0]["lr"]) < 1e-9, "is not 0")
