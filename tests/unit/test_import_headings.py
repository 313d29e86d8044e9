"""Headings as people write them: the field, the unit, and per what."""
from __future__ import annotations

import pytest

from seatrial.notes.read import import_file
from seatrial.notes.read.parsing import read_cell
from seatrial.tables.headings import accumulates, older, read_heading, settle

HEADINGS = {
    "gpus":
        "# GPUs; #GPUs; gpu_num; GPU count; num_gpus; No. of GPUs; Number of GPUs; n_gpu; GPUs used; Total GPUs; "
        "World Size; # of GPUs; A100s; # H100; H100 GPUs; numGPUs; Num Devices; total devices; # accelerators; NPU num; "
        "プロセス数; Prozesse; 进程数; APU; APUs; CMGs; GPU台数",
    "nodes":
        "# nodes; Node count; num_nodes; No. nodes; #Nodes; total nodes; nNodes; Number of hosts",
    "dp":
        "DP; DP size; data_parallel; Data Parallelism; dp_size; data-parallel degree; DP degree; DataParallel; #DP; "
        "dp world size; Replikate; répliques",
    "tp":
        "TP; TP size; Tensor Parallel; tensor_parallel_size; tensor-model-parallel-size; TP degree; TensorParallel; MP; "
        "mp_size; ici_tensor_parallelism; parallelism.tensor_parallel_degree",
    "pp":
        "PP; PP size; Pipeline parallel; pipeline_parallel_size; PP degree; PipelineParallel; #PP stages; pp stages; "
        "pipeline stages; Stufen; etapas",
    "vp":
        "VP; VPP; virtual pipeline; virtual PP size; interleaved stages",
    "mbs":
        "MBS; Micro batch; MicroBatchSize; micro_batch_size; micro-bs; micro bsz; Batch size per GPU; batch/GPU; "
        "per-GPU batch size; per-device batch size; per_device_train_batch_size; local batch size; Local BS; BS/GPU; "
        "device batch size; ubatch; Mikro-Batch; Микро-батч",
    "gbs":
        "GBS; Global batch; GlobalBatchSize; global_batch_size; Total batch size; effective batch size; global bsz; "
        "train_batch_size; BSZ; sequences per step; pairs per step",
    "seq":
        "Seq; SeqLen; seq_len; Sequence Length; Seq. length; context length; ctx len; max_seq_len; Max seq length; "
        "Context window; block size; max_target_length; training.seq_len; model_max_length; n_ctx",
    "layers":
        "Layers; # layers; num_layers; n_layer; NLAYERS; Number of layers; #Layers; num hidden layers",
    "hidden":
        "Hidden; hidden size; hidden_dim; d_model; n_embd; Hidden dimension; NHIDDEN; model dim; embed dim",
    "heads":
        "Heads; # heads; num_heads; attention heads; n_head; Attn heads",
    "kv_heads":
        "KV heads; num_kv_heads; query groups; num_key_value_heads; GQA groups",
    "ffn":
        "FFN; ffn_hidden_size; intermediate size; MLP dim; ffn dim",
    "size_label":
        "Size; Model size; Params; # params; Parameters; Model; #Parameters; num params",
    "recompute":
        "AC; Activation checkpointing; Recompute; act ckpt; Gradient checkpointing; activation recomputation; "
        "Act. Ckpt.; grad ckpt; remat_policy",
    "zero_stage":
        "ZeRO; ZeRO stage; ZS; zero_stage; DeepSpeed stage; ZeRO-stage",
    "dtype":
        "dtype; Precision; Data type; Mixed precision; compute dtype; prec; amp",
    "sec_per_it":
        "Sec/it; s/it; Step time; Iteration time (s); time per step; latency(ms); Latency; iter time (ms); "
        "Step Time (sec); ms/step; step_time_ms; sec / step; s / iter; Time/iter (s); seconds per iteration; "
        "Avg. step time; Step latency (ms); it/s; steps/sec; Time per iteration [s]; iteration_time; train step time; "
        "Elapsed time per iteration (ms); Time/step; Sec per iter; Step duration (s); mean iter time; elapsed/iter; "
        "latency per step (ms); batch time (s); update time (s); s/opt-step; мс/шаг; 스텝 시간 (초); tijd/stap (s); "
        "train_steps_per_second; optimizer steps/s; 秒/反復; v0.7 (ms/step); s/it before; 1ステップ(秒); с/шаг; время шага, с",
    "tflops":
        "TFLOPs; TFLOPS/GPU; TFLOP/s/GPU; Model TFLOP / sec / GPU; Model TFLOPS/GPU; TFLOPs per GPU; TFLOPs/s/device; "
        "Achieved TFLOPs; HW TFLOPS; TFLOP/s per chip; tflops_per_gpu; Avg TFLOPs; teraFLOP/s per GPU; "
        "TFLOPS per device; TFLOP/GPU/s; Measured TFLOPS; TFLOPs/proc; TFLOPs par processus; flops_per_sec_per_gpu (TFLOPS); "
        "model_tflops_per_gpu_6N; TFLOP/s/GPU (6N)",
    "tokens_per_s_per_process":
        "tokens/s/GPU; Tokens / sec / GPU; tok/s/gpu; TGS; tokens per second per GPU; tokens/GPU/s; tokens/sec/device; "
        "Tokens/s per GPU; tok/gpu/sec; Token/s/GPU; Throughput (tokens/s/GPU); token throughput per GPU; tokens/s/chip; "
        "Tokens/sec/accelerator; TPS/GPU; WPS/GPU; tps per device; "
        "tokens/s/HPU; tok/s per XPU; tok/s/rank; throughput/device/tokens_per_sec",
    "tokens_per_s":
        "tokens/s; tok/s; Tokens/sec; tokens per second; Throughput (tokens/s); Throughput [tok/s]; TPS; token/s; "
        "total tokens/s; global tokens/sec; Token throughput; aggregate tokens/s; "
        "v0.7 tokens/s; new tok/s; Mio. Token/s; throughput/tokens_per_sec",
    "samples_per_s":
        "samples/s; Samples/sec; seq/s; sequences per second; Throughput (samples/s); sps; sample/sec; "
        "Samples per second; Throughput (seq/s); pairs/s; Sent/s 1.18; sentences/sec",
    "mem_value":
        "Mem; Memory (GB); Peak memory; Peak mem (GiB); GPU mem; Peak allocated (GB); Max memory; Max reserved (GiB); "
        "Peak reserved; Max mem/GPU; peak_memory_gb; VRAM (GB); Memory usage; Memory/GPU (GB); Peak GPU Memory (GiB); "
        "max_memory_allocated; HBM (GB); Mem per GPU; Peak active (GiB); memory_reserved; mem_gib; "
        "Peak mem v0.6 (GiB); Mem/node (GiB)",
    "mfu":
        "MFU; MFU (%); MFU%; Model FLOPs utilization; Model FLOPS Util.; model flops utilisation; mfu_percent; Avg MFU; "
        "perf/mfu; throughput/device/mfu",
    "hfu":
        "HFU; HFU (%); Hardware FLOPs utilization; HW FLOPs util; HFU%",
    "throughput":
        "Speed; Throughput; Training speed; Training throughput",
    "loss":
        "Loss; lm loss; Train loss; Final loss; training_loss; train/loss",
    "machine":
        "Machine; Cluster; GPU type; Hardware; GPU model; Device type",
    "engine":
        "Framework; Engine; Codebase; Library; Software",
    "":
        "Samples/s/GPU; Tokens; Total time; Training time; Epoch; Rank; Speedup; Scaling efficiency; Cost ($); "
        "Batch size (tokens); GPU hours; tokens per batch; perplexity; learning rate; No; Count; Total; Average; Mean; "
        "Number; с шага; до шага; с итерации; params 6N",
}  # fmt: skip


@pytest.mark.parametrize(("heading", "field"), [(heading.strip(), field) for field, said in HEADINGS.items()
                                               for heading in said.split(";") if heading.strip()])  # fmt: skip
def test_a_heading_is_its_field(heading, field):
    assert read_heading(heading).field == field


@pytest.mark.parametrize(("heading", "unit", "per", "formula"), [
    ("latency(ms)", "ms", "", ""), ("Step time (sec)", "s", "", ""), ("step_time_ms", "ms", "", ""), ("ms/step", "ms", "", ""),
    ("it/s", "it/s", "", ""), ("train_steps_per_second", "it/s", "", ""), ("Throughput (steps/s)", "it/s", "", ""),
    ("steps/sec", "it/s", "", ""), ("Iterations / second", "it/s", "", ""),
    ("Model TFLOP / sec / GPU", "", "process", "model"), ("TFLOP/s per chip", "", "process", ""),
    ("TFLOPs per node", "", "node", ""), ("PFLOPS/box", "PFLOPS", "node", ""), ("PFLOPs/Knoten", "PFLOPS", "node", ""),
    ("GFLOPS/CMG", "GFLOPS", "process", ""), ("TFLOPS job", "TFLOPS", "", ""), ("aggr. PF", "", "", ""),
    ("HW TFLOPS", "", "", "hardware"), ("Peak allocated (GB)", "GB", "", ""), ("peak_memory_gb", "GB", "", ""),
    ("Max reserved (GiB)", "GiB", "", ""), ("mem_gib", "GiB", "", ""), ("MFU (%)", "%", "", ""),
    ("万 token/s", "万", "", ""), ("token/s（万）", "万", "", ""), ("tokens/s (x1000)", "K", "", ""),
    ("tokens/s, M", "M", "", ""), ("tokens/s in thousands", "K", "", ""), ("kilotokens/s", "K", "", ""),
])  # fmt: skip
def test_a_heading_says_its_unit(heading, unit, per, formula):
    column = read_heading(heading)
    assert (column.unit, column.per, column.formula) == (unit, per, formula)


def test_a_row_with_utilisation_alone_was_measured_and_accumulation_gives_the_batch(tmp_path):
    path = tmp_path / "n.md"
    path.write_text("| gpu_num | DP | TP | MicroBatchSize | GA | Peak allocated (GB) | MFU |\n|--|--|--|--|--|--|--|\n"
                    "| 16 | 8 | 2 | 4 | 16 | 61.5 | 41.2% |\n| 16 | 16 | 1 | 4 | 8 | OOM | |\n"
                    "| 16 | 4 | 4 | 4 | 8 | | 38 % |\n")
    first, second, third = import_file(path).records
    assert (first.state, first.gpus, first.mbs, first.gbs, first.mfu) == ("measured", 16, 4, 512, 0.412)
    assert (first.mem_measure, "gbs" in first.inferred) == ("allocated", True)
    assert (second.state, third.state) == ("failed", "measured")


@pytest.mark.parametrize(("heading", "cell", "gpus", "machine"), [
    ("GPU", "3090", None, "RTX 3090"), ("GPU", "4090 24GB", None, "RTX 4090 24GB"), ("GPUs", "3090 Ti", None, "RTX 3090 Ti"),
    ("GPU", "2x 4090", 2, "RTX 4090"), ("GPUs", "2080", 2080, ""), ("# GPUs", "3072", 3072, ""), ("GPU", "64", 64, ""),
])  # fmt: skip
def test_a_card_that_goes_by_its_number_is_no_number_of_devices(tmp_path, heading, cell, gpus, machine):
    path = tmp_path / "n.md"
    path.write_text(f"| {heading} | MBS | s/step |\n|---|---|---|\n| {cell} | 4 | 2.5 |\n")
    (record,) = import_file(path).records
    assert (record.gpus, record.machine) == (gpus, machine)


@pytest.mark.parametrize("heading", ["batch", "bs", "batch size"])
def test_a_batch_that_is_accumulated_is_not_that_of_all(tmp_path, heading):
    path = tmp_path / "n.md"
    path.write_text(f"| {heading} | accum | s/step |\n|---|---|---|\n| 20 | 3 | 1.03 |\n| 10 | 6 | 2.13 |\n")
    assert [(record.mbs, record.gbs) for record in import_file(path).records] == [(20, None), (10, None)]


@pytest.mark.parametrize(("headings", "given"), [
    ("v0.6 (ms/step); v0.7 (ms/step); v0.10 (ms/step)", "v0.6 (ms/step); v0.7 (ms/step)"),
    ("main (s/step); this PR (s/step); tok/s", "main (s/step)"), ("tok/s; baseline tok/s", "baseline tok/s"),
    ("s/it A100; s/it H100; tok/s", ""), ("TFLOPs/node; TFLOPs/GPU; MFU", "TFLOPs/node"),
    ("TFLOPs; model TFLOPs; MFU (989); MFU", "model TFLOPs; MFU"),
    ("mem before (GiB); mem after (GiB); Δ mem", "mem before (GiB)"), ("ranks; TF/socket; TF/rank", "TF/socket"),
])  # fmt: skip
def test_of_a_measure_before_and_after_a_change_the_last_is_the_records(headings, given):
    assert older(tuple(headings.split("; "))) == frozenset(given.split("; ") if given else ())


@pytest.mark.parametrize(("headings", "fields"), [
    ("吞吐(tokens/s); 单卡吞吐; TFLOPS/卡", "tokens_per_s; tokens_per_s_per_process; tflops"),
    ("tokens/s; throughput per GPU; TFLOPs", "tokens_per_s; tokens_per_s_per_process; tflops"),
    ("tokens/s; throughput per GPU", "tokens_per_s; tflops"), ("tokens/s; TFLOPs; HW TFLOPs", "tokens_per_s; tflops; "),
    ("batch; grad accum; tokens/iter", "mbs; ; gbs"), ("batch; grad accum; s/it", "mbs; ; sec_per_it"),
    ("batch; tokens/iter", "gbs; "), ("tokens/s; TF/socket; TF/rank; ranks", "tokens_per_s; ; tflops; gpus"),
    ("ranks; number; s/it", "machine; gpus; sec_per_it"), ("台; 卡; 累积; MBS", "nodes; gpus; ; mbs"),
    ("layers; hidden; heads; kv", "layers; hidden; heads; kv_heads"), ("GPUs; kv", "gpus; "),
])  # fmt: skip
def test_what_a_heading_is_in_the_company_of_others(headings, fields):
    assert [one.field for one in settle([read_heading(heading) for heading in headings.split("; ")])] == fields.split("; ")


@pytest.mark.parametrize(("cell", "value"), [
    ("sel", "selective"), ("core attn", "selective"), ("attention only", "selective"), ("selektiv", "selective"),
    ("full", "full"), ("-", None), ("no", "none"), ("block (24 of 48)", "full"),
    ("minimal", "selective"), ("save_qkv_proj", "selective"), ("nothing_saveable", "full"),
    ("kein", "none"), ("voll", "full"), ("sans", "none"), ("complet", "full"), ("senza", "none"), ("selettivo", "selective"),
    ("полный", "full"), ("без", "none"), ("전체", "full"), ("없음", "none"), ("teilweise", "selective"),
])  # fmt: skip
def test_what_is_recomputed_in_the_words_of_tables(tmp_path, cell, value):
    path = tmp_path / "n.md"
    path.write_text(f"| GPUs | recompute | s/it |\n|--|--|--|\n| 8 | {cell} | 1.5 |\n")
    assert (import_file(path).records[0].recompute or None) == value


def test_a_step_is_a_time_in_whatever_unit_its_cells_have(tmp_path):
    path = tmp_path / "n.md"
    path.write_text("| GPUs | TP | step |\n|--|--|--|\n| 8 | 1 | 0.089 min |\n| 8 | 2 | 5437 ms |\n| 16 | 2 | 5.59 s |\n")
    assert [record.sec_per_it for record in import_file(path).records] == [pytest.approx(5.34), 5.437, 5.59]


@pytest.mark.parametrize(("cells", "gbs"), [
    ("4096 | 524,288", 128), ("4096 | 0.52M", 128), ("2048 | 4.2M", 2048), ("8192 | 1.05M", 128), ("4096 | 3.15M", 768),
    ("4096 | 1M", None), ("4096 | 4.0M", None), ("4096 | 542,288", None), (" | 524,288", None), ("4096 | -", None),
])  # fmt: skip
def test_a_batch_in_tokens_is_taken_where_it_is_one_number_of_sequences(tmp_path, cells, gbs):
    path = tmp_path / "n.md"
    path.write_text(f"| GPUs | seq | tokens per step | s/it |\n|--|--|--|--|\n| 8 | {cells} | 1.5 |\n")
    assert import_file(path).records[0].gbs == gbs


@pytest.mark.parametrize(("headings", "cells", "rate"), [
    ("nodes | tok/s/node", "4 | 8,000", 32000), ("nodes | tok/s/node | tok/s", "4 | 8,000 | 31,990", 31990),
    ("GPUs | tok/s/node", "4 | 8,000", None), ("nodes | tok/s per GPU", "4 | 8,000", None),
])  # fmt: skip
def test_the_rate_of_a_node_is_that_of_all_where_nodes_are_counted(tmp_path, headings, cells, rate):
    path = tmp_path / "n.md"
    path.write_text(f"| {headings} | s/it |\n|{'--|' * (headings.count('|') + 2)}\n| {cells} | 1.5 |\n")
    assert import_file(path).records[0].tokens_per_s == rate


@pytest.mark.parametrize("heading", ["peak", "Peak/GPU", "max alloc", "reserved", "high-water mark", "Spitze", "pico"])
def test_a_peak_beside_what_fills_a_device_is_one_of_memory(heading):
    for beside in ("MBS", "ZeRO", "recompute"):
        columns = settle([read_heading(one) for one in ("TP", beside, heading, "s/step")])
        assert columns[2].field == "mem_value"
    devices = settle([read_heading(one) for one in ("GPU model", "MBS", heading, "s/step")])
    alone = settle([read_heading(one) for one in ("TP", heading, "TFLOPs")])
    twice = settle([read_heading(one) for one in ("MBS", "mem (GiB)", heading)])
    assert not devices[2].field and not alone[1].field and not twice[2].field


@pytest.mark.parametrize("heading", [
    "TFLOPS/node", "TFLOP/s (per node)", "node TFLOPS", "TFLOPS (node)", "TFLOPS/server", "TFLOPS per host", "TFLOPS je Knoten",
    "TFLOPS/Knoten", "TFLOPS par nœud", "TFLOPS por nodo", "TFLOPS por nó", "TFLOPS na węzeł", "TFLOPS/узел", "TFLOPS на узел",
    "TFLOPS/ノード", "ノードあたりTFLOPS", "노드당 TFLOPS", "每节点 TFLOPS", "单节点 TFLOPS"])  # fmt: skip
def test_tflops_of_a_node_in_any_language(heading):
    assert (read_heading(heading).field, read_heading(heading).per) == ("tflops", "node")


@pytest.mark.parametrize("heading", ["TFLOPS на GPU", "GPU当たり TFLOPS", "GPU당 TFLOPS", "单卡 TFLOPS", "TFLOPS na kartę"])
def test_tflops_of_a_device_in_any_language(heading):
    assert (read_heading(heading).field, read_heading(heading).per) == ("tflops", "process")


@pytest.mark.parametrize("heading", ["host", "Server", "host RAM (GB)"])
def test_a_host_is_a_node_only_where_something_is_per_host(heading):
    assert read_heading(heading).field == ""


@pytest.mark.parametrize(("heading", "cell", "rate"), [
    ("tok/s", "1.44 M", 1.44e6), ("tok/s", "1.44M", 1.44e6), ("tok/s", "213 k", 213e3), ("tok/s", "13.28 万", 132800.0),
    ("万 token/s", "13.28", 132800.0), ("tokens/s (x1000)", "213.0", 213e3), ("tok/s", "9,379", 9379.0),
    ("tok/s", "41 kept", 41.0),
])  # fmt: skip
def test_rates_in_thousands_or_millions_are_read_in_ones(heading: str, cell: str, rate: float):
    assert read_cell(read_heading(heading), cell).value == pytest.approx(rate)


@pytest.mark.parametrize(("heading", "field"), [
    ("ktok_s", "tokens_per_s"), ("mtok_per_s", "tokens_per_s"), ("tps_gpu", "tokens_per_s_per_process"), ("µB", "mbs"),
    ("マイクロバッチサイズ", "mbs"), ("マイクロバッチ数", ""), ("微批次数", ""),
    ("마이크로배치", "mbs"), ("스텝시간 (초)", "sec_per_it")])
def test_names_as_programs_and_other_tongues_have_them(heading: str, field: str):
    assert read_heading(heading).field == field or not field and accumulates(heading)


@pytest.mark.parametrize(("heading", "cell", "value"), [
    ("参数量（亿）", "70", "7B"), ("参数量（亿）", "7B", "7B"), ("Params (B)", "7", "7B"), ("パラメータ数 [10億]", "13", "13B"),
    ("Vocab size (K)", "128", 128_000), ("Vocab size (K)", "50.257", 50_257), ("Vocab size (K)", "32000", 32_000),
    ("tokens/min", "1200", 20.0), ("每日 token（亿）", "864", 1e6), ("ms/token", "0.5", 2000.0),
    ("s/sample", "0.25", 4.0), ("Memory (GB/GPU)", "71.5", 71.5), ("µs/step", "750000", 0.75), ("min per step", "2", 120.0),
])
def test_a_cell_is_in_the_unit_of_its_heading(heading, cell, value):
    assert read_cell(read_heading(heading), cell).value == value


@pytest.mark.parametrize("heading", [
    "Decode tok/s", "Inference throughput (tokens/s)", "Inferenzdurchsatz (Tokens/s)", "推論速度 (tokens/s)", "eval tokens/s",
    "Optimizer step (ms)", "Host RAM (GB)", "Memory bandwidth (GB/s)", "HBM used, %", "Warmup steps", "data loading time (s)",
    "GPU hours per run of inference", "max_reserved_pct", "batch layout", "tokens / $"])
def test_what_is_of_something_else_is_no_quantity_of_a_run(heading):
    assert read_heading(heading).field == ""


@pytest.mark.parametrize(("heading", "field"), [
    ("Step time (excl. eval)", "sec_per_it"), ("TFLOP/s/GPU (w/o attn flops)", "tflops"), ("GPUs per host", "procs_per_node"),
    ("s/opt-step", "sec_per_it"), ("MFU (% of theoretical peak)", "mfu"), ("tokens/s incl. checkpoint saves", "tokens_per_s")])
def test_what_a_figure_is_with_or_without_is_no_name_of_it(heading, field):
    assert read_heading(heading).field == field
