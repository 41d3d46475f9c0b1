"""What ordinary code does to a model before its first step, made to work without values.

Moving and casting modules, filling parameters, compiling. Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch
from torch import nn

compiled = [0]
"""How often the code asked for `torch.compile`, which a trace leaves out."""


def install() -> None:
    """Put all of it in the place of torch's own; the child ends with it."""
    from torch._subclasses.fake_tensor import FakeTensor

    nn.Module._apply = apply
    FakeTensor.__deepcopy__ = copied
    for name in dir(nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(nn.init, name, lambda tensor, *_, **__: tensor)  # there is nothing to fill
    torch.compile = leave_out
    nn.Module.compile = leave_out


def apply(module: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
    """`nn.Module._apply` for tensors without values: each parameter stays the same object.

    torch's own swaps such tensors, which weak references forbid (`Couldn't swap ...`).
    """
    for child in module.children() if recurse else ():
        child._apply(function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            module._parameters[name] = moved(parameter, function)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


def moved(parameter: Any, function: Callable[[Any], Any]) -> Any:
    """The parameter after the function; another object only on another device (meta)."""
    with torch.no_grad():
        result = function(parameter)
        grad = None if parameter.grad is None else function(parameter.grad)
    if result is parameter:
        return parameter
    if result.device != parameter.device:
        return nn.Parameter(result, requires_grad=parameter.requires_grad)
    parameter.grad = None
    parameter.data = result
    parameter.grad = grad
    return parameter


def copied(tensor: Any, memo: Dict[int, Any]) -> Any:
    """`copy.deepcopy` of a tensor: torch's own copies the bytes, which one without values lacks."""
    if id(tensor) not in memo:
        new = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if is_parameter else new
    return memo[id(tensor)]


def leave_out(model: Any = None, *_: Any, **__: Any) -> Any:
    """`torch.compile`, as a function and as a decorator: the model itself."""
    compiled[0] += 1
    return (lambda function: function) if model is None else model


# --- dropout ------------------------------------------------------------------------------------


def dropout_as_on_cuda() -> None:
    """CUDA's dropout keeps a mask of one byte an element, the CPU's one as wide as its input.

    Flash and memory-efficient attention keep the state of the random numbers alone, where the CPU
    would leave them for the form that holds every pair.
    """
    whole = nn.functional.dropout
    attend = nn.functional.scaled_dot_product_attention

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and not inplace and 0 < p < 1 and input.is_floating_point():
            return torch.native_dropout(input, p, True)[0]
        return whole(input, p, training, inplace)

    def attention(
        query: Any, key: Any, value: Any, mask: Any = None, p: float = 0.0, *more: Any, **named: Any
    ) -> Any:
        named.pop("dropout_p", None)
        return attend(query, key, value, named.pop("attn_mask", mask), 0.0, *more, **named)

    nn.functional.dropout = dropout
    nn.functional.scaled_dot_product_attention = attention
    torch.dropout = lambda input, p, train: dropout(input, p, train)
