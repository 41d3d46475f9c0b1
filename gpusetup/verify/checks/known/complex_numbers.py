"""Complex numbers and Fourier transforms, which rotary embeddings and audio models use.

Products of complex numbers with whole parts are exact. The Fourier transform of a signal that is 1
at position p and 0 elsewhere is `exp(-2 pi i k p / n)`, which Python computes.
"""

from __future__ import annotations

import cmath
from math import pi, sqrt
from typing import Any, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import Limit, ask_all, dice, dtype_of, exactly, near, roundoff, tensor_of
from .number_lists import joined, random_wholes, rows_of_length

LENGTHS = (1, 17, 1025, 70_001)
"""Tensor lengths: a single number, more than a kernel's vector, more than a block, and enough
numbers for several threads."""
SIGNALS = (7, 16, 17, 100, 128, 1000, 1021, 1024, 4098)
"""Signal lengths: powers of two, products of small primes, and primes. An FFT library has a
different algorithm for each of these kinds."""
COMPLEX = {"float32": "complex64", "float64": "complex128"}
"""Maps each real format to the complex format whose parts have that format."""


def complex_numbers(device: str) -> Outcome:
    """Check that complex products and Fourier transforms agree with Python's complex numbers."""
    questions = (
        complex_products,
        complex_matrices,
        rotated_pairs,
        transforms_of_impulses,
        transforms_and_back,
    )
    return ask_all(device, questions, "complex numbers in Python")


def whole_numbers(length: int, salt: str) -> List[complex]:
    """Random complex numbers whose parts are integers from -5 to 5."""
    chance = dice(f"complex {length} {salt}")
    numbers: List[complex] = []
    for _ in range(length):
        real = chance.randint(-5, 5)
        imaginary = chance.randint(-5, 5)
        numbers.append(complex(real, imaginary))
    return numbers


def on_device(values: Sequence[complex], dtype_name: str, device: str) -> Any:
    """A complex tensor on the device. `dtype_name` is the format of its real and imaginary
    parts."""
    complex_name = COMPLEX[dtype_name]
    tensor = torch.tensor(list(values), dtype=dtype_of(complex_name))
    return tensor.to(device)


def parts_of(values: Sequence[complex]) -> List[float]:
    """The real and imaginary part of each number, one after the other in one list."""
    parts: List[float] = []
    for value in values:
        parts += (value.real, value.imag)
    return parts


def in_parts(computed: Any) -> Any:
    """The real and imaginary parts of a complex tensor, as a real tensor. This also works for a
    lazily conjugated tensor."""
    return torch.view_as_real(computed.resolve_conj())


def complex_products(device: str) -> Iterator[Part]:
    """Catches a complex product with a wrong sign, without its last element or without the
    conjugation."""
    for dtype_name in COMPLEX:
        for length in LENGTHS:
            yield from products_of_length(length, dtype_name, device)


def products_of_length(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare products, sums, absolute values and angles of complex tensors of one length."""
    first = whole_numbers(length, "first")
    second = whole_numbers(length, "second")
    x = on_device(first, dtype_name, device)
    y = on_device(second, dtype_name, device)
    label = f"of {length} complex {dtype_name} numbers"

    exact = list(map(complex.__mul__, first, second))
    computed = in_parts(x * y)
    yield exactly(f"product {label}", computed, parts_of(exact))
    conjugates = [value.conjugate() for value in second]
    exact = list(map(complex.__mul__, first, conjugates))
    computed = in_parts(x * y.conj())
    yield exactly(f"product with conjugates {label}", computed, parts_of(exact))

    exact = list(map(complex.__add__, first, second))
    computed = in_parts(x + y)
    yield exactly(f"sum {label}", computed, parts_of(exact))
    total = sum(first)
    computed = in_parts(x.sum())
    yield exactly(f"total {label}", computed, parts_of([total]))

    # Absolute values and angles are rounded; real and imaginary parts are exact.
    limit = Limit(8 * roundoff(dtype_name))
    sizes = list(map(abs, first))
    yield near(f"size {label}", x.abs(), sizes, limit)
    imaginary_parts = [value.imag for value in first]
    yield exactly(f"imaginary part {label}", x.imag, imaginary_parts)
    angles = list(map(cmath.phase, first))
    yield near(f"angle {label}", x.angle(), angles, limit)


def complex_matrices(device: str) -> Iterator[Part]:
    """Catches a complex matrix product that drops the imaginary parts of one factor."""
    for dtype_name in COMPLEX:
        for rows, inner, columns in ((3, 5, 2), (9, 33, 17)):
            left = whole_numbers(rows * inner, "left matrix")
            right = whole_numbers(inner * columns, "right matrix")
            x = on_device(left, dtype_name, device).reshape(rows, inner)
            y = on_device(right, dtype_name, device).reshape(inner, columns)
            computed = in_parts(x @ y)

            exact: List[complex] = []
            for row in rows_of_length(left, inner):
                # Column `number` of the right matrix consists of every `columns`-th number.
                for number in range(columns):
                    column = right[number::columns]
                    products = map(complex.__mul__, row, column)
                    exact.append(sum(products))
            label = f"complex product {rows} x {inner} x {columns} of {dtype_name}"
            yield exactly(label, computed, parts_of(exact))


POSITIONS = (0.0, 1.0, 2.0, 63.0, 511.0, 4097.0)
"""Positions of tokens in a sequence."""
RATES = (1.0, 0.5, 0.125, 2.0**-7)
"""The angles in radians by which the pairs of numbers rotate from one token to the next."""


def rotated_pairs(device: str) -> Iterator[Part]:
    """Catches a rotary embedding that rotates a pair by another position's angle, or computes large
    angles too coarsely.

    The angles reach 4,097 radians. If a kernel reduces them to a single turn without enough digits,
    their sines are wrong.
    """
    pair = 3 - 2j
    rotated: List[complex] = []
    for position in POSITIONS:
        for rate in RATES:
            rotation = cmath.exp(1j * (position * rate))
            rotated.append(rotation * pair)
    exact = parts_of(rotated)

    # Angles are real numbers, so use the real formats, which are the keys of COMPLEX.
    for dtype_name in COMPLEX:
        positions = tensor_of(POSITIONS, dtype_name, device)
        rates = tensor_of(RATES, dtype_name, device)
        angles = torch.outer(positions, rates)
        limit = Limit(absolute=32 * roundoff(dtype_name))

        # The rotation as one complex product.
        rotations = torch.polar(torch.ones_like(angles), angles)
        computed = in_parts(rotations * on_device([pair], dtype_name, device))
        yield near(f"rotated pairs of {dtype_name}", computed, exact, limit)

        # The rotation from sines and cosines, as most models compute it.
        sine = angles.sin()
        cosine = angles.cos()
        computed = torch.stack([3 * cosine + 2 * sine, 3 * sine - 2 * cosine], -1)
        yield near(f"rotated halves of {dtype_name}", computed, exact, limit)


# --- Fourier transforms ---------------------------------------------------------------------------


def fourier_limit(dtype_name: str, length: int) -> Limit:
    """The error allowed in a Fourier transform: an absolute limit that grows with the square root
    of the length."""
    growth = sqrt(length)
    return Limit(absolute=64 * growth * roundoff(dtype_name))


def transforms_of_impulses(device: str) -> Iterator[Part]:
    """Catches a Fourier transform with a wrong sign, scale or length, or without its upper half.

    The signal has two impulses: 1 at a third of its length, and 2 at its end.
    """
    for dtype_name in COMPLEX:
        for length in SIGNALS:
            yield from transforms_of(impulses(length), dtype_name, device)


class Signal(NamedTuple):
    """A real signal and its exact Fourier transform."""

    values: List[float]
    spectrum: List[complex]


def impulses(length: int) -> Signal:
    """A signal of zeros with a 1 at a third of the length and a 2 at the end."""
    position = length // 3
    last = length - 1
    values = [0.0] * length
    values[position] = 1.0
    values[last] = 2.0
    spectrum: List[complex] = []
    for frequency in range(length):
        first_wave = wave(frequency, position, length)
        last_wave = wave(frequency, last, length)
        spectrum.append(first_wave + 2 * last_wave)
    return Signal(values, spectrum)


def wave(frequency: int, position: int, length: int) -> complex:
    """Returns what a unit impulse at this position contributes to one frequency of the spectrum."""
    # Subtract whole turns first, so that the angle stays small and accurate.
    part_of_turn = frequency * position % length / length
    angle = -2 * pi * part_of_turn
    return cmath.exp(1j * angle)


def transforms_of(signal: Signal, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the forward transforms of one signal: full, real, along columns, and orthonormal."""
    length = len(signal.values)
    inputs = tensor_of(signal.values, dtype_name, device)
    label = f"of {length} {dtype_name} numbers"
    limit = fourier_limit(dtype_name, length)
    exact = parts_of(signal.spectrum)
    # In a real signal's spectrum, the upper half mirrors the lower half, so rfft returns only the
    # lower half.
    lower_half = parts_of(signal.spectrum[: length // 2 + 1])

    computed = torch.fft.fft(inputs)
    yield near(f"fft {label}", in_parts(computed), exact, limit)
    computed = torch.fft.rfft(inputs)
    yield near(f"rfft {label}", in_parts(computed), lower_half, limit)
    # Transform the signal as the second column of a matrix.
    zeros = torch.zeros_like(inputs)
    columns = torch.stack([zeros, inputs], 1)
    computed = torch.fft.rfft(columns, dim=0)[:, 1]
    yield near(f"rfft of columns {label}", in_parts(computed), lower_half, limit)
    # The norm "ortho" divides by the square root of the length; multiply to undo that.
    computed = torch.fft.fft(inputs, norm="ortho") * sqrt(length)
    yield near(f"orthonormal fft {label}", in_parts(computed), exact, limit)


def transforms_and_back(device: str) -> Iterator[Part]:
    """Catches an inverse transform, over one or two axes, that does not restore the signal."""
    for dtype_name in COMPLEX:
        for length in SIGNALS:
            rows = whole_signals(length)
            signal = joined(rows)
            inputs = tensor_of(signal, dtype_name, device, len(rows), length)
            label = f"of {len(rows)} x {length} {dtype_name} numbers"
            limit = fourier_limit(dtype_name, length)

            computed = torch.fft.irfft(torch.fft.rfft(inputs), length)
            yield near(f"rfft and back {label}", computed, signal, limit)
            computed = torch.fft.ifft2(torch.fft.fft2(inputs)).real
            yield near(f"fft2 and back {label}", computed, signal, limit)

            # fftshift puts the second half first. If the length is odd, the first half is longer.
            middle = length - length // 2
            shifted = joined(row[middle:] + row[:middle] for row in rows)
            computed = torch.fft.fftshift(inputs, 1)
            yield exactly(f"fftshift {label}", computed, shifted)


def whole_signals(length: int) -> List[List[float]]:
    """Three random rows of whole numbers from -3 to 3, each of this length."""
    chance = dice(f"signal {length}")
    rows: List[List[float]] = []
    for _ in range(3):
        rows.append(random_wholes(chance, length, -3, 3))
    return rows
