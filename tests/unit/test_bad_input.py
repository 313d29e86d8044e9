"""What anybody can give in a file or an option ends in one line that says why, or is read: never in a traceback or a hang."""
from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import machines
from seatrial import fields, machine, plaindata, presets, rules, trialfile
from seatrial.engines.model import model_of
from seatrial.errors import BadInput, SeatrialError
from seatrial.huggingface import hfconfig
from seatrial.logbook import Logbook
from seatrial.notes.lint import look_at
from seatrial.notes.read import import_file
from seatrial.plan import rows
from seatrial.plan.calibrate import Calibration
from seatrial.record import Record
from seatrial.report.read import read
from seatrial.spec import Model, divisors
from seatrial.sweep import file as sweeps
from seatrial.tables.codec import decode, encode_csv
from seatrial.tables.csvjson import to_csv, to_json
from seatrial.terminal import visible

HUGE = "9" * 400
MODEL = "model = { layers = 2, hidden = 64, heads = 4, vocab = 128, seq = 32 }\n"
BATCH = "batch = { gbs = 8 }\n"


def refused(call, *given: object) -> str:
    with pytest.raises(SeatrialError) as error:
        call(*given)
    message = str(error.value)
    assert message and "Traceback" not in message and len(message) < 2000
    return message


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return path


# ---- TOML: trials, sweeps, models, clusters, engines

SWEEPS = {
    "a number for a table with an axis in it": (MODEL + "batch = 3\n[axes]\ngbs = [8, 16]\n", "batch: expected a table"),
    "a list for a table with an axis in it": (BATCH + "model = [1]\n[axes]\nlayers = [2]\n", "model: expected a table"),
    "a list for a scalar": (MODEL + "batch = { gbs = [8] }\n", "batch.gbs: expected a whole number"),
    "400 digits": (MODEL + f"batch = {{ gbs = {HUGE} }}\n", "batch.gbs: a whole number beyond"),
    "400 digits for a share": (MODEL + BATCH + f"[measure]\nseconds = {HUGE}\n", "seconds: a whole number beyond"),
    "400 digits on an axis": (MODEL + BATCH + f"[axes]\ndp = [1, {HUGE}]\n", r"axes.dp\[1\]: a whole number beyond"),
    "5000 digits": (MODEL + f"batch = {{ gbs = {'9' * 5000} }}\n", "not TOML"),
    "not a number": (MODEL + BATCH + "[measure]\nseconds = nan\n", "seconds: nan is not a finite number"),
    "no end": (MODEL + BATCH + "budget_s = inf\n", "budget_s: inf is not a finite number"),
    "a date": (MODEL + BATCH + "x = 2024-01-01\n", "write it in quotes"),
    "a date in an invalid row": (MODEL + "batch = { gbs = 2024-01-01 }\n[axes]\ndp = [1, 2]\n", "write it in quotes"),
    "keys in keys": (MODEL + BATCH + ".".join("a" * 5000) + " = 1\n", "nested too deeply"),
    "lists in lists": (MODEL + BATCH + "x = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
    "a key twice": (MODEL + BATCH + BATCH, "not TOML"),
    "trainings and a list of recipes": (MODEL + BATCH + "recipe = [1]\ntraining = { lr = 1.0 }\n", "recipe: expected"),
    "a model beyond all": (MODEL.replace("layers = 2", "layers = 1000000000") + BATCH, "layers"),
    "a list for a family": (BATCH + 'model = { base = "tiny", family = [1] }\n', "model.family: expected a text"),
    "a number for forms": (BATCH + 'model = "tiny"\nforms = { tiny = 3 }\n', "forms.tiny: expected a table"),
    "NUL": (MODEL + "\0", "not TOML"),
    "UTF-16": ((MODEL + BATCH).encode("utf-16"), "not UTF-8"),
    "CR alone": ((MODEL + BATCH).replace("\n", "\r"), "not TOML"),
}


@pytest.mark.parametrize(("text", "said"), SWEEPS.values(), ids=SWEEPS)
def test_a_sweep_that_is_none(tmp_path, text, said):
    path = written(tmp_path / "s.toml", text)
    with pytest.raises(BadInput, match=said):
        sweeps.load(path)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    assert sweeps.load(written(tmp_path / "s.toml", b"\xef\xbb\xbf" + (MODEL + BATCH).encode())).tasks[0].trial is not None


@pytest.mark.parametrize("axes", ["gbs = 8", "gbs = []", 'gbs = "8"', '"batch.gbs" = { a = 1 }'])
def test_a_plan_of_a_sweep_with_an_axis_that_is_no_list(tmp_path, axes):
    path = written(tmp_path / "s.toml", MODEL + 'cluster = "local"\n' + "batch = { gbs = 8 }\n[axes]\n" + axes)
    try:
        assert sweeps.asked(path).knobs["gbs"] == [8]  # an empty axis leaves the table's own
    except BadInput as error:
        assert "expected a list" in str(error)


@pytest.mark.parametrize("setting", [f"batch.gbs={HUGE}", "batch.gbs=" + "9" * 5000, "batch.gbs=nan", "batch.gbs=2024-01-01",
                                     "batch.gbs=" + "[" * 5000, ".".join("a" * 5000) + "=1", "=", "batch.gbs=[8]"])
def test_a_setting_that_is_none(setting):
    data = {"model": "tiny", "batch": {"gbs": 8}}
    assert "batch.gbs" in refused(trialfile.build, data, [setting]) or "--set" in refused(trialfile.build, data, [setting])


def test_a_setting_does_not_lose_what_stands_behind_a_line_end():
    data: dict = {}
    fields.assign(data, "recipe.data=1\nx=2")
    assert data == {"recipe": {"data": "1\nx=2"}}


def test_divisors_of_a_thousand_million_are_found_at_once():
    start = time.process_time()
    assert divisors(12) == (1, 2, 3, 4, 6, 12) and divisors(1) == (1,) and divisors(49) == (1, 7, 49)
    assert len(divisors(10**9)) == 100 and len(divisors(10**18)) == 2
    assert "beyond" in refused(lambda: Model(layers=2, hidden=10**9, heads=10**9, kv_heads=10**8, vocab=128, seq=32))
    model = Model(layers=2, hidden=100_000, heads=100_000, kv_heads=50_000, vocab=128, seq=32)
    trial, _ = trialfile.build({"model": fields.plain(model), "batch": {"gbs": 1}, "topology": {"tp": 32}})
    assert [v.code for v in rules.violations(trial) if v.level == "error"] == ["kv-heads-divisible"]
    assert time.process_time() - start < 1


def test_an_engine_of_ones_own_that_is_none(tmp_path):
    for text in ("", "base = 3", f'base = "fsdp2"\nexposed = {HUGE}', 'base = "fsdp2"\nexposed = [1]', "base = " + "[" * 5000):
        assert "own.toml" in refused(model_of, str(written(tmp_path / "own.toml", text)))
        model_of.cache_clear()


# ---- what is no regular file

def test_a_device_or_a_pipe_is_not_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("/dev/zero"), pipe, tmp_path):
        for call in (presets.read_toml, machine.read, plaindata.read_json, import_file, Calibration.load,
                     lambda p: rows.read_cells(p), lambda p: model_of(str(p) + "/x.toml")):
            assert str(path) in refused(call, path)


def test_a_name_with_a_nul_in_it(tmp_path):
    assert "\\0" in refused(presets.read_toml, "a\0.toml")


def test_a_line_without_an_end(tmp_path):
    path = tmp_path / "long.csv"
    with path.open("wb") as file:
        file.truncate(200 << 20)
    for call in (presets.read_toml, machine.read, plaindata.read_json, import_file, rows.read_cells):
        assert "long.csv" in refused(call, path)


# ---- JSON: machine files, calibrations, configurations, records

def test_json_is_bounded():
    for text, said in (("[" * 100_000, "nested too deeply"), (f"[{'9' * 5000}]", "thousands of digits"),
                       ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' stands twice"), ("\xff", "Expecting value"),
                       ("[" + "1," * 6_000_000 + "1]", "more than 5,000,000 values")):
        with pytest.raises(ValueError, match=said):
            plaindata.parse_json(text)
    assert plaindata.parse_json('["\\ud800 a", {"\\udfff": 1}, "\\ud83d\\ude00"]') == ["\ufffd a", {"\ufffd": 1}, "\U0001f600"]
    for text, said in (("[" * 70 + "]" * 70, "nested too deeply"), (f'{{"a": [{HUGE}]}}', r"x: a\[0\]: a whole number beyond"),
                       ('{"a": NaN}', "x: a: nan is not a finite number"), ("1e50", "beyond 1e\\+40")):
        with pytest.raises(BadInput, match=said):
            plaindata.bounded(plaindata.parse_json(text), "x")


def _without(data: dict, *path: object) -> dict:
    copy = json.loads(json.dumps(data))
    at = copy
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return copy


def test_a_machine_file_without_any_one_key(tmp_path):
    """What is read of it is either there or asked for by name; whatever is read can be planned with."""
    whole = machines.empty() | {"figures": {
        "memory": [{"name": "copy", "dtype": "fp32", "bytes": 65536, "moved": 131072, "s": 1e-5, "spread": 0.01}],
        "optimizer": [{"name": "adamw", "dtype": "fp32", "parameters": 4194304, "s": 0.005}],
        "collectives": [{"op": "all_reduce", "size": 2, "per_node": 2, "nodes": 1, "groups": 1, "bytes": 4096, "s": 4e-4}],
        "matmul": [{"dtype": "fp32", "kind": "forward", "rows": 64, "cols": 64, "inner": 64, "batch": 1, "s": 1e-5}],
        "attention": [{"dtype": "fp32", "batch": 1, "heads": 16, "kv_heads": 16, "seq": 64, "head_dim": 8, "bias": False,
                       "forward_s": 1e-4, "backward_s": 2e-4}]}}
    places = [(key,) for key in whole] + [("device", key) for key in whole["device"]]
    places += [("figures", part) for part in whole["figures"]]
    places += [("figures", part, 0, key) for part, entries in whole["figures"].items() for key in entries[0]]
    read_all = 0
    for place in places:
        path = written(tmp_path / "machine.json", json.dumps(_without(whole, *place)))
        try:
            presets.cluster(str(path))
            found = rows.read(written(tmp_path / "r.csv", "layers,hidden,heads,seq,vocab\n2,64,4,32,128\n"),
                              presets.cluster(str(path)))
            from seatrial.plan import calibrate, forecast
            made = forecast.columns(found, calibrate.cold(presets.cluster(str(path))))
            assert float(made[0]["forecast_sec"]) > 0
            read_all += 1
        except BadInput as error:
            assert "machine.json" in str(error), place
    assert read_all >= 5


def test_a_calibration_that_is_none(tmp_path):
    good = Calibration.from_dict(json.loads(json.dumps(_calibration()))).to_dict()
    for path in [(key,) for key in good if key not in ("version", "ignored")] + [("memory", key) for key in good["memory"]]:
        assert "calibration" in refused(Calibration.from_dict, _without(good, *path))
    for key in ("theta", "covariance", "groups", "shapes", "doubted", "used", "unseen", "noise", "carried", "memory"):
        for value in (3, "x", None, [[1, 2], 3], {"a": []}, [HUGE], -1e30, [["a"]]):
            if good[key] != value:
                try:
                    Calibration.from_dict({**good, key: value})
                except SeatrialError:
                    pass


def _calibration() -> dict:
    from seatrial.plan import calibrate

    return calibrate.cold(presets.cluster("jz-a100")).to_dict()


CONFIG = {"model_type": "llama", "vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 256, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
          "rope_scaling": {"rope_type": "default"}, "layer_types": ["full_attention"], "head_dim": 16,
          "num_key_value_heads": 4, "sliding_window": None}


@pytest.mark.parametrize("key", CONFIG)
@pytest.mark.parametrize("value", [[1], {"a": 1}, "x", -3, 0, 10**400, 1.5, float("nan"), True, None, [], [None]], ids=repr)
def test_a_configuration_with_another_kind_of_value(key, value):
    assert isinstance(hfconfig.model_of(CONFIG, where="c"), Model)
    try:
        assert isinstance(hfconfig.model_of({**CONFIG, key: value}, where="c"), Model)
    except BadInput as error:
        assert str(error).startswith("c")


MANIFEST = {"schema": 1, "step": 3, "state": {}, "model": None, "about": {}, "torch": "2", "files": {"a": [[0, 1, 2]]}}


@pytest.mark.parametrize("key", ["schema", "step", "state", "model", "about", "files"])
@pytest.mark.parametrize("value", [[1], {"a": 1}, "x", 10**400, None, {"../a": [[0, 1, 2]]}, {"a": [[0]]}, {"a": 3}], ids=repr)
def test_a_manifest_of_another_shape(tmp_path, key, value):
    from seatrial.engine.io import checkpoint

    def saved(manifest: dict) -> Path:
        digest = checkpoint._digest(manifest)
        written(tmp_path / checkpoint.MANIFEST, json.dumps({**manifest, "digest": digest}))
        return tmp_path

    good = MANIFEST | {"schema": checkpoint.SCHEMA}
    assert checkpoint.open_checkpoint(saved(good)).step == 3
    model = Model(layers=2, hidden=64, heads=4, vocab=128, seq=32)
    try:
        checkpoint.check_model(checkpoint.open_checkpoint(saved({**good, key: value})), model)
    except BadInput as error:
        assert str(tmp_path) in str(error)


def test_a_manifest_of_ten_million_layers(tmp_path):
    with pytest.raises(BadInput, match="layers 10000000 is beyond"):
        fields.build(Model, {"layers": 10**7, "hidden": 64, "heads": 4, "vocab": 128, "seq": 32}, where="model")


# ---- logbooks: one bad line stops nothing

BAD_LINES = [("dp", "[1]"), ("dp", HUGE), ("sec_per_it", HUGE), ("outcome", "3"), ("env", "[1]"), ("state", "{}"),
             ("trial", "[" * 90 + "]" * 90), ("sec_per_it", "-1"), ("nonsense", "1"), ("mem_unit", '"KB"'), ("host", "3"),
             ("measurement", "[]"), ("outcome", '{"status": "no such"}'), ("env", '{"a": "1", "a": "2"}'), ("dp", "9" * 5000)]


def _book(tmp_path: Path) -> Path:
    book = tmp_path / "book"
    good = {"schema": 1, "written_at": "2024-01-01", "state": "measured", "dp": 2, "tp": 1, "pp": 1, "mbs": 1, "gbs": 4,
            "layers": 2, "hidden": 64, "sec_per_it": 1.5, "session": "a"}
    lines = [json.dumps({**good, "record_id": "good-a"}), json.dumps({**good, "record_id": "good-b", "session": "b"})]
    for n, (key, value) in enumerate(BAD_LINES):
        rest = json.dumps({name: said for name, said in good.items() if name != key} | {"record_id": f"bad-{n}"})
        lines.append(f'{rest[:-1]}, "{key}": {value}}}')
    (book / "segments").mkdir(parents=True)
    (book / "segments" / "x.jsonl").write_text("\n".join(lines) + "\n")
    return book


def test_a_bad_line_is_named_with_its_number_and_stops_nothing(tmp_path, monkeypatch):
    from seatrial.report import data, page

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    book = _book(tmp_path)
    before = (book / "segments" / "x.jsonl").read_bytes()
    records, unread = read([book])
    assert [record.record_id for record in records] == ["good-a", "good-b"]
    assert sorted(int(line.split("x.jsonl:")[1].split(":")[0]) for line in unread) == list(range(3, 3 + len(BAD_LINES)))
    assert len(to_csv(records).splitlines()) == 3 and to_json(records)
    assert "</html>" in page.html(data.build(records, title="t"))
    with Logbook(book) as log:
        found, problems = log.rows({"session": "a"})
    assert [row["record_id"] for row in found] == ["good-a"] and len(problems) == len(BAD_LINES)
    table = rows.read(book, presets.cluster("jz-a100"))
    assert len(table.rows) == 2 and len(table.unread) == len(BAD_LINES)
    assert (book / "segments" / "x.jsonl").read_bytes() == before


# ---- notes

def _import(tmp_path: Path, name: str, text: str | bytes):
    return import_file(written(tmp_path / name, text))


def test_flops_typed_under_tflops_take_no_memory(tmp_path):
    """In a process that may have a GiB more than it starts with: a list of all batches that would fit took all there was."""
    lines = [f"| {n} | 8 | 4 | {2**n} | 1 | 2048 | 1.5 | {v} |" for n, v in ((1, "1.2e14"), (2, "1.3e14"), (4, "118.2"))]
    head = ["# 176B, seq 2048, layers 70, hidden 14336", "", "| Nodes | TP | PP | DP | MBS | GBS | Sec/it | TFLOPs |"]
    path = written(tmp_path / "t.md", "\n".join([*head, "|--" * 8 + "|", *lines]))
    code = (f"import resource; from seatrial.notes.lint import look_at; import seatrial.plan\n"
            f"used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; look_at([{str(path)!r}])\n"
            f"assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < {200 << 10}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("heading", ["Source", "Estimated", "Inferred"])
@pytest.mark.parametrize("name", ["t.md", "t.csv"])
def test_a_column_with_a_name_of_our_own(tmp_path, heading, name):
    if name == "t.md":
        text = f"| Nodes | DP | Sec/it | {heading} |\n|--|--|--|--|\n| 4 | 8 | 1.5 | by hand |\n"
    else:
        text = f"Nodes,DP,Sec/it,{heading}\n4,8,1.5,by hand\n"
    (record,) = _import(tmp_path, name, text).records
    assert (record.nodes, record.dp, record.sec_per_it, record.extra) == (4, 8, 1.5, {heading: "by hand"})
    look_at([str(tmp_path / name)])


@pytest.mark.parametrize("more", [("", ""), (",speed", ",3"), (",colour", ",red")])
def test_the_unit_of_memory_does_not_depend_on_the_other_columns(tmp_path, more):
    text = f"layers,hidden,dp,tp,mem_value,mem_unit,sec_per_it{more[0]}\n2,64,1,1,20480,MiB,1.5{more[1]}\n"
    (record,) = _import(tmp_path, "t.csv", text).records
    assert record.mem_gib == 20 and record.mem_unit == "MiB"


@pytest.mark.parametrize("time_s", ["0", "-1.5", "nan", "inf", "1e400"])
def test_a_time_that_is_none_is_left_out_and_said(tmp_path, time_s):
    found = _import(tmp_path, "t.csv", f"layers,hidden,dp,tp,sec_per_it\n2,64,1,1,{time_s}\n")
    assert all(record.sec_per_it is None for record in found.records)
    assert any("sec_per_it" in problem.message for problem in found.problems)


@pytest.mark.parametrize("entity", ["&#99999999999;", "&#55296;", "&#1114112;", "&#0;"])
def test_an_entity_that_is_no_letter(tmp_path, entity):
    _import(tmp_path, "t.md", f"| Nodes | DP | Sec/it | {entity} |\n|--|--|--|--|\n| 4 | 8 | 1.5 | {entity} |\n")
    _import(tmp_path, "o.md", f"# A{entity}\n\n| DP | Sec/it | Outcome |\n|---:|---:|---|\n| 8 | 1.5 | hang: {entity} |\n")
    assert decode("&#55296;&#99999999;&#65;") == "&#55296;&#99999999;A"


@pytest.mark.parametrize("value", ["[1]", HUGE, '"x"', "{}", "true", "1e400", "-3", "0"])
@pytest.mark.parametrize("key", ["dp", "sec_per_it", "env", "outcome", "iterations", "flags", "context", "source_file"])
def test_a_record_with_another_kind_of_value_is_one_problem(tmp_path, key, value):
    found = _import(tmp_path, "r.jsonl", f'{{"state": "measured", "{key}": {value}}}\n{{"state": "measured", "dp": 8}}\n')
    assert found.records[-1].dp == 8 and len(found.records) + len(found.problems) == 2
    to_csv(found.records)
    to_json(found.records)


def test_a_lone_surrogate_leaves_in_every_format(tmp_path):
    from seatrial.files import save
    from seatrial.tables.markdown import to_markdown

    found = _import(tmp_path, "r.json", '[{"state": "measured", "dp": 8, "notes": "a \\ud800 b", "env": {"\\udfff": "1"}}]')
    assert found.records[0].notes == "a \ufffd b"
    for text in (to_csv(found.records), to_json(found.records), to_markdown(found.records), "\udce9"):
        save(tmp_path / "out", text)
    fields.digest({"name": "\udce9"})


# ---- what leaves: the terminal, cells

EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202eback\u202c \u2066 \x7f \r over \u200b\ufeff\U000e0041 \ud800"


def test_what_nobody_sees_is_shown():
    shown = visible(EVIL)
    assert shown.isascii() and "\\u001b[31mred" in shown and "\\u202eback" in shown and "\\ud800" in shown
    assert json.loads(visible(json.dumps("\u202e \U000e0041", ensure_ascii=False))) == "\u202e \U000e0041"
    assert visible("a\tb\nc é 模型 😀") == "a\tb\nc é 模型 😀"


def test_no_letter_of_a_file_moves_the_cursor(tmp_path, capsys):
    from seatrial.cli import main

    name = json.dumps(EVIL.replace("\ud800", ""))[1:-1]
    sweep = written(tmp_path / "s.toml", MODEL + BATCH + f'[axes]\ncase = [{{ name = "{name}", topology = {{ dp = 2 }} }},'
                    '{ name = "b" }]\n')
    toml = written(tmp_path / "k.toml", f'"{name}" = 1\n' + MODEL + BATCH)
    notes = written(tmp_path / "n.md", f"| Nodes | DP | Sec/it | {EVIL[:-1]} |\n|--|--|--|--|\n| 4 | 8 | x\u202ey | a |\n")
    for words in (["sweep", str(sweep), "--dry-run"], ["sweep", str(toml), "--dry-run"], ["lint", str(notes)],
                  ["table", str(notes)], ["table", str(notes), "--format", "csv"], ["table", str(notes), "--format", "json"],
                  ["run", str(toml)], ["plan", "--model", EVIL, "--cluster", EVIL], [EVIL]):
        main(words)
        out, err = capsys.readouterr()
        for text in (out, err):
            assert not set(text) & {*map(chr, range(9)), *map(chr, range(11, 32)), *map(chr, range(127, 160)),
                                    "\u202e", "\u202c", "\u2066", "\ud800", "\u200b"}, (words, text[:200])


def test_no_cell_is_a_formula(tmp_path):
    from seatrial.notes.read import iter_file

    words = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "=", "-", "-5", "+1.5e3", "a=b", "&#61;"]
    for word in words:
        cell = encode_csv(word)
        assert cell[0] not in "=+@-" or cell in ("-5", "+1.5e3")
        assert decode(cell) == word
    text = to_csv([Record(state="measured", dp=8, notes=word, machine=word) for word in words])
    for line in csv.reader(text.splitlines()):
        assert not any(cell[:1] in ("=", "+", "@", "-") for cell in line if cell not in ("-5", "+1.5e3"))
    back = [record.notes for record in iter_file(written(tmp_path / "t.csv", text)) if isinstance(record, Record)]
    assert back == words


def test_a_forecast_of_a_table_with_formulas_has_none(tmp_path):
    from seatrial.plan import calibrate, forecast

    cluster = presets.cluster("jz-a100")
    table = rows.read(written(tmp_path / "t.csv", 'layers,hidden,notes,=x\n2,1024,=1+1,"@a"\n'), cluster)
    forecast.write(tmp_path / "out.csv", table, forecast.columns(table, calibrate.cold(cluster)))
    text = (tmp_path / "out.csv").read_text()
    assert "&#61;1+1" in text and ",=" not in text and ",@" not in text


METRICS = ['{"loss":Infinity,"step":Infinity,"time":1}', '{"loss":NaN,"step":1e400}', '{"loss": 2, "step": 1e300}']


@pytest.mark.parametrize("text", METRICS)
def test_metrics_without_end_leave_in_every_format(tmp_path, text):
    found = _import(tmp_path, "m.jsonl", text + "\n")
    to_json(found.records)
    to_csv(found.records)


def test_a_slip_in_an_exponent_is_no_number():
    from seatrial.notes.lint import digits

    assert digits.slip("1e8", (3.0, 4.0)) is None


def test_a_figure_beyond_what_a_decimal_holds_is_none():
    from seatrial.notes.read.logformat import Figure

    assert Figure("loss").read("1e999999999999") == (None, "")


NOBODYS = {
    "points in a size": "l|params|devices|||||token/s|MFU||\n-|\n|1B|M|8||||184k|51||\n|1012M|32|||||708k|49||\n"
                        "1.4B|,,4M|32|||||482k|47\nB|1415M|64|||||940k|46%",
    "layers without end": "--layer 1e308 --hidden-size 4\n||Size|PetaFLOP\n||0M",
    "no parameters": "HIDDEN336\n|Size|D|T|P||BS|Sec/it|TFLOP\n|0B|8|8|6||2048|.88|2.7",
    "no tokens": "token s/0B 7B\n|||s/step|token/s\n|||6.92|.607M\n|||3.41|1.228M\n|||4|2",
    "a batch without end": "Half a million tokens a step.\n\n|Sequence Length (K)|GBS|step time (s)|tokens/s/GPU|TFLOPS/GPU|\n"
                           "|---:|---:|---:|---:|---:|\n|2|256|3.874|8458|408|\n|1e308|128|4.152|7892|406|\n|8|64|4.675|7009|406|\n"
                           "|16|32|5.701|5748|407|\n",
    "devices without end in a text": f"{'9' * 310} GPUs \n\n| |  | optimizer ||\n-:|\n|  | | % | 6",
    "nodes without end": "|Nos||||D|T|P | MBS | S/it  | TFLOP| PF\n|1e308 | 5|| | 8 | 2 | 1  || | 80 |6 |\n"
                         "| 128  | | | | | ||  | |61.3|  62.81\n| 128 | || | 8 | 6 | 48 || |  64.03 |65.5",
    "a phase without figures": "|||с/шаг|||\n-|\n|0|20000||1|4||\n|20000|45000||8|1||\n||45000|0||4\n|4|6||2|1|5",
    "a figure that its last digit is all of": "||||MFU\n-|\n|1|0|3000|1\n|2e-9|3000|9000|1\n"
                                              "|6|0|5|d\n|7|0|63200|s\n|8|63200|82048|2",
    "a total of what no float holds": "s/step|h\n-|\nA|1e308\n2|1e308\ntotal|5",
    "more digits than a float has": "\n| Model | PP || Latency || | MFU |\n|  | | |5 | |% | 4\n| || :| || :| 10,5" + 319 * "9",
    "a heading that is its own translation": "n =  (\u5002\nF",
    "a total below nothing": "s|EUR\n-|\n6|5\nB|0\ntotal|-3",
    "an exception without end": f"only 32 {'9' * 400}.\n\n| run | gpus | tok/s | mfu |\n|---|---|---|---|\n"
                                "| a | 8 | 100 | 40 |\n| b | 8 | 100 | 40 |\n| c | 8 | 100 | 40 |\n| d | 8 | 100 | 80 |\n",
}  # fmt: skip


@pytest.mark.parametrize("text", NOBODYS.values(), ids=NOBODYS)
def test_sizes_that_no_model_has_are_linted_all_the_same(tmp_path, text):
    (tmp_path / "n.md").write_text(text, encoding="utf-8")
    look_at([str(tmp_path / "n.md")])


@pytest.mark.parametrize("text", [
    ",line_no,,date,mbs,gbs,d\n,8,,,4,4,acc\n,,,,,1\n,,,,,1",
    "date,,,,d,t,,b,grad_acum,bs,\n,,,,4,,,1,6\n,,,,4,,,1,8,4,\n,,,,8,,,2,6\nTOTAL",
], ids=["a line beyond the file", "an accumulation that is mended above a total"])
def test_rows_of_a_file_without_much_are_linted_all_the_same(tmp_path, text):
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    look_at([str(tmp_path / "rows.csv")])


def test_what_the_text_says_of_a_row_is_one_value():
    with pytest.raises(BadInput, match="context.gbs.value"):
        Record.from_dict({"state": "measured", "context": {"gbs": {"value": [], "line": 3}}})


def test_many_devices_that_are_no_multiple_of_a_replica_are_looked_at_in_no_time(tmp_path):
    table = "| GPUs | TP | PP | MBS | GBS | s/it |\n|---|---|---|---|---|---|\n"
    (tmp_path / "n.md").write_text(table + "| 99999999999 | 2 | 2 | 1 | 64 | 2.5 |\n" * 4, encoding="utf-8")
    (tmp_path / "long.log").write_text("7" * 300_000 + " Mrd\n" + "Step 5/1000, Loss: 11.3332\n" * 3, encoding="utf-8")
    before = time.process_time()
    look_at([str(tmp_path / "n.md"), str(tmp_path / "long.log")])
    assert time.process_time() - before < 2


@pytest.mark.parametrize(("name", "text"), [
    ("t.md", "8gCO₂ per kWh 1e-308MWh 6tCO\n"),
    ("t.csv", ",,,,,c,,global_b,seq_,iter_time,token_s,t\n,,,,,,,256,4096,3.33,314164,\n,,,,,,,32,2,1,16\n"),
])
def test_figures_that_no_law_can_be_worked_out_of(tmp_path, name, text):
    assert "rule-failed" not in {one.code for one in look_at([str(written(tmp_path / name, text))])[0]}
