"""Entry of the three ways to start: as a module, by path, and as the child that computes.

This file alone keeps to syntax that any Python reads, so that an old one gets a sentence.
"""

import os
import sys

OLDEST = (3, 8)
ALONE = "gpusetup_verify"


def package():
    """The name under which the folder's modules are imported; by path it is given one here.

    Started by path, Python has put the folder itself first on `sys.path`, where its file names
    could hide other modules: it is taken off again. Nothing else of the path is changed, so the
    checks see the torch that the user's own `python` sees.
    """
    if __package__:
        return __package__
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.realpath(here):
        del sys.path[0]
    spec = importlib.util.spec_from_file_location(
        ALONE, os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    sys.modules[ALONE] = importlib.util.module_from_spec(spec)
    return ALONE


def main():
    if sys.version_info[:2] < OLDEST:
        sys.stderr.write(
            "error: verify needs Python %d.%d or newer, %s is %d.%d\n"
            % (OLDEST + (sys.executable,) + tuple(sys.version_info[:2]))
        )
        return 2
    import importlib

    home = package()
    if sys.argv[1:2] == ["--worker"]:
        return importlib.import_module(home + ".worker").main()
    return importlib.import_module(home + ".program").main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
