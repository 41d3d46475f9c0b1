"""The program `gpusetup`, and `python -m gpusetup`.

It imports little, so that Ctrl-C ends it cleanly even while everything else is imported.
"""

import gc
import sys

INTERRUPTED = 130
NEW_OBJECTS = 50_000
"""The number of new objects after which Python collects garbage. Objects from the start (modules,
tables) all stay, and collecting after every 700 objects would take a twentieth of doctor's time."""


def main() -> int:
    """Run one command and return its exit code."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from gpusetup.cli import main as run

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:  # Windows' pythonw has none
            sys.stderr.write("interrupted\n")
        return INTERRUPTED
    finally:
        # Python also collects garbage when it exits, which would take a sixth of doctor's time.
        # `freeze` makes the collector skip all existing objects.
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
