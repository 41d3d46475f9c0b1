"""The program `gpusetup`, and `python -m gpusetup`: a Ctrl-C counts while the rest is imported."""

import gc
import sys

INTERRUPTED = 130
NEW_OBJECTS = 50_000
"""After how many Python looks for garbage: what a start makes (modules, tables) all stays, and
looking at it after every 700 costs a twentieth of a doctor."""


def main() -> int:
    """Run one command; its exit code."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from gpusetup.cli import main as run

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return INTERRUPTED
    finally:
        gc.freeze()  # the end looks for garbage, too: a fiftieth of a second


if __name__ == "__main__":
    sys.exit(main())
