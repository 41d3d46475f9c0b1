"""The program `gpusetup`, and `python -m gpusetup`.

It imports little, so that a Ctrl-C during the import of everything else already ends it cleanly.
"""

import gc
import sys

INTERRUPTED = 130
NEW_OBJECTS = 50_000
"""After how many new objects Python looks for garbage. What a start makes (modules, tables) all
stays, and to look at it after every 700 objects takes a twentieth of doctor's time."""


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
        # Python looks for garbage at its end, too, which takes a fiftieth of a second.
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
