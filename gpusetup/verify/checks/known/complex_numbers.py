"""Complex numbers and Fourier transforms, as rotary embeddings and audio models use them.

Products of complex numbers with whole parts are exact. The transform of a single one at position p
is `exp(-2 pi i k p / n)`, which Python computes.
"""

from __future__ import annotations

import cmath
from math import pi, sqrt
from typing import Any, Iterator, List, Sequence

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import Limit, ask_all, dice, exactly, near, roundoff, tensor_of

LENGTHS = (1, 17, 1025, 70_001)
SIGNALS = (7, 16, 17, 100, 128, 1000, 1021, 1024, 4098)
"""Powers of two, products of small primes, and primes: each goes another way through a library."""
COMPLEX = {"float32": "complex64", "float64": "complex128"}


def complex_numbers(device: str) -> Outcome:
    """Complex products and Fourier transforms agree with those of Python's complex numbers."""
    questions = (
        complex_products,
        complex_matrices,
        rotated_pairs,
        transforms_of_impulses,
        transforms_and_back,
    )
    return ask_all(device, questions, "complex numbers in Python")


def whole_numbers(length: int, salt: str) -> List[complex]:
    chance = dice(f"complex {length} {salt}")
    return [complex(chance.randint(-5, 5), chance.randint(-5, 5)) for _ in range(length)]


def on_device(values: Sequence[complex], name: str, device: str) -> Any:
    """A complex tensor whose parts have the format `name`."""
    return torch.tensor(list(values), dtype=getattr(torch, COMPLEX[name])).to(device)


def parts_of(values: Sequence[complex]) -> List[float]:
    """Real and imaginary part of each number, one after the other."""
    return [part for value in values for part in (value.real, value.imag)]


def in_parts(computed: Any) -> Any:
    return torch.view_as_real(computed.resolve_conj())


def complex_products(device: str) -> Iterator[Part]:
    """Catches a complex product that loses a sign or the last number, and a lost conjugate."""
    for name in COMPLEX:
        for length in LENGTHS:
            first, second = whole_numbers(length, "first"), whole_numbers(length, "second")
            x, y = on_device(first, name, device), on_device(second, name, device)
            label = f"of {length} complex {name} numbers"
            exact = [a * b for a, b in zip(first, second)]
            yield exactly(f"product {label}", in_parts(x * y), parts_of(exact))
            exact = [a * b.conjugate() for a, b in zip(first, second)]
            computed = in_parts(x * y.conj())
            yield exactly(f"product with conjugates {label}", computed, parts_of(exact))
            exact = [a + b for a, b in zip(first, second)]
            yield exactly(f"sum {label}", in_parts(x + y), parts_of(exact))
            yield exactly(f"total {label}", in_parts(x.sum()), parts_of([sum(first)]))
            limit = Limit(8 * roundoff(name))
            yield near(f"size {label}", x.abs(), [abs(a) for a in first], limit)
            yield exactly(f"imaginary part {label}", x.imag, [a.imag for a in first])
            yield near(f"angle {label}", x.angle(), [cmath.phase(a) for a in first], limit)


def complex_matrices(device: str) -> Iterator[Part]:
    """Catches a product of complex matrices that drops the imaginary parts of one."""
    for name in COMPLEX:
        for rows, inner, columns in ((3, 5, 2), (9, 33, 17)):
            first = whole_numbers(rows * inner, "left matrix")
            second = whole_numbers(inner * columns, "right matrix")
            x = on_device(first, name, device).reshape(rows, inner)
            y = on_device(second, name, device).reshape(inner, columns)
            exact: List[complex] = []
            for row in range(rows):
                for column in range(columns):
                    along_row = first[row * inner : (row + 1) * inner]
                    along_column = second[column::columns]
                    exact.append(sum(a * b for a, b in zip(along_row, along_column)))
            label = f"complex product {rows} x {inner} x {columns} of {name}"
            yield exactly(label, in_parts(x @ y), parts_of(exact))


def rotated_pairs(device: str) -> Iterator[Part]:
    """Catches a rotary embedding that turns a pair by another position's angle, or lost digits.

    The angles reach 4,097 radians, whose sine a coarse reduction of the angle would spoil.
    """
    for name in COMPLEX:
        positions = [0.0, 1.0, 2.0, 63.0, 511.0, 4097.0]
        rates = [1.0, 0.5, 0.125, 2.0**-7]
        angles = [position * rate for position in positions for rate in rates]
        turned = [cmath.exp(1j * angle) * (3 - 2j) for angle in angles]
        angle_tensor = torch.outer(
            tensor_of(positions, name, device), tensor_of(rates, name, device)
        )
        rotation = torch.polar(torch.ones_like(angle_tensor), angle_tensor)
        pair = on_device([3 - 2j], name, device)
        limit = Limit(absolute=32 * roundoff(name))
        computed = in_parts(rotation * pair)
        yield near(f"rotated pairs of {name}", computed, parts_of(turned), limit)
        sine, cosine = angle_tensor.sin(), angle_tensor.cos()
        halves = torch.stack([3 * cosine + 2 * sine, 3 * sine - 2 * cosine], -1)
        yield near(f"rotated halves of {name}", halves, parts_of(turned), limit)


# --- Fourier transforms ---------------------------------------------------------------------------


def fourier_limit(name: str, length: int) -> Limit:
    """The errors of a transform grow with the logarithm of its length; primes take detours."""
    return Limit(absolute=64 * sqrt(length) * roundoff(name))


def transforms_of_impulses(device: str) -> Iterator[Part]:
    """Catches a transform with a wrong sign, scale or length, and a lost upper half.

    Two impulses: 1 at one position, and 2 at the last one.
    """
    for name in COMPLEX:
        for length in SIGNALS:
            position = length // 3
            signal = [0.0] * length
            signal[position], signal[-1] = 1.0, 2.0
            spectrum: List[complex] = []
            for k in range(length):
                # Whole turns are taken away first: the angle stays small and exact.
                first_angle = k * position % length / length
                last_angle = k * (length - 1) % length / length
                first_wave = cmath.exp(-2j * pi * first_angle)
                last_wave = cmath.exp(-2j * pi * last_angle)
                spectrum.append(first_wave + 2 * last_wave)
            inputs = tensor_of(signal, name, device)
            label = f"of {length} {name} numbers"
            limit = fourier_limit(name, length)
            computed = torch.fft.fft(inputs)
            yield near(f"fft {label}", in_parts(computed), parts_of(spectrum), limit)
            half = spectrum[: length // 2 + 1]
            computed = torch.fft.rfft(inputs)
            yield near(f"rfft {label}", in_parts(computed), parts_of(half), limit)
            pair = torch.stack([torch.zeros_like(inputs), inputs], 1)
            computed = torch.fft.rfft(pair, dim=0)[:, 1]
            yield near(f"rfft of columns {label}", in_parts(computed), parts_of(half), limit)
            scale = sqrt(length)
            computed = torch.fft.fft(inputs, norm="ortho") * scale
            yield near(f"orthonormal fft {label}", in_parts(computed), parts_of(spectrum), limit)


def transforms_and_back(device: str) -> Iterator[Part]:
    """Catches an inverse transform that does not bring the signal back, in one or two axes."""
    for name in COMPLEX:
        for length in SIGNALS:
            chance = dice(f"signal {length}")
            signal = [float(chance.randint(-3, 3)) for _ in range(3 * length)]
            inputs = tensor_of(signal, name, device, 3, length)
            label = f"of 3 x {length} {name} numbers"
            limit = fourier_limit(name, length)
            computed = torch.fft.irfft(torch.fft.rfft(inputs), length)
            yield near(f"rfft and back {label}", computed, signal, limit)
            computed = torch.fft.ifft2(torch.fft.fft2(inputs)).real
            yield near(f"fft2 and back {label}", computed, signal, limit)
            shifted = torch.fft.fftshift(inputs, 1)
            middle = length - length // 2
            exact: List[float] = []
            for row in range(3):
                line = signal[row * length : (row + 1) * length]
                exact += line[middle:] + line[:middle]
            yield exactly(f"fftshift {label}", shifted, exact)
