"""The program `gpusetup`, and `python -m gpusetup`: a Ctrl-C counts while the rest is imported."""

import sys

INTERRUPTED = 130


def main() -> int:
    """Run one command; its exit code."""
    try:
        from gpusetup.cli import main as run

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
