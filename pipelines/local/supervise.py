"""Run the command of a step, and kill it with its children when the process that started it has ended.

``python supervise.py COMMAND``, as the leader of a process group. Standard input is a pipe whose other end belongs to
the process that started this one: it closes even if that process is killed by SIGKILL. Without this process, the step
would go on beside the next run in the same folder.
"""

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Run the command; end as it does."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=kill_group_at_end_of_input, daemon=True).start()
    code = process.wait()
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def kill_group_at_end_of_input() -> None:
    """Wait until the pipe closes, then kill the process group."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
