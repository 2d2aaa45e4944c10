"""``python -m yiem_nb.cli`` is ``yiem``."""

import sys

from yiem_nb.cli import main

if __name__ == "__main__":
    sys.exit(main())
