"""A port for ranks to meet at, theirs from the moment it is chosen.

    with HeldPort() as port:            port.number: rank 0 listens there, whenever it comes to it
        ...

Rank 0 takes seconds to load torch before it listens, and in that time the kernel could give a port that is merely free to
anybody. One that is bound, without listening, it gives to nobody; whoever names it with SO_REUSEADDR may still listen there, as
torch's store and every server of Python's does.
"""
from __future__ import annotations

import socket
from typing import Self


class HeldPort:
    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
