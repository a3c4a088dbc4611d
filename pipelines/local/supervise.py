"""Run the command of a step, and kill it with its children when the process that started it has
ended.

Standard input is a pipe from that process: it closes even if the process is killed by SIGKILL.
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
