"""What words and options of other tools are called here."""

from __future__ import annotations

from collections.abc import Collection, Mapping

CALLED: Mapping[str, str] = {
    "install --undo": "uninstall remove rollback undo revert restore",
    "install --upgrade": "upgrade update",
    "--version": "version ver about",
    "monitor --once": "nvidia-smi smi gpustat",
    "resolve --explain": "versions compat",
    "doctor": "check diagnose status detect env collect-env fix why list show info",
    "resolve": "which find choose select match recommend search index",
    "install": "setup add pip uv conda get fetch download sync reinstall recover resume repair",
    "verify": "test prove validate selftest bench benchmark stress",
    "plan": "estimate fit size memory vram calculate predict oom",
    "tune": "optimize optimise autotune config batch-size",
    "monitor": "watch top stat dmon nvtop usage utilization log",
    "snapshot": "record save dump export",
    "snapshot diff": "compare diff",
    "fleet check": "node-check node health",
    "fleet slurm": "slurm prolog",
    "mcp --agents": "agents",
    "doctor --schema": "schema",
    "--torch": "version torch-version pytorch pytorch-version torch-release spec",
    "--backend": "cuda cuda-version cudatoolkit toolkit rocm torch-backend variant device cpu",
    "--gpu": "i device devices gpu-name card arch capability sm compute-capability for-gpu",
    "--driver": "for-driver driver-version nvidia-driver",
    "--python": "n p env environment interpreter conda-env venv prefix target name user system",
    "--venv": "t env environment virtualenv prefix target path dir user break-system-packages",
    "--upgrade": "u update latest force-reinstall",
    "--yes": "force assume-yes no-input non-interactive",
    "--dry-run": "simulate preview check what-if",
    "--index": "i index-root index-url extra-index-url default-index mirror",
    "--offline": "f wheelhouse no-index find-links",
    "--undo": "rollback revert restore uninstall remove",
    "--from": "machine host snapshot replay file input load",
    "--report": "log text input stdin file read",
    "--explain": "why reason details",
    "--os": "platform system",
    "--output": "out outfile write to",
    "--level": "quick standard stress full deep",
    "--device": "cpu no-cuda",
    "--seconds": "duration time for timeout",
    "--context": "seq-len seqlen sequence-length max-length max-seq-length ctx context-length",
    "--batch": "b batch-size bs global-batch-size per-device-batch-size",
    "--gpu-mem": "vram memory mem gpu-memory",
    "--gpus": "n-gpus num-gpus world-size nproc nproc-per-node nodes",
    "--amp": "mixed-precision precision autocast bf16 fp16",
    "--checkpointing": "gradient-checkpointing activation-checkpointing recompute",
    "--in-place": "inplace overwrite write apply",
    "--interval": "d delay every period loop l",
    "--keep-private": "raw full no-redact unredacted",
    "--json": "csv html format-json",
}
"""What is typed here -> what other tools and people call it."""


def meant(word: str, ours: Collection[str]) -> list[str]:
    """What of ours a word means, three at most.

    >>> meant("test", CALLED), meant("docter", CALLED), meant("--seq_len", ["--context"])
    (['verify'], ['doctor'], ['--context'])
    """
    from difflib import get_close_matches

    plain = word.lower().lstrip("-").replace("_", "-")
    called = [own for own in ours if plain in (own[2:], *CALLED.get(own, "").split())]
    return called[:3] or get_close_matches(word, ours, 1, 0.7)


def offered(words: Collection[str]) -> str:
    """A question that names them.

    >>> offered(["--gpu", "--driver"]), offered([])
    ('did you mean `--gpu` or `--driver`?', '')
    """
    return f"did you mean `{'` or `'.join(words)}`?" if words else ""
