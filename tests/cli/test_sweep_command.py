"""`seatrial sweep` and `seatrial compare` at the command line, on stub trials: what they print and how they end."""
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import sweeps

EXAMPLE = Path(__file__).parents[2] / "examples" / "first-sweep.toml"


def stub_file(tmp_path, **more):
    return sweeps.write(tmp_path / "s.toml", {"model": "tiny", "batch": {"gbs": 8}, "command": sweeps.stub("ok"), **more})


def test_the_example_is_a_list_of_trials_with_one_that_cannot_be(seatrial):
    found = json.loads(seatrial("sweep", EXAMPLE, "--dry-run", "--json").out)
    assert len(found["trials"]) == 6
    assert [row["case"] for row in found["trials"] if "invalid" in row] == ["impossible"]


def test_a_dry_run_writes_nothing_and_counts_what_rules_left_out(seatrial, tmp_path):
    file = stub_file(tmp_path, axes={"tp": [1, 2]}, rules=["tp < 2"])
    said = seatrial("sweep", file, "--dry-run", "--logbook", tmp_path / "book")
    assert said.status == 0 and "tp=1" in said.out and "1 left out by tp < 2" in said.out
    assert not (tmp_path / "book").exists()


THEIRS = {"model": "gpt2-124m", "batch": {"gbs": 64}, "engine": "command",
          "command": {"per": "node", "argv": ["torchrun", "--nproc-per-node", "{procs_per_node}", "t.py", "--tp", "{tp}"]}}


def test_a_dry_run_shows_each_command_line_and_forecast(seatrial, tmp_path):
    cluster = {"base": "dgx-a100", "nodes": 1, "procs_per_node": 2}
    file = sweeps.write(tmp_path / "s.toml", {**THEIRS, "cluster": cluster, "axes": {"tp": [1, 2]},
                                              "topology": {"dp": 2}, "rules": ["dp * tp <= 2"]})
    said = seatrial("sweep", file, "--dry-run", "--launcher", "slurm", "--logbook", tmp_path / "book")
    assert "    $ torchrun --nproc-per-node 2 t.py --tp 1\n" in said.out
    assert "s/it (90 %: " in said.out and "GiB, fits with over 99%" in said.out
    assert "\n    sbatch --parsable" in said.out and "--nodes=1" in said.out and "\n    exec srun " in said.out
    assert not (tmp_path / "book").exists()
    (row,) = json.loads(seatrial("sweep", file, "--dry-run", "--launcher", "slurm", "--json").out)["starts"]
    assert row["argv"] == ["torchrun", "--nproc-per-node", "2", "t.py", "--tp", "1"] and row["submit"][0] == "sbatch"
    assert row["forecast"]["sec_lo"] < row["forecast"]["sec_per_it"] < row["forecast"]["sec_hi"]


def test_scripts_of_a_dry_run_are_written_on_request_alone(seatrial, tmp_path):
    said = seatrial("sweep", EXAMPLE, "--dry-run", "--launcher", "pjm", "--scripts", tmp_path / "scripts")
    written = sorted(path.stem for path in (tmp_path / "scripts").iterdir())
    assert len(written) == 5 and "5 scripts are in" in said.out and all(key in said.out for key in written)
    assert "mpiexec" in (tmp_path / "scripts" / f"{written[0]}.sh").read_text()
    assert seatrial("sweep", EXAMPLE, "--dry-run", "--scripts", tmp_path / "more").status == 2


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_word_that_no_trial_has_is_an_error_before_anything_starts(seatrial, tmp_path, dry):
    file = sweeps.write(tmp_path / "s.toml", {**THEIRS, "command": {"argv": ["t.py", "{tpp}"]}})
    said = seatrial("sweep", file, "--logbook", tmp_path / "book", *dry)
    assert said.status == 2 and "no such word 'tpp'; did you mean 'tp'?" in said.err and "master_addr, master_port" in said.err
    assert not (tmp_path / "book").exists()


@pytest.mark.parametrize(("text", "words"), [
    ("model = ", "not TOML"), ("model = 'tiny'", "[batch] must be given"),
    ("model = 'tiny'\nbatch = {gbs = 8}\naxis = {}", "did you mean 'axes'?"),
])
def test_a_file_that_cannot_be_used_is_one_line_and_leaves_nothing(seatrial, tmp_path, text, words):
    (tmp_path / "bad.toml").write_text(text)
    said = seatrial("sweep", tmp_path / "bad.toml", "--logbook", tmp_path / "book")
    assert said.status == 2 and words in said.err and len(said.err.strip().splitlines()) == 1
    assert not (tmp_path / "book").exists()


@pytest.mark.parametrize(("more", "words"), [
    (("--launcher", "pjm"), "there is no pjsub on this machine"), (("--launcher", "locl"), "did you mean 'local'?"),
    (("--allocation", "2"), "is for --launcher slurm"),
])
def test_a_launcher_that_is_not_there_is_one_line(seatrial, tmp_path, more, words):
    said = seatrial("sweep", stub_file(tmp_path), "--logbook", tmp_path / "book", *more)
    assert said.status == 2 and words in said.err


def test_a_spent_budget_is_said_and_ends_with_three(seatrial, tmp_path):
    said = seatrial("sweep", stub_file(tmp_path, axes={"tp": [1, 2, 4]}, budget_s=0.001), "--logbook", tmp_path / "book")
    assert said.status == 3 and "2 not run: the budget of 0.001 s is spent" in said.out


def test_a_sweep_in_which_nothing_ended_well_says_so_and_ends_with_three(seatrial, tmp_path):
    file = stub_file(tmp_path, axes={"case": [{"name": name, "command": sweeps.stub(name)} for name in ("crash", "nan", "ok")]},
                     order="file")
    assert seatrial("sweep", file, "--logbook", tmp_path / "some").status == 0
    crash = 'axes={case=[{name="crash", command={argv=["false"]}}]}'
    said = seatrial("sweep", file, "--set", crash, "--logbook", tmp_path / "none")
    assert said.status == 3 and said.err.splitlines()[-1] == "seatrial: none of 1 trials ended well"


def test_what_could_not_start_is_pending_and_the_next_controller_starts_it(seatrial, tmp_path):
    program = tmp_path / "train"
    file = stub_file(tmp_path, command={**sweeps.stub("ok"), "argv": [str(program), *sweeps.stub("ok")["argv"][1:]]})
    said = seatrial("sweep", file, "--logbook", tmp_path / "book")
    assert said.status == 3 and f"{program}: No such file or directory" in said.err
    assert said.err.splitlines()[-1].startswith("seatrial: 1 not_started: kept from running")
    program.symlink_to(sys.executable)
    found = json.loads(seatrial("sweep", file, "--logbook", tmp_path / "book", "--resume", "--json").out)
    assert [row["status"] for row in found["trials"]] == ["ok"] and found["pending"] == {}
    assert len(sweeps.lines(tmp_path / "book")) == 2, "the row is corrected, and not there twice"


def test_people_get_a_line_a_trial_and_the_best(seatrial, tmp_path):
    said = seatrial("sweep", stub_file(tmp_path, axes={"tp": [1, 2, 3]}), "--logbook", tmp_path / "book")
    assert said.status == 0 and len(said.err.strip().splitlines()) == 3
    assert said.out.startswith("3 of 3 trials, 1 invalid, 2 ok, best tp=1: 0.1001 s/it")
    assert "16 heads are not a multiple of TP 3" in said.err


@pytest.mark.parametrize("by", ["tflops", "samples_per_s"])
def test_the_best_is_the_row_that_the_table_has_in_bold(seatrial, tmp_path, by):
    """Two processes are faster than one here, but not twice as fast: most TFLOPs per process has the slower row."""
    cases = [{"name": name, "topology": {"dp": dp}, "command": sweeps.stub("ok", scale=scale)}
             for name, dp, scale in (("one", 1, "1.5"), ("two", 2, "1"))]
    file = stub_file(tmp_path, axes={"case": cases}, stop={"by": by})
    assert "2 ok, best case=two: 0.1001 s/it" in seatrial("sweep", file, "--logbook", tmp_path / "book").out
    rows = [line.split("|") for line in seatrial("table", tmp_path / "book").out.splitlines() if line.startswith("|")]
    name, tflops = (next(i for i, heading in enumerate(rows[0]) if word in heading) for word in ("case", "TFLOPs"))
    assert [row[name].strip() for row in rows if "**" in "".join(row)] == ["two"]
    assert float(rows[2][tflops]) > float(rows[3][tflops]), "or this would be no test"
    found = json.loads(seatrial("sweep", file, "--logbook", tmp_path / "book", "--resume", "--json").out)
    assert (found["best"], found["best_of"]) == ("case=two", {"tiny": "case=two"})


def test_compare_runs_both_in_turns_and_says_which_is_faster(seatrial, tmp_path):
    """The stub's time is what its argument says: 0.1 s for TP 1, 0.2 s for TP 2."""
    file = stub_file(tmp_path)
    found = json.loads(seatrial("compare", file, "--b", "topology.tp=2", "--logbook", tmp_path / "book", "--json").out)
    assert found["verdict"] == "a is faster" and found["ratio"] == pytest.approx(2.0, rel=0.01)
    said = seatrial("compare", file, "--a", "topology.tp=2", "--b", "topology.tp=1", "--logbook", tmp_path / "book")
    assert "tp=1 is 1.999 times as fast as tp=2" in said.out


def test_compare_says_when_no_difference_can_be_seen(seatrial, tmp_path):
    said = seatrial("compare", stub_file(tmp_path), "--b", "topology.dp=2", "--logbook", tmp_path / "book")
    assert said.status == 0 and said.out.startswith("no difference can be seen between plain and dp=2: 1.000")


def test_compare_counts_failures_and_ends_with_three_when_one_side_never_worked(seatrial, tmp_path):
    file = stub_file(tmp_path)
    crash = f"command.argv={json.dumps(sweeps.stub('crash')['argv'])}"
    said = seatrial("compare", file, "--b", crash, "--logbook", tmp_path / "book", "--repeats", 2)
    assert said.status == 3 and "crash in 2 of 2 repeats" in said.out and "cannot be compared" in said.out


def test_compare_of_records_needs_both_sides(seatrial, tmp_path):
    seatrial("sweep", stub_file(tmp_path, repeats=2), "--logbook", tmp_path / "book", "--session", "monday")
    seatrial("sweep", stub_file(tmp_path, repeats=2), "--logbook", tmp_path / "book", "--session", "tuesday")
    said = seatrial("compare", "--logbook", tmp_path / "book", "--a", "session=monday", "--b", "session=tuesday")
    assert said.status == 0 and said.out.startswith("no difference can be seen between session=monday and session=tuesday")
    said = seatrial("compare", "--logbook", tmp_path / "book", "--a", "sesion=monday", "--b", "session=tuesday")
    assert said.status == 2 and "no row has a field 'sesion'; did you mean 'session'?" in said.err
    said = seatrial("compare", "--logbook", tmp_path / "book", "--a", "Session=monday", "--b", "session=Tuesday")
    assert said.status == 2 and "has session=Tuesday; session is there as monday, tuesday" in said.err
    said = seatrial("compare", "--logbook", tmp_path / "book", "--a", "session=monday", "--b", "session=never")
    assert said.status == 2 and "has session=never; session is there as monday" in said.err
    assert seatrial("compare", "--logbook", tmp_path / "book").status == 2


def test_compare_draws_the_repeats_and_the_ratio_beside_its_forecast(seatrial, tmp_path):
    file = stub_file(tmp_path, cluster={"base": "local", "procs_per_node": 1})
    run = ("compare", file, "--b", "topology.mbs=2", "--logbook", tmp_path / "book", "--repeats", 6)
    said = seatrial(*run)
    assert said.status == 0 and "•" not in said.out.splitlines()[0]
    assert "┃" in said.out and "○ as forecast" in said.out and "\x1b" not in said.out
    [group] = json.loads(seatrial(*run, "--json").out)["groups"]
    assert 0.1 < group["forecast_ratio"] < 2


def test_a_torn_line_of_a_logbook_is_named_by_file_and_line_and_not_as_an_object(seatrial, tmp_path):
    seatrial("sweep", stub_file(tmp_path), "--logbook", tmp_path / "book")
    [segment] = (tmp_path / "book" / "segments").iterdir()
    with segment.open("a") as file:
        file.write('{"record_id": "torn\n')
    said = seatrial("table", tmp_path / "book")
    assert said.status == 1 and "Problem(" not in said.err and said.err.startswith(f"{segment}:2: ")
