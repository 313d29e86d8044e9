"""The report's data: what is ranked, how sure that is, what is compared with what, and what is never invented."""
from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import pytest

from seatrial import columns
from seatrial.errors import BadInput
from seatrial.record import Outcome, Record
from seatrial.report import answers, data, forecasts, page, pipelines, whatif
from seatrial.report.answers import knobs, scaling
from seatrial.report.forecasts import Clusters

BIG = {"size_label": "181B", "layers": 72, "hidden": 14336, "heads": 64, "seq": 2048, "vocab": 50257, "nodes": 48,
       "procs_per_node": 8, "gbs": 2048, "dtype": "bf16", "recompute": "full", "zero_stage": 1}


def row(sec: float | None, *, dp: int = 8, tp: int = 4, pp: int = 12, mbs: int = 2, **more: object) -> Record:
    said = {"state": "measured", "machine": "m", **BIG, "dp": dp, "tp": tp, "pp": pp, "mbs": mbs, "sec_per_it": sec}
    return Record(**{**said, **more})  # type: ignore[arg-type]


def asked(records: list[Record], **aside: str) -> answers.Question:
    return answers.questions(records, {int(key[1:]): code for key, code in aside.items()})[0]


def test_the_best_has_most_samples_per_second_and_not_the_least_time():
    records = [row(100.0, gbs=2048), row(60.0, dp=4, tp=8, gbs=1024)]
    assert asked(records).ranked[0].rows == (0,)


def test_repeats_are_one_layout_at_their_median():
    question = asked([row(100.0), row(104.0), row(101.0), row(102.0, mbs=4)])
    first, second = question.ranked
    assert first.sec_per_it == 101.0 and first.rows[0] == 2 and set(first.rows) == {0, 1, 2}
    assert (first.lo_s, first.hi_s) == (100.0, 104.0)
    assert second.rows == (3,)


def test_columns_that_nothing_is_known_about_do_not_part_repeats_but_the_axes_of_a_sweep_do():
    imported = [row(sec, source_file="a.csv", extra={"tflops_calc": str(sec)}) for sec in (100.0, 101.0)]
    assert len(asked(imported).ranked) == 1
    swept = [row(sec, extra={"case": str(sec)}) for sec in (100.0, 101.0)]
    assert len(asked(swept).ranked) == 2


@pytest.mark.parametrize("execution", [{"compile": True}, {"bucket_mib": 64.0}, {"threads": 2}, {"device": "cuda"},
                                       {"optimizer": "adamw-plain"}, {"logits_chunk": 512}])  # fmt: skip
def test_rows_that_were_executed_otherwise_are_no_repeats(execution: dict[str, object]):
    assert len(asked([row(100.0), row(101.0, **execution)]).ranked) == 2


def test_a_field_of_a_trial_reaches_the_page_from_the_one_table_of_fields():
    values = {"count": 3, "figure": 1.5, "frequency": 2.2, "yesno": True, "zero": 1}
    record = Record(state="measured", **{name: values.get(columns.COLUMNS[name].about.kind, "x") for name in columns.ASKED})
    view = data.build([record], title="").view
    described = {column["name"]: column for column in view["columns"]}
    assert len(described) == len(view["columns"])
    for name, own in data.ASKED.items():
        assert view["rows"][name] == [getattr(record, own)]
        assert described[name]["label"] and described[name]["group"], name
    assert set(columns.ASKED) - set(data.ASKED.values()) == {"gpus"} and view["rows"]["world"] == [3]
    assert set(columns.ASKED) <= {name for names in view["groups"].values() for name in names}


@pytest.mark.parametrize(("seconds", "verdict"), [
    ([[100.0, 100.2], [110.0, 110.1]], "clear"),
    ([[100.0, 112.0], [110.0, 111.0]], "open"),
    ([[100.0], [100.5]], "tie"),
    ([[100.0], [110.0]], "once"),
    ([[100.0]], "alone"),
])  # fmt: skip
def test_how_sure_follows_from_the_gap_and_the_repeats(seconds: list[list[float]], verdict: str):
    records = [row(sec, mbs=2**i) for i, several in enumerate(seconds) for sec in several]
    assert asked(records).verdict == verdict


def test_an_interval_of_the_iterations_counts_where_there_is_one_run():
    question = asked([row(100.0, measurement={"low_s": 99.0, "high_s": 101.0})])
    assert question.ranked[0].lo_s == 99.0 and question.ranked[0].spread == pytest.approx(0.01)


def test_what_failed_was_planned_or_is_in_doubt_is_not_ranked():
    records = [row(100.0), row(50.0, mbs=1, state="planned"), row(40.0, mbs=4, outcome=Outcome(status="hang")),
               row(30.0, mbs=8, state="estimated"), row(None, mbs=16), row(20.0, mbs=32)]
    question = asked(records, r5="ms-not-s")
    assert [c.rows for c in question.ranked] == [(0,)]
    assert question.set_aside == ((5, "ms-not-s"),)


def test_a_model_on_another_number_of_processes_is_another_question():
    found = answers.questions([row(100.0), row(90.0, mbs=4), row(200.0, nodes=24, dp=4)], {})
    assert [len(q.rows) for q in found] == [2, 1]


def test_a_series_differs_in_its_knob_alone():
    records = [row(100.0, mbs=1), row(90.0, mbs=2), row(95.0, mbs=4), row(80.0, mbs=2, heads=32), row(70.0, mbs=1, dp=4, tp=8)]
    found = {knob.name: knob for knob in knobs(records, range(len(records)))}
    assert [s.points for s in found["mbs"].series] == [((1, 0), (2, 1), (4, 2))]
    assert [s.points for s in found["heads"].series] == [((32, 3), (64, 1))]
    assert [s.points for s in found["tp"].series] == [((4, 0), (8, 4))], "DP gives way to TP"


def test_tables_of_one_file_are_compared_only_where_notes_do_so():
    records = [row(100.0, mbs=1, source_file="a", table=0), row(90.0, mbs=2, source_file="a", table=1),
               row(80.0, mbs=1, source_file="a", table=2, torch_version="1.10"),
               row(85.0, mbs=1, source_file="a", table=3, torch_version="1.7")]
    assert [knob.name for knob in knobs(records, range(4))] == ["torch_version"]


def test_devices_are_those_of_the_row_or_of_its_layout_and_never_its_nodes():
    nodes = row(100.0, nodes=48, procs_per_node=None)
    assert (answers.world(nodes), answers.world_from(nodes)) == (384, "DP x TP x PP")
    divided = row(100.0, nodes=48, procs_per_node=None, cp=2)
    assert (answers.world(divided), answers.world_from(divided)) == (768, "DP x TP x PP x CP")
    assert answers.world(row(100.0, nodes=48, procs_per_node=None, dp=None)) is None  # type: ignore[arg-type]
    stated = row(100.0, nodes=48, procs_per_node=None, gpus=400)
    assert (answers.world(stated), answers.world_from(stated)) == (400, None)


def test_scaling_takes_the_best_row_of_each_size():
    records = [row(100.0, nodes=10), row(90.0, nodes=10, mbs=4), row(50.0, nodes=20)]
    (one,) = scaling(records, range(3))
    assert one.points == ((80, 1), (160, 2))


def test_a_forecast_needs_a_machine_and_says_what_it_assumed():
    records = [row(100.0), row(100.0, recompute="", zero_stage=None)]
    assert forecasts.of(records, Clusters()) == {}
    cold = forecasts.of(records, Clusters.read(["jz-a100"]))
    assert cold[0].lo < cold[0].sec < cold[0].hi and cold[0].assumed == ()
    assert set(cold[1].assumed) == {"recompute", "zero_stage"}
    assert sum(cold[0].parts_s.values()) == pytest.approx(cold[0].sec, rel=1e-6)
    assert sum(cold[0].memory_gib.values()) == pytest.approx(cold[0].mem_gib, rel=1e-6)
    told = forecasts.of(records, Clusters.read(["jz-a100"], ["recompute=full", "zero_stage=1"]))
    assert told[1].sec == pytest.approx(cold[0].sec)


def test_a_forecast_does_not_change_with_what_was_measured():
    slow, fast = (forecasts.of([row(sec)], Clusters.read(["jz-a100"]))[0].sec for sec in (500.0, 50.0))
    assert slow == fast


def test_a_forecast_of_another_device_is_not_compared():
    """A trial that names jz-a100 and was run on a CPU: thousands of per cent say nothing."""
    on_gpu, on_cpu = ({"fullest": {name: 1.0, "rss_peak_gib": 0.3}} for name in ("reserved_peak_gib", "node_used_gib"))
    records = [row(80.0, memory=on_gpu), row(0.1, memory=on_cpu), row(0.1, versions={"torch": "2.13.0+cpu"}), row(80.0)]
    made = forecasts.of(records, Clusters.read(["jz-a100"]))
    assert [bool(made[i].elsewhere) for i in range(4)] == [False, True, True, False]
    view = data.build(records, title="", clusters=Clusters.read(["jz-a100"])).view
    assert [sec is None for sec in view["rows"]["f_sec"]] == [False, True, True, False]
    assert "measured on a CPU" in view["rows"]["f_elsewhere"][1] and "jz-a100" in view["rows"]["f_elsewhere"][1]


def test_rows_that_name_no_engine_take_the_one_that_is_assumed():
    made = [forecasts.of([row(80.0, engine=own)], Clusters.read(["jz-a100"], ["engine=plain-3d"]))[0] for own in ("", "fsdp2")]
    assert [one.engine for one in made] == ["plain-3d", "fsdp2"] and all(0 < one.fit_odds < 1 for one in made)
    with pytest.raises(BadInput, match="horse"):
        Clusters.read(["jz-a100"], ["engine=horse"])


def test_the_planner_of_the_page_learns_from_the_rows_of_the_same_cluster():
    records = [row(sec, mbs=mbs) for mbs, sec in ((1, 240.0), (2, 220.0), (4, 223.0))]
    made = data.build(records, title="", clusters=Clusters.read(["jz-a100"]))
    asked = {"model": "bloom-181b", "cluster": "jz-a100", "nodes": "48", "gbs": "2048", "tp": "4", "pp": "12", "zero": "1",
             "recompute": "full", "mbs": "2"}
    cold, taught = (whatif.what_if(asked, fit) for fit in (None, whatif.fit_of(made, "jz-a100")))
    assert taught["calibration"]["rows"] == 3
    assert 1.9 < taught["candidates"][0]["sec_per_it"] / cold["candidates"][0]["sec_per_it"] < 2.3, "rows: 2.1 to 2.3"
    assert whatif.fit_of(made, "dgx-h100") is None


def test_a_cluster_can_be_named_for_some_rows():
    records = [row(100.0, source_file="alpha.md"), row(100.0, source_file="beta.md")]
    assert set(forecasts.of(records, Clusters.read(["alpha=jz-a100"]))) == {0}


def test_an_assumption_that_the_planner_does_not_make_is_refused():
    with pytest.raises(BadInput, match="recompute"):
        Clusters.read([], ["recomput=full"])


def test_the_pipeline_that_is_drawn_is_the_schedule_that_is_run():
    trial = forecasts.of([row(100.0)], Clusters.read(["jz-a100"]))[0].trial
    assert trial is not None
    drawn = pipelines.forecast(trial)
    assert drawn is not None and len(drawn["spans"]) == 12
    from seatrial.schedule import schedule

    for rank, spans in enumerate(drawn["spans"]):
        actions = schedule("1f1b", pp=12, rank=rank, microbatches=drawn["drawn"])
        assert [(kind, micro) for kind, micro, *_ in spans] == [(a.kind.value, a.microbatch) for a in actions]


def test_every_timer_of_the_engine_has_a_letter_and_a_letter_one_word():
    from seatrial import engine
    from seatrial.engine.core import context, tokensets

    sources = [path.read_text() for path in Path(engine.__path__[0]).rglob("*.py")]
    timers = {context.TIMER, context.ATTENTION, tokensets.TIMER}
    timers |= {name for text in sources for name in re.findall(r'(?:timers\(|timer=)"(\w+)"', text)}
    assert len(timers) > 10 and timers <= set(pipelines.LETTERS)
    assert len({span.word for span in pipelines.SPANS.values()}) == len(pipelines.SPANS)


def _lab(colour: str) -> tuple[float, float, float]:
    """CIE L*a*b* of an sRGB colour, D65: distances are what an eye tells apart."""
    light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
             for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))]
    to_xyz = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8728))
    x, y, z = ((t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116)
               for t in (sum(a * b for a, b in zip(row, light)) for row in to_xyz))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_kinds_of_span_have_colours_that_an_eye_tells_apart(theme: int):
    """11 is what the two greys, waiting and other, have; the exchange of context stands beside compute and must stand out."""
    style = (Path(pipelines.__file__).parent / "static" / "page.css").read_text()
    colours = dict(re.findall(r"--(c\d+):(#\w{6})", style.split(":root")[1 + theme]))
    labs = {letter: _lab(colours[span.css]) for letter, span in pipelines.SPANS.items()}
    assert all(f".p-{span.css}{{" in style for span in pipelines.SPANS.values())
    for one, other in itertools.combinations(labs, 2):
        assert math.dist(labs[one], labs[other]) > (30 if {one, other} & {"k", "t"} else 11), (one, other)


def test_every_part_and_timer_that_a_bar_shows_has_a_colour_on_the_page():
    from seatrial.plan.step import SCALES

    script = (Path(pipelines.__file__).parent / "static" / "charts.js").read_text()
    known = dict(re.findall(r'(\w+): "(c\d+)"', script.split("const COLOUR")[1].split("};")[0]))
    shown = {*SCALES, "bubble", *pipelines.LETTERS} - {"evaluation", "weight"}
    assert shown <= known.keys() and known["exchange"] == known["cp_comm"] == pipelines.SPANS["k"].css
    assert known["exchange"] not in (known["tensor"], known["tp_comm"])


def test_what_a_ring_waits_for_is_drawn_as_exchange_of_context(tmp_path: Path):
    (tmp_path / "trace.step4.json").write_text(trace("rank 0 pp0 dp0").replace('"forward"', '"cp_comm"'))
    drawn = pipelines.measured(tmp_path)
    assert drawn is not None and [pipelines.SPANS[span[0]].word for span in drawn["spans"][0]] == ["context exchange"]


def trace(*names: str) -> str:
    events = [{"ph": "M", "name": "process_name", "pid": i, "args": {"name": name}} for i, name in enumerate(names)]
    events += [{"ph": "X", "name": "forward", "pid": i, "tid": 0, "ts": 1e6 * i, "dur": 5e5} for i in range(len(names))]
    return json.dumps({"traceEvents": events, "metadata": {"step": 4}})


def test_a_measured_pipeline_has_one_rank_per_stage(tmp_path: Path):
    (tmp_path / "trace.step4.json").write_text(trace("rank 0 pp0 dp0", "rank 1 pp0 dp1", "rank 2 pp1 dp0", "rank 3 pp1 dp1"))
    drawn = pipelines.measured(tmp_path)
    assert drawn is not None and drawn["ranks"] == ["stage 0, r0", "stage 1, r2"] and drawn["step"] == 4
    assert drawn["spans"][1] == [["F", None, 0, 2.0, 2.5]] and drawn["total_s"] == 2.5


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": 3}'])
def test_a_trace_that_is_none_draws_nothing(tmp_path: Path, text: str):
    (tmp_path / "trace.step1.json").write_text(text)
    assert pipelines.measured(tmp_path) is None


def test_a_record_cannot_point_outside_its_logbook(tmp_path: Path):
    book, outside = tmp_path / "book", tmp_path / "elsewhere"
    (book / "runs" / "s" / "key").mkdir(parents=True)
    outside.mkdir()
    (book / "runs" / "s" / "link").symlink_to(outside)
    inside = Record(state="measured", session="s", host={"run_dir": "/old/place/runs/s/key"})
    assert pipelines.run_dir(book, inside) == (book / "runs" / "s" / "key").resolve()
    outsiders = [("s", "/x/link"), ("s", "/x/.."), ("../..", str(outside)), ("s", "missing"), ("", "key"), ("s", "a\0b")]
    for session, folder in outsiders:
        assert pipelines.run_dir(book, Record(state="measured", session=session, host={"run_dir": folder})) is None


def test_a_figure_keeps_the_digits_it_was_printed_with():
    record = row(112.0, printed={"Sec/it": "112.00", "TFLOPs": "141.3"}, tflops=141.3, source_file="a.md", source_line=1)
    rows = data.build([record], title="", lint=False).view["rows"]
    assert rows["sec_text"] == ["112.00"] and "tflops_text" not in rows


def test_the_page_of_the_logs_has_the_numbers_of_the_logs(seeds_dir: Path):
    from seatrial.report.read import read
    from seatrial.tables.codec import number, shortest

    records, _ = read(sorted(seeds_dir.glob("*.txt")))
    rows = data.build(records, title="", lint=False).view["rows"]
    for name, own in (("sec", "sec_per_it"), ("tflops", "tflops")):
        texts = rows.get(f"{name}_text", [None] * len(records))
        shown = [text or ("" if value is None else shortest(value)) for text, value in zip(texts, rows[name])]
        assert shown == [number(record, own) for record in records]
    assert sum(value is not None for value in rows["sec"]) > 100


def test_what_nobody_said_is_none():
    view = data.build([Record(state="planned", size_label="1B")], title="").view
    said = {name for name, values in view["rows"].items() if values != [None]}
    assert said == {"state", "size"}
    assert view["questions"][0]["ranked"] == () and view["scaling"] == view["knobs"] == view["pipelines"] == []


def test_a_record_is_read_once_and_again_when_it_was_corrected(tmp_path: Path):
    from seatrial.logbook import Logbook
    from seatrial.report.read import Known, from_book

    known: Known = {}
    with Logbook(tmp_path / "book", create=True) as book:
        first, second = book.append_many([{"state": "planned", "dp": 1}, {"state": "planned", "dp": 2}])
        before, _ = from_book(book, known)
        book.append({"record_id": second, "state": "measured", "dp": 2})
        after, _ = from_book(book, known)
        assert after[0] is before[0] and after[1].state == "measured"
        book.append({"deleted": first})
        assert [r.record_id for r in from_book(book, known)[0]] == [second] and len(known) == 1


def test_failures_carry_their_culprit():
    outcome = Outcome(status="hang", message="rank 5 never came", rank=5, iteration=3, phase="backward", rate=(2, 5))
    (found,) = data.build([row(None, state="failed", outcome=outcome)], title="").view["failures"]
    assert (found["rank"], found["iteration"], found["phase"], found["rate"]) == (5, 3, "backward", [2, 5])


def test_findings_lead_to_their_rows():
    records = [row(120.0 * (1000 if i == 2 else 1), mbs=2**i, tflops=130.0, source_file="a.md", source_line=10 + i, table=0,
                   printed={"Sec/it": "x"}) for i in range(4)]
    made = data.build(records, title="")
    assert made.findings, "milliseconds among seconds are found"
    for finding in made.view["findings"]:
        if finding["row"] is not None:
            assert records[finding["row"]].source_line == finding["line"]
    assert all(made.records[place].source_line in {f["line"] for f in made.view["findings"]} for place in made.by_row)


def test_the_page_holds_no_letter_that_could_end_its_script():
    evil = "</script><script>alert(1)</script><!-- & \u2028"
    text = page.html(data.build([row(100.0, notes=evil, size_label=evil)], title=evil))
    assert "alert(1)</script>" not in text
    assert len(re.findall(r"<script", text)) == len(re.findall(r"</script>", text)) == 3
    inline = re.search(r'id="view">(.*?)</script>', text, re.DOTALL)
    assert inline is not None
    assert json.loads(inline.group(1))["rows"]["notes"] == [evil]


def test_the_script_never_reads_text_as_html():
    for name in (*page.SCRIPTS, *page.LIVE_SCRIPTS, "main.js"):
        source = (page.STATIC / name).read_text()
        found = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", source)
        assert found is None, name


def test_the_page_names_no_address_of_the_network():
    text = page.html(data.build([row(100.0)], title="t"))
    assert set(re.findall(r"https?://[^\s\"'`<)]+", text)) == {"http://www.w3.org/2000/svg"}


def test_lint_is_left_out_of_very_many_rows_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "MOST_LINTED", 1)
    records = [row(100.0, source_file="a", source_line=i) for i in range(2)]
    assert "--lint" in data.run_lint(records).skipped and data.run_lint(records, False).skipped
    assert data.run_lint(records, True).skipped == ""


def test_a_rehearsed_row_is_called_so_and_never_ranked():
    rehearsed = row(10.0, dp=16, state="estimated", measurement={"kind": "rehearsed"})
    made = data.build([row(100.0), row(110.0, tp=8), rehearsed], title="")
    assert made.view["rows"]["state"] == ["measured", "measured", "rehearsed"]
    assert all(2 not in candidate["rows"] for question in made.view["questions"] for candidate in question["ranked"])


def test_tokens_of_a_device_are_the_rows_or_follow_from_it_and_else_nobodys():
    def tokens(**cells):
        return answers.tokens_per_device(row(100.0, **cells))

    said = {"gpus": 8, "gbs": 64, "seq": 1000}
    assert tokens(**said, tokens_per_s_per_process=7.5) == 7.5
    assert tokens(**said, tokens_per_s=16.0) == 2.0
    assert tokens(**said) == 64 * 1000 / 100.0 / 8
    assert tokens(gpus=8, gbs=64, seq=None) is None
    assert tokens(gpus=None, nodes=None, dp=None, gbs=64, seq=1000) is None


def test_a_row_whose_machine_is_a_preset_is_forecast_on_it_without_being_told():
    made = forecasts.of([row(80.0, machine="jz-a100"), row(80.0, machine="m")], Clusters())
    assert list(made) == [0] and made[0].device == forecasts.of([row(80.0)], Clusters.read(["jz-a100"]))[0].device
    told = forecasts.of([row(80.0, machine="jz-a100")], Clusters.read(["dgx-h100"]))
    assert told[0].device != made[0].device, "what is said goes before what is guessed"
