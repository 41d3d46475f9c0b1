"""Results of programs that test GPUs: gpu-burn, DCGM, nccl-tests, deviceQuery.

Sources: gpu_burn-drv.cpp, DCGM's diagnostics (dcgmi diag), nccl-tests' common.cu, CUDA samples.
"""

from __future__ import annotations

from gpusetup.messages.row import row, rows

GPU = r"GPU (?P<gpu>\d{1,3})"

ROWS = (
    row("hardware-fault", ": faulty", rf"{GPU}: FAULTY", by="gpu", what="test"),
    *rows(
        "hardware-fault",
        {
            "(warning!)": r"proc'd: \d{1,12}.{0,60}?errors: (?P<errors>[1-9]\d*) {1,3}\(WARNING!\)",
            "| fail": r"(?:(?:Diagnostic|Memory|Memtest|Targeted Stress|Targeted Power|SM Stress|PCIe|Pulse Test|NVBandwidth|Hardware) ?\| Fail)\b(?! - (?:All|)? ?\| (?:Error|Warning) ?\| .{0,80}(?:fabric|permission|root))",
            "miscompare": r"[Tt]here was a miscompare|DCGM_FR_FAULTY_MEMORY|had uncorrectable memory errors",
        },
        by="what",
        what="test",
    ),
    *rows(
        "gpu-computes",
        {
            ": ok": r"Tested \d{1,3} GPUs:(?: GPU \d{1,3}: OK){1,64}(?! GPU \d{1,3}: FAULTY)",
            "avg bus bandwidth": r"Out of bounds values : 0 OK.{0,60}?Avg bus bandwidth",
            "| pass": r"Successfully ran diagnostic for group\.(?:(?!\| Fail).){0,1100}?(?:Memory|PCIe|Diagnostic|Denylist|Software) ?\| Pass(?!.{0,1100}\| Fail)",
            "result = pass": r"deviceQuery.{0,300}?Result = PASS",
        },
    ),
    row(
        "ran-first",
        ("loss", "after ", "ran ", "epoch"),
        r"\b(?:step|iter(?:ation)?|epoch)s?\b[ =:#\[]{0,3}\d{1,8}\b.{0,60}?\bloss\b.{0,3}\d|\{'loss': \d|\bEpoch:? ?\d[^\n]{0,20}?[1-9]\d?%\|"
        r"|\b(?:after|ran) (?:running |training )?(?:for )?(?:(?:about|around|roughly|some|a few|several|many|a couple of|~|over|only) ?)*(?:\d[\d,.]*k?|an?|one|two|three|few|several|some|many)? ?(?:hours?|minutes|mins|days|(?:training )?(?:steps|iterations)|epochs?|batches)\b(?! (?:of )?(?:suspend|sleep|uptime|idle|loading|waiting))",
    ),
)
