"""Whatever one command reads, all read: the same rows in every form, and every sample of a log, through each of them."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial import presets
from seatrial.commands.compare import _recorded
from seatrial.errors import BadInput
from seatrial.notes.lint import look_at
from seatrial.notes.read import import_file
from seatrial.plan import calibrate, forecast
from seatrial.plan import rows as planner
from seatrial.tune import replay

CLUSTER = "jz-a100"
LOGS = Path(__file__).parents[1] / "data" / "logs"
SAMPLES = sorted(path for path in LOGS.glob("*") if path.suffix != ".md" and not path.name.endswith(".expected.json"))
NAMES = "nodes layers hidden heads seq dp tp pp mbs gbs sec_per_it".split()
HEADINGS = ["Nodes", "Layers", "Hidden", "Heads", "Seq len", "DP", "TP", "PP", "MBS", "GBS", "Sec/it"]
ROWS = [[str(cell) for cell in (4, 24, 2048, 16, 2048, dp, tp, pp, mbs, 128, sec)] for dp, tp, pp, mbs, sec in (
    (32, 1, 1, 1, 0.81), (16, 2, 1, 1, 0.92), (8, 4, 1, 1, 1.14), (16, 1, 2, 1, 0.86), (8, 2, 2, 1, 0.98),
    (16, 2, 1, 2, 0.9))]  # fmt: skip
KEYS = {"layers": "num_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "seq": "seq_length",
        "mbs": "micro_batch_size"}  # fmt: skip


def lines(rows: list[list[str]], widths: list[int], gap: str = "  ") -> str:
    return "\n".join(gap.join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)


def written(form: str) -> str:
    """The rows as somebody would write them."""
    widths = [max(map(len, column)) for column in zip(HEADINGS, *ROWS)]
    bar = "| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS) + "\n"
    if form == "named.csv":
        return "\n".join(",".join(row) for row in [NAMES, *ROWS])
    if form == "people.csv":
        return "\n".join(";".join(row) for row in [HEADINGS, *ROWS])
    if form == "notes.md":
        return "# Notes\n\n" + bar + "\n".join("| " + " | ".join(row) + " |" for row in ROWS)
    if form == "turned.md":
        columns = list(zip(HEADINGS, *ROWS))
        head = "| | " + " | ".join(f"run {n}" for n in range(len(ROWS))) + " |\n|" + "---|" * (len(ROWS) + 1) + "\n"
        return head + "\n".join("| " + " | ".join(column) + " |" for column in columns)
    if form == "turned.csv":
        return "\n".join(",".join(column) for column in [("Run", *map(str, range(len(ROWS)))), *zip(HEADINGS, *ROWS)])
    if form == "two.md":
        units = [""] * 10 + ["(s)"]
        heads = [*HEADINGS[:-1], "Step time"]
        return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * 11, units, *ROWS])
    if form == "page.html":
        return "<h2>Runs</h2>\n<table>\n" + "\n".join(
            "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in row) + "</tr>"
            for tag, row in [("th", HEADINGS), *(("td", row) for row in ROWS)]) + "\n</table>\n"  # fmt: skip
    if form == "simple.rst":
        edge = "  ".join("=" * width for width in widths)
        return f"Runs\n====\n\n{edge}\n{lines([HEADINGS], widths)}\n{edge}\n{lines(ROWS, widths)}\n{edge}\n"
    if form == "grid.rst":
        edge = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
        body = [f"| {lines([row], widths, ' | ')} |" for row in [HEADINGS, *ROWS]]
        return f"{edge}\n{body[0]}\n{edge.replace('-', '=')}\n" + f"\n{edge}\n".join(body[1:]) + f"\n{edge}\n"
    if form == "records.json":
        return json.dumps([{"state": "measured", **{n: float(c) if n == "sec_per_it" else int(c) for n, c in zip(NAMES, row)}}
                           for row in ROWS])  # fmt: skip
    assert form == "train.log"
    said = []
    for row in ROWS:
        values = dict(zip(NAMES, row))
        said.append(f"using world size: 32, data-parallel size: {values['dp']}, context-parallel size: 1, "
                    f"tensor-model-parallel size: {values['tp']}, pipeline-model-parallel size: {values['pp']}")
        said += [f"  {KEYS[name]} {'.' * 20} {values[name]}" for name in KEYS]
        said += [f" iteration {n:8}/      10 | elapsed time per iteration (ms): {float(values['sec_per_it']) * 1000:.1f} | "
                 "global batch size:   128 |" for n in (1, 2, 3)]  # fmt: skip
    return "\n".join(said) + "\n"


FORMS = ["named.csv", "people.csv", "notes.md", "turned.md", "turned.csv", "two.md", "page.html", "simple.rst", "grid.rst",
         "records.json", "train.log"]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("forms")
    for form in FORMS:
        (folder / form).write_text(written(form))
    return {form: folder / form for form in FORMS}


@pytest.mark.parametrize("form", FORMS)
def test_import_and_lint_read_the_rows(files, form):
    records = import_file(files[form]).records
    said = [[str(getattr(record, name)) for name in NAMES if name != "nodes"] for record in records]
    assert said == [row[1:] for row in ROWS]
    assert not [finding for finding in look_at([str(files[form])])[0] if finding.level == "error"]


@pytest.mark.parametrize("form", FORMS)
def test_a_forecast_is_the_same_from_every_form(files, form):
    table, here = forecast.table_of(files[form], CLUSTER)
    made = forecast.columns(table, calibrate.cold(here))
    plain, _ = forecast.table_of(files["named.csv"], CLUSTER)
    as_named = forecast.columns(plain, calibrate.cold(here))
    assert [line["forecast_sec"] for line in made] == [line["forecast_sec"] for line in as_named]
    assert all(line["forecast_sec"] for line in made)


@pytest.mark.parametrize("form", FORMS)
def test_calibrate_learns_the_same_from_every_form(files, form):
    fit = calibrate.from_file(files[form], presets.cluster(CLUSTER))
    assert fit.describe()["learned"] == calibrate.from_file(files["named.csv"], presets.cluster(CLUSTER)).describe()["learned"]
    assert fit.rows == len(ROWS)


@pytest.mark.parametrize("form", FORMS)
def test_replay_and_compare_take_every_form(files, form):
    assert len(replay.read(str(files[form]), cluster=CLUSTER).rows) == len(ROWS)
    (group,) = _recorded(files[form], ["mbs=1", "tp=2", "pp=1"], ["mbs=2", "tp=2"])
    assert (group.a, group.b) == ([0.92 / 128], [0.9 / 128])


def test_a_log_format_of_ones_own_is_read_by_every_command(tmp_path):
    """The steps of six runs, each after what it was asked to do."""
    form, log = tmp_path / "mine.toml", tmp_path / "mine.log"
    form.write_text("starts = ['^run']\n[[line]]\npattern = 'it (?P<iteration>[0-9]+) in (?P<sec_per_it>[0-9.]+)'\n[[line]]\n"
                    "kind = 'config'\npattern = '^(?P<key>[a-z]+) = (?P<value>[^ ]+)'\n[settings]\n"
                    + "".join(f"{name} = '{name}'\n" for name in NAMES[:-1]))
    log.write_text("".join("run\n" + "".join(f"{name} = {cell}\n" for name, cell in zip(NAMES[:-1], row))
                           + "".join(f"it {n} in {row[-1]}\n" for n in (1, 2, 3)) for row in ROWS))
    with pytest.raises(BadInput):
        planner.read(log, presets.cluster(CLUSTER))
    assert len(look_at([str(log)], format=form)[1].rows) == len(ROWS)
    table, here = forecast.table_of(log, CLUSTER, format=form)
    assert all(line["forecast_sec"] for line in forecast.columns(table, calibrate.cold(here)))
    assert calibrate.from_file(log, here, format=form).rows == len(ROWS)
    assert len(replay.read(str(log), cluster=CLUSTER, format=form).rows) == len(ROWS)
    (group,) = _recorded(log, ["mbs=1", "tp=2", "pp=1"], ["mbs=2", "tp=2"], form)
    assert (group.a, group.b) == ([0.92 / 128], [0.9 / 128])


@pytest.mark.parametrize("command", ["import", "lint", "forecast", "calibrate", "replay", "compare", "report"])
def test_every_command_that_reads_files_takes_a_log_format(command):
    from typer.main import get_command

    from seatrial.cli import build_app

    (option,) = [one for one in get_command(build_app()).commands[command].params if "--format" in one.opts]
    assert option.metavar == "FILE.toml"


def test_a_time_that_is_none_is_told_and_not_learned_from(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(written("named.csv").replace("0.81", "-0.81").replace("0.92", "0"))
    fit = calibrate.from_file(path, presets.cluster(CLUSTER))
    why = "no number above 0, so the row counts as one without it"
    assert fit.rows == len(ROWS) - 2
    assert fit.unread == (f"{path}:2: sec_per_it is '-0.81': {why}", f"{path}:3: sec_per_it is '0': {why}")
    assert planner.read(path, presets.cluster(CLUSTER)).unread == fit.unread
    assert replay.read(str(path), cluster=CLUSTER).unread == fit.unread


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_command_sees_the_runs_of_a_sample(path):
    records = import_file(path).records
    assert len(planner.read(path, presets.cluster(CLUSTER)).rows) == len(records)
    for read in (lambda: calibrate.from_file(path, presets.cluster(CLUSTER)), lambda: replay.read(str(path), cluster=CLUSTER),
                 lambda: _recorded(path, ["tp=1"], ["tp=2"])):  # fmt: skip
        try:
            read()
        except BadInput as refused:
            whys = ("no row to learn", "no search to replay", "none of ", "no configuration was measured")
            assert any(why in str(refused) for why in whys)
