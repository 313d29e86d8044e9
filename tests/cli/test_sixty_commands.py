"""Sixty commands as a reader of README, the tour and the how-to pages types them, in one folder and in their order; each ends
and prints as its page says. What a page shows in a block with its output is run by `test_docs_commands.py`, and is not here:
these are the ones that pages name in a sentence, or show with another of their options.
"""
from __future__ import annotations

import json
import shlex
import shutil

import pytest

from docs_tools import pages

README, TOUR = "README.md", "docs/tour.md"
CLUSTER, LOGS, MEMORY, MODEL, SCHEDULER, WHATIF = (f"docs/howto/{name}.md" for name in (
    "cluster", "logs", "memory", "model", "scheduler", "whatif"))
BLOOM = "--model bloom-181b --cluster jz-a100 --gbs 2048"
PICK = f"{BLOOM} --dp 8 --tp 4 --pp 12 --mbs 2 --zero 1 --recompute full"
FIXED = f"{BLOOM} --zero 1 --recompute full --schedule 1f1b --vp 1"

STEPS: list[tuple[str, str, int, tuple[str, ...]]] = [
    # README: "Every command has --help, most have --json; the exit status is 0 for good, 1 for findings, 2 for bad input"
    (README, "--help", 0, ("Look ahead:", "plan", "Exit status: 0 good, 1 findings, 2 bad input, 3 any other outcome.")),
    (README, "lint examples/rows.csv --level error --json", 1, ('"clock-unit"', '"ms-not-s"')),
    (README, f"plan {FIXED} --nodes 48 --rule 'dp % 4 == 0' --top 3 --json", 0,
     ('"considered": 1188', '"tp": 4', '"sec_per_it": 111.1')),
    (README, "plan --model bloom-181b", 2, ("--cluster or --machine must be given",)),
    (README, f"plan {FIXED} --calibrate examples/rows.csv --top 3", 0, ("Learned from", "s measured", "111.71")),
    (README, "shape --model bloom-181b --cluster jz-a100 --tp 4", 0, ("GEMM", "logits", "What stands out")),
    (README, f"plan {FIXED} --engine megatron-core --top 1", 0, ("Engine megatron-core",)),
    (README, "plan --model llama3-8b --cluster dgx-h100 --nodes 4 --gbs 256 --engine fsdp2 --top 1", 0, ("Engine fsdp2",)),
    (README, "plan --model llama3-8b --cluster dgx-h100 --nodes 4 --gbs 256 --engine torchtitan --top 1", 0, ("Engine fsdp2",)),
    (README, "plan --model llama3-8b --cluster dgx-h100 --nodes 4 --gbs 256 --engine fsdp1 --top 1", 0, ("Engine fsdp1",)),
    (README, "plan --model gpt-1.3b --cluster dgx-a100 --nodes 2 --gbs 256 --engine deepspeed --top 1", 0,
     ("Engine deepspeed",)),
    (README, "sweep examples/first-sweep.toml --launcher slurm --dry-run", 0, ("case=mixed", "sbatch --parsable")),
    (README, "sweep examples/first-sweep.toml --launcher pjm --dry-run", 0, ("case=mixed", "pjsub ")),
    # tour
    (TOUR, "", 0, ("Look ahead:", "Where to start:")),
    (TOUR, "completion bash", 0, ("seatrial", "complete")),
    (TOUR, "completion zsh", 0, ("compdef",)),
    (TOUR, "completion fish", 0, ("complete",)),
    (TOUR, "doctor --no-train", 0, ("ok    torch", "cores", "memory", "network", "scheduler", "clock", "engines")),
    (TOUR, f"explain {PICK} --json", 0, ('"bubble"', '"sec_per_it": 114.2')),
    (TOUR, f"explain {PICK} --svg pipeline.svg", 0, ("114.23 s per iteration", "What to change")),
    # my logs
    (LOGS, "lint notes.md --corrected fixed.csv", 1, ("world-size", "swap-twin", "2 errors")),
    (LOGS, "lint fixed.csv", 0, ("0 errors",)),
    (LOGS, "import notes.md examples/rows.csv --logbook notes", 0, ("185 records", "185 are new")),
    (LOGS, "import notes.md examples/rows.csv --logbook notes", 0, ("185 records", "0 are new")),
    (LOGS, "table notes", 0, ("Scaling test, 13B", "27.92", "Bold: the fastest of this table.")),
    (LOGS, "report notes -o page.html", 0, ("page.html: 185 records",)),
    (LOGS, "forecast --defaults", 0, ("zero", "recompute", "engine")),
    (LOGS, "forecast examples/rows.csv --cluster jz-a100 -o forecast.csv", 0, ()),
    (LOGS, "calibrate examples/rows.csv --cluster jz-a100 -o calibration.json", 0, ("85 rows",)),
    (LOGS, f"explain {PICK} --calibrate calibration.json --top 0", 0, ("Engine megatron-deepspeed",)),
    (LOGS, f"explain {PICK} --calibrate examples/rows.csv --json", 0, ('"sec_per_it": 11',)),
    # the tour's table, on the rows of the logs
    (TOUR, "table notes --wide", 0, ("| Nodes |", "27.92")),
    (TOUR, "table notes --format csv", 0, ("sec_per_it", "27.92")),
    (TOUR, "table notes --format json", 0, ('"sec_per_it": 27.92',)),
    (TOUR, "table notes --where 'tp == 4 and sec_per_it < 30 and nodes == 8' --sort -tflops --top 1 --columns tp,tflops",
     0, ("TFLOPs", "|   4 |")),
    (TOUR, "table notes --where 'tpp == 4'", 2, ("did you mean 'tp'?",)),
    # my cluster
    (CLUSTER, "presets", 0, ("models", "clusters", "jz-a100", "llama3-8b")),
    (CLUSTER, "presets jz-a100", 0, ("A100", "source")),
    (CLUSTER, "plan --cluster ours.toml --model llama3-8b --gbs 512 --rule 'dp % 4 == 0' --rule 'tp <= 8' --top 1", 0,
     ("llama3-8b on ours: 16 nodes x 4 = 64 devices", "rule: dp % 4 == 0")),
    (CLUSTER, "plan --cluster other.toml --model gpt-1.3b --gbs 256 --top 1", 0,
     ("gpt-1.3b on other: 4 nodes x 8 = 32 devices",)),
    (CLUSTER, "explain --cluster ours.toml --model llama3-8b --gbs 512 --tp 2 --pp 1 --mbs 1 --zero 1", 0,
     ("llama3-8b on ours: DP 32 x TP 2 x PP 1 = 64 devices",)),
    # my model: "Every command takes the file where it takes a name"
    (MODEL, "explain --model ours-13b.toml --cluster dgx-h100 --nodes 4 --gbs 512 --tp 2 --pp 2 --mbs 1", 0,
     ("ours-13b on dgx-h100: DP 8 x TP 2 x PP 2 = 32 devices",)),
    (MODEL, "rehearse --model ours-13b.toml --tp 8 --gbs 8 --memory-only --json", 0,
     ('"kind": "rehearsed"', '"model": "ours-13b"')),
    (MODEL, "tune --model ours-13b.toml --gbs 512 --set repeats=2", 2, ("has no effect on a search",)),
    (MODEL, "plan --cluster dgx-h100 --nodes 4 --gbs 512 --size 13B --recompute none --zero 1 --schedule 1f1b --vp 1"
     " --tp 1 --top 1", 0, ("shapes on dgx-h100", "s at size")),
    (MODEL, "convert import nowhere start/checkpoints", 2, ("nowhere",)),
    # what if
    (WHATIF, f"plan {FIXED} --engine ours-engine.toml --top 1", 0, ("Engine ",)),
    (WHATIF, f"plan {FIXED} --attention fused --top 1", 0, ("attention fused",)),
    (WHATIF, f"explain {PICK} --headroom 4GiB", 0, ("of 73.0 on the fullest device",)),
    (WHATIF, f"plan {FIXED} --headroom 5% --top 1", 0, ("GiB of 73.",)),
    (WHATIF, "import examples/tcmalloc/corrected.csv --logbook allocators", 0, ("14 records", "14 are new")),
    (WHATIF, "compare --logbook allocators --a env.LD_PRELOAD= --b env.LD_PRELOAD=libtcmalloc.so --json", 0,
     ('"verdict": "b is faster"', '"ratio": 0.61')),
    (WHATIF, "compare --logbook allocators --a nodes=1 --b nodes=2", 0, ("also differ in dp (1 and 2)",)),
    # my scheduler
    (SCHEDULER, "sweep partitions.toml --launcher slurm --config config.toml --dry-run", 0,
     ("environment.scheduler=old nodes", "--constraint=a100", "--account=abc", "module load cuda/12.4", "fits with")),
    (SCHEDULER, "sweep clocks.toml --launcher pjm --dry-run", 0, ("-L freq=2000", "forecast ")),
    (SCHEDULER, "sweep theirs.toml --dry-run --json", 0, ('"argv": ["torchrun", "--nnodes", "1"',)),
    (SCHEDULER, "sweep theirs.toml --dry-run --set 'command.argv=[\"x\", \"{tpp}\"]'", 2,
     ("no such word 'tpp'; did you mean 'tp'?",)),
    (SCHEDULER, "plan --model llama3-8b --cluster dgx-h100 --nodes 32 --gbs 1024 --emit megatron -o llama", 0,
     ("Engine megatron-core", "wrote llama/megatron-lm.args", "wrote llama/train.slurm")),
    (SCHEDULER, "plan --model gpt-30b --cluster dgx-a100 --nodes 8 --gbs 512 --zero 1 --emit megatron --config config.toml"
     " -o with-mine", 0, ("wrote with-mine/train.slurm",)),
    # why did it run out of memory
    (MEMORY, f"explain {BLOOM} --dp 4 --tp 8 --pp 12 --mbs 4 --zero 1 --recompute selective", 1,
     ("it would run out", "recompute selective -> full: fits with over 99%")),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A fresh checkout as a reader has it, with the files that pages give."""
    shutil.copytree(pages.ROOT / "examples", tmp_path / "examples")
    for name in dict.fromkeys(page for page, *_ in STEPS):
        for block in pages.read(pages.ROOT / name).blocks:
            if "file" in block.asks:
                (tmp_path / block.asks["file"]).write_text(block.text + "\n", encoding="utf-8")
            elif block.language == "toml" and 'base = "megatron-core"' in block.text:
                (tmp_path / "ours-engine.toml").write_text(block.text + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / ".home"))
    monkeypatch.setenv("COLUMNS", "110")
    return tmp_path


def test_there_are_sixty():
    assert len(STEPS) == 60


def test_each_prints_what_its_page_says(seatrial, folder):
    wrong = []
    for page, text, status, words in STEPS:
        said = seatrial(*shlex.split(text))
        missing = [word for word in words if word not in said.out + said.err]
        if said.status != status or missing or "Traceback" in said.err:
            wrong.append(f"{page}: $ seatrial {text}\nended with {said.status}, not {status}; not there: {missing}\n"
                         f"{(said.out + said.err)[-1500:]}")
        if "--json" in text:
            json.loads(said.out)
    assert not wrong, "\n\n".join(wrong)
    assert (folder / "pipeline.svg").read_text().startswith("<svg") and "<html" in (folder / "page.html").read_text()[:500]
    assert "#SBATCH --account=abc" in (folder / "with-mine/train.slurm").read_text()
    assert "    --tensor-model-parallel-size " in (folder / "llama/train.slurm").read_text()
    assert len((folder / "forecast.csv").read_text().splitlines()) == 181
