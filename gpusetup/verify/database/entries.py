"""The entries of torch's database as rows: how each is called, in which formats, in which ways."""

from __future__ import annotations

import contextlib
import functools
import warnings
import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .calls import WHOLE, Call, nearby, plain, replaced, tensors_of
from .draw import Draw, OperatorQuestion, grown, numbered
from .judge import kind_of
from .loading import Database, kept_chance, larger, seeded
from .rules import BY_SIGN, HALVES, LEFT_OUT, NO_GRADIENT, reason
from .ways import WAYS, Way, directly, in_place, into_out


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

    @property
    def varies(self) -> bool:
        """Whether it computes single numbers or reduces lines: of any length and numbers."""
        return self.of_single_numbers or type(self.info).__name__ == "ReductionOpInfo"

    @property
    def of_single_numbers(self) -> bool:
        return type(self.info).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo")

    @property
    def defines_nan(self) -> bool:
        """Whether torch says what this operator makes of NaN and infinities.

        It does where its own tests have a reference, or where it has a gradient, so that programs
        train with it. The others may answer anything: a conversion of NaN to a whole number is
        another one on each processor, and `special.chebyshev_polynomial_t` of torch 2.11 returns
        for NaN its answer to the number before (its C++ sets no value).
        """
        return self.info.supports_autograd or getattr(self.info, "ref", None) is not None

    def counts_up(self, torch: Any, call: Call) -> bool:
        """Whether it may compute with fractions, or in as many steps as a whole number says."""
        if not self.of_single_numbers:
            return True
        try:
            found = plain(torch, self.run(*call.given, **call.options))
        except Exception:  # it has no answer here
            return True
        return any(x.is_floating_point() for x in found)

    def leaves_range(self, torch: Any, call: Call, dtype: str) -> bool:
        """Whether a part of the answer may be beyond what the format holds: the answer to numbers
        of one sign that are all above one, or all below, is. Then the order of the parts decides.
        """
        if self.of_single_numbers or not dtype.endswith(("float16", "float32")):
            return False
        format = torch.finfo(getattr(torch, dtype))

        def above(x: Any) -> Any:
            return x.clamp(min=1.0)

        def below(x: Any) -> Any:
            return torch.where(x > 0, x, torch.ones_like(x)).clamp(max=1.0)

        def leaves(bounded: Any) -> bool:
            def bound(x: Any) -> Any:
                if not x.is_floating_point():
                    return x
                return bounded(x.double().abs().nan_to_num(1.0, 1.0, 1.0))

            made = replaced(torch, call, bound)
            found = plain(torch, self.run(*made.given, **made.options))
            sizes = [x.abs() for x in found if x.is_floating_point()]
            return any(
                bool(((x > 0) & (x < format.tiny)).any()) or not bool((x <= format.max).all())
                for x in sizes
            )

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return leaves(above) or leaves(below)
            except Exception:  # it has no answer to these
                return False

    def within(self, torch: Any, call: Call) -> Call:
        """Numbers for which the database calls the function defined."""
        low, high = getattr(self.info, "domain", (None, None))
        if (low, high) == (None, None):
            return call
        return replaced(torch, call, lambda x: x.clamp(low, high) if x.is_floating_point() else x)

    @property
    def over_itself(self) -> Any:
        """What writes its answer over its argument."""
        names = getattr(getattr(self.run, "__code__", None), "co_varnames", ())
        by_option = functools.partial(self.run, inplace=True) if "inplace" in names else None
        return self.info.inplace_variant or by_option

    @property
    def often(self) -> int:
        return 3 if self.varies else 1

    @property
    def rarity(self) -> int:
        """How late it is asked: what layers and losses are made of first, special functions last.

        The first use of a kernel takes a GPU long, and that of a special function longest: torch
        compiles it then, in up to 2 s on an H100.
        """
        if self.name.startswith("nn.functional.") or self.is_core:
            return 1
        room = self.name.partition(".")[0]
        if room in RARE:
            return 4
        return 3 if room in SELDOM or self.is_internal or self.listed else 2

    @property
    def is_core(self) -> bool:
        """Whether it is one of the operators that torch's compiler makes all others of."""
        import torch

        core = getattr(getattr(torch, "Tag", None), "core", None)
        # `softmax` is made of `_softmax`, which alone has the tag.
        packets = [getattr(torch.ops.aten, n, None) for n in (self.info.name, f"_{self.info.name}")]
        tags = [
            getattr(packet, overload).tags
            for packet in packets
            if packet is not None
            for overload in packet.overloads()
        ]
        return any(core in each for each in tags)

    @property
    def is_internal(self) -> bool:
        """Whether it is a step of a public function, as `native_batch_norm` is.

        What such a step returns behind its answer is kept for the backward pass, in a form that
        each kind of device has of its own: a GPU keeps statistics where a CPU keeps nothing.
        """
        name = self.info.name
        is_private = name.startswith("_") and not name.startswith("__")
        return not self.listed and (is_private or name.startswith(("native_", "torch.ops.")))

    def is_exempt(self, torch: Any, device: str, dtype: str) -> bool:
        """Whether torch's own tests do not compare this operator on the device with the CPU.

        Its test `test_compare_cpu` says so of what draws random numbers, overflows, or returns what
        each kind of device has of its own.
        """
        kind = device.partition(":")[0]
        if kind == "cpu":
            return False
        for each in self.info.decorators:
            if getattr(each, "test_name", None) != COMPARED_WITH_CPU:
                continue
            kinds, formats = getattr(each, "device_type", None), getattr(each, "dtypes", None)
            is_here = kinds in (None, kind) and (not formats or getattr(torch, dtype) in formats)
            # Other decorators give the test a tolerance.
            steps = [type(step).__name__ for step in getattr(each, "decorators", ())]
            if is_here and not all(step.endswith("Override") for step in steps):
                return True
        return False

    def on(self, device: str) -> Entry:
        """As it is compared on a device: of an internal step on a GPU, the answer alone."""
        if device == "cpu" or not self.is_internal:
            return self
        return self._replace(run=functools.partial(answer_of, self.run))

    def formats(self, torch: Any, device: str) -> List[str]:
        """In the order in which they come round."""
        kind = device.partition(":")[0]
        has = self.info.supported_dtypes(kind)
        names = [n for n in TURNS if getattr(torch, n) in has]
        return [
            name
            for name in names
            if not reason(LEFT_OUT, self.name, name) and not self.is_exempt(torch, device, name)
        ]

    def learns(self, torch: Any, device: str, dtype: str) -> bool:
        kind = device.partition(":")[0]
        # float16 ends or vanishes within what most gradients are computed by.
        if dtype == "float16" or self.listed or not self.info.supports_autograd:
            return False
        if reason(NO_GRADIENT, self.name, dtype):
            return False
        return getattr(torch, dtype) in self.info.supported_backward_dtypes(kind)

    def calls(self, torch: Any, learns: bool, dtype: str, seed: int) -> Iterator[Call]:
        """Its samples, made on the CPU; the same seed gives the same."""
        with kept_chance(torch):
            seeded(torch, seed)
            # Not `sample_inputs`: that sets one seed before each sample.
            made = self.info.sample_inputs_func(self.info, "cpu", getattr(torch, dtype), learns)
            for sample in made:
                given = (sample.input, *sample.args)
                yield Call(given, dict(sample.kwargs), sample.output_process_fn_grad)

    def larger_calls(self, torch: Any, *more: Any) -> List[Call]:
        """Its samples in other lengths, as far as it has some."""
        found: List[Call] = []
        made = 0
        # Some lengths stand in the samples themselves, and others do not fit to these.
        with larger(), contextlib.suppress(Exception):
            for call in self.calls(torch, *more):
                given = tensors_of(torch, (call.given, call.options))
                count = sum(x.numel() for x in given)
                made += count
                if made > LONGEST // 4:
                    break
                # Kernels believe places, and read past an argument that is shorter than those say.
                if count <= MOST // 2 and all(kind_of(x) != "whole" for x in given):
                    found.append(call)
        return found

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[OperatorQuestion]:
        """The call of a turn, in its form as far as it has an answer in that."""
        formats = self.formats(torch, device)
        if not formats:
            return None
        dtype = formats[turn % len(formats)]
        number = zlib.crc32(f"{seed}:{self.name}".encode())
        large = turn // 2 % 2 == 1 and dtype not in (*HALVES, *WHOLE)
        key = (self.name, device, dtype, number, large)
        if key not in MADE:
            if len(MADE) > 16:
                MADE.clear()
            asked = torch, self.learns(torch, device, dtype), dtype, number
            MADE[key] = (large and self.larger_calls(*asked)) or list(self.calls(*asked))
        calls = MADE[key]
        if not calls:
            return None
        draw = Draw(torch, self.name, seed, turn)
        call = draw.choice(calls)
        if self.varies:
            most = SHORTEST if dtype in HALVES else LONGEST
            most = MOST if self.of_single_numbers else most
            longer, kind = grown(draw, call, most), draw.form.numbers
            if kind == "large" and dtype in WHOLE and self.counts_up(torch, longer):
                kind = ""
            if kind == "special" and not self.defines_nan:
                kind = "zeros and ties"
            made = longer
            if kind:
                made = replaced(torch, longer, lambda x: x.detach())
                made = self.within(torch, numbered(draw, made, kind, dtype))
            fit = (one for one in (made, longer) if not self.leaves_range(torch, one, dtype))
            call = next(fit, call)
        elif turn % 2:
            call = nearby(torch, call, 1 + turn % 7, turn // 4 % 2 == 0)
        elif turn % 4 == 2:
            call = otherwise(draw, call)
        if self.listed:
            times = draw.choice((1, 1, 8))
            call = many(torch, grown(draw, call, 8 * MOST // times), times)
        return draw.question(self.on(device), dtype, call)

    def other_ways(self, asked: OperatorQuestion) -> Iterator[Tuple[str, Way, str, bool]]:
        """The same numbers computed in the way of the question, in its layout."""
        form = asked.form
        way: Way = directly
        plain = "test_noncontiguous_samples" in self.skips
        layout, learns = "" if plain else form.layout, not self.unique or form.way == "gradient"
        if learns:
            pass
        elif form.way == "out" and self.info.supports_out and "test_out" not in self.skips:
            way = directly if self.listed or self.is_internal else into_out
        elif form.way == "in place" and self.over_itself:
            if "test_variant_consistency_eager" not in self.skips:
                way = in_place(self.over_itself)
        else:
            way = WAYS.get(form.way, directly)
        if way is not directly or layout:
            yield form.way if way is not directly else "", way, layout, learns


MOST, LONGEST, SHORTEST = 2**14, 2**20, 2**8
"""Numbers of one tensor; of reductions, which take longer rows but in half precision, where some
add one number after the other."""
MADE: Dict[Tuple[Any, ...], List[Call]] = {}
"""The samples of the entries that were asked last."""
TURNS = (
    *("float32", "bfloat16", "complex64", "float32", "float16", "int64", "float32", "int32"),
    *("float32", "bfloat16", "complex64", "uint8", "float32", "float16", "int64", "int8", "int16"),
)
"""Formats as they come round, by what programs use."""


COMPARED_WITH_CPU = "test_compare_cpu"
"""The test of torch's own that compares an operator's answers on a device with the CPU's."""
SELDOM = ("linalg", "fft", "masked", "sparse", "jiterator")
RARE = ("special", "signal")
"""First words of names that trainings use seldom, and hardly ever."""


def answer_of(run: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """The first of what an operator returns."""
    returned = run(*given, **options)
    return returned[0] if isinstance(returned, (list, tuple)) and returned else returned


KEPT = ("sorted", "stable", "train", "training", "inplace", "out_int32", "sparse", "hermitian")
"""Options that leave an order open, draw, write, or promise something of the argument."""


def otherwise(draw: Draw, call: Call) -> Call:
    """Each option that is on or off the other way; all tensors but the first are broadcast, if all
    have one shape."""
    torch, given = draw.torch, tensors_of(draw.torch, (call.given, call.options))
    flipped = {n: not v for n, v in call.options.items() if type(v) is bool and n not in KEPT}
    call = call._replace(options={**call.options, **flipped})
    first = next(iter(given), torch.empty(()))
    alike = all(x.shape == first.shape and x.dtype != torch.int64 for x in given)
    if not alike or not first.dim() or not first.numel():
        return call
    axis = draw.choice(range(first.dim()))

    def cut(x: Any) -> Any:
        y = x if x is first else x.detach().narrow(axis, 0, 1).clone()
        return y.requires_grad_(x.requires_grad)

    return replaced(torch, call, cut)


def many(torch: Any, call: Call, times: int) -> Call:
    """More tensors than one call of a kernel takes."""
    lists = len(call.given[0])

    def repeated(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.repeat(times) if x.shape == (lists,) else x
        return x * times if isinstance(x, list) else x

    options = {name: repeated(x) for name, x in call.options.items()}
    return call._replace(given=tuple(map(repeated, call.given)), options=options)


def entries(database: Database) -> Dict[str, Entry]:
    """By name; without those that are left out."""
    found = {}
    listed = [(info, True) for info in database.lists]
    for info, takes_lists in [*((info, False) for info in database.operators), *listed]:
        name = ".".join(filter(None, (info.name, info.variant_test_name)))
        run = info.op or info.method_variant
        skips = tuple({str(d.test_name) for d in info.decorators if getattr(d, "test_name", None)})
        if run is not None and not reason(LEFT_OUT, name):
            found[name] = Entry(name, run, info, skips, name not in BY_SIGN, takes_lists)
    return found
