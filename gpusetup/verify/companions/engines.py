"""Kernels of engines and of layers that stand on torch, each against plain torch."""

from __future__ import annotations

from typing import Any

from ..judging.tolerance import agree, numbers
from .companion import Computed, companion, part

HALF = 4e-3


def normed(torch: Any, device: str, call: Any) -> Computed:
    """An RMS norm of halves against float64; `call` is given where to write, numbers, weights."""
    x, weight = numbers(torch, 8, 256, salt=31).half(), numbers(torch, 256, salt=32).half()
    here, found = x.to(device), torch.empty_like(x, device=device)
    found = call(found, here, weight.to(device))
    scale = (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return [agree("rms_norm", found, x.double() / scale * weight.double(), 4 * HALF)]


@companion("vllm", module="vllm._custom_ops", gpu=True, capability=(7, 0))
def vllm(torch: Any, ops: Any, device: str) -> Computed:
    def call(found: Any, x: Any, weight: Any) -> Any:
        ops.rms_norm(found, x, weight, 1e-6)
        return found

    return normed(torch, device, call)


@companion("sglang-kernel", "sgl-kernel", module="sgl_kernel", gpu=True, capability=(7, 5))
def sgl_kernel(torch: Any, kernels: Any, device: str) -> Computed:
    return normed(torch, device, lambda found, x, weight: kernels.rmsnorm(x, weight, 1e-6))


@companion("transformer-engine", module="transformer_engine.pytorch", gpu=True, capability=(8, 0))
def transformer_engine(torch: Any, te: Any, device: str) -> Computed:
    layer = te.Linear(64, 32, bias=False, params_dtype=torch.float32, device=device)
    x = numbers(torch, 16, 64, salt=35).to(device)
    with torch.no_grad():
        found = layer(x)
    exact = x.cpu().double() @ layer.weight.detach().cpu().double().T
    return [agree("linear", found, exact, 2e-2)]


@companion("causal-conv1d", gpu=True, capability=(7, 0))
def causal_conv1d(torch: Any, conv: Any, device: str) -> Computed:
    x = numbers(torch, 2, 16, 40, salt=36).to(device)
    weight = numbers(torch, 16, 4, salt=37).to(device)
    padded = torch.nn.functional.pad(x.cpu().double(), (3, 0))
    exact = torch.nn.functional.conv1d(padded, weight.cpu().double()[:, None], groups=16)
    return [agree("convolution", conv.causal_conv1d_fn(x, weight), exact, 1e-4)]


@companion("torch-geometric", against="the dense product")
def torch_geometric(torch: Any, pyg: Any, device: str) -> Computed:
    """One graph convolution is the normed adjacency times the features times the weights."""
    edges = torch.tensor([[0, 1, 1, 2, 3, 3], [1, 0, 2, 1, 2, 0]])
    x = numbers(torch, 4, 8, salt=38)
    layer = part("torch_geometric.nn").GCNConv(8, 5, bias=False).to(device)
    with torch.no_grad():
        found = layer(x.to(device), edges.to(device))
    near = torch.eye(4, dtype=torch.float64)
    near[edges[1], edges[0]] = 1.0
    less = near.sum(1).rsqrt()
    weight = layer.lin.weight.detach().cpu().double()
    exact = (less[:, None] * near * less[None]) @ x.double() @ weight.T
    return [agree("convolution", found, exact, 1e-4)]


@companion("torch-scatter", against="index_add")
def torch_scatter(torch: Any, scatter: Any, device: str) -> Computed:
    x, places = numbers(torch, 40, 6, salt=39), torch.arange(40) % 7
    found = scatter.scatter(x.to(device), places.to(device), dim=0, reduce="sum")
    exact = torch.zeros(7, 6, dtype=torch.float64).index_add(0, places, x.double())
    return [agree("sum", found, exact, 1e-4)]


@companion("triton", "triton-windows", module="triton", gpu=True, capability=(7, 0))
def triton(torch: Any, tri: Any, device: str) -> Computed:
    """A kernel that is compiled here adds two vectors."""
    from .triton_kernel import added

    a, b = (numbers(torch, 1000, salt=each).to(device) for each in (41, 42))
    return [agree("sum", added(torch, tri, a, b), a.cpu().double() + b.cpu().double(), 1e-6)]
