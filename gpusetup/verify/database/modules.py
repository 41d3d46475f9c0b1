"""torch's own database of modules (`module_db`) as calls: weights and buffers are arguments, too.

So one comparison judges what a module answers, the gradients of its inputs and weights, and what
it writes into its buffers (the running mean of a batch norm).
"""

from __future__ import annotations

import random
import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .calls import Call, mapped
from .forms import Question, form
from .loading import kept_chance, seeded
from .rules import CHAIN_ROOM, CHAINS, HALVES, LEFT_OUT, matches, reason
from .ways import Way, after_other_numbers, directly

FORMATS = ("float32", *HALVES)
MODES = ("train", "eval")


class Case(NamedTuple):
    """One module of the database and what it is called with, in float32."""

    made: Callable[[], Any]
    given: Tuple[Any, ...]
    options: Dict[str, Any]


class Packed(NamedTuple):
    """A packed sequence; its sizes stay on the CPU."""

    data: Any
    sizes: Tuple[int, ...]


class ModuleEntry(NamedTuple):
    name: str
    info: Any
    """torch's `ModuleInfo`."""

    def modes(self) -> Tuple[str, ...]:
        differ = self.info.train_and_eval_differ or self.name.startswith("nn.Transformer")
        return MODES if differ else MODES[:1]

    def cases(self, torch: Any, mode: str, seed: int) -> List[Case]:
        with kept_chance(torch):
            seeded(torch, zlib.crc32(f"{seed}:{self.name}:{mode}".encode()))
            found = self.info.module_inputs_func(
                self.info,
                device="cpu",
                dtype=torch.float32,
                requires_grad=True,
                training=mode == "train",
            )
            return [self._case(each) for each in found if each.forward_input is not None]

    def _case(self, given: Any) -> Case:
        built, called = given.constructor_input, given.forward_input

        def made() -> Any:
            return self.info.module_cls(*built.args, **built.kwargs)

        return Case(made, tuple(called.args), dict(called.kwargs))

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[Question]:
        """One case, with weights of its own."""
        modes = self.modes()
        mode = modes[turn % len(modes)]
        dtype = FORMATS[turn // len(modes) % len(FORMATS)]
        words = f"{seed}:{self.name}:{turn}"
        chance = random.Random(words)
        cases = self.cases(torch, mode, seed)
        if not cases:
            return None
        case = chance.choice(cases)
        made = torch.Generator().manual_seed(chance.getrandbits(62))
        with kept_chance(torch):
            seeded(torch, chance.getrandbits(31))
            module = case.made().train(mode == "train")
        steady(torch, module)
        state = {name: _weight(torch, x, made) for name, x in module.named_parameters()}
        state.update({name: _buffer(torch, name, x, made) for name, x in module.named_buffers()})
        low = getattr(torch, dtype)

        def lowered(x: Any) -> Any:
            y = x.detach().to(low) if x.dtype == torch.float32 else x.detach()
            return y.requires_grad_(x.requires_grad)

        arguments = (state, *(_packed(torch, each) for each in case.given))
        options = mapped(torch, case.options, lowered)
        call = Call(mapped(torch, arguments, lowered), options, lambda x: x)
        return Question(
            Module(self.name, module, _room(self.name, dtype)), dtype, turn, call, words, form(turn)
        )


class Module(NamedTuple):
    """One module that is computed with; the shape of what `compared` takes for an entry."""

    name: str
    module: Any
    room: float = 1.0
    unique: bool = True

    def run(self, state: Dict[str, Any], *given: Any, **options: Any) -> Any:
        put(self.module, state)
        args = [unpacked(each) for each in given]
        if self.name == "nn.BCELoss":  # a target that is moved stays a probability
            args[1] = args[1].clamp(0, 1)
        found = self.module(*args, **options)
        padded = options.get("src_key_padding_mask")
        if self.name == "nn.TransformerEncoder" and padded is not None and padded.dim() == 2:
            # What stands at padded places differs by the path that is taken.
            found = found.masked_fill(padded.unsqueeze(-1), 0.0)
        return found

    def other_ways(self, asked: Question) -> Iterator[Tuple[str, Way, str, bool]]:
        """Without gradients, where faster kernels are taken, and with channels last."""
        call = asked.call
        padded = call.options.get("src_key_padding_mask") is not None
        # The encoder's fast path puts noughts at padded places, which the decoder then reads.
        if not (padded and self.name == "nn.Transformer"):
            yield "for inference", directly, "", False
            yield "again", after_other_numbers, "", True
        if any(x.dim() in (4, 5) for x in call.given[1:] if hasattr(x, "dim")):
            yield "", directly, "channels-last", True


def put(module: Any, state: Dict[str, Any]) -> None:
    """These tensors become the module's weights and buffers."""
    for name, tensor in state.items():
        home, _, last = name.rpartition(".")
        owner = module.get_submodule(home)
        kind = owner._parameters if last in owner._parameters else owner._buffers
        kind[last] = tensor
    for each in module.modules():
        if hasattr(each, "_flat_weights_names"):  # a recurrent net keeps a list of its weights
            each._flat_weights = [getattr(each, name) for name in each._flat_weights_names]
            each.flatten_parameters()


def unpacked(given: Any) -> Any:
    if not isinstance(given, Packed):
        return given
    import torch

    return torch.nn.utils.rnn.PackedSequence(given.data, torch.tensor(given.sizes))


def entries(infos: List[Any]) -> Dict[str, ModuleEntry]:
    """By name; without those that are left out."""
    found: Dict[str, ModuleEntry] = {}
    for info in infos:
        if not reason(LEFT_OUT, info.name):
            found.setdefault(info.name, ModuleEntry(info.name, info))
    return found


def _room(name: str, dtype: str) -> float:
    if not matches(name, CHAINS):
        return 1.0
    return CHAIN_ROOM * (2.0 if dtype in HALVES else 1.0)


def _packed(torch: Any, given: Any) -> Any:
    if isinstance(given, torch.nn.utils.rnn.PackedSequence):
        return Packed(given.data, tuple(given.batch_sizes.tolist()))
    return given


def steady(torch: Any, module: Any) -> None:
    """No dropout draws in it."""
    for each in module.modules():
        if isinstance(each, torch.nn.modules.dropout._DropoutNd):
            each.p = 0.0
        elif isinstance(getattr(each, "dropout", None), float):
            each.dropout = 0.0


def _weight(torch: Any, x: Any, made: Any) -> Any:
    """Near the value that it starts from; no bias is nought, no scale is one."""
    y = x.detach()
    if y.is_floating_point():
        y = y + 0.1 * torch.randn(tuple(y.shape), generator=made)
    return y.requires_grad_(y.is_floating_point())


def _buffer(torch: Any, name: str, x: Any, made: Any) -> Any:
    if name.rpartition(".")[2] not in ("running_mean", "running_var"):
        return x.detach().clone()
    drawn = torch.rand(tuple(x.shape), generator=made)
    return drawn + 0.5 if name.endswith("var") else drawn
