"""Flower's SuperNode as a process that ends when it gives up, so that whoever started it can start it again.

Flower's own command goes on then: the thread that serves its executor keeps a process alive that asks for nothing.
"""

import os
import sys
import traceback

from flwr.supernode.cli.flower_supernode import flower_supernode


def main() -> None:
    code = 1  # to return is to have given up
    try:
        flower_supernode()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
