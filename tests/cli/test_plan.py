"""`seatrial plan`, `explain` and `shape` as they are typed: the documents they print, and one line for whatever is wrong."""
from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

BLOOM = ("--model", "bloom-181b", "--cluster", "jz-a100", "--gbs", 2048)
AS_ASKED = ("plan", "--model", "bloom-181b", "--cluster", "jz-a100", "--nodes", 48, "--gbs", 2048, "--zero", 1, "--recompute",
            "full", "--schedule", "1f1b", "--vp", 1, "--rule", "dp % 4 == 0", "--top", 5)  # fmt: skip
SHORT = ("plan", "--model", "gpt-1.3b", "--cluster", "dgx-a100", "--nodes", 1, "--gbs", 64)
ONE = ("explain", *BLOOM, "--tp", 4, "--pp", 12, "--mbs", 2, "--zero", 1, "--recompute", "full")
ROWS = Path(__file__).parents[2] / "examples" / "rows.csv"
PROMISED = {"dp", "tp", "pp", "vp", "mbs", "gbs", "zero", "recompute", "schedule", "sec_per_it", "sec_lo", "sec_hi", "mem_gib",
            "tflops", "tie"}  # fmt: skip


def test_the_document_has_what_was_promised(seatrial):
    said = seatrial(*AS_ASKED, "--json")
    assert said.status == 0 and said.err == ""
    document = json.loads(said.out)
    assert document["considered"] == document["accepted"] + sum(document["rejected"].values())
    assert {"layers-divisible", "batch-divisible", "heads-divisible", "rule: dp % 4 == 0"} <= set(document["rejected"])
    assert len(document["candidates"]) == 5
    for c in document["candidates"]:
        assert set(c) >= PROMISED
        assert c["dp"] * c["tp"] * c["pp"] == 384 and c["dp"] % 4 == 0 and 2048 % (c["dp"] * c["mbs"]) == 0
        assert (c["zero"], c["recompute"], c["schedule"], c["vp"], c["gbs"]) == (1, "full", "1f1b", 1, 2048)
        assert 0 < c["sec_lo"] < c["sec_per_it"] < c["sec_hi"] and 0 < c["mem_gib"] <= 80 and 0 < c["tflops"] < 312
    seconds = [c["sec_per_it"] for c in document["candidates"]]
    assert seconds == sorted(seconds)
    assert [c["tie"] for c in document["candidates"]] == [document["ties"] > 1 and s / seconds[0] < 1.01 for s in seconds]


def test_what_is_left_out_is_searched(seatrial):
    document = json.loads(seatrial(*SHORT, "--sequence-parallel", "both", "--engine", "seatrial", "--top", 300, "--json").out)
    for name in ("dp", "tp", "pp", "mbs", "zero", "recompute", "schedule", "sequence_parallel"):
        assert len({c[name] for c in document["candidates"]}) > 1, name


def test_a_knob_takes_several_values(seatrial):
    document = json.loads(seatrial(*SHORT, "--tp", "2,4", "--recompute", "none,full", "--top", 300, "--json").out)
    assert {c["tp"] for c in document["candidates"]} == {2, 4}
    assert {c["recompute"] for c in document["candidates"]} <= {"none", "full"}


def test_set_says_the_same_as_the_option(seatrial):
    settings = ("--set", "topology.tp=2", "--set", "model.layers=22", "--set", "topology.precision=fp16")
    by_set = seatrial(*SHORT, *settings, "--json")
    assert {c["tp"] for c in json.loads(by_set.out)["candidates"]} == {2}
    assert json.loads(by_set.out)["precision"] == "fp16"
    file = json.loads(seatrial(*SHORT, "--tp", 2, "--set", "model.layers=22", "--precision", "fp16", "--json").out)
    assert file == json.loads(by_set.out)


def test_models_and_clusters_come_from_files_too(seatrial, tmp_path):
    (tmp_path / "m.toml").write_text('[model]\nbase = "gpt-1.3b"\nlayers = 20\nname = "mine"\n')
    (tmp_path / "c.toml").write_text('[cluster]\nbase = "dgx-a100"\nnodes = 1\nprice_per_device_hour = 2.0\n')
    files = ("--model", tmp_path / "m.toml", "--cluster", tmp_path / "c.toml")
    said = seatrial("plan", *files, "--gbs", 64, "--tokens", "1B", "--json")
    document = json.loads(said.out)
    assert document["model"] == "mine" and document["candidates"][0]["money"] > 0


def test_a_whole_run_is_priced(seatrial):
    document = json.loads(seatrial(*AS_ASKED, "--tokens", "300e9", "--price", 2, "--json").out)
    first = document["candidates"][0]
    assert first["days"] == pytest.approx(first["iterations"] * first["sec_per_it"] / 86400, rel=1e-3)
    assert first["device_hours"] == pytest.approx(first["days"] * 24 * 384, rel=1e-3)
    assert first["money"] == pytest.approx(2 * first["device_hours"], rel=1e-3)
    assert first["energy_mwh"] == pytest.approx(first["device_hours"] * 400 / 1e6, rel=1e-3)
    runner_up = document["runner_up"]
    assert runner_up["worse_by"] >= 0.01 and runner_up["days_more"] > 0 and runner_up["money_more"] > 0


def test_a_ramp_up_takes_longer_and_limits_the_layouts(seatrial):
    plain = json.loads(seatrial(*AS_ASKED, "--tokens", "300e9", "--json").out)
    ramped = json.loads(seatrial(*AS_ASKED, "--tokens", "300e9", "--rampup", "32,32,9765625", "--json").out)
    assert "rampup-start" in ramped["rejected"]
    assert all(32 % (c["dp"] * c["mbs"]) == 0 for c in ramped["candidates"])
    assert ramped["candidates"][0]["days"] > plain["candidates"][0]["days"]


def test_fewer_nodes_are_tried_when_asked(seatrial):
    arguments = ("--nodes", 24, "--nodes-max", 48, "--by", "cost", "--zero", 1, "--recompute", "full", "--schedule", "1f1b")
    cheapest = json.loads(seatrial("plan", *BLOOM, *arguments, "--top", 50, "--json").out)
    assert len({c["nodes"] for c in cheapest["candidates"]}) > 1
    spent = [c["sec_per_it"] * c["nodes"] for c in cheapest["candidates"]]
    assert spent == pytest.approx(sorted(spent), rel=1e-6)


def test_nothing_that_works_is_an_answer_with_its_reason(seatrial):
    said = seatrial("plan", *BLOOM, "--dp", 8, "--tp", 1, "--pp", 48, "--json")
    assert said.status == 1
    document = json.loads(said.out)
    assert document["candidates"] == [] and set(document["rejected"]) == {"layers-divisible"}
    assert document["nearest"] and document["nearest"][0]["pp"] != 48
    text = seatrial("plan", "--model", "bloom-181b", "--cluster", "jz-a100", "--nodes", 1, "--gbs", 2048)
    assert text.status == 1 and "the lightest layout needs" in text.out and "letting go of nodes" in text.out


def test_stages_are_even_or_have_places_for_the_embeddings_for_megatron_and_need_not_for_ours(seatrial):
    fixed = ("--zero", 1, "--recompute", "full", "--schedule", "1f1b", "--json")
    bloom = json.loads(seatrial("plan", "--model", "bloom-176b", *BLOOM[2:], "--pp", 12, *fixed).out)
    assert {c["pp"] for c in bloom["candidates"]} == {12}
    ours = json.loads(seatrial("plan", *BLOOM, "--pp", 48, "--engine", "seatrial", *fixed).out)
    assert ours["candidates"] and all("uneven-stages" in c["warnings"] for c in ours["candidates"])


@pytest.mark.parametrize(("args", "says"), [
    (["--rule", "dq % 4 == 0"], "position 1: dq is not known"),
    (["--rule", "dp ** 2 == 4"], "no powers"),
    (["--rule", "dp % (tp - tp) == 0"], "divides by zero"),
    (["--tp", "two"], "--tp 'two': expected a whole number"),
    (["--tp", "-1"], "--tp -1"),
    (["--tp", ""], "--tp ''"),
    (["--zero", "4"], "not a ZeRO stage"),
    (["--recompute", "ful"], "did you mean 'full'?"),
    (["--schedule", "1f1b", "--vp", "2"], "virtual stages above 1"),
    (["--engine", "megatrn"], "engine"),
    (["--precision", "bf17"], "did you mean 'bf16'?"),
    (["--by", "tme"], "did you mean 'time'?"),
    (["--tokens", "many"], "--tokens 'many'"),
    (["--gbs", "1000000", "--rampup", "1,1,1000"], "at most 10000 steps"),
    (["--rampup", "32,32"], "start, increment and samples"),
    (["--set", "topology.stages=3"], "no such knob"),
    (["--set", "model.layrs=3"], "did you mean 'layers'?"),
    (["--set", "nonsense"], "expected a.b=value"),
    (["--emit", "mpi"], "megatron-deepspeed, nemo, megatron-core, torchtitan, deepspeed, fsdp2, accelerate are the formats"),
    (["--size", "big"], "--size 'big'"),
    (["--size", "1B", "--size-tolerance", "300%"], "--size-tolerance"),
    (["--sequence-parallel", "yes"], "use on, off, both or auto"),
    (["--nodes-max", "0"], "--nodes-max 0"),
    (["--calibrate", "/no/such/file.csv"], "/no/such/file.csv"),
    (["--top", "0"], "--top"),
    (["--price", "inf"], "--price inf"),
    (["--nodes-max", "12500"], "12500 node counts are too many"),
    (["--set", "model.hidden=2000000000"], "is beyond 1,000,000"),
    (["--procs-per-node", "1000000000"], "is beyond 1,000,000"),
    (["--preamble", "/no/such", "--emit", "megatron"], "/no/such"),
])  # fmt: skip
def test_bad_input_is_one_line_and_status_2(seatrial, args, says):
    said = seatrial(*SHORT, *args)
    assert said.status == 2 and len(said.err.splitlines()) == 1 and says in said.err, said
    assert said.out == ""


@pytest.mark.parametrize(("args", "says"), [
    (["plan", "--cluster", "jz-a100", "--gbs", "8"], "--model must be given"),
    (["plan", "--model", "tiny", "--cluster", "jz-a100"], "--gbs must be given"),
    (["plan", "--model", "tinny", "--cluster", "jz-a100", "--gbs", "8"], "did you mean 'tiny'?"),
    (["plan", "--model", "tiny", "--cluster", "jz", "--gbs", "8"], "jz"),
    (["plan", "--model", "no/such.toml", "--cluster", "jz-a100", "--gbs", "8"], "no/such.toml"),
    (["explain", "--model", "tiny", "--cluster", "jz-a100"], "--gbs must be given"),
    (["explain", "--model", "bloom-181b", "--cluster", "jz-a100", "--gbs", "2048", "--pp", "48"], "72 layers over PP 48"),
    (["explain", "no.toml"], "no.toml"),
    (["shape", "--model", "bloom-181b", "--cluster", "jz-a100", "--tp", "3"], "heads 64 is not a multiple of TP 3"),
])  # fmt: skip
def test_what_is_missing_or_broken_is_one_line_too(seatrial, args, says):
    said = seatrial(*args)
    assert said.status == 2 and len(said.err.splitlines()) == 1 and says in said.err, said
    assert said.out == ""


def test_the_page_for_people_is_plain_in_a_pipe(seatrial):
    said = seatrial(*AS_ASKED, "--tokens", "300B", "--price", 1.5)
    assert said.status == 0 and "\x1b" not in said.out
    header = next(line for line in said.out.splitlines() if "recompute" in line)
    assert header.split()[:6] == ["#", "DP", "TP", "PP", "VP", "MBS"] and "days" in header
    assert "layouts considered" in said.out and "runner-up" in said.out


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colour_unless_told_not_to(environment, coloured):
    import pty

    ours, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")} | {"TERM": "xterm-256color", "COLUMNS": "140"}
    process = subprocess.Popen([sys.executable, "-m", "seatrial", *map(str, SHORT)], stdout=theirs, env=env | environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert (b"\x1b[" in seen) == coloured and b"recompute" in seen


def test_the_pick_is_written_for_megatron(seatrial, tmp_path):
    (tmp_path / "pre.sh").write_text("#SBATCH --account=me\nmodule load cuda\n")
    said = seatrial(*AS_ASKED, "--emit", "megatron", "--preamble", tmp_path / "pre.sh", "--out", tmp_path / "out", "--json")
    first = json.loads(said.out)["candidates"][0]
    flags = (tmp_path / "out" / "megatron-deepspeed.args").read_text().split()
    assert flags[flags.index("--tensor-model-parallel-size") + 1] == str(first["tp"])
    script = (tmp_path / "out" / "train.slurm").read_text()
    assert "#SBATCH --account=me" in script and f"source {tmp_path / 'pre.sh'}" in script
    assert subprocess.run(["bash", "-n", tmp_path / "out" / "train.slurm"], timeout=20).returncode == 0
    again = seatrial(*AS_ASKED, "--emit", "megatron", "--out", tmp_path / "out")
    assert again.status == 2 and "is already there" in again.err


def test_what_is_written_for_the_script_of_megatron_core_is_read_back_as_it_is(seatrial, tmp_path):
    asked = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--nodes", 2, "--gbs", 128, "--json"]
    said = seatrial(*asked, "--recompute-modules", "core_attn+mlp", "--emit", "megatron-core", "--out", tmp_path / "out")
    assert said.status == 0 and (tmp_path / "out" / "train.sh").exists(), said.err
    first = json.loads(said.out)["candidates"][0]
    around = json.loads(seatrial("plan", "--around", tmp_path / "out", "--cluster", "dgx-h100", "--json").out)["around"]
    same = ("dp", "tp", "pp", "vp", "mbs", "zero", "recompute", "recompute_modules", "schedule")
    assert {name: around[name] for name in same} == {name: first[name] for name in same}



@pytest.mark.parametrize("model, nodes, flags", [("llama3-8b", 32, "megatron-lm.args"),
                                                 ("bloom-181b", 48, "megatron-deepspeed.args")])
def test_what_ranks_first_is_what_is_written(seatrial, tmp_path, model, nodes, flags):
    asked = ["plan", "--model", model, "--cluster", "jz-a100", "--nodes", nodes, "--gbs", 2048, "--emit", "megatron", "--json"]
    said = seatrial(*asked, "-o", tmp_path / "out")
    assert said.status == 0 and "number" not in said.err, said.err
    first, words = json.loads(said.out)["candidates"][0], (tmp_path / "out" / flags).read_text().split()
    for flag, knob in (("--tensor-model-parallel-size", "tp"), ("--pipeline-model-parallel-size", "pp"),
                       ("--micro-batch-size", "mbs")):
        assert words[words.index(flag) + 1] == str(first[knob])


def test_rows_of_ones_own_move_the_forecast_and_make_it_surer(seatrial, tmp_path):
    cold = json.loads(seatrial(*AS_ASKED, "--top", 12, "--json").out)
    columns = ("nodes", "dp", "tp", "pp", "vp", "mbs", "gbs", "zero", "recompute", "schedule")
    lines = ["layers,hidden,heads,vocab,seq,family,sec_per_it," + ",".join(columns)]
    for c in cold["candidates"]:
        lines.append(f"72,14336,64,250880,2048,bloom,{1.25 * c['sec_per_it']}," + ",".join(str(c[name]) for name in columns))
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    said = seatrial(*AS_ASKED, "--calibrate", tmp_path / "rows.csv", "--json")
    learned = json.loads(said.out)
    assert learned["calibration"]["rows"] == 12
    before, after = cold["candidates"][0], learned["candidates"][0]
    assert after["sec_per_it"] == pytest.approx(1.25 * before["sec_per_it"], rel=0.03)
    assert after["sec_hi"] / after["sec_lo"] < 0.8 * before["sec_hi"] / before["sec_lo"]
    assert "Learned from 12 rows" in seatrial(*AS_ASKED, "--calibrate", tmp_path / "rows.csv").out
    assert seatrial("calibrate", tmp_path / "rows.csv", "--cluster", "jz-a100", "-o", tmp_path / "learned.json").status == 0
    assert json.loads(seatrial(*AS_ASKED, "--calibrate", tmp_path / "learned.json", "--json").out) == learned
    explained = json.loads(seatrial(*ONE, "--calibrate", tmp_path / "rows.csv", "--json").out)
    assert json.loads(seatrial(*ONE, "--calibrate", tmp_path / "learned.json", "--json").out) == explained
    elsewhere = ("plan", "--model", "tiny", "--cluster", "dgx-a100", "--gbs", 64)
    refused = seatrial(*elsewhere, "--calibrate", tmp_path / "learned.json")
    assert refused.status == 2 and refused.err.count("\n") == 1 and "learned on cluster jz-a100" in refused.err
    assert explained["sec_per_it"] > 1.2 * json.loads(seatrial(*ONE, "--json").out)["sec_per_it"]


def test_shapes_are_searched_with_layouts(seatrial):
    said = seatrial("plan", "--model", "bloom-181b", "--cluster", "jz-a100", "--gbs", 2048, "--zero", 1, "--recompute", "full",
                    "--schedule", "1f1b", "--size", "181B", "--size-tolerance", "3%", "--tokens", "300B", "--json")  # fmt: skip
    candidates = json.loads(said.out)["candidates"]
    assert all(abs(c["parameters"] / 181e9 - 1) <= 0.03 for c in candidates)
    days = [c["days_normalised"] for c in candidates]
    assert days == sorted(days)
    assert seatrial("plan", "--size", "1.3B", "--cluster", "dgx-a100", "--nodes", 1, "--gbs", 64).status == 0


def test_one_layout_is_explained(seatrial, tmp_path):
    document = json.loads(seatrial(*ONE, "--json").out)
    assert sum(document["parts_s"].values()) == pytest.approx(document["sec_per_it"])
    assert sum(document["memory_gib"].values()) == pytest.approx(document["mem_gib"])
    assert document["dp"] == 8 and document["precision"] == "bf16"
    said = seatrial(*ONE, "--svg", tmp_path / "p.svg")
    assert said.status == 0 and "rank 11" in said.out and "What limits it" in said.out and "What to change" in said.out
    assert (tmp_path / "p.svg").read_text().startswith("<svg")


def test_a_layout_from_a_file_is_the_same_as_from_options(seatrial, tmp_path):
    (tmp_path / "trial.toml").write_text(
        'engine = "megatron"\nmodel = "bloom-181b"\ncluster = { base = "jz-a100", nodes = 48 }\nbatch = { gbs = 2048 }\n'
        'topology = { dp = 8, tp = 4, pp = 12, mbs = 1, zero = 1, recompute = "full", precision = "bf16" }\n')
    from_file = seatrial("explain", tmp_path / "trial.toml", "--mbs", 2, "--json")
    assert json.loads(from_file.out) == json.loads(seatrial(*ONE, "--json").out)


def test_a_layout_that_runs_out_of_memory_is_a_finding(seatrial):
    said = seatrial(*ONE[:-2], "--recompute", "none", "--json")
    assert said.status == 1 and not json.loads(said.out)["fits"]


def test_a_shape_is_looked_at(seatrial):
    arguments = ("shape", "--model", "bloom-181b", "--cluster", "jz-a100", "--tp", 4, "--mbs", 2)
    document = json.loads(seatrial(*arguments, "--set", "model.hidden=14400", "--set", "model.heads=80", "--json").out)
    assert document["head_dim"] == 180 and document["near"] and len(document["products"]) == 7
    said = seatrial(*arguments)
    assert said.status == 0 and "wave fill" in said.out


def test_the_answer_comes_within_seconds_of_typing(tmp_path: Path):
    """The whole command with its start; the search itself is timed in benchmarks/planner_speed.py."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "seatrial", *map(str, AS_ASKED), "--json"], capture_output=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    # Processor time: what the machine's other work adds is not the planner's.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


def test_the_first_layouts_are_drawn_with_their_parts_and_what_was_measured(seatrial):
    document = json.loads(seatrial(*AS_ASKED, "--calibrate", ROWS, "--json").out)
    for c in document["candidates"]:
        assert sum(c["parts_s"].values()) == pytest.approx(c["sec_per_it"], rel=1e-5)
    measured = {(c["dp"], c["tp"], c["pp"], c["mbs"]): c["measured_s"] for c in document["candidates"]}
    assert 111.71 in measured[16, 4, 6, 2]
    said = seatrial(*AS_ASKED, "--calibrate", ROWS)
    assert "GEMMs" in said.out and "◆ measured" in said.out and "\x1b" not in said.out


def test_a_short_iteration_is_told_with_an_interval_that_has_two_ends(seatrial):
    said = seatrial("explain", "--model", "tiny", "--cluster", "jz-a100", "--nodes", 1, "--gbs", 8, "--dp", 8, "--tp", 1,
                    "--pp", 1, "--mbs", 1)
    middle, low, high = re.search(r"([\d.]+) s per iteration \(90 %: ([\d.]+) to ([\d.]+)\)", said.out).groups()
    assert float(low) < float(middle) < float(high) < 1
