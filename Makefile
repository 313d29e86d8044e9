# Two commands do everything on a fresh machine: `make demo` and `make test`. Both make the .venv they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TORCH  := $(shell sed -n 's/^torch==//p' constraints.txt)

# What measures seconds, links or cores, or starts a scheduler: one after the other, with nothing beside it.
ALONE := tests/slurm tests/browser/test_page.py $(patsubst %,tests/dist/test_%.py,launch_local network probe_ranks run_command \
         slow_disk sweep_real sweep_stub trials tune_real)

# Ranks of the distributed tests are processes: one thread each, or they fight over the cores.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-fast test-full lint docs venv dist clean system engines
.DEFAULT_GOAL := demo

demo: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo
	@echo "The command is $(BIN)/seatrial; source $(BIN)/activate puts it on the path."

# Two files at a time, since worlds of ranks often wait: for each other, for a limit, for one process that they are compared with.
test: $(STAMP) system lint
	-$(MAKE) --no-print-directory engines
	$(BIN)/pytest -n 2 --dist loadfile tests $(ALONE:%=--ignore=%)
	$(BIN)/pytest $(ALONE)

test-fast: $(STAMP)
	$(BIN)/pytest -q -n 2 tests/unit

test-full: $(STAMP) system lint
	$(BIN)/pytest -n 2 --run-slow tests/unit tests/cli
	$(BIN)/pytest --run-slow tests --ignore=tests/unit --ignore=tests/cli

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks docs/conf.py scripts/docs_tools scripts/docs-output
	$(BIN)/mypy

# Warnings are errors: a dead link, a page that nothing leads to. All is read anew: tables come from the code.
docs: $(STAMP)
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html -c docs -d site/.doctrees . site
	@echo "site/index.html"

# Engines that are not ours, each in an environment of its own: `make engines`, `make engines ENGINES=torchtitan`. They have the
# torch of .venv and all else that is there, by a path; what they need beside it is theirs. Tests of those that are not there are
# skipped with a line, so CI goes on where the index does not answer.
ENGINES ?= torchtitan deepspeed megatron-core
engine-torchtitan := torchtitan==0.2.2 triton
engine-deepspeed := deepspeed==0.19.8 ninja
engine-megatron-core := megatron-core==0.16.1 einops
engine-megatron-lm := triton pybind11 einops six regex
engine-accelerate := accelerate==1.15.0 transformers==5.22.2

engines: $(ENGINES:%=.engines/%/.installed)

.engines/%/.installed: $(STAMP)
	$(if $(engine-$*),,$(error ENGINES=$*: torchtitan, deepspeed, megatron-core, accelerate, and what a checkout of megatron-lm needs, are those that the index has))
	$(BIN)/python -m venv --without-pip .engines/$*
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > .engines/$*/shared
	mv .engines/$*/shared "$$(.engines/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
	$(BIN)/python -m pip --python .engines/$*/bin/python install --quiet --no-compile --disable-pip-version-check \
		$(engine-$*) || { rm -rf .engines/$*; exit 1; }  # half of one would look like one
	touch $@

system:
	scripts/system-packages

venv: $(STAMP)

# torch goes first and by its pin alone, so that nothing later can pull another one.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"seatrial needs Python 3.11 or newer and $(PYTHON) is {v[0]}.{v[1]}: say make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "torch $(TORCH) goes into $(VENV): once, a few hundred megabytes, some minutes without a word"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==$(TORCH)"
	@echo "and seatrial with what its tests and documentation need"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# The wheel is made from the source archive, so that both are known to be whole; with the pinned tools, so it needs no network.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	@ls -l dist

clean:
	rm -rf dist build demo-out site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
