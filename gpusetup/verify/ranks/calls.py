"""How each collective is called, in each of its forms, and what it must give."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from .patterns import MOVED, REDUCTIONS
from .scene import Ended, Made, Scene, Start

BITS = tuple((dtype, "bits") for dtype in MOVED)
PHASES = (0, 5)
"""Where the tables begin in the tensors of one batch, so that each tells which it is."""


class Collective(NamedTuple):
    """A collective of `torch.distributed`."""

    forms: Dict[str, Made]
    """The ways to call it -> what makes the tensors and the call."""
    kinds: Tuple[Tuple[str, str], ...]
    """Formats, and how they are reduced (`bits`: moved only)."""
    transposed: bool = False
    """Whether it takes tensors whose elements lie in another order."""
    whole: bool = False
    """Whether the message holds a part for, or of, each rank."""


def _reduce_in_place(scene: Scene, count: int) -> List[Any]:
    """Tensors, each of which becomes the reduction of all members'."""
    sizes = [scene.size, scene.size // 2 + 1, 3][:count]
    scene.draw(scene.size)
    made = []
    for place, size in enumerate(sizes):
        tensor = scene.own(size, phase=7 * place)
        scene.expect(tensor, scene.summed, 7 * place)
        made.append(scene.shown(tensor))
    return made


def all_reduce(scene: Scene) -> Start:
    (tensor,) = _reduce_in_place(scene, 1)
    group = scene.members.handle
    return lambda later: scene.dist.all_reduce(tensor, scene.op, group=group, async_op=later)


def all_reduce_batch(scene: Scene) -> Start:
    tensors = _reduce_in_place(scene, 3)

    def each() -> None:
        for tensor in tensors:
            scene.dist.all_reduce(tensor, scene.op, group=scene.members.handle)

    return lambda later: _coalesced(scene, later, each)


def _coalesced(scene: Scene, later: bool, each: Callable[[], None]) -> Any:
    """Several calls as one, as FSDP and the tensor-parallel optimizers make them."""
    manager = scene.dist.distributed_c10d._coalescing_manager
    device = scene.torch.device(scene.group.device) if scene.group.backend == "nccl" else None
    with manager(group=scene.members.handle, device=device, async_ops=later) as handle:
        each()
    return handle if later else None


def _functional(scene: Scene, call: Callable[[Any], Any]) -> Tuple[Start, Callable[[], Any]]:
    """A collective that gives a new tensor: how it starts, and where the answer is."""
    import torch.distributed._functional_collectives as functional

    answers: List[Any] = []

    def start(later: bool) -> Any:
        answers.append(call(functional))
        if later:
            return Ended(lambda: functional.wait_tensor(answers[0]))
        functional.wait_tensor(answers[0])
        return None

    return start, lambda: answers[0]


def all_reduce_functional(scene: Scene) -> Start:
    scene.draw(scene.size)
    tensor = scene.given(scene.size)
    group = scene.backend_group
    how = scene.call.how
    start, answer = _functional(scene, lambda f: f.all_reduce(tensor, how, group))
    scene.expect(answer, scene.summed)
    return start


def reduce(scene: Scene) -> Start:
    scene.draw(scene.size)
    tensor, root = scene.own(scene.size), scene.place(scene.root)
    if scene.me == scene.root:
        scene.expect(tensor, scene.summed)
    group, shown = scene.members.handle, scene.shown(tensor)
    return lambda later: scene.dist.reduce(shown, root, scene.op, group=group, async_op=later)


def broadcast(scene: Scene) -> Start:
    scene.draw(scene.size)
    tensor, root = scene.own(scene.size), scene.place(scene.root)
    scene.expect(tensor, scene.rows[scene.root])
    shown = scene.shown(tensor)
    return lambda later: scene.dist.broadcast(
        shown, root, group=scene.members.handle, async_op=later
    )


def broadcast_buckets(scene: Scene) -> Start:
    """As DistributedDataParallel sends its parameters at its start."""
    scene.draw(scene.size)
    tensors = [scene.own(size, size % 11) for size in (scene.size, 5, scene.size // 2 + 1)]
    for tensor in tensors:
        scene.expect(tensor, scene.rows[scene.root], tensor.numel() % 11)
    send = scene.dist._broadcast_coalesced

    def start(later: bool) -> Any:
        del later
        send(scene.backend_group, tensors, 1 << 12, scene.root)

    return start


def _gathered(scene: Scene) -> Any:
    """This rank's part; that of every other one is expected in `_parts`."""
    scene.draw(scene.size)
    return scene.given(scene.size)


def _expect_parts(scene: Scene, found: Any, size: int, phase: int = 0) -> None:
    """One tensor with every member's part, in their order."""
    for member in range(scene.world):
        begin = member * size
        part = _slice(found, begin, begin + size)
        scene.expect(part, scene.rows[member], phase)


def _slice(found: Any, begin: int, end: int) -> Callable[[], Any]:
    return lambda: (found() if callable(found) else found).reshape(-1)[begin:end]


def all_gather(scene: Scene) -> Start:
    part = _gathered(scene)
    found = [scene.blank(scene.size) for _ in range(scene.world)]
    for member, tensor in enumerate(found):
        scene.expect(tensor, scene.rows[member])
    group = scene.members.handle
    return lambda later: scene.dist.all_gather(found, part, group=group, async_op=later)


def all_gather_tensor(scene: Scene) -> Start:
    part, found = _gathered(scene), scene.blank(scene.world * scene.size)
    _expect_parts(scene, found, scene.size)
    group = scene.members.handle
    return lambda later: scene.dist.all_gather_into_tensor(found, part, group, later)


def all_gather_batch(scene: Scene) -> Start:
    scene.draw(scene.size)
    parts = [scene.given(scene.size, phase) for phase in PHASES]
    found = [scene.blank(scene.world * scene.size) for _ in PHASES]
    for tensor, phase in zip(found, PHASES):
        _expect_parts(scene, tensor, scene.size, phase)

    def each() -> None:
        for tensor, part in zip(found, parts):
            scene.dist.all_gather_into_tensor(tensor, part, scene.members.handle)

    return lambda later: _coalesced(scene, later, each)


def all_gather_functional(scene: Scene) -> Start:
    part, group = _gathered(scene), scene.backend_group
    start, answer = _functional(scene, lambda f: f.all_gather_tensor(part, 0, group))
    _expect_parts(scene, answer, scene.size)
    return start


def gather(scene: Scene) -> Start:
    part, root = _gathered(scene), scene.place(scene.root)
    found = None
    if scene.me == scene.root:
        found = [scene.blank(scene.size) for _ in range(scene.world)]
        for member, tensor in enumerate(found):
            scene.expect(tensor, scene.rows[member])
    group = scene.members.handle
    return lambda later: scene.dist.gather(part, found, root, group, later)


def scatter(scene: Scene) -> Start:
    scene.draw(scene.world * scene.size)
    root, found = scene.place(scene.root), scene.blank(scene.size)
    scene.expect(found, scene.rows[scene.root], scene.me * scene.size)
    parts = None
    if scene.me == scene.root:
        parts = [scene.given(scene.size, member * scene.size) for member in range(scene.world)]
    group = scene.members.handle
    return lambda later: scene.dist.scatter(found, parts, root, group, later)


def _scattered(scene: Scene, found: Any, phase: int = 0) -> None:
    scene.expect(found, scene.summed, phase + scene.me * scene.size)


def reduce_scatter(scene: Scene) -> Start:
    scene.draw(scene.world * scene.size)
    parts = [scene.given(scene.size, member * scene.size) for member in range(scene.world)]
    found, group = scene.blank(scene.size), scene.members.handle
    _scattered(scene, found)
    return lambda later: scene.dist.reduce_scatter(found, parts, scene.op, group, later)


def reduce_scatter_tensor(scene: Scene) -> Start:
    scene.draw(scene.world * scene.size)
    whole, found = scene.given(scene.world * scene.size), scene.blank(scene.size)
    _scattered(scene, found)
    group = scene.members.handle
    return lambda later: scene.dist.reduce_scatter_tensor(found, whole, scene.op, group, later)


def reduce_scatter_batch(scene: Scene) -> Start:
    scene.draw(scene.world * scene.size)
    whole = [scene.given(scene.world * scene.size, phase) for phase in PHASES]
    found = [scene.blank(scene.size) for _ in PHASES]
    for tensor, phase in zip(found, PHASES):
        _scattered(scene, tensor, phase)

    def each() -> None:
        for tensor, part in zip(found, whole):
            scene.dist.reduce_scatter_tensor(tensor, part, scene.op, scene.members.handle)

    return lambda later: _coalesced(scene, later, each)


def reduce_scatter_functional(scene: Scene) -> Start:
    scene.draw(scene.world * scene.size)
    whole, group, how = scene.given(scene.world * scene.size), scene.backend_group, scene.call.how
    start, answer = _functional(scene, lambda f: f.reduce_scatter_tensor(whole, how, 0, group))
    _scattered(scene, answer)
    return start


ALL_REDUCE = Collective(
    {
        "plain": all_reduce,
        "batch": all_reduce_batch,
        "functional": all_reduce_functional,
    },
    REDUCTIONS,
    transposed=True,
)
REDUCE = Collective({"plain": reduce}, REDUCTIONS, transposed=True)
BROADCAST = Collective({"plain": broadcast, "buckets": broadcast_buckets}, BITS, transposed=True)
ALL_GATHER = Collective(
    {
        "plain": all_gather,
        "tensor": all_gather_tensor,
        "batch": all_gather_batch,
        "functional": all_gather_functional,
    },
    BITS,
    whole=True,
)
GATHER = Collective({"plain": gather}, BITS, whole=True)
SCATTER = Collective({"plain": scatter}, BITS, whole=True)
REDUCE_SCATTER = Collective(
    {
        "plain": reduce_scatter,
        "tensor": reduce_scatter_tensor,
        "batch": reduce_scatter_batch,
        "functional": reduce_scatter_functional,
    },
    REDUCTIONS,
    whole=True,
)
