"""The table of checks whose expected results are computed in plain Python."""

from __future__ import annotations

from typing import Tuple

from ...values import Check
from ..rows import NUMBERS, TRAINED, of

KNOWN: Tuple[Check, ...] = (
    of(
        "rounding",
        "known.rounding:rounding",
        "products round to the nearest number, whatever their inner length: none is cut off, "
        "rounded by chance or summed up in 16 bits",
        NUMBERS,
    ),
    of(
        "batches",
        "known.batches:batches",
        "products in batches, with vectors, biases and spread operands are exact in every format",
        NUMBERS,
    ),
    of(
        "softmax",
        "known.softmax:softmax",
        "softmax, log-softmax and cross-entropy of up to 70,001 classes, and their gradients",
        "losses and gradients of every classifier and language model would be wrong",
    ),
    of(
        "norms",
        "known.norms:norms",
        "layer, group, batch and RMS norms, with a small variance, a large mean and their eps",
        NUMBERS,
    ),
    of(
        "masks",
        "known.attention:masks",
        "attention sees the keys that its mask allows and no other, also if that is none",
        "transformers would see padding, or tokens that are still to come",
    ),
    of(
        "ordering",
        "known.ordering:ordering",
        "sorts, topk, argmax, searches and running sums, with ties and in rows past 1,024",
        "sampling, beam search and metrics would be wrong",
    ),
    of(
        "indexing",
        "known.indexing:indexing",
        "elements are picked, written and added at the places that are named, also at negative "
        "and repeated ones",
        "embeddings, gathers and scatters would read or write other elements",
    ),
    of(
        "sums",
        "known.sums:sums",
        "sums, means, vector norms and gradients that add up are exact, also of 16-bit numbers",
        TRAINED,
    ),
    of(
        "strides",
        "known.strides:strides",
        "copies and casts of tensors in every layout arrive complete and rounded as defined",
        "data would change wherever a program transposes, slices or converts a tensor",
    ),
    of(
        "pointwise",
        "known.pointwise:pointwise",
        "functions, quotients and comparisons of single numbers are right, near zero and at NaN",
        NUMBERS,
    ),
    of(
        "images",
        "known.images:images",
        "convolutions and their gradients, pools, pads and enlarged images are right at each pixel",
        "models of images would compute wrong numbers",
    ),
    of(
        "gradients",
        "known.gradients:gradients",
        "gradients of functions, spread operands, picked elements and checkpoints are right",
        TRAINED,
        scratch=True,
    ),
    of(
        "losses",
        "known.losses:losses",
        "twelve losses of pairs, losses of classes and distances of rows, with their gradients",
        TRAINED,
    ),
    of(
        "axes",
        "known.axes:axes",
        "reductions, picks and scatters along each axis are right, also of empty tensors",
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
        "LSTM, GRU and plain recurrent nets make the same steps as Python",
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
        "rows and images are enlarged, pooled, folded and sampled right, with their gradients",
        "models of images and audio would compute wrong numbers",
    ),
    of(
        "mixed-precision",
        "known.mixed_precision:mixed_precision",
        "autocast computes in the formats that it promises, and the GradScaler's steps are exact",
        "mixed-precision training would follow wrong numbers",
    ),
    of(
        "large-tensor",
        "known.large:large",
        "tensors of more than 2**31 elements are read, written and copied to their end",
        "large tables and batches would be read and written at wrong places",
    ),
    of(
        "dropout",
        "known.dropout:dropout",
        "dropout reaches each lane and position alike, and no draw repeats the one before",
        "models would train with units that are never dropped",
    ),
    of(
        "optimizer-steps",
        "known.steps:steps",
        "the plain, foreach and fused form of eleven optimizers make the same steps as Python",
        "training would take wrong steps",
        then="use `foreach=False, fused=False` until another build of torch is installed",
        scratch=True,
    ),
)
"""The checks that compare torch's results with results that were computed without torch."""
