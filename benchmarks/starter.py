"""Starts a command from a process that is small, and writes what it took: exit code, seconds, peak KiB, CPU seconds.

A child's peak memory begins with its parent's, which Linux keeps across fork and exec: one started by a process with a
data library in it would be charged for that library. Only the standard library, and little of it.
"""

import os
import sys
import time


def main() -> None:
    """Arguments: the descriptor to write to, and the command."""
    start = time.perf_counter()
    child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    took = (os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss, usage.ru_utime + usage.ru_stime)
    os.write(int(sys.argv[1]), " ".join(map(str, took)).encode())


if __name__ == "__main__":
    main()
