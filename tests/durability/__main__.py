"""``python -m tests.durability kill|kill-agents|fuzz|faults|writers|archive [COUNT]``."""

import sys
import tempfile
from pathlib import Path

from tests.durability import archive, faults, fuzz, kill, writers

PROGRAMS = {"kill": (kill.run, 1000), "kill-agents": (kill.run_agents, 1000)}
PROGRAMS |= {"fuzz": (fuzz.run, 20_000)}
PROGRAMS |= {"faults": (faults.run, 50), "writers": (writers.run, 2000)}
PROGRAMS |= {"archive": (archive.run, 1000)}


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        sys.exit(__doc__)
    run, count = PROGRAMS[name]
    if len(sys.argv) > 2:
        count = int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder), count))


if __name__ == "__main__":
    main()
