"""Checks that train small models: mixed precision, a GradScaler with overflows, a language model,
and reproducibility."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.utils.checkpoint import checkpoint

from ..judging.precision import UNIT_ROUNDOFF, has_bfloat16, read_precision
from ..judging.tolerance import Part, agree, holds, judged, numbers, same, source
from ..values import PASSED, SKIPPED, Outcome, asked, kind

STEPS = 12
"""How many steps the mixed-precision training takes."""
RATE = 1.0
"""The learning rate of `Descent`."""
LOSS_LEFT = 0.5
"""The loss after STEPS, as a share of the first loss, must not exceed this. It is a quarter on a
healthy device."""
FIRST_SCALE = 2.0**10
"""The initial scale: large enough to test scaling, and small enough that nothing overflows in
float16 here."""


class Descent:
    """Plain gradient descent with the interface that a GradScaler expects of an optimizer.

    We do not use `torch.optim.SGD`, because constructing it imports torch's compiler, which takes
    as long as importing torch.
    """

    def __init__(self, parameters: List[Any]) -> None:
        group: Dict[str, Any] = {"params": parameters}
        self.param_groups = [group]

    def step(self) -> None:
        """Subtract the gradient times the learning rate from each parameter."""
        group = self.param_groups[0]
        for parameter in group["params"]:
            parameter.data.add_(parameter.grad, alpha=-RATE)


class Training(NamedTuple):
    """The losses of a mixed-precision training run, and the number format of its products."""

    losses: List[float]
    product_format: str
    """The number format in which autocast really multiplied."""


def trained(device: str, low: Any, scaler: Any) -> Training:
    """Train a two-layer network under autocast, with a GradScaler or None.

    The network and its inputs are the same on every device.
    """
    torch.manual_seed(asked().seed)
    # Draw the network and its inputs on the CPU, so that every device trains with the same numbers.
    inputs = torch.randn(128, 32)
    targets = torch.tanh(inputs @ torch.randn(32, 8) / 4).to(device)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    parameters = list(net.to(device).parameters())
    descent = Descent(parameters)
    inputs = inputs.to(device)
    losses = []
    for _ in range(STEPS):
        for parameter in parameters:
            # Clear the gradients, which would otherwise add up over all steps.
            parameter.grad = None
        with torch.autocast(device_type=kind(device), dtype=low):
            outputs = net(inputs)
        loss = ((outputs.float() - targets) ** 2).mean()
        losses.append(float(loss.item()))
        if scaler is None:
            loss.backward()
            descent.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(descent)
            scaler.update()
    return Training(losses, str(outputs.dtype))


def scaler_of(device: str, scale: float) -> Any:
    """A GradScaler with this initial scale: `torch.amp.GradScaler` from torch 2.3 on, and
    `torch.cuda.amp.GradScaler` before."""
    options = {"init_scale": scale, "growth_interval": 8}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind(device), **options)
    return torch.cuda.amp.GradScaler(**options)


def formats_of_autocast(device: str) -> List[Any]:
    """The number formats that mixed precision usually uses on this kind of device."""
    if kind(device) == "mps":
        return [torch.float16]
    formats = [torch.float16] if kind(device) == "cuda" else []
    if has_bfloat16(torch, device):
        formats.append(torch.bfloat16)
    return formats


def amp(device: str) -> Outcome:
    """Train a few steps in mixed precision: in bfloat16 if the device has it, and on GPUs in
    float16 with a GradScaler.

    It catches autocast that does nothing, a scaler that lowers its scale without an overflow, and a
    loss that does not fall.
    """
    formats = formats_of_autocast(device)
    parts: List[Part] = []
    for low in formats:
        # Models are often trained in float16 on Apple's GPUs too, but older releases of torch have
        # no GradScaler for these GPUs.
        is_scaled = low == torch.float16 and kind(device) == "cuda"
        scaler = scaler_of(device, FIRST_SCALE) if is_scaled else None
        training = trained(device, low, scaler)
        product_format = training.product_format
        # Autocast may do nothing and report no error.
        problem = f"multiplied in {product_format}, not in {low}"
        parts.append(holds("autocast", product_format == str(low), problem))
        # Nothing overflows here, so a correct scaler does not lower its scale.
        if scaler:
            parts.append(holds("the scale", scaler.get_scale() >= FIRST_SCALE, "backed off"))
    names = " and ".join(str(low).replace("torch.", "") for low in formats)
    loss_left = training.losses[-1] / training.losses[0]
    is_lowered = loss_left < LOSS_LEFT
    parts.append(holds("the loss", is_lowered, f"{loss_left:.2f} of it is left"))
    outcome = judged(parts, "")
    if outcome.status != PASSED:
        return outcome
    detail = f"{STEPS} steps in {names}, the loss falls"
    return Outcome(PASSED, detail, loss_left, LOSS_LEFT, "of the first loss")


def grad_scaler(device: str) -> Outcome:
    """Check that a GradScaler notices overflows, skips their steps, and lowers its scale.

    It catches a kernel that misses infinity or NaN at some position of a gradient.
    """
    has_general_scaler = hasattr(torch.amp, "GradScaler")
    if kind(device) != "cuda" and not has_general_scaler:
        return Outcome(SKIPPED, f"torch {torch.__version__} has a GradScaler for GPUs only")
    parts = list(overflows_are_noticed(device))
    return judged(parts, "gradients that were scaled exactly")


SPOILT = (1, 7, 33, 1031, 65_543)
"""Sizes of gradients in which one number is made infinite or NaN; no size is a multiple of a vector
width."""


class Spoilt(NamedTuple):
    """The position of the one number that is infinite or NaN: the index of the gradient and of the
    element."""

    gradient: int
    element: int


def spoilt_numbers() -> Iterator[Spoilt]:
    """The first, middle and last element of each gradient."""
    for gradient, size in enumerate(SPOILT):
        # Use a set, because in a short gradient these positions coincide.
        for element in {0, size // 2, size - 1}:
            yield Spoilt(gradient, element)


def overflows_are_noticed(device: str) -> Iterator[Part]:
    """Check that a scaler notices a single infinity or NaN at any position of any gradient. If
    there is neither, the scaler must report no overflow and return the unscaled gradients."""
    # These are the gradients before scaling.
    gradients = [numbers(torch, size, salt=60 + number) for number, size in enumerate(SPOILT)]
    leaves = [torch.zeros(size, device=device) for size in SPOILT]
    scaler, descent = scaler_of(device, 8.0), Descent(leaves)
    # A scaler creates its scale when it is first used.
    scaler.scale(torch.ones((), device=device))
    turns: Tuple[Optional[Spoilt], ...] = (None, *spoilt_numbers())
    for turn, spoilt in enumerate(turns):
        scale = scaler.get_scale()
        for leaf, gradient in zip(leaves, gradients):
            leaf.grad = gradient.to(device) * scale
        expected_scale = scale
        if spoilt:
            # Use infinity and NaN in turn, because both count as overflows.
            value = float("inf" if turn % 2 else "nan")
            leaves[spoilt.gradient].grad[spoilt.element] = value
            expected_scale = scale / 2
        scaler.step(descent)
        scaler.update()
        new_scale = scaler.get_scale()
        words = tuple(spoilt) if spoilt else None
        is_right = new_scale == expected_scale
        yield holds(f"one number at {words}", is_right, f"the scale is {new_scale:g}")
    # The optimizer moved the parameters only in the turn without an infinity or NaN.
    for leaf, gradient in zip(leaves, gradients):
        yield same("one step of all", leaf, -RATE * gradient)


WORDS = 97
"""The size of the language model's vocabulary."""
WIDTH = 64
"""The width of the language model."""
LENGTH = 24
"""The number of words in a line."""
ROUNDINGS_OF_PASS = 256.0
"""The number of roundings in a forward and backward pass: some thirty operations in sequence, each
with a few roundings in sums of up to 256 terms."""


def transformer() -> Any:
    """A small transformer, in float32 on the CPU."""
    torch.manual_seed(asked().seed)
    nn = torch.nn
    heads, inner_width, dropout = 4, 4 * WIDTH, 0.0
    layer = nn.TransformerEncoderLayer(
        WIDTH, heads, inner_width, dropout, "gelu", batch_first=True, norm_first=True
    )
    # Switch nested tensors off, because they only speed up inference.
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), layers, nn.Linear(WIDTH, WORDS))


def text() -> Any:
    """Eight lines of random words."""
    generator = source(torch, 69)
    return torch.randint(0, WORDS, (8, LENGTH), generator=generator)


def loss_of(model: Any, words: Any) -> Any:
    """The loss of a model that predicts, for each word, the word before it."""
    previous_words = words.roll(1, 1).flatten()
    scores = model(words).flatten(0, 1)
    return torch.nn.functional.cross_entropy(scores, previous_words)


def language_model(device: str) -> Outcome:
    """Train a small transformer on the device, and compare its parameters with the same training in
    float64 on the CPU.

    Each of four steps accumulates two batches, clips the gradients, and uses momentum. The check
    catches faults that show only when layers, gradients and the optimizer work together.
    """
    # Both training runs start from the same parameters.
    model = transformer()
    words = text()
    exact_model = copy.deepcopy(model).double()
    exact_moves = moves_of_training(exact_model, words)
    moves = moves_of_training(model.to(device), words.to(device))
    precision = read_precision(torch, device)
    # The eight batches of the four steps give eight gradients, each with the error of one pass.
    allowed = 8 * ROUNDINGS_OF_PASS * UNIT_ROUNDOFF[precision.name]
    parts = []
    for name, exact_move in exact_moves.items():
        move = moves[name].cpu().double()
        # Divide the error by the distance that the parameter moved in the exact training.
        difference = (move - exact_move).norm()
        share = difference / exact_move.norm()
        parts.append(agree(name, share, torch.zeros(()), allowed))
    return judged(parts, "float64 on the CPU")


def moves_of_training(model: Any, words: Any) -> Dict[str, Any]:
    """How much each element of each parameter changed in the four steps, by parameter name."""
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    parameters = list(model.parameters())
    # The exact training updates one tensor after the other, while the training under test uses
    # kernels that update lists of tensors.
    on_lists = parameters[0].dtype == torch.float32
    optimizer = torch.optim.SGD(parameters, lr=0.5, momentum=0.9, foreach=on_lists)
    for _ in range(4):
        optimizer.zero_grad()
        # Accumulate gradients over two halves of a batch, each with half of the loss.
        for batch in words.split(4):
            half_of_loss = loss_of(model, batch) / 2
            half_of_loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
    moves = {}
    for name, value in model.named_parameters():
        moves[name] = value.detach() - start[name]
    return moves


def determinism(device: str) -> Outcome:
    """Check that the same seed gives the same bits twice, if torch promises it.

    It catches memory or a kernel that is wrong from time to time, and a seed that has no effect.
    """
    user_setting = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first = seeded_run(device, 0)
        second = seeded_run(device, 0)
        other_seed = seeded_run(device, 1)
        # Checkpointing draws the dropout twice, and both draws must be the same.
        checkpointed = seeded_run(device, 0, partial(checkpoint, use_reentrant=False))
    finally:
        torch.use_deterministic_algorithms(user_setting)
    parts = [same(name, second[name], first[name]) for name in first]
    parts += [same(f"{name}, checkpointed", checkpointed[name], first[name]) for name in first]
    # The comparisons above would also pass if the seed had no effect.
    differs = not torch.equal(other_seed["dropped"], first["dropped"])
    parts.append(holds("another seed", differs, "gives the same dropout"))
    hint = (
        "results are not reproducible here: run the check again; if it fails again, the device's "
        "memory may be faulty"
    )
    return judged(parts, "the same run, every bit", hint)


def call(function: Any, *args: Any) -> Any:
    """Call the function without checkpointing; it takes the same arguments as `checkpoint`."""
    return function(*args)


def seeded_run(device: str, shift: int, run: Any = call) -> Dict[str, Any]:
    """Run a convolution, dropout and a product, and return the results and gradients by name.

    `run` is the function that calls the dropout.
    """
    functional = torch.nn.functional
    torch.manual_seed((asked().seed + shift) % 2**63)
    image = torch.randn(16, 3, 24, 24, device=device)
    kernel = torch.randn(8, 3, 3, 3, device=device).requires_grad_()
    weight = torch.randn(8, 8 * 24 * 24, device=device).requires_grad_()
    features = functional.conv2d(image, kernel, padding=1).relu()
    dropped = run(functional.dropout, features, 0.25)
    outputs = functional.linear(dropped.flatten(1), weight)
    loss = outputs.square().mean()
    loss.backward()
    return {
        "dropped": dropped.detach(),
        "loss": loss.detach(),
        "gradient 0": kernel.grad,
        "gradient 1": weight.grad,
    }
