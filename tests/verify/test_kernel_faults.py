"""Faults of torch's kernels that strangers wrote: each is seen by the check named for it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from verifying import ROOT

SEEN_BY = {
    "mm_k_tail": "float32",
    "mm_other_thread_tail": "repeats",
    "addmm_second_call_stale_bias": "batches",
    "cumsum_third_block_carry": "sums",
    "sort_stable_ties": "ordering",
    "normal_generator_not_advanced": "chance",
    "randperm_16bit": "ordering",
    "index_select_16bit": "indexing",
    "lstm_bidirectional_h_n": "recurrent",
    "fused_adamw_last_chunk": "optimizer-steps",
    "amp_unscale_last_tensor": "grad-scaler",
    "dropout_mask_repeats": "dropout",
}
SCRIPT = """
import sys
import warnings
warnings.simplefilter("ignore")
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests"]
import torch
from kernel_faults.kernel_faults import MET, apply
from verify_faults.runs import run
apply(sys.argv[2])
print(run(sys.argv[3], None).status, bool(MET))
"""


@pytest.mark.parametrize(("fault", "check"), SEEN_BY.items())
@pytest.mark.one_in(6)
def test_a_strangers_fault_is_seen(fault: str, check: str) -> None:
    argv = (sys.executable, "-c", SCRIPT, str(ROOT), fault, check)
    said = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert said.stdout == "failed True\n", said.stderr[-2000:]
