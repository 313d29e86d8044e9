"""Tables that others publish: read to the last line or refused with it. Excerpts are in the real formats, numbers our own."""
from __future__ import annotations

import json

import numpy as np
import pytest

import machines
from freeze import cli
from seatrial import machine, presets
from seatrial.errors import BadInput
from seatrial.plan import imported, kernels, probed
from seatrial.plan.configs import PRECISIONS, Configs
from seatrial.probe import published
from seatrial.probe.shapes import GemmShape

HEADING = """# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8388608 step: 8(factor) warmup iters: 5 iters: 20 validation: 1 graph: 0
#
# Using devices
"""
COLUMNS = """#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
SIZES = """     1048576        262144     float     sum      -1    26.00   40.33   70.58      0    25.00   41.94   73.40      0
     8388608       2097152     float     sum      -1    80.00  104.86  183.50      0    84.00   99.86  174.76      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 125.561
#
"""


def ranks(count, hosts=1, device="NVIDIA H100 80GB HBM3"):
    each = count // hosts
    return "".join(f"#  Rank {n:2d} Group  0 Pid {4000 + n} on node{n // each} device {n % each:2d} [0x{n:02x}] {device}\n"
                   for n in range(count))


def log(folder, text, name="run.log"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


ALL_REDUCE = HEADING + ranks(8) + COLUMNS + SIZES


def test_a_log_of_nccl_tests_is_read_out_of_place_and_in_place(tmp_path):
    found = published.read(log(tmp_path, ALL_REDUCE))
    assert found.form == "nccl-tests" and found.devices == ("NVIDIA H100 80GB HBM3",)
    assert [(e["op"], e["size"], e["per_node"], e["nodes"], e["bytes"], round(1e6 * e["s"]))
            for e in found.figures["collectives"]] == [
        ("all_reduce", 8, 8, 1, 1048576, 26), ("all_reduce", 8, 8, 1, 1048576, 25),
        ("all_reduce", 8, 8, 1, 8388608, 80), ("all_reduce", 8, 8, 1, 8388608, 84)]
    once = published.merged([found])["collectives"]
    assert [round(1e6 * e["s"], 1) for e in once] == [25.5, 82.0]
    assert once[1]["spread"] == pytest.approx(2 / 82, abs=1e-4)
    lines = [line for line in ALL_REDUCE.splitlines() if line.strip()]
    # Every line is accounted for: 8 ranks, 2 headings, 1 version, 1 program, 2 measurements; the rest is counted.
    assert found.left["lines that are no measurement"] == len(lines) - 8 - 2 - 1 - 1 - 2


def test_nodes_are_counted_and_tags_of_the_launcher_taken_off(tmp_path):
    text = HEADING + ranks(16, hosts=2) + COLUMNS + SIZES.replace("70.58", "75.62").replace("73.40", "78.64").replace(
        "183.50", "196.61").replace("174.76", "187.24")
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in text.splitlines())
    found = published.read(log(tmp_path, tagged)).figures["collectives"][0]
    assert (found["size"], found["per_node"], found["nodes"]) == (16, 8, 2)


def test_messages_become_p2p_and_an_old_heading_is_understood(tmp_path):
    text = """# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid 190712 on    blg94 device  0 [0x1a] Tesla V100-SXM2-16GB
#   Rank  1 Pid 190713 on    blg94 device  1 [0x1c] Tesla V100-SXM2-16GB
#                                       out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float    50.00   20.97   20.97  0e+00      N/A     N/A     N/A    N/A
"""
    found = published.read(log(tmp_path, text, "sendrecv.txt"))
    assert found.figures["p2p"] == [{"nodes": 1, "bytes": 1048576, "s": pytest.approx(5e-5)}]
    assert found.left["no value (N/A)"] == 1
    assert imported.device_for([found], None)[0] == "v100-16gb"


def test_two_tests_in_one_log_are_two(tmp_path):
    gather = (HEADING.replace("all_reduce", "all_gather") + ranks(4) + COLUMNS
              + " 1048576  65536 float none -1  20.00  52.43  39.32  0  20.00  52.43  39.32  0\n")
    found = published.read(log(tmp_path, ALL_REDUCE + gather)).figures["collectives"]
    assert [(e["op"], e["size"]) for e in found] == [("all_reduce", 8)] * 4 + [("all_gather", 4)] * 2


@pytest.mark.parametrize(("change", "to", "says"), [
    ("(us)", "(ms)", r"run.log:\d+: units .*\(ms\)"),
    ("26.00   40.33", "2.600   40.33", "1048576 bytes in 2.6 us are 403.30 GB/s, and it says 40.33: other units?"),
    ("40.33   70.58", "40.33   35.29", "busbw over algbw is 0.875; of all_reduce_perf over 8 ranks it is 1.750"),
    ("40.33   70.58      0", "40.33   70.58", "12 values under 13 headings"),
    ("40.33", "fast", r"run.log:18: 26.00 fast 70.58 are not three numbers"),
    ("Rank", "Nobody", "no line before it says which ranks there are"),
    ("all_reduce_perf", "some_perf", "nothing says which test this is"),
    ("#        (B)", "#  bytes", "no line of units"),
])
def test_a_log_that_is_not_understood_is_refused_with_its_line(tmp_path, change, to, says):
    with pytest.raises(BadInput, match=says):
        published.read(log(tmp_path, ALL_REDUCE.replace(change, to)))


def test_wrong_results_are_left_and_counted(tmp_path):
    text = ALL_REDUCE.replace("70.58      0", "70.58      3")
    found = published.read(log(tmp_path, text))
    assert len(found.figures["collectives"]) == 3 and found.left["wrong results (#wrong above 0)"] == 1


GEMMS = "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
DEVICE = "NVIDIA H100 80GB HBM3"


def gemm_s(m, n, k, dtype="bf16"):
    return machines.product_s(presets.cluster("dgx-h100"), GemmShape("forward", m, n, k), dtype)


def gemm_table(factor=1.25):
    """Every GEMM of these sides, `factor` slower than the data sheet's model says; one of inference and a strange type too."""
    lines = [f"TEST,1.0,{DEVICE},gemm,own,bfloat16,{m},{n},{k},{1e3 * factor * gemm_s(m, n, k)}"
             for m in (1024, 1280, 4096, 16384) for n in (1024, 4096, 5120, 6144, 8192) for k in (1024, 4096, 8192, 12288)]
    lines += [f"TEST,1.0,{DEVICE},gemm,own,bfloat16,16,4096,4096,0.01",
              f"TEST,1.0,{DEVICE},gemm,own,fp8_block,4096,4096,4096,0.2"]
    return GEMMS + "\n".join(lines) + "\n"


def test_a_table_of_gemms_teaches_the_planner_its_factor(tmp_path):
    found = published.read(log(tmp_path, gemm_table(), "gemm_perf.txt"))
    assert found.read == 80
    assert dict(found.left) == {"GEMM of fewer than 512 rows or a side below 256: of inference": 1,
                                "GEMM in fp8_block: quantised, and measured together with the cast of its input": 1}
    made = imported.build([found])
    assert made["base"] == "h100-80gb" and made["error"]["matmul"]["bf16"]["before"] == pytest.approx(0.2, abs=0.01)
    path = machines.written(made, tmp_path)
    cluster = presets.cluster("dgx-h100", {"machine": path})
    c = Configs.from_columns(1, layers=1, hidden=1024, heads=8, seq=1024, vocab=1024, gbs=1, precision=PRECISIONS.index("bf16"))
    known = kernels.Machine.of(c, cluster)
    for kind in ("forward", "input", "weight"):  # the backward pass is off by as much
        seconds = kernels.matmul_s(known, 2048, 4096, 2048, np.array([128]), kind=kind)
        assert float(seconds[0]) == pytest.approx(1.25 * gemm_s(2048, 4096, 2048), rel=0.01)
    assert probed.of(cluster) is not None


def test_a_large_table_is_thinned_and_says_what_that_is_worth(tmp_path, monkeypatch):
    monkeypatch.setattr(imported, "FEW", 10)
    made = imported.build([published.read(log(tmp_path, gemm_table(), "gemm_perf.txt"))])
    kept = made["figures"]["matmul"]
    assert len(kept) < 60 and sum(e["of"] for e in kept) == 80
    assert made["error"]["matmul"]["bf16"]["after"] < 0.01 < made["error"]["matmul"]["bf16"]["before"]


@pytest.mark.parametrize(("change", "to", "says"), [
    (",1024,1024,1024,", ",1024,1024,", r"gemm_perf.txt:2: 9 cells under 10 headings"),
    (",1024,1024,1024,", ",1024,many,1024,", r"gemm_perf.txt:2: n is 'many', not a number"),
    (",1024,1024,1024,", ",1024,1024,-1,", r"gemm_perf.txt:2: k is '-1', not a size or a time"),
    ("gemm_dtype", "moe_dtype", "a table with the columns .*moe_dtype.*: known are gemm"),
])
def test_a_table_that_is_not_understood_is_refused(tmp_path, change, to, says):
    with pytest.raises(BadInput, match=says):
        published.read(log(tmp_path, gemm_table().replace(change, to, 1), "gemm_perf.txt"))


def test_rows_of_nothing_are_counted(tmp_path):
    found = published.read(log(tmp_path, gemm_table().replace(",1024,1024,1024,", ",0,1024,1024,", 1), "gemm_perf.txt"))
    assert found.read == 79 and found.left[published.NOTHING] == 1


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_seconds_and_microseconds_are_noticed(tmp_path, factor):
    with pytest.raises(BadInput, match="another device, or another unit than milliseconds"):
        imported.build([published.read(log(tmp_path, gemm_table(factor), "gemm_perf.txt"))])


def test_collectives_of_a_table_are_counted_in_elements(tmp_path):
    text = ("framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n"
            f"TEST,2.27,{DEVICE},all_reduce,NCCL,half,8,4194304,0.08\nTEST,2.27,{DEVICE},alltoall,NCCL,int8,8,4194304,0.03\n")
    found = published.read(log(tmp_path, text, "nccl_perf.txt")).figures["collectives"]
    assert [(e["op"], e["bytes"], e["s"]) for e in found] == [("all_reduce", 8388608, pytest.approx(8e-5)),
                                                              ("all_to_all", 4194304, pytest.approx(3e-5))]


def test_attention_forward_stands_for_backward_and_says_so(tmp_path):
    text = ("framework,version,device,op_name,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,beam_width,"
            "attn_dtype,kv_cache_dtype,step,window_size,latency\n"
            f"TEST,1,{DEVICE},context_attention,fa3,2,4096,32,8,128,1,bfloat16,bfloat16,0,0,0.7\n"
            f"TEST,1,{DEVICE},context_attention,fa3,2,4096,32,8,128,1,bfloat16,bfloat16,0,1024,0.3\n"
            f"TEST,1,{DEVICE},context_attention,fa3,2,4096,32,8,128,1,bfloat16,fp8,0,0,0.5\n")
    reading = published.read(log(tmp_path, text, "context_attention_perf.txt"))
    assert reading.read == 1 and sum(reading.left.values()) == 2
    made = imported.build([reading])
    (entry,) = made["figures"]["attention"]
    assert entry["forward_s"] == pytest.approx(7e-4) and entry["backward_s"] > 1.5 * entry["forward_s"]
    assert {"what": "attention backward", "why": imported.FORWARD_ALONE} in made["missing"]


def test_our_own_probe_comes_through_whole(tmp_path):
    path = presets.machine_path("h200")
    made = imported.build([published.read(path)])
    own = machine.read(path)
    assert made["base"] == "h200-141gb" and made["device"] == own["device"]
    assert {part: len(entries) for part, entries in made["figures"].items()} == {
        part: len(own["figures"][part]) for part in machine.PARTS}


def test_files_of_two_devices_are_refused(tmp_path):
    other = ALL_REDUCE.replace(DEVICE, "NVIDIA A100-SXM4-80GB")
    readings = [published.read(log(tmp_path, text, name)) for text, name in ((ALL_REDUCE, "a.log"), (other, "b.log"))]
    with pytest.raises(BadInput, match="measured on NVIDIA A100-SXM4-80GB, and --base is h100-80gb"):
        imported.build(readings, device="h100-80gb")
    with pytest.raises(BadInput, match="the files name NVIDIA H100 80GB HBM3, NVIDIA A100-SXM4-80GB: --base says which"):
        imported.build(readings)


@pytest.mark.parametrize(("seen", "base"), [("NVIDIA H100 PCIe", "h100-80gb-pcie"), ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
                                            ("NVIDIA B200", "b200-180gb"), ("NVIDIA GB200", "gb200-186gb"),
                                            ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
                                            ("AMD Instinct MI300X", "mi300x-192gb")])
def test_a_devices_name_finds_its_preset(tmp_path, seen, base):
    found = published.read(log(tmp_path, ALL_REDUCE.replace(DEVICE, seen)))
    assert imported.device_for([found], None)[0] == base


@pytest.mark.parametrize(("content", "says"), [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "a pointer of Git LFS"),
    (b"hello\n", "begins neither a log of nccl-tests"), (b"\xff\xfe\x00", "neither text nor parquet"),
    (b"{}", "not a machine file"), (b"", "begins neither"),
])
def test_other_files_are_refused(tmp_path, content, says):
    path = tmp_path / "file.txt"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=says):
        published.read(path)


def test_parquet_is_read_or_says_what_it_takes(tmp_path):
    path = tmp_path / "gemm_perf.parquet"
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        path.write_bytes(b"PAR1....")
        with pytest.raises(BadInput, match="takes `pip install pyarrow`"):
            published.read(path)
        return
    lines = [line.split(",") for line in gemm_table().splitlines()]
    columns = dict(zip(lines[0], zip(*lines[1:])))
    numbers = {name: [float(v) for v in columns[name]] for name in ("m", "n", "k", "latency")}
    pyarrow.parquet.write_table(pyarrow.table({**{k: list(v) for k, v in columns.items()}, **numbers}), path)
    assert published.read(path).read == 80


@pytest.mark.parametrize(("name", "cluster"), [("a100-80gb", "dgx-a100"), ("h100-80gb", "dgx-h100"), ("b200-180gb", "dgx-b200"),
                                               ("gb200-186gb", "gb200-nvl72"), ("h200", "h200")])
def test_files_that_come_along_fit_their_clusters(name, cluster):
    found = probed.of(presets.cluster(cluster, {"machine": name}))
    assert found.entries("matmul") and found.noise < 0.1
    assert all(source["sha256"] for source in found.file.get("sources", []))


# ---- the command

def test_import_writes_a_machine_file_that_plan_reads(tmp_path):
    paths = [log(tmp_path, ALL_REDUCE), log(tmp_path, gemm_table(), "gemm_perf.txt")]
    out = tmp_path / "h100.json"
    said = cli("device", "import", *paths, "-o", out)
    assert said.status == 0, said.err
    assert "run.log: nccl-tests, 4 measurements read" in said.out
    assert "1 left: GEMM in fp8_block" in said.out
    assert max(map(len, said.out.splitlines()[:-1])) <= 100
    made = json.loads(out.read_text())
    assert [(s["file"], len(s["sha256"])) for s in made["sources"]] == [("run.log", 64), ("gemm_perf.txt", 64)]
    asked = ("plan", "--cluster", "dgx-h100", "--nodes", 1, "--model", "gpt-1.3b", "--gbs", 64, "--top", 1, "--json")
    plans = [json.loads(cli(*asked, *extra).out)["candidates"][0] for extra in ((), ("--machine", out))]
    assert plans[1]["sec_per_it"] > 1.03 * plans[0]["sec_per_it"]
    said = cli("plan", "--cluster", out, "--model", "gpt-1.3b", "--gbs", 64)
    assert said.status == 2 and "as --cluster, and this file as --machine" in said.err


@pytest.mark.parametrize(("args", "says"), [
    (("import",), "name logs of nccl-tests"), (("import", "x.log"), "-o names the machine file"),
    (("import", "x.log", "-o", "x.toml"), "a machine file is JSON; -o x.json"),
    (("import", "x.log", "-o", "x.json"), "x.log: No such file"), (("show", "h100"), "no such device"),
    (("list", "--base", "h100-80gb"), "belong to `seatrial device import`"), (("shwo", "x"), "use `list`"),
])
def test_bad_input_is_one_line(args, says):
    said = cli("device", *args)
    assert said.status == 2 and says in said.err and said.err.count("\n") == 1


def test_every_device_is_listed_and_shown_in_80_columns():
    listed = cli("device", "list")
    for name in presets.names("devices"):
        assert name in listed.out
        shown = cli("device", "show", name)
        assert "source" in shown.out
        assert max(map(len, (listed.out + shown.out).splitlines())) <= 80
    every = json.loads(cli("device", "list", "--json").out)["devices"]
    assert list(every) == presets.names("devices") and every["h200-141gb"]["sustained"] == 0.88
    one = json.loads(cli("device", "show", "b200-180gb", "--json").out)
    assert one["clusters"] == ["dgx-b200"]
