#!/usr/bin/env python3
"""Runs the whole program on a real card, once, and keeps the evidence.

python scripts/gpu_acceptance.py --out DIR                     everything, in 8 minutes
python scripts/gpu_acceptance.py --out DIR --parts suspicions,clean
python scripts/gpu_acceptance.py --out DIR --device cpu        a rehearsal: proves nothing of a card

Writes DIR/evidence.json, DIR/index.html and DIR/runs.tar.gz (what the commands printed, redacted).
It ends at once, with 2, where a word is wrong, DIR cannot be written or holds the evidence of
another card, driver, torch or commit, or torch is not usable (a card that torch does not compute on
included; --device cpu rehearses there). 0: every part is ok. 1: a part is not, because a claim is
refuted, a command failed, or the time was not enough. 128 and more: a signal ended it.

Each part runs in a process of its own and is killed at its limit, with all that it started; the
next one runs whatever happened, and time that one leaves goes to those after it. All is written
after each part. A later call with the same DIR adds to what stands there: clean goes on with other
seeds where card, driver, torch and commit are the same. Settings of the card (clocks,
power limit, MIG, persistence, compute mode) are never changed, nothing is fetched or installed.
To keep the evidence with the project, put the folder into tests/recorded_runs/.

It runs with the Python and the torch of the machine (made for Python 3.12 and torch 2.11.0+cu130)
and gpusetup from this checkout. Where there is no network, what is missing travels as wheels and is
named by PYTHONPATH. The script itself needs torch alone; the commands need the dependencies in
pyproject.toml: filelock, msgspec, nvidia-ml-py, packaging, platformdirs, psutil, requests,
rich, ruamel.yaml, shtab, tomlkit, urllib3 and uv. bitsandbytes is
measured where it is there. What is missing is listed first, in the words that pip takes.
"""

import sys

LEAST_PYTHON = (3, 10)
if sys.version_info < LEAST_PYTHON:  # nothing above this line needs a newer one
    told = "nothing was measured: this is Python %d.%d (%s), and gpusetup needs 3.10 or newer\n"
    sys.stderr.write(told % (sys.version_info[0], sys.version_info[1], sys.executable))
    sys.exit(2)

from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from acceptance.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(__doc__ or ""))
