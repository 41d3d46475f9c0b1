"""The table of checks whose expected results are computed in plain Python."""

from __future__ import annotations

from typing import Tuple

from ...values import Check
from ..rows import NUMBERS, TRAINED, of

KNOWN: Tuple[Check, ...] = (
    of(
        "rounding",
        "known.rounding:rounding",
        "products round to the nearest number for every inner length; none is cut off, rounded at "
        "random or summed in 16 bits",
        NUMBERS,
    ),
    of(
        "batches",
        "known.batches:batches",
        "products in batches, with vectors, biases and broadcasts are exact in every format",
        NUMBERS,
    ),
    of(
        "softmax",
        "known.softmax:softmax",
        "softmax, log-softmax and cross-entropy of up to 70,001 classes are right, with gradients",
        "losses and gradients of every classifier and language model would be wrong",
    ),
    of(
        "norms",
        "known.norms:norms",
        "layer, group, batch and RMS norms are right, with small variances, large means and eps",
        NUMBERS,
    ),
    of(
        "masks",
        "known.attention:masks",
        "attention sees exactly the keys that its mask allows, even if that is none",
        "transformers would see padding, or tokens that are still to come",
    ),
    of(
        "ordering",
        "known.ordering:ordering",
        "sorts, topk, argmax, searches and running sums are right, with ties and long rows",
        "sampling, beam search and metrics would be wrong",
    ),
    of(
        "indexing",
        "known.indexing:indexing",
        "elements are read, written and added at the right places, also for negative and repeated "
        "indices",
        "embeddings, gathers and scatters would read or write other elements",
    ),
    of(
        "sums",
        "known.sums:sums",
        "sums, means, vector norms and accumulated gradients are exact, also in 16 bits",
        TRAINED,
    ),
    of(
        "strides",
        "known.strides:strides",
        "copies and casts of tensors in every layout are complete and rounded as defined",
        "data would change wherever a program transposes, slices or converts a tensor",
    ),
    of(
        "pointwise",
        "known.pointwise:pointwise",
        "elementwise functions, quotients and comparisons are right, also near zero and at NaN",
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
        "gradients of functions, broadcast operands, gathered elements and checkpoints are right",
        TRAINED,
        scratch=True,
    ),
    of(
        "losses",
        "known.losses:losses",
        "losses of pairs and of classes, and distances of rows, are right, with their gradients",
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
        "rows and images are enlarged, pooled, folded and sampled correctly, with gradients",
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
        "large tables and batches would be read and written in the wrong places",
    ),
    of(
        "dropout",
        "known.dropout:dropout",
        "dropout reaches every lane and position equally often, and no draw repeats the last one",
        "models would train with units that are never dropped",
    ),
    of(
        "optimizer-steps",
        "known.steps:steps",
        "eleven optimizers make the same steps as Python, in plain, foreach and fused form",
        "training would take wrong steps",
        then="use `foreach=False, fused=False` until another build of torch is installed",
        scratch=True,
    ),
)
"""The checks that compare torch's results with results that were computed without torch."""
