"""The entry point for all three ways to start: as a module, by path, and as the worker process that
computes.

Only this file keeps to syntax that every Python 3 can read, so that an old Python gets an error
message and not a SyntaxError.
"""

import os
import sys

OLDEST = (3, 8)
ALONE = "gpusetup_verify"


def package() -> str:
    """The package name under which the folder's modules are imported. If the folder was started by
    path, it is registered under the name ALONE.

    If the folder was started by path, Python has put it first on `sys.path`, where its file names
    could hide other modules, so we remove it. The rest of the path stays as it is, so the checks
    see the torch that the user's own `python` sees.
    """
    if __package__:
        return __package__
    from importlib.machinery import ModuleSpec
    from importlib.util import module_from_spec

    folder = os.path.dirname(os.path.abspath(__file__))
    # An empty entry means the current folder.
    if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.realpath(folder):
        del sys.path[0]
    spec = ModuleSpec(ALONE, None, is_package=True)
    spec.submodule_search_locations = [folder]
    sys.modules[ALONE] = module_from_spec(spec)
    return ALONE


def main() -> int:
    """Run the program, or with `--worker` the process that computes, and return the exit code."""
    if sys.version_info[:2] < OLDEST:
        sys.stderr.write(
            "error: verify needs Python 3.8 or newer, %s is %s\n"
            % (sys.executable, sys.version.split()[0])
        )
        return 2
    # Python 3.0 has no importlib.
    import importlib

    home = package()
    # The program starts itself this way to compute in another process.
    if sys.argv[1:2] == ["--worker"]:
        # It never returns, and ends when its parent does.
        importlib.import_module(home + ".worker").main()
    program = importlib.import_module(home + ".program")
    return int(program.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
