"""``python -m irleed`` is the command `irleed`; run from a source tree that is not installed, it says so."""

import sys
from importlib.metadata import PackageNotFoundError, version

try:
    version("irleed")
    from irleed.cli import main
except (PackageNotFoundError, ModuleNotFoundError) as error:
    print(f"irleed: not installed ({error}): pip install -e . in the source tree", file=sys.stderr)
    sys.exit(2)

main()
