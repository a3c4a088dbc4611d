"""The program ``python`` whose commands the warm process runs; see ``server.py``."""

import json
import os
import socket
import sys
from pathlib import Path


def main(address: str) -> int:
    """Send the command to the server at the address, with this process's streams; return its exit
    code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        request = {
            "folder": str(Path.cwd()),
            "environment": dict(os.environ),
            "arguments": sys.argv[2:],
        }
        text = json.dumps(request).encode()
        socket.send_fds(connection, [len(text).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(text)
        return connection.recv(1)[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
