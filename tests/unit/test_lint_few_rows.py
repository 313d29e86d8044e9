"""Figures of short tables, and of columns that a better known one seemed to explain: what two or three rows keep to is enough
where the one that does not is off by a power of ten, or the text has what they are shares of."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from seatrial.notes.lint import Finding

Lint = Callable[[str], list[Finding]]
SETTINGS = """A student went through the network's settings with the 13B on 128 GPUs, whatever its batch was.

| setting | ms/it | ktok/s |
|---|--:|--:|
| as it was | 4946 | 213.0 |
| PXN | 4862 | 215.7 |
| 4 queues | 5009 | 210.6 |
"""
SHARES = """On MI300X (1307 TFLOPS), 8B, sequences of 8192:

| GPUs | local batch | TFLOPS | MFU |
|---|---|---|---|
| 8 | 4 | 443 | 33.9% |
| 64 | 4 | 440 | 33.7% |
"""
TOTALS = """What the quarter took.

| run | GPU hours | kUSD |
|---|---|---|
| base | 192,595 | 404.4 |
| long context | 7,490 | 15.7 |
| distilled | 65,234 | 137.0 |
| sum | 265,319 | 557.1 |
"""
ENERGY = """Power is the mean of each GPU, with its part of the node; energy has a PUE of 1.2 in it.

| run | GPUs | hours | GPU hours | power_W | energy_kWh |
|---|---|---|---|---|---|
| a | 32 | 95.01 | 3040 | 518 | 1890 |
| b | 64 | 47.95 | 3069 | 521 | 1918 |
| c | 128 | 24.43 | 3127 | 539 | 2022 |
| d | 64 | 141.93 | 9083 | 508 | 5537 |
| e | 128 | 71.52 | 9155 | 532 | 5844 |
| f | 256 | 68.09 | 17431 | 520 | 10877 |
"""
OF_NODES = """GPT of 24 layers, hidden 2048, 16 heads, sequences of 2048, 64 sequences for each node.

===== ==== ============ ====== ======== ================
Nodes GPUs Global batch s/iter tokens/s TFLOP/s per node
===== ==== ============ ====== ======== ================
1     4    64           2.174  60388    537
2     8    128          2.195  119511   535
4     16   256          2.245  233937   518
8     32   512          2.273  463659   513
===== ==== ============ ====== ======== ================
"""


@pytest.mark.parametrize(("note", "right", "wrong", "column"), [
    (SETTINGS, "213.0", "21.30", "ktok/s"), (SETTINGS, "5009", "500.9", "ms/it"), (SHARES, "33.9%", "43.9%", "MFU"),
    (SHARES, "33.7%", "16.7%", "MFU"), (TOTALS, "557.1", "137.0", "kUSD"), (ENERGY, "1890", "1390", "energy_kWh"),
    (ENERGY, "520", "5200", "power_W"), (OF_NODES, "233937", "463659", "tokens/s")])  # fmt: skip
def test_what_few_rows_keep_to_tells_the_one_that_does_not(lint: Lint, note: str, right: str, wrong: str, column: str):
    assert lint(note) == []
    (found,) = lint(note.replace(right, wrong, 1))
    assert (found.column, found.printed) == (column, wrong)


def test_three_rows_of_as_many_batches_are_left_alone(lint: Lint):
    text = SETTINGS.replace("| PXN | 4862 | 215.7", "| twice the batch | 9724 | 215.7").replace("5009 | 210.6", "2504 | 210.6")
    assert lint(text) == []
