"""A real Slurm of four nodes on this machine, started once for the tests of this folder."""
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import slurm_cluster as made


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[made.Cluster]:
    if os.getuid() != 0:
        pytest.skip("slurmd of a test cluster must be started by root")
    with made.cluster() as found:
        yield found
