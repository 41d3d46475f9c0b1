"""What computes with fewer bits, and the other frameworks that share the GPU with torch."""

from __future__ import annotations

from typing import Any

from ..judging.tolerance import agree, holds, numbers, same, summed
from ..values import kind
from .companion import CannotHere, Computed, companion, part
from .model_bytes import product_model


def product(torch: Any, salt: int) -> Any:
    """Two matrices in float32 on the CPU, their product in float64, and what it may be off."""
    a, b = numbers(torch, 48, 64, salt=salt), numbers(torch, 64, 32, salt=salt + 1)
    exact = a.double() @ b.double()
    return a, b, exact, summed(64) * (a.double().abs() @ b.double().abs())


@companion("bitsandbytes", against="whole numbers")
def bitsandbytes(torch: Any, bits: Any, device: str) -> Computed:
    """A product in 8 bits is exact; numbers packed into 8 bits come back near."""
    source = torch.Generator().manual_seed(5)
    a = torch.randint(-127, 128, (16, 64), generator=source, dtype=torch.int8)
    b = torch.randint(-127, 128, (32, 64), generator=source, dtype=torch.int8)
    found = bits.functional.int8_linear_matmul(a.to(device), b.to(device))
    x = numbers(torch, 4096, salt=6).to(device)
    packed, state = bits.functional.quantize_blockwise(x)
    back = bits.functional.dequantize_blockwise(packed, state)
    exact = (a.long() @ b.long().T).to(torch.int32)
    return [same("int8 product", found.cpu(), exact), agree("8 bits and back", back, x, 0.1)]


@companion("torchao", against="the weights in float32")
def torchao(torch: Any, ao: Any, device: str) -> Computed:
    """A layer with weights of 8 bits computes what it computed before, but for their rounding."""
    quantization = part("torchao.quantization")
    x = numbers(torch, 8, 64, salt=7).to(device)
    layer = torch.nn.Linear(64, 32, bias=False)
    with torch.no_grad():
        layer.weight.copy_(numbers(torch, 32, 64, salt=8))
        weight = layer.weight.detach().clone().double()
        small = torch.nn.Sequential(layer).to(device)
        quantization.quantize_(small, quantization.Int8WeightOnlyConfig())
        found = small(x)
    step = weight.abs().amax(1) / 127
    allowed = x.double().cpu().abs().sum(1)[:, None] * step[None] * 0.6 + 1e-4
    return [agree("linear", found, x.double().cpu() @ weight.T, allowed)]


@companion("onnxruntime-gpu", "onnxruntime", module="onnxruntime")
def onnxruntime(torch: Any, ort: Any, device: str) -> Computed:
    """A product by a session that really runs on the device: it falls back in silence."""
    wanted = "CUDAExecutionProvider" if kind(device) == "cuda" else "CPUExecutionProvider"
    if wanted not in ort.get_available_providers():
        raise CannotHere("this is its build for the CPU; onnxruntime-gpu has the GPU's")
    a, b, exact, allowed = product(torch, 21)
    index = {"device_id": int(device.partition(":")[2] or 0)} if kind(device) == "cuda" else {}
    session = ort.InferenceSession(product_model(48, 64, 32), providers=[(wanted, index)])
    used = session.get_providers()
    (found,) = session.run(None, {"a": a.numpy(), "b": b.numpy()})
    told = f"it fell back to {used[0]}: its CUDA libraries do not load"
    loose = allowed * (64 if kind(device) == "cuda" else 1)  # its CUDA products are TF32
    return [
        holds("provider", used[0] == wanted, told),
        agree("product", torch.from_numpy(found), exact, loose),
    ]


@companion("jax")
def jax(torch: Any, jaxed: Any, device: str) -> Computed:
    """A product on the same device as torch, in full float32."""
    places = devices_of(jaxed, "gpu" if kind(device) == "cuda" else "cpu")
    if not places:
        raise CannotHere("it sees no GPU: `jax[cuda13]` brings what it computes with there")
    a, b, exact, allowed = product(torch, 23)
    with jaxed.default_device(places[0]):
        found = jaxed.numpy.matmul(a.numpy(), b.numpy(), precision="highest")
    return [agree("product", torch.from_numpy(to_numpy(found)), exact, allowed)]


def devices_of(jaxed: Any, platform: str) -> Any:
    try:
        return jaxed.devices(platform)
    except RuntimeError:
        return []


def to_numpy(found: Any) -> Any:
    import numpy

    return numpy.array(found)


@companion("cupy-cuda13x", "cupy-cuda12x", "cupy", module="cupy", gpu=True, capability=(5, 0))
def cupy(torch: Any, cu: Any, device: str) -> Computed:
    a, b, exact, allowed = product(torch, 25)
    with cu.cuda.Device(int(device.partition(":")[2] or 0)):
        found = cu.asnumpy(cu.asarray(a.numpy()) @ cu.asarray(b.numpy()))
    return [agree("product", torch.from_numpy(found), exact, allowed * 64)]


@companion("tensorflow")
def tensorflow(torch: Any, tf: Any, device: str) -> Computed:
    on_gpu = kind(device) == "cuda"
    if on_gpu and not tf.config.list_physical_devices("GPU"):
        raise CannotHere("it sees no GPU: `tensorflow[and-cuda]` in an environment of its own")
    a, b, exact, allowed = product(torch, 27)
    with tf.device("/GPU:0" if on_gpu else "/CPU:0"):
        found = tf.linalg.matmul(a.numpy(), b.numpy()).numpy()
    return [agree("product", torch.from_numpy(found), exact, allowed * (64 if on_gpu else 1))]


@companion("numba", against="whole numbers")
def numba(torch: Any, nb: Any, device: str) -> Computed:
    """A loop compiled for the CPU adds whole numbers rightly."""
    looped = torch.tensor([int(nb.njit(squares_below)(1000))])
    return [same("loop", looped, torch.tensor([squares_below(1000)]))]


def squares_below(limit: int) -> int:
    found = 0
    for each in range(limit):
        found += each * each
    return found


@companion("numba-cuda", module="numba.cuda", gpu=True, capability=(5, 0), against="whole numbers")
def numba_cuda(torch: Any, cuda: Any, device: str) -> Computed:
    """A kernel compiled for the GPU writes each number in its place."""
    import numpy

    def doubled(values: Any) -> None:
        place = cuda.grid(1)
        if place < values.size:
            values[place] = 2 * values[place] + 1

    values = numpy.arange(1000, dtype=numpy.int64)
    with cuda.gpus[int(device.partition(":")[2] or 0)]:
        there = cuda.to_device(values)
        cuda.jit(doubled)[8, 128](there)
        found = there.copy_to_host()
    return [same("kernel", torch.from_numpy(found), torch.arange(1000) * 2 + 1)]
