"""In which order processes ended, as the kernel saw it, however late and seldom one looks.

    deaths = Deaths()
    deaths.watch(3, process.pid)
    deaths.order()                      [3, 0]: rank 3 was gone first, also when both went between two looks

A process that ends wakes the descriptor of its pid, and an epoll keeps what it woke in the order in which it did. Without such
descriptors (kernels before 5.3, none left) `order` knows nobody, and `watch` says so.
"""
from __future__ import annotations

import os
import select


class Deaths:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._of: dict[int, int] = {}
        self._order: list[int] = []

    def watch(self, rank: int, pid: int) -> bool:
        """Of a child that has not been waited for, whether it has ended already or not; False where that cannot be watched."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        self._of[descriptor] = rank
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        return True

    def order(self) -> list[int]:
        """All that have ended so far."""
        if self._of:
            self._order += [self._of[descriptor] for descriptor, _ in self._epoll.poll(0, maxevents=len(self._of))]
        return self._order

    def close(self) -> None:
        for descriptor in self._of:
            os.close(descriptor)
        self._of.clear()
        self._epoll.close()
