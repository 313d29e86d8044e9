"""Events are whole lines of JSON; the iteration line is the one that existing parsers read."""
from __future__ import annotations

import json
import math

from seatrial.engine.watch.events import EventWriter, iteration_line, read_events

LINE = (
    " iteration        3/     100 | consumed samples:         6144 | consumed tokens:     12582912 | "
    "elapsed time per iteration (s): 104.10 | learning rate: 6.000E-05 | global batch size:  2048 | lm loss: 1.245000E+01 | "
    "loss scale: 4096.0 | grad norm: 1.235 | number of skipped iterations:   1 | number of nan iterations:   0 | "
    "samples per second: 19.673 | TFLOPs: 155.12 |"
)


def test_the_iteration_line_has_the_logs_fields_in_their_order_and_widths():
    common = dict(step=3, steps=100, consumed_samples=6144, consumed_tokens=12582912, sec_per_it=104.1, lr=6e-5, gbs=2048,
                  tflops=155.123)
    assert iteration_line(**common, loss=12.45, loss_scale=4096.0, grad_norm=1.2351, skipped=1) == LINE
    without = iteration_line(**common, loss=None)
    assert "lm loss" not in without and "loss scale" not in without and "grad norm" not in without


def test_every_event_is_on_disk_as_soon_as_it_is_written_and_half_a_line_is_not_an_event(tmp_path):
    path = tmp_path / "deep" / "events.jsonl"
    writer = EventWriter(path)
    writer.write("iteration", step=1, loss=math.nan, timers={"forward": 0.5})
    assert [(e["event"], e["step"], e["loss"], e["timers"]) for e in read_events(path)] == [
        ("iteration", 1, "nan", {"forward": 0.5})]
    json.loads(path.read_text(), parse_constant=lambda word: 1 / 0)
    with path.open("a") as file:
        file.write('{"event": "iterat')
    assert len(read_events(path)) == 1
    writer.close()


def test_no_path_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    EventWriter(None).write("start")
    assert list(tmp_path.iterdir()) == []
