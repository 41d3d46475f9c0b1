"""The layer of faults: contexts in which torch computes wrongly, for tests only.

`Operator` changes what one operator of the dispatcher returns, whatever in torch called it, also in
backward; results in float64 stay right unless asked for, because they are the reference. `Function`
sees the calls of torch's Python interface, `patched` replaces an attribute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Change = Callable[[Any, tuple[Any, ...]], Any]
When = Callable[[Any, tuple[Any, ...]], bool]


def always(found: Any, args: tuple[Any, ...]) -> bool:
    return True


class Operator(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Changes what operators return (`change(found, args)`), where `when(found, args)` holds."""

    def __init__(self, names: str, change: Change, when: When = always, exact: bool = False):
        super().__init__()
        self.names, self.change, self.when, self.exact = names.split(), change, when, exact

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in self.names or not self.concerns(found):
            return found
        return self.change(found, args) if self.when(found, args) else found

    def concerns(self, found: Any) -> bool:
        first = found[0] if isinstance(found, (tuple, list)) and found else found
        return self.exact or getattr(first, "dtype", None) != torch.float64


class Function(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Changes what a function of torch's Python interface does: `instead(func, args, kwargs)`."""

    def __init__(self, name: str, instead: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.instead = name, instead

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == self.name:
            return self.instead(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """`owner.name` is what `make` makes of it."""
    before = getattr(owner, name)
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def scaled(by: float) -> Change:
    """Everything is a little too large."""
    return lambda found, _: found * by


def element(by: float, place: int = 5) -> Change:
    """One element is wrong."""

    def change(found: Any, _: Any) -> Any:
        found = found.clone(memory_format=torch.contiguous_format)
        found.view(-1)[place] += by
        return found

    return change


def part(index: int, change: Change) -> Change:
    """Changes one of several results."""

    def several(found: Any, args: Any) -> Any:
        kept = list(found)
        kept[index] = change(kept[index], args)
        return tuple(kept)

    return several


def turned_bit(bit: int, place: int) -> Change:
    """One bit of one whole number is the other one; in place, as memory would do it."""

    def change(found: Any, _: Any) -> Any:
        found.view(-1)[place] ^= 1 << bit
        return found

    return change


def one_step(found: Any, _: Any) -> Any:
    """The first element is the next number but one of its format: the lowest bits are wrong."""
    raw = found.contiguous().clone()
    raw.view(torch.int16).view(-1)[0] += 2
    return raw


def coarse(bits: int) -> Change:
    """float32 numbers without their lowest bits, as a coarser format keeps them."""
    mask = ~((1 << bits) - 1)
    return lambda found, _: (found.contiguous().view(torch.int32) & mask).view(torch.float32)


def shaped(*shape: int) -> When:
    return lambda found, _: tuple(found.shape) == shape


def kept_as(name: str) -> When:
    return lambda found, _: str(found.dtype) == f"torch.{name}"


def dropout_of(share: float) -> Any:
    """Whether a call is a dropout of that share."""
    return lambda args, kwargs: share in (*args[1:2], kwargs.get("p"))


def part_of(change: Callable[[Any], None]) -> Change:
    """A change of the elements in their order."""

    def changed(found: Any, _: Any) -> Any:
        found = found.clone(memory_format=torch.contiguous_format)
        change(found.view(-1))
        return found

    return changed
