"""Add the results in one file of lines to another.

    python tools/merge_results.py runs/accuracy/cells.jsonl results/accuracy/cells.jsonl

Lines stay as they are and end in their stable order. A result of the same experiment is replaced. The first file is not
changed.
"""

import sys
from pathlib import Path

from refprotofl.studies.results import KeptResults, find_result, read_lines


def main() -> None:
    """Add every line of the first file to the second."""
    source, target = map(Path, sys.argv[1:])
    before, found = len(read_lines(target)), read_lines(source)
    kept = KeptResults(target)
    for asked in found:
        kept.add(find_result(source / asked))
    print(f"{len(found)} results from {source}; {len(read_lines(target)) - before} of them are new in {target}")


if __name__ == "__main__":
    main()
