"""The operators in torch's database: how each is called, and in which formats and ways."""

from __future__ import annotations

import contextlib
import functools
import warnings
import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .calls import WHOLE, Call, detached, nearby, plain, replaced, tensors_of_call
from .draw import Draw, OperatorQuestion, grown, numbered
from .judge import kind_of
from .loading import Database, kept_chance, larger, seeded
from .rules import BY_SIGN, HALVES, LEFT_OUT, NO_GRADIENT, reason
from .switched import otherwise, with_repeated_lists
from .ways import WAYS, Way, WayOfQuestion, directly, in_place, into_out

MOST = 2**14
"""The largest number of elements in a tensor."""
LONGEST, SHORTEST = 2**20, 2**8
"""The largest numbers of elements for reductions, which get longer rows: the first for most
formats, the second for 16-bit formats, in which some reductions add the numbers one after the
other."""
TURNS = (
    *("float32", "bfloat16", "complex64", "float32", "float16", "int64", "float32", "int32"),
    *("float32", "bfloat16", "complex64", "uint8", "float32", "float16", "int64", "int8", "int16"),
)
"""The order in which the formats are used. Formats that programs use more occur more often."""
COMPARED_WITH_CPU = "test_compare_cpu"
"""The name of torch's own test that compares an operator's results on a device with those on the
CPU."""
SELDOM = ("linalg", "fft", "masked", "sparse", "jiterator")
"""First words of operator names that training seldom uses."""
RARE = ("special", "signal")
"""First words of operator names that training hardly ever uses."""
OFTEN, USUAL, LATE, LAST = 1, 2, 3, 4
"""The values of `rarity`, from operators that programs use often to operators that they hardly use.
"""
CACHED_SAMPLES = 16
"""The number of sample lists that are cached. A few are enough, because the turns of an entry
follow each other."""


class SampleKey(NamedTuple):
    """Everything that determines the samples of an entry."""

    name: str
    device: str
    dtype: str
    seed: int
    large: bool
    """Whether the samples are larger than in torch's tests."""


SAMPLES: Dict[SampleKey, List[Call]] = {}
"""The cached samples of the last entries that were tested."""


class Entry(NamedTuple):
    """An operator in torch's database."""

    name: str
    run: Callable[..., Any]
    info: Any
    """torch's `OpInfo`."""
    skips: Tuple[str, ...] = ()
    """The names of torch's own tests that skip this operator."""
    unique: bool = True
    """Whether all outputs are unique. If not (for example the signs of eigenvectors), only the part
    that torch's own gradient tests use is compared."""
    listed: bool = False
    """Whether the operator takes lists of tensors."""

    @property
    def varies(self) -> bool:
        """Whether the operator is elementwise or a reduction, so that any lengths and numbers are
        possible."""
        is_reduction = self.kind_of_info == "ReductionOpInfo"
        return self.of_single_numbers or is_reduction

    @property
    def of_single_numbers(self) -> bool:
        """Whether each element of the result depends on only one element of each argument."""
        return self.kind_of_info in ("UnaryUfuncInfo", "BinaryUfuncInfo")

    @property
    def kind_of_info(self) -> str:
        """The class of the operator's row in torch's database, e.g. `UnaryUfuncInfo`."""
        return type(self.info).__name__

    @property
    def defines_nan(self) -> bool:
        """Whether torch defines the operator's result for NaN and infinity.

        The result is defined if torch's tests have a reference, or if the operator has a gradient,
        because programs train with it. Other operators may return anything. For example, the
        conversion of NaN to a whole number depends on the processor, and
        `special.chebyshev_polynomial_t` in torch 2.11 returns its previous result for NaN (its C++
        code sets no value).
        """
        # The reference in torch's tests is a numpy function.
        reference = getattr(self.info, "ref", None)
        return self.info.supports_autograd or reference is not None

    def must_avoid_large_wholes(self, torch: Any, call: Call) -> bool:
        """Whether the operator must not get large whole numbers. A number may be a count of steps,
        and an operator that returns floating-point numbers cannot represent large whole numbers
        exactly."""
        if not self.of_single_numbers:
            return True
        # If the call fails, we do not know what the operator returns, so avoid large numbers.
        try:
            outputs = plain(torch, self.run(*call.args, **call.options))
        except Exception:
            return True
        return any(x.is_floating_point() for x in outputs)

    def leaves_range(self, torch: Any, call: Call, dtype: str) -> bool:
        """Whether an intermediate result may leave the range of the format, so that the result
        depends on the order of the steps. To find out, the operator is called with the absolute
        values of its numbers, once with all numbers below 1 raised to 1, and once with all above 1
        lowered to 1."""
        if self.of_single_numbers or not dtype.endswith(("float16", "float32")):
            return False

        def above_one(x: Any) -> Any:
            return x.clamp(min=1.0)

        def below_one(x: Any) -> Any:
            positive = torch.where(x > 0, x, torch.ones_like(x))
            return positive.clamp(max=1.0)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The operator may reject such numbers.
            try:
                for bound in (above_one, below_one):
                    if self._is_out_of_range(torch, bounded(torch, call, bound), dtype):
                        return True
            except Exception:
                return False
        return False

    def _is_out_of_range(self, torch: Any, call: Call, dtype: str) -> bool:
        """Whether a number in the result is too large or too small for the format."""
        format = torch.finfo(getattr(torch, dtype))
        returned = self.run(*call.args, **call.options)
        for x in plain(torch, returned):
            if not x.is_floating_point():
                continue
            # Zero is exact, but subnormal numbers lose digits.
            size = x.abs()
            is_too_small = (size > 0) & (size < format.tiny)
            # The comparison is negated so that NaN counts as too large.
            is_too_great = ~(size <= format.max)
            if bool((is_too_small | is_too_great).any()):
                return True
        return False

    def within(self, torch: Any, call: Call) -> Call:
        """Returns the call with its numbers limited to the operator's domain, if torch's database
        gives one."""
        low, high = getattr(self.info, "domain", (None, None))
        if low is None and high is None:
            return call

        def clamp(x: Any) -> Any:
            if x.is_floating_point():
                return x.clamp(low, high)
            return x

        return replaced(torch, call, clamp)

    @property
    def over_itself(self) -> Any:
        """The in-place form of the operator, which overwrites its first argument; None if there is
        none."""
        if self.info.inplace_variant:
            return self.info.inplace_variant
        code = getattr(self.run, "__code__", None)
        names = getattr(code, "co_varnames", ())
        return functools.partial(self.run, inplace=True) if "inplace" in names else None

    @property
    def often(self) -> int:
        """A factor for the number of questions: 3 if the operator takes any lengths and numbers,
        otherwise 1."""
        return 3 if self.varies else 1

    @property
    def rarity(self) -> int:
        """The rarity, which determines when the entry is tested: operators of layers and losses
        first (1), special functions last (4).

        On a GPU, the first use of a kernel takes long, and longest for special functions, because
        torch compiles them at that time (up to 2 s on an H100).
        """
        if self.name.startswith("nn.functional.") or self.is_core:
            return OFTEN
        first_word = self.name.partition(".")[0]
        if first_word in RARE:
            return LAST
        # Internal steps and operators on lists come late, because they compute what other entries
        # have already tested.
        if first_word in SELDOM or self.is_internal or self.listed:
            return LATE
        return USUAL

    @property
    def is_core(self) -> bool:
        """Whether this is one of the core operators, into which torch's compiler decomposes all
        others."""
        import torch

        # Older torch releases do not have this tag.
        core = getattr(getattr(torch, "Tag", None), "core", None)
        # Some operators, such as `softmax`, call an internal one (`_softmax`), and only that one
        # has the tag.
        for name in (self.info.name, f"_{self.info.name}"):
            packet = getattr(torch.ops.aten, name, None)
            overloads = [] if packet is None else packet.overloads()
            for overload in overloads:
                if core in getattr(packet, overload).tags:
                    return True
        return False

    @property
    def is_internal(self) -> bool:
        """Whether this is an internal step of a public function, such as `native_batch_norm`.

        Besides its result, such a step returns values for the backward pass. Their form depends on
        the device: for example, a GPU returns statistics where a CPU returns nothing.
        """
        name = self.info.name
        is_private = name.startswith("_") and not name.startswith("__")
        is_step = is_private or name.startswith(("native_", "torch.ops."))
        return is_step and not self.listed

    def is_exempt(self, torch: Any, device: str, dtype: str) -> bool:
        """Whether torch's own tests skip the comparison of this operator's results on the device
        with those on the CPU.

        torch's `test_compare_cpu` skips operators that draw random numbers, overflow, or have
        results that depend on the kind of device.
        """
        kind = device.partition(":")[0]
        if kind == "cpu":
            return False
        for decorator in self.info.decorators:
            if getattr(decorator, "test_name", None) != COMPARED_WITH_CPU:
                continue
            for_this_device = getattr(decorator, "device_type", None) in (None, kind)
            formats = getattr(decorator, "dtypes", None)
            for_this_format = not formats or getattr(torch, dtype) in formats
            # Decorators with names that end in "Override" change the test's tolerance. All other
            # decorators skip the test.
            inner_names = [type(x).__name__ for x in getattr(decorator, "decorators", ())]
            skips_test = not all(name.endswith("Override") for name in inner_names)
            if for_this_device and for_this_format and skips_test:
                return True
        return False

    def on(self, device: str) -> Entry:
        """Returns the entry for this device. For an internal step on a GPU, only the first result
        is compared."""
        if device == "cpu" or not self.is_internal:
            return self
        return self._replace(run=functools.partial(answer_of, self.run))

    def formats(self, torch: Any, device: str) -> List[str]:
        """The formats of the entry's questions, in the order in which they alternate."""
        kind = device.partition(":")[0]
        # It is not a fault if this kind of device does not support a format.
        supported = self.info.supported_dtypes(kind)
        names = []
        for name in TURNS:
            if getattr(torch, name) not in supported:
                continue
            if not reason(LEFT_OUT, self.name, name) and not self.is_exempt(torch, device, name):
                names.append(name)
        return names

    def learns(self, torch: Any, device: str, dtype: str) -> bool:
        """Whether the gradients of the entry are compared in this format on this device."""
        kind = device.partition(":")[0]
        # Most gradients have intermediate results that overflow or underflow in float16.
        if dtype == "float16" or self.listed or not self.info.supports_autograd:
            return False
        # Computing this gradient loses more digits than a roundoff of the arguments explains.
        if reason(NO_GRADIENT, self.name, dtype):
            return False
        return getattr(torch, dtype) in self.info.supported_backward_dtypes(kind)

    def calls(self, torch: Any, learns: bool, dtype: str, seed: int) -> Iterator[Call]:
        """Yields torch's samples for this operator, made on the CPU. The same seed gives the same
        samples."""
        with kept_chance(torch):
            seeded(torch, seed)
            # Do not use `sample_inputs`, because it sets the same seed before each sample.
            make_samples = self.info.sample_inputs_func
            for sample in make_samples(self.info, "cpu", getattr(torch, dtype), learns):
                args = (sample.input, *sample.args)
                yield Call(args, dict(sample.kwargs), sample.output_process_fn_grad)

    def larger_calls(self, torch: Any, learns: bool, dtype: str, seed: int) -> List[Call]:
        """Returns the samples in larger sizes; empty if the operator does not allow them."""
        calls: List[Call] = []
        element_count = 0
        # Some samples have fixed lengths, which do not match the larger ones, so making them may
        # fail.
        with larger(), contextlib.suppress(Exception):
            for call in self.calls(torch, learns, dtype, seed):
                tensors = tensors_of_call(torch, call)
                count = sum(x.numel() for x in tensors)
                element_count += count
                if element_count > LONGEST // 4:
                    break
                # Leave out samples with whole numbers, because these may be indices that are too
                # large for another tensor, and kernels do not check them.
                names_places = any(kind_of(x) == "whole" for x in tensors)
                if count <= MOST // 2 and not names_places:
                    calls.append(call)
        return calls

    def samples(self, torch: Any, key: SampleKey) -> List[Call]:
        """Returns the samples for a key, and caches them for the next turns."""
        if key in SAMPLES:
            return SAMPLES[key]
        if len(SAMPLES) > CACHED_SAMPLES:
            SAMPLES.clear()
        learns = self.learns(torch, key.device, key.dtype)
        calls: List[Call] = []
        if key.large:
            calls = self.larger_calls(torch, learns, key.dtype, key.seed)
        if not calls:
            calls = list(self.calls(torch, learns, key.dtype, key.seed))
        SAMPLES[key] = calls
        return calls

    def question(self, torch: Any, device: str, seed: int, turn: int) -> Optional[OperatorQuestion]:
        """Returns the question of this turn, or None if torch has no samples for it. The call has
        the form of the turn, as far as the operator supports that form."""
        formats = self.formats(torch, device)
        if not formats:
            return None
        dtype = formats[turn % len(formats)]
        sample_seed = zlib.crc32(f"{seed}:{self.name}".encode())
        # Long sums in 16 bits lose digits, and whole numbers may be indices.
        may_be_large = dtype not in (*HALVES, *WHOLE)
        is_large = may_be_large and turn // 2 % 2 == 1
        key = SampleKey(self.name, device, dtype, sample_seed, is_large)
        calls = self.samples(torch, key)
        if not calls:
            return None
        draw = Draw(torch, self.name, seed, turn)
        call = draw.choice(calls)
        if self.varies:
            call = self.varied(draw, call, dtype)
        elif turn % 2:
            keeps_equal = turn // 4 % 2 == 0
            call = nearby(torch, call, 1 + turn % 7, keeps_equal)
        elif turn % 4 == 2:
            call = otherwise(draw, call)
        if self.listed:
            times = draw.choice((1, 1, 8))
            longer = grown(draw, call, 8 * MOST // times)
            call = with_repeated_lists(torch, longer, times)
        return draw.question(self.on(device), dtype, call)

    def varied(self, draw: Draw, call: Call, dtype: str) -> Call:
        """Returns the call with the lengths and numbers of its form, if its result stays within the
        range of the format."""
        torch = draw.torch
        # A long sum in 16 bits loses digits.
        most = SHORTEST if dtype in HALVES else LONGEST
        if self.of_single_numbers:
            most = MOST
        longer = grown(draw, call, most)
        kind = draw.form.numbers
        is_large_whole = kind == "large" and dtype in WHOLE
        if is_large_whole and self.must_avoid_large_wholes(torch, longer):
            kind = ""
        if kind == "special" and not self.defines_nan:
            kind = "zeros and ties"
        candidates = [longer]
        if kind:
            other_numbers = numbered(draw, detached(torch, longer), kind, dtype)
            candidates.insert(0, self.within(torch, other_numbers))
        for candidate in candidates:
            if not self.leaves_range(torch, candidate, dtype):
                return candidate
        return call

    def other_ways(self, question: OperatorQuestion) -> Iterator[WayOfQuestion]:
        """Yields the way and layout of the question's form, as far as this operator supports
        them."""
        form = question.form
        way: Way = directly
        # If torch's own tests skip an operator for other strides, `out=` or in-place calls, the
        # operator does not support them.
        layout = "" if "test_noncontiguous_samples" in self.skips else form.layout
        learns = not self.unique or form.way == "gradient"
        has_out = self.info.supports_out and "test_out" not in self.skips
        if learns:
            pass
        elif form.way == "out" and has_out:
            # Operators on lists have no `out=`, and internal steps have no documented one.
            way = directly if self.listed or self.is_internal else into_out
        elif form.way == "in place" and self.over_itself:
            if "test_variant_consistency_eager" not in self.skips:
                way = in_place(self.over_itself)
        else:
            way = WAYS.get(form.way, directly)
        if way is not directly:
            yield WayOfQuestion(form.way, way, layout, learns)
        elif layout:
            yield WayOfQuestion("", directly, layout, learns)


def bounded(torch: Any, call: Call, bound: Callable[[Any], Any]) -> Call:
    """Returns the call with the absolute values of its floating-point numbers, in float64, limited
    by `bound`."""

    def change(x: Any) -> Any:
        if not x.is_floating_point():
            return x
        size = x.double().abs()
        return bound(size.nan_to_num(1.0, 1.0, 1.0))

    return replaced(torch, call, change)


def answer_of(run: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run an operator, and return its first result."""
    returned = run(*args, **options)
    has_several = isinstance(returned, (list, tuple)) and returned
    return returned[0] if has_several else returned


def entries(database: Database) -> Dict[str, Entry]:
    """Returns the entries by name, without the operators that the rules leave out."""
    by_name = {}
    infos = [(info, False) for info in database.operators]
    infos += [(info, True) for info in database.lists]
    for info, takes_lists in infos:
        name = info.name
        if info.variant_test_name:
            name += f".{info.variant_test_name}"
        run = info.op or info.method_variant
        # Some rows in the database have no function.
        if run is None or reason(LEFT_OUT, name):
            continue
        # The names of torch's own tests that skip or adjust this operator.
        test_names = {str(d.test_name) for d in info.decorators if getattr(d, "test_name", None)}
        by_name[name] = Entry(
            name=name,
            run=run,
            info=info,
            skips=tuple(test_names),
            unique=name not in BY_SIGN,
            listed=takes_lists,
        )
    return by_name
