"""The two computations of the quick level: a matrix product, and a training step under AMP."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..judging.precision import UNIT_ROUNDOFF, Precision, matmul_limit, read_precision
from ..values import FAILED, PASSED, Outcome, asked

SIZE = 1000
RELATIVE = "of |row| * |column|"

STEPS = 12
RATE = 0.3
LOSS_LEFT = 0.5
"""The share of the first loss that may be left after STEPS. A sound training leaves a quarter."""
FIRST_SCALE = 2.0**10
"""Large enough to be a test of scaling, small enough that nothing overflows in float16 here."""


class Product(NamedTuple):
    """Two random factors and what is known exactly of their product, on the CPU."""

    left: Any
    right: Any
    exact: Any
    scale: Any
    """|row| * |column| of each element."""


def product() -> Product:
    """The same for every device."""
    return _product(asked().seed)


@functools.lru_cache(maxsize=1)
def _product(seed: int) -> Product:
    """Made once in a process."""
    import torch

    made = torch.Generator().manual_seed(seed)
    left = torch.randn(SIZE, SIZE, generator=made)
    right = torch.randn(SIZE, SIZE, generator=made)
    rows, columns = left.double(), right.double()
    scale = torch.outer(rows.norm(dim=1), columns.norm(dim=0))
    return Product(left, right, rows @ columns, scale)


def matmul(device: str) -> Outcome:
    """A 1000 x 1000 product in float32 agrees with float64 on the CPU, at every element."""
    import torch

    sound = product()
    found = (sound.left.to(device) @ sound.right.to(device)).to("cpu").double()
    errors = (found - sound.exact).abs_().div_(sound.scale)
    worst = float(errors.max().item())
    precision = read_precision(torch, device, capability_of(torch, device))
    limit = matmul_limit(precision.name, SIZE)
    detail = f"{SIZE} x {SIZE} float32 against float64{_as(precision)}"
    if worst <= limit:
        return Outcome(PASSED, detail, worst, limit, RELATIVE)
    if worst != worst:
        return Outcome(FAILED, f"{detail}: not a number", None, limit, RELATIVE, _next(None))
    wrong = int((errors > limit).sum().item())
    looks = coarser(worst, wrong, precision)
    as_if = f", as {looks} arithmetic would make them" if looks else ""
    detail = f"{detail}: {wrong} of {SIZE * SIZE} elements are wrong{as_if}"
    return Outcome(FAILED, detail, worst, limit, RELATIVE, _next(looks))


def _as(precision: Precision) -> str:
    return f", {precision.name} by {precision.because}" if precision.name != "ieee" else ""


def coarser(worst: float, wrong: int, precision: Precision) -> Optional[str]:
    """The coarser arithmetic that an error looks like; it would spoil most elements.

    >>> ieee = Precision("ieee", "")
    >>> coarser(5e-5, 990_000, ieee), coarser(1e-3, 990_000, ieee), coarser(5e-5, 3, ieee)
    ('tf32', 'bf16', None)
    """
    if 2 * wrong < SIZE * SIZE:
        return None
    u = UNIT_ROUNDOFF[precision.name]
    names = sorted(UNIT_ROUNDOFF, key=lambda name: UNIT_ROUNDOFF[name])
    fitting = [n for n in names if UNIT_ROUNDOFF[n] > u and worst <= matmul_limit(n, SIZE)]
    return fitting[0] if fitting else None


def _next(name: Optional[str]) -> str:
    if name:
        return f"something that torch's settings do not show switches {name} on: `env` may tell"
    return "the device computes wrong numbers: run it again, then look for Xid and ECC in `dmesg`"


def capability_of(torch: Any, device: str) -> Optional[Tuple[int, int]]:
    """The compute capability of a GPU; None for the CPU."""
    if not device.startswith("cuda"):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)


class Descent:
    """Plain gradient descent, as a GradScaler sees an optimizer.

    Not `torch.optim.SGD`: to construct one imports torch's compiler, which takes as long as torch.
    """

    def __init__(self, parameters: List[Any], rate: float) -> None:
        self.param_groups: List[Dict[str, Any]] = [{"params": parameters}]
        self.rate = rate

    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data.add_(parameter.grad, alpha=-self.rate)


class Training(NamedTuple):
    """What a few steps did."""

    losses: Tuple[float, ...]
    finite: bool
    """Whether every parameter is."""
    moved: bool
    """Whether every parameter changed."""
    scaled: bool
    """Whether the scaler never met a gradient that is no finite number; none should be here."""
    low: str
    """The dtype in which autocast really multiplied."""
    wanted: str


def amp(device: str) -> Outcome:
    """A few steps of mixed-precision training lower the loss and keep the parameters finite."""
    return judged(train(device))


def train(device: str) -> Training:
    """float16 with a GradScaler on GPUs, bfloat16 on the CPU."""
    import torch

    on_gpu = device.startswith("cuda")
    low = torch.float16 if on_gpu else torch.bfloat16
    inputs, targets, parameters = task(torch, device)
    first = [parameter.detach().clone() for parameter in parameters]
    descent = Descent(parameters, RATE)
    scaler = scaler_for(torch) if on_gpu else None
    losses = []
    for _ in range(STEPS):
        with torch.autocast(device_type=device.partition(":")[0], dtype=low):
            guess = forward(torch, inputs, parameters)
        loss = ((guess.float() - targets) ** 2).mean()
        losses.append(float(loss.item()))
        backward(loss, parameters, descent, scaler)
    return Training(
        tuple(losses),
        all(bool(torch.isfinite(each).all()) for each in parameters),
        not any(map(torch.equal, first, parameters)),
        scaler is None or float(scaler.get_scale()) >= FIRST_SCALE,
        str(guess.dtype).replace("torch.", ""),
        str(low).replace("torch.", ""),
    )


def task(torch: Any, device: str) -> Tuple[Any, Any, List[Any]]:
    """Inputs, targets and the parameters of a net of two layers; the same numbers everywhere."""
    made = torch.Generator().manual_seed(asked().seed)
    inputs = torch.randn(128, 32, generator=made)
    targets = torch.tanh(inputs @ torch.randn(32, 8, generator=made) / 4)
    shapes = ((32, 64), (64,), (64, 8), (8,))
    starts = [torch.randn(*shape, generator=made) / 6 for shape in shapes]
    parameters = [each.to(device).requires_grad_() for each in starts]
    return inputs.to(device), targets.to(device), parameters


def forward(torch: Any, inputs: Any, parameters: List[Any]) -> Any:
    into, into_bias, out, out_bias = parameters
    return torch.addmm(out_bias, torch.relu(torch.addmm(into_bias, inputs, into)), out)


def scaler_for(torch: Any) -> Any:
    """`torch.amp.GradScaler` from torch 2.3 on, before that the one of `torch.cuda.amp`."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", init_scale=FIRST_SCALE)
    return torch.cuda.amp.GradScaler(init_scale=FIRST_SCALE)


def backward(loss: Any, parameters: List[Any], descent: Descent, scaler: Any) -> None:
    """One step down, through the scaler where there is one."""
    for parameter in parameters:
        parameter.grad = None
    if scaler is None:
        loss.backward()
        descent.step()
        return
    scaler.scale(loss).backward()
    scaler.step(descent)
    scaler.update()


def judged(done: Training) -> Outcome:
    """The outcome of a training; what is wrong is said most exact first."""
    left = done.losses[-1] / done.losses[0] if done.losses[0] else float("nan")
    for sound, complaint in (
        (done.low == done.wanted, f"autocast multiplied in {done.low}, not in {done.wanted}"),
        (done.finite, "parameters are no longer finite"),
        (done.scaled, "gradients were not finite, where nothing overflows"),
        (left == left, "the loss is not a number"),
        (done.moved, "parameters did not move: gradients are missing or zero"),
        (left <= LOSS_LEFT, "the loss does not fall as it should"),
    ):
        if not sound:
            return _wrong(done, left, complaint)
    return Outcome(PASSED, f"{STEPS} steps in {done.low}, the loss falls", left, LOSS_LEFT, LEFT)


LEFT = "of the first loss"


def _wrong(done: Training, left: float, complaint: str) -> Outcome:
    return Outcome(
        FAILED,
        f"{STEPS} steps in {done.wanted}: {complaint}",
        left if left == left else None,
        LOSS_LEFT,
        LEFT,
        "mixed precision cannot be trusted here: `gpusetup doctor`, then another build of torch",
    )
