"""Calls in which each rank gives another one something else: all-to-all, send and receive."""

from __future__ import annotations

import random
from typing import Any, Callable, List, Tuple

from .calls import BITS, Collective, _functional
from .scene import Ended, Scene, Start


def uneven(scene: Scene) -> List[List[int]]:
    """How many elements each member sends to each; some send none."""
    chance = random.Random(scene.call.seed(scene.seed))
    most = max(1, scene.size)
    return [
        [0 if chance.random() < 0.2 else chance.randrange(1, most + 1) for _ in range(scene.world)]
        for _ in range(scene.world)
    ]


def even(scene: Scene) -> List[List[int]]:
    return [[scene.size] * scene.world for _ in range(scene.world)]


def _laid(scene: Scene, counts: List[List[int]]) -> Tuple[Any, Any, List[int], List[int]]:
    """What is sent and where it arrives, each in one tensor, and the lengths of the parts."""
    sent, received = counts[scene.me], [row[scene.me] for row in counts]
    scene.draw(max(sum(row) for row in counts))
    whole, found = scene.given(sum(sent)), scene.blank(sum(received))
    begin = 0
    for member, size in enumerate(received):
        part = found[begin : begin + size]
        scene.expect(part, scene.rows[member], sum(counts[member][: scene.me]))
        begin += size
    return whole, found, sent, received


def all_to_all_even(scene: Scene) -> Start:
    whole, found, _, _ = _laid(scene, even(scene))
    group = scene.members.handle
    return lambda later: scene.dist.all_to_all_single(found, whole, group=group, async_op=later)


def all_to_all_uneven(scene: Scene) -> Start:
    whole, found, sent, received = _laid(scene, uneven(scene))
    group = scene.members.handle
    return lambda later: scene.dist.all_to_all_single(found, whole, received, sent, group, later)


def all_to_all_lists(scene: Scene) -> Start:
    counts = even(scene) if scene.group.backend == "gloo" else uneven(scene)
    whole, found, sent, received = _laid(scene, counts)
    inputs, outputs = list(whole.split(sent)), list(found.split(received))
    group = scene.members.handle
    return lambda later: scene.dist.all_to_all(outputs, inputs, group, later)


def all_to_all_functional(scene: Scene) -> Start:
    counts = uneven(scene)
    whole, _, sent, received = _laid(scene, counts)
    del scene.expected[1:]  # the tensor for the answer is the call's own
    group = scene.backend_group
    start, answer = _functional(scene, lambda f: f.all_to_all_single(whole, received, sent, group))
    begin = 0
    for member, size in enumerate(received):
        part = _part(answer, begin, size)
        scene.expect(part, scene.rows[member], sum(counts[member][: scene.me]))
        begin += size
    return start


def _part(answer: Callable[[], Any], begin: int, size: int) -> Callable[[], Any]:
    return lambda: answer()[begin : begin + size]


def _ring(scene: Scene) -> Tuple[Any, Any, int, int]:
    """What this rank sends and receives, whither and whence; nobody where it is alone."""
    step = 1 + scene.root % max(1, scene.world - 1)
    to, whence = (scene.me + step) % scene.world, (scene.me - step) % scene.world
    scene.draw(scene.size)
    sent, found = scene.given(scene.size), scene.blank(scene.size)
    if scene.world > 1:
        scene.expect(found, scene.rows[whence])
    return sent, found, scene.place(to), scene.place(whence)


def ring_blocking(scene: Scene) -> Start:
    """The one with the least number of its circle sends first, the others receive first."""
    sent, found, to, whence = _ring(scene)
    step = 1 + scene.root % max(1, scene.world - 1)
    circle = {(scene.me + step * turn) % scene.world for turn in range(scene.world)}
    group, first = scene.members.handle, scene.me == min(circle)

    def start(later: bool) -> Any:
        del later
        if scene.world == 1:
            return
        if first:
            scene.dist.send(sent, to, group=group)
        scene.dist.recv(found, whence, group=group)
        if not first:
            scene.dist.send(sent, to, group=group)

    return start


def ring_handles(scene: Scene) -> Start:
    sent, found, to, whence = _ring(scene)
    group = scene.members.handle

    def start(later: bool) -> Any:
        if scene.world == 1:
            return None
        options = [
            scene.dist.P2POp(scene.dist.isend, sent, to, group),
            scene.dist.P2POp(scene.dist.irecv, found, whence, group),
        ]
        if scene.group.backend == "nccl":  # two kernels that wait for each other: in one batch
            works = scene.dist.batch_isend_irecv(options)
        else:
            works = [each.op(each.tensor, each.peer, group) for each in options]
        return _ended(works, later)

    return start


def ring_batch(scene: Scene) -> Start:
    sent, found, to, whence = _ring(scene)
    group, dist = scene.members.handle, scene.dist

    def start(later: bool) -> Any:
        if scene.world == 1:
            return None
        back = scene.root % 2 == 0
        options = [
            dist.P2POp(dist.isend, sent, to, group),
            dist.P2POp(dist.irecv, found, whence, group),
        ]
        return _ended(dist.batch_isend_irecv(options[::-1] if back else options), later)

    return start


def _ended(works: List[Any], later: bool) -> Any:
    ended = Ended(*(work.wait for work in works if work is not None))
    if later:
        return ended
    ended.wait()
    return None


ALL_TO_ALL = Collective(
    {
        "even": all_to_all_even,
        "uneven": all_to_all_uneven,
        "lists": all_to_all_lists,
        "functional": all_to_all_functional,
    },
    BITS,
    whole=True,
)
SEND_RECV = Collective(
    {
        "blocking": ring_blocking,
        "handles": ring_handles,
        "batch": ring_batch,
    },
    BITS,
)
