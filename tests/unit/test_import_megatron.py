"""Iteration lines in all the forms that Megatron's versions and their users' terminals gave them."""
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.notes.read import import_file
from seatrial.notes.read.logs import LogReader
from seatrial.notes.read.outline import Outline
from seatrial.record import Record

SECONDS = (
    " iteration       10/     100 | consumed samples:          640 | consumed tokens:       163840 | elapsed time per "
    "iteration (s): 2.50 | "
    "learning rate: 1.000E-04 | global batch size:    64 | lm loss: 6.125000E+00 | loss scale: 4096.0 | grad norm: 1.250 | "
    "num zeros: 0.0 | "
    "curriculum seqlen:  256 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: "
    "25.600 | TFLOPs: 50.25 |"
)
MILLISECONDS = SECONDS.replace("(s): 2.50", "(ms): 2500.0")
OLD = (
    " iteration       10/     100 | elapsed time per iteration (ms): 2500.0 | learning rate: 1.000E-04 | lm loss: "
    "6.125000E+00 | loss scale: 1.0 |"
)
DASHED = (
    " iteration       10/     100 | consumed samples: 640 | elapsed time per iteration (ms): 2500.0 | learning rate: 1.0E-04 "
    "| global batch size: 64 | "
    "lm-loss: 6.125000E+00 | loss scale: -1.0 | grad norm: 0.000 | number of skipped iterations:   0 | number of nan "
    "iterations:   0 |"
)
NVIDIA = (
    " [2025-01-02 03:04:05.678901] iteration       10/     100 | consumed samples: 640 | elapsed time per iteration (ms): "
    "2500.0 | "
    "throughput per GPU (TFLOP/s/GPU): 50.2 | learning rate: 1.000000E-04 | global batch size:    64 | lm loss: 6.125000E+00 "
    "| loss scale: 1.0 | "
    "grad norm: 1.250 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
TGS = SECONDS.replace("TFLOPs:", "tokens per gpu per second (tgs): 819.200 | TFLOPs:")


def read(tmp_path: Path, text: str, name: str = "train.log") -> list[Record]:
    path = tmp_path / name
    path.write_bytes(text.encode())
    found = import_file(path, each=True)
    assert not found.problems
    return list(found.records)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (SECONDS, {"gbs": 64, "tflops": 50.25, "samples_per_s": 25.6, "seq": 256, "time_unit": "s"}),
        (MILLISECONDS, {"gbs": 64, "tflops": 50.25, "time_unit": "ms"}),
        (OLD, {"gbs": None, "tflops": None, "samples_per_s": None, "time_unit": "ms"}),
        (DASHED, {"gbs": 64, "tflops": None}),
        (NVIDIA, {"gbs": 64, "tflops": 50.2, "tflops_per": "process"}),
        (TGS, {"tokens_per_s_per_process": 819.2, "tflops": 50.25}),
        ("[default7]:" + SECONDS, {"tflops": 50.25}),
        ("7: " + SECONDS, {"tflops": 50.25}),
        ("\x1b[32mINFO\x1b[0m" + SECONDS + "\x1b[K", {"tflops": 50.25}),
        ("loading:  50%\rloading: 100%\r" + SECONDS, {"tflops": 50.25}),
    ],
    ids=["s", "ms", "1.1.5", "lm-loss", "nvidia", "tgs", "torchrun", "srun", "colour", "progress"],
)
def test_every_variant_is_the_same_iteration(tmp_path, line, expected):
    (record,) = read(tmp_path, f"starting\n{line}\ndone\n")
    assert (record.iteration, record.sec_per_it, record.loss, record.source_line, record.state) == (
        10,
        2.5,
        6.125,
        2,
        "measured",
    )
    for name, value in expected.items():
        assert getattr(record, name) == value, name


@given(st.lists(st.integers(0, SECONDS.count(" | ") - 1), min_size=1, max_size=3, unique=True), st.booleans())
def test_a_line_broken_at_any_separators_is_the_same_line(breaks, dangling):
    """Copies in notes are wrapped by hand, before or after the bar."""
    parts = SECONDS.split(" | ")
    text = parts[0]
    for index, part in enumerate(parts[1:]):
        text += (" |\n" if dangling else "\n| ") + part if index in breaks else " | " + part
    reader = LogReader("n.md", Outline(), alone=False)
    found = [record for number, line in enumerate(text.split("\n"), 1) for record in reader.feed(number, line)]
    (record,) = [*found, *reader.flush()]
    assert isinstance(record, Record)
    assert (record.gbs, record.loss, record.tflops, record.sec_per_it) == (64, 6.125, 50.25, 2.5)


def test_a_line_broken_into_three_inside_notes(tmp_path):
    a, b, c = SECONDS.split(" | ", 5)[:5], SECONDS.split(" | ")[5:10], SECONDS.split(" | ")[10:]
    wrapped = "\n".join(" | ".join(part) for part in (a, b, c))
    notes = (
        f"# 7B\n\nNLAYERS=32 / NHIDDEN=4096\n\n```\n{wrapped}\n```\n\n| Nodes | DP | TFLOPs |\n|--|--|--|\n| 1 | 2 | 50.25 |\n"
    )
    logged, row = read(tmp_path, notes, "notes.md")
    assert (logged.iteration, logged.layers, logged.hidden, logged.size_label, logged.section) == (10, 32, 4096, "7B", "7B")
    assert logged.tflops == 50.25 and logged.gbs == 64
    assert row.sec_per_it == 2.5 and "sec_per_it" in row.inferred, "the table repeats the log line without its time"


def test_memory_and_timers_belong_to_the_iteration_before_them(tmp_path):
    text = (
        f"{SECONDS}\n[Rank 0] (after 10 iterations) memory (MB) | allocated: 100.5 | max allocated: 200.5 | reserved: 300.0 "
        f"| max reserved: 310.0\n"
        "[Rank 4] (after 10 iterations) memory (MB) | allocated: 100.5 | max allocated: 200.5 | reserved: 300.0 | max "
        "reserved: 290.0\n"
        "time (ms) | forward-compute: 900.00 | backward-compute: 1500.00 | optimizer: 100.00\n"
        f"{SECONDS.replace('10/', '20/')}\n"
    )
    first, second = read(tmp_path, text)
    assert (first.mem_value, first.mem_unit, first.memory["rank 4"]["max reserved"]) == (310.0, "MiB", 290.0)
    assert first.breakdown == {"forward-compute": 0.9, "backward-compute": 1.5, "optimizer": 0.1}
    assert second.mem_value is None and not second.breakdown


def test_memory_of_a_node_without_devices(tmp_path):
    memory = (
        "[Rank 0] (after 10 iterations) CPU memory (MB) | used: 9000.5 | total: 32000.0 | avail: 22999.5 | used percent: 28.1\n"
    )
    text = f"{MILLISECONDS}\n{memory}"
    (record,) = read(tmp_path, text)
    assert (record.mem_value, record.mem_scope) == (9000.5, "node")


def test_a_rate_that_is_a_thousand_times_too_small_is_read_as_printed(tmp_path):
    (record,) = read(tmp_path, SECONDS.replace("25.600", "0.026"))
    assert (record.samples_per_s, record.sec_per_it, record.gbs) == (0.026, 2.5, 64)


def test_a_loss_that_is_no_number_is_an_outcome(tmp_path):
    (record,) = read(tmp_path, SECONDS.replace("6.125000E+00", "nan"))
    assert record.outcome is not None and record.outcome.status == "nan" and record.loss is None and record.sec_per_it == 2.5
    (record,) = read(tmp_path, SECONDS.replace("nan iterations:   0", "nan iterations:   3"))
    assert record.outcome is not None and record.outcome.status == "nan"


@pytest.mark.parametrize("time", ["inf", "nan", "-1.0", "0.0", "abc"])
def test_an_iteration_without_a_time_is_reported(tmp_path, time):
    path = tmp_path / "t.log"
    path.write_text(SECONDS.replace("(s): 2.50", f"(s): {time}") + "\n")
    found = import_file(path)
    assert not found.records and [problem.rows for problem in found.problems] == [1] and found.problems[0].line == 1


def test_the_arguments_printed_at_the_start_hold_for_every_iteration(tmp_path):
    text = (
        "using world size: 16, data-parallel-size: 2, tensor-model-parallel size: 4, pipeline-model-parallel size: 2 \n"
        "------------------------ arguments ------------------------\n"
        "  bf16 ............................................ True\n"
        "  checkpoint_activations .......................... True\n"
        "  fp16 ............................................ False\n"
        "  hidden_size ..................................... 1024\n"
        "  micro_batch_size ................................ 4\n"
        "  num_attention_heads ............................. 16\n"
        "  num_layers ...................................... 24\n"
        "  padded_vocab_size ............................... 50432\n"
        "  seq_length ...................................... 2048\n"
        "  virtual_pipeline_model_parallel_size ............ None\n"
        f"-------------------- end of arguments ---------------------\n{NVIDIA}\n{NVIDIA.replace('10/', '20/')}\n"
    )
    first, second = read(tmp_path, text)
    for record in (first, second):
        assert (record.gpus, record.dp, record.tp, record.pp, record.vp) == (16, 2, 4, 2, None)
        assert (record.layers, record.hidden, record.heads, record.seq, record.mbs, record.vocab) == (
            24,
            1024,
            16,
            2048,
            4,
            50432,
        )
        assert (record.dtype, record.recompute) == ("bf16", "full")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "oom_device"),
        ("slurmstepd: error: Detected 1 oom_kill event", "oom_host"),
        ("[Rank 3] Watchdog caught collective operation timeout", "hang"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-01 DUE TO TIME LIMIT ***", "timeout"),
    ],
)
def test_how_a_log_ends_is_the_outcome_of_its_last_iteration(tmp_path, line, status):
    first, last = read(tmp_path, f"{SECONDS}\n{SECONDS.replace('10/', '20/')}\n{line}\n")
    assert first.outcome is None and last.outcome is not None and last.outcome.status == status and last.tflops == 50.25
    (alone,) = read(tmp_path, f"loading\n{line}\n", "second.log")
    assert alone.state == "failed" and alone.outcome is not None and alone.outcome.status == status


@pytest.mark.parametrize(("argument", "engine"), [("use_mcore_models", "megatron-core"), ("deepspeed", "megatron-deepspeed"),
                                                  ("bf16", "")])
def test_a_log_says_its_engine_where_it_can_be_told(tmp_path, argument, engine):
    path = tmp_path / "run.log"
    path.write_text(f"  {argument} ................ True\n  num_layers ............... 24\n{SECONDS}\n")
    (record,) = [one for one in import_file(path).records if isinstance(one, Record)]
    assert (record.engine, record.layers) == (engine, 24)
