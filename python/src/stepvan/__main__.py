"""``python -m stepvan``: the command stepvan (launch, env, doctor, bench, ...)."""

import sys

from stepvan import _core


def main() -> int:
    """Runs the command line, and returns its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    return _core.main(tuple(sys.argv[1:]), (sys.executable, "-m", "stepvan"))


if __name__ == "__main__":
    sys.exit(main())
