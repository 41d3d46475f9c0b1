"""The table of checks whose expected results are computed in plain Python."""

from __future__ import annotations

from typing import Tuple

from ...values import Check
from ..rows import NUMBERS, TRAINED, of

KNOWN: Tuple[Check, ...] = (
    of(
        "rounding",
        "known.rounding:rounding",
        "products with every inner dimension are rounded to the nearest number, and never "
        "truncated, rounded at random or summed in 16 bits",
        NUMBERS,
    ),
    of(
        "batches",
        "known.batches:batches",
        "products in batches, with vectors, with biases and with broadcasting are exact in every "
        "number format",
        NUMBERS,
    ),
    of(
        "softmax",
        "known.softmax:softmax",
        "softmax, log-softmax and cross-entropy with up to 70,001 classes are right, and so are "
        "their gradients",
        "losses and gradients of every classifier and language model would be wrong",
    ),
    of(
        "norms",
        "known.norms:norms",
        "layer, group, batch and RMS norms are right, even with small variances and large means, "
        "and include eps correctly",
        NUMBERS,
    ),
    of(
        "masks",
        "known.attention:masks",
        "attention uses exactly the keys that its mask allows, even if the mask allows none",
        "transformers would see padding, or tokens that are still to come",
    ),
    of(
        "ordering",
        "known.ordering:ordering",
        "sorts, topk, argmax, searches and running sums are right, even with ties and in long rows",
        "sampling, beam search and metrics would be wrong",
    ),
    of(
        "indexing",
        "known.indexing:indexing",
        "elements are read, written and added at the right places, even with negative and "
        "repeated indices",
        "embeddings, gathers and scatters would read or write other elements",
    ),
    of(
        "sums",
        "known.sums:sums",
        "sums, means, vector norms and accumulated gradients are exact, even in 16 bits",
        TRAINED,
    ),
    of(
        "strides",
        "known.strides:strides",
        "copies and casts of tensors in every memory layout are complete and correctly rounded",
        "data would change wherever a program transposes, slices or converts a tensor",
    ),
    of(
        "pointwise",
        "known.pointwise:pointwise",
        "elementwise functions, quotients and comparisons are right, even near zero and for NaN",
        NUMBERS,
    ),
    of(
        "images",
        "known.images:images",
        "convolutions with their gradients, pooling, padding and upsampling are right at each "
        "pixel",
        "models of images would compute wrong numbers",
    ),
    of(
        "gradients",
        "known.gradients:gradients",
        "the gradients of functions, broadcast operands, gathered elements and checkpointed "
        "layers are right",
        TRAINED,
        scratch=True,
    ),
    of(
        "losses",
        "known.losses:losses",
        "losses for pairs and for classes, and distances between rows, are right, and so are "
        "their gradients",
        TRAINED,
    ),
    of(
        "axes",
        "known.axes:axes",
        "reductions, gathers and scatters along each axis are right, even for empty tensors",
        NUMBERS,
    ),
    of(
        "complex-numbers",
        "known.complex_numbers:complex_numbers",
        "complex products, rotary embeddings and Fourier transforms are right",
        "rotary embeddings and audio models would compute wrong numbers",
    ),
    of(
        "recurrent",
        "known.recurrent:recurrent",
        "LSTM, GRU and plain recurrent networks compute the same steps as a version in pure Python",
        NUMBERS,
    ),
    of(
        "linalg",
        "known.linalg:linalg",
        "einsum, solve, inverse, Cholesky, QR and eigenvalues of small matrices are right",
        NUMBERS,
    ),
    of(
        "resampling",
        "known.resampling:resampling",
        "resizing, pooling, folding and sampling of rows and images are right, and so are their "
        "gradients",
        "models of images and audio would compute wrong numbers",
    ),
    of(
        "mixed-precision",
        "known.mixed_precision:mixed_precision",
        "autocast computes in the number formats that torch documents, and the GradScaler's steps "
        "are exact",
        "mixed-precision training would follow wrong numbers",
    ),
    of(
        "large-tensor",
        "known.large:large",
        "tensors with more than 2**31 elements are read, written and copied up to the last element",
        "large tables and batches would be read and written in the wrong places",
    ),
    of(
        "dropout",
        "known.dropout:dropout",
        "dropout drops every lane and position equally often, and no draw repeats the previous one",
        "models would train with units that are never dropped",
    ),
    of(
        "optimizer-steps",
        "known.steps:steps",
        "eleven optimizers, in their plain, foreach and fused forms, make the same steps as a "
        "version in pure Python",
        "training would take wrong steps",
        then="use `foreach=False, fused=False` until another build of torch is installed",
        scratch=True,
    ),
)
"""The checks that compare torch's results with results that were computed without torch."""
