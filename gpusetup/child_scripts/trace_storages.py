"""Counts the bytes of every storage as it comes, is resized, and goes. Python 3.8 syntax.

A `Ledger` is told of each storage once: by the dispatch mode when an operator returns it, by the
patched `resize_` when FSDP2 frees or fills it, and by a weak reference when it dies. No walk over
what is alive: the log of changes is replayed once at the end.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

STANDING = "standing"
"""The phase of what was there before the step began."""


class Ledger:
    """The changes of memory, in order, and who made each storage."""

    def __init__(self) -> None:
        self.changes: List[Tuple[int, int, str]] = []
        """(number of the storage, bytes more or less, phase); 0 bytes where a phase begins."""
        self.sizes: List[int] = []
        """The present bytes of each storage, 0 once it is gone."""
        self.labels: List[Tuple[str, str]] = []
        """(kind, module) of each storage; `@forward` where only the phase that made it is known."""
        self.phase = STANDING
        self.modules: List[str] = [""]
        """The modules that are running, innermost last."""
        self._alive: Dict[int, Tuple[int, Any]] = {}

    def begin(self, phase: str) -> None:
        self.phase = phase
        self.modules[:] = [""]
        self.changes.append((0, 0, phase))

    def restart(self) -> None:
        """Forget the past: what is alive now is what stands before the next step."""
        self.phase = STANDING
        alive = ((number, size) for number, size in enumerate(self.sizes) if size)
        self.changes = [(number, size, STANDING) for number, size in alive]

    def see(self, value: Any) -> None:
        """Count the storages of every tensor in `value` that is not known yet."""
        for tensor in tensors_in(value):
            self._see(tensor.untyped_storage())

    def label(self, value: Any, kind: str, module: str = "") -> None:
        """Say what the storages of `value` are; an earlier word is overwritten."""
        for tensor in tensors_in(value):
            self.labels[self._see(tensor.untyped_storage())] = (kind, module)

    def resized(self, storage: Any) -> None:
        """A storage was given another size in place: from then on it counts as gathered."""
        number = self._see(storage)
        self._change(number, storage.nbytes() - self.sizes[number])
        self.labels[number] = ("gathered", self.labels[number][1] or self.modules[-1])

    def passing(self, size: int) -> None:
        """Something of `size` bytes came and went within one operator."""
        number = self._new(size)
        self._change(number, -size)

    def _see(self, storage: Any) -> int:
        key = storage._cdata
        known = self._alive.get(key)
        if known is not None:
            return known[0]
        number = self._new(storage.nbytes())

        def gone(_: Any) -> None:
            del self._alive[key]
            self._change(number, -self.sizes[number])

        self._alive[key] = (number, weakref.ref(storage, gone))
        return number

    def _new(self, size: int) -> int:
        self.sizes.append(0)
        self.labels.append(("@" + self.phase, self.modules[-1]))
        self._change(len(self.sizes) - 1, size)
        return len(self.sizes) - 1

    def _change(self, number: int, difference: int) -> None:
        if difference:
            self.sizes[number] += difference
            self.changes.append((number, difference, self.phase))

    # --- what it says at the end ---------------------------------------------------------------

    def peaks(self) -> Dict[str, Tuple[int, int]]:
        """Phase -> (most bytes at once in it, after how many changes)."""
        found: Dict[str, Tuple[int, int]] = {}
        total = 0
        for done, (_, difference, phase) in enumerate(self.changes, 1):
            total += difference
            found[phase] = max(found.get(phase, (0, 0)), (total, done), key=lambda one: one[0])
        return found

    def standing_at(self, done: int) -> Dict[Tuple[str, str], int]:
        """(kind, module) -> bytes, after the first `done` changes."""
        held: Dict[Tuple[str, str], int] = defaultdict(int)
        for number, difference, _ in self.changes[:done]:
            held[self.labels[number]] += difference
        return {label: size for label, size in held.items() if size}


def workspace(function: Any, arguments: Any) -> int:
    """The bytes that an operator takes for itself while it runs, beyond what it returns.

    Only a convolution's backward has one here: the kernels bring the gradient and the input into
    their own layout (oneDNN: a copy of each, seen in the allocator's events; cuDNN does likewise
    where channels come first and it computes in another order).
    """
    if function is not torch.ops.aten.convolution_backward.default:
        return 0
    sizes: List[int] = [one.numel() * one.element_size() for one in arguments[:2]]
    return sum(sizes)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors in a nest of values; a DTensor or the like is opened."""
    for leaf in tree_iter(value):
        if not isinstance(leaf, torch.Tensor):
            continue
        if is_traceable_wrapper_subclass(leaf):
            yield from tensors_in([getattr(leaf, name) for name in leaf.__tensor_flatten__()[0]])
        else:
            yield leaf


@contextlib.contextmanager
def following(model: Any, ledger: Ledger) -> Iterator[None]:
    """While inside, the ledger knows which module of `model` runs, in forward and in backward."""
    names = {id(module): name for name, module in model.named_modules()}

    def enter(module: Any, _: Any) -> None:
        ledger.modules.append(names.get(id(module), ledger.modules[-1]))

    def leave(module: Any, _: Any, output: Any) -> None:
        name = ledger.modules.pop() if len(ledger.modules) > 1 else ""
        is_leaf = isinstance(output, torch.Tensor) and not module._modules
        if is_leaf and ledger.phase == "forward" and output.requires_grad:
            # When the gradient of its output is known, its own backward begins.
            output.register_hook(lambda _: ledger.modules.__setitem__(0, name))

    before = register_module_forward_pre_hook(enter)
    with before, register_module_forward_hook(leave, always_call=True):
        yield


class Counting(TorchDispatchMode):  # type: ignore[misc]
    """While it is entered, every storage that an operator makes is in the ledger.

    `guard(function, arguments, keywords)` is asked before each operator and may raise, or give
    a value that stands for the operator's answer (None: run it).
    """

    def __init__(self, ledger: Ledger, guard: Callable[..., Any]) -> None:
        super().__init__()
        self.ledger, self.guard = ledger, guard
        original = torch.UntypedStorage.resize_

        def resize_(storage: Any, size: int) -> Any:
            result = original(storage, size)
            ledger.resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize_  # the child ends with it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the wrapper's own tensors come by here next
        instead = self.guard(func, args, kwargs)
        result = func(*args, **kwargs) if instead is None else instead
        self.ledger.see(result)
        size = workspace(func, args)
        if size:
            self.ledger.passing(size)
        return result
