"""The entries of torch's database as rows: how each is called, in which formats, in which ways."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from ..judging.refusals import refuses
from ..operators.drawing import LAYOUTS
from ..operators.releases import release
from .calls import Answer, Call
from .loading import Database, kept_chance, seeded
from .rules import BY_SIGN, left_out, without_gradient

FORMATS = ("float32", "bfloat16", "float16", "complex64", "int32", "int16", "int8", "uint8")


class Entry(NamedTuple):
    name: str
    run: Callable[..., Any]
    info: Any
    """torch's `OpInfo`."""
    skips: Tuple[str, ...] = ()
    """The tests of torch's own that it leaves out."""
    unique: bool = True
    """Whether all that it answers is. Else what its gradients are taken of is compared alone."""
    listed: bool = False
    """Whether it takes lists of tensors."""
    room: float = 1.0
    """By so much more than others it may be off."""

    def formats(self, torch: Any, device: str) -> List[str]:
        kind = device.partition(":")[0]
        has, now = self.info.supported_dtypes(kind), release(torch)
        return [n for n in FORMATS if getattr(torch, n) in has and not left_out(self.name, n, now)]

    def learns(self, torch: Any, device: str, dtype: str) -> bool:
        kind = device.partition(":")[0]
        if not self.info.supports_autograd or without_gradient(self.name, dtype, release(torch)):
            return False
        return getattr(torch, dtype) in self.info.supported_backward_dtypes(kind)

    def calls(self, torch: Any, device: str, dtype: str, seed: int) -> Iterator[Call]:
        """Its samples, made on the CPU; the same seed gives the same."""
        learns = self.learns(torch, device, dtype)
        with kept_chance(torch):
            seeded(torch, seed)
            # Not `sample_inputs`: that sets one seed before each sample.
            made = self.info.sample_inputs_func(self.info, "cpu", getattr(torch, dtype), learns)
            for sample in made:
                given = (sample.input, *sample.args)
                yield Call(given, dict(sample.kwargs), sample.output_process_fn_grad)

    def other_ways(self, question: Any, found: Answer) -> Iterator[Tuple[str, Answer]]:
        """The same numbers computed in one way more; none where this torch has none."""
        ways = ("layout", "layout", "out", "in place") if self.unique else ("layout",)
        way = question.chance.choice(ways)
        try:
            yield from getattr(self, "_" + way.replace(" ", "_"))(question, found)
        except Exception as problem:
            if not (refuses(problem) or any(words in str(problem) for words in NO_WAY)):
                raise

    def _layout(self, question: Any, found: Answer) -> Iterator[Tuple[str, Answer]]:
        if "test_noncontiguous_samples" not in self.skips:
            layout = question.chance.choice(LAYOUTS[1:])
            yield layout, question.here(layout=layout)

    def _out(self, question: Any, found: Answer) -> Iterator[Tuple[str, Answer]]:
        if self.info.supports_out and "test_out" not in self.skips and not self.listed:
            yield from into_out(question, self.run, found)

    def _in_place(self, question: Any, found: Answer) -> Iterator[Tuple[str, Answer]]:
        run = self.info.inplace_variant
        if run and "test_variant_consistency_eager" not in self.skips:
            yield from in_place(question, run, found)


NO_WAY = (
    "invalid combination of arguments",
    "unexpected keyword argument",
    "must be tuple of Tensors",
    "view size is not compatible",
    "Unsupported memory format",
    "must be contiguous",
)
"""What torch says where an operator has no such form, or not for such strides."""


def into_out(question: Any, run: Any, found: Answer) -> Iterator[Tuple[str, Answer]]:
    torch = question.torch
    if "out" in question.call.options or not found.outputs:
        return
    outs = [torch.full_like(x, 3, device=question.device) for x in found.outputs]

    def called(*given: Any, **options: Any) -> Any:
        run(*given, **options, out=outs[0] if len(outs) == 1 else tuple(outs))
        return outs

    yield "into out", question.here(called, learns=False)._replace(gradients=[])


def in_place(question: Any, run: Any, found: Answer) -> Iterator[Tuple[str, Answer]]:
    torch = question.torch
    first = question.call.given[0]
    if not isinstance(first, torch.Tensor) or len(found.outputs) != 1:
        return
    y = found.outputs[0]
    if (y.shape, y.dtype) != (first.shape, first.dtype):
        return

    def called(x: Any, *given: Any, **options: Any) -> Any:
        return run(x.clone(), *given, **options)

    yield "in place", question.here(called, learns=False)._replace(gradients=[])


def entries(database: Database) -> Dict[str, Entry]:
    """By name; without those that are left out."""
    found = {}
    listed = [(info, True) for info in database.lists]
    for info, takes_lists in [*((info, False) for info in database.operators), *listed]:
        name = ".".join(filter(None, (info.name, info.variant_test_name)))
        run = info.op or info.method_variant
        skips = tuple({str(d.test_name) for d in info.decorators if getattr(d, "test_name", None)})
        if run is not None and not left_out(name):
            found[name] = Entry(name, run, info, skips, name not in BY_SIGN, takes_lists)
    return found
