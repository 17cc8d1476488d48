# Targets that a person or CI calls. `make run` needs no torch; `make test` installs the CPU build.
#
#   make run       backtest of the shipped H200 traces: a table and a picture, in a new environment
#   make test      every test (what CI runs)
#   make lint      ruff and mypy --strict
#   make prove     the solver proofs, and the kernel broken on purpose to see them notice
#   make deep      the properties with 100,000 examples each (hours)
#   make fuzz      mutated files, odd commands, killed processes and ranks at odds: some minutes
#   make bench     speed and accuracy, figures as JSON in benchmarks/results/
#   make demo      waves planned, run and measured on a tiny decoder, on the CPU
#   make figures   the pictures in docs/
#   make test-art  the tests against OpenPipe ART's own TrainerRank, in an environment of its own
#   make test-trainers  the tests against TRL's trainers, in an environment of their own (`BIN=DIR` as below)
#   make clean     remove what the targets above made
#
# `make test BIN=DIR` uses the programs of an environment that is already there.

PYTHON ?= python3
TEST_BIN := .venv/test/bin
RUN_BIN := .venv/run/bin
BIN ?= $(TEST_BIN)
ENVIRONMENT := $(if $(filter $(TEST_BIN),$(BIN)),.venv/test/.installed)
PIP_FLAGS := -qq --disable-pip-version-check -c constraints.txt
TRACES := $(sort $(wildcard spec/evidence/h200/*.jsonl))
FOOTPRINT_TRACES := spec/evidence/h200-physical/dense-23.jsonl spec/evidence/h200-physical/moe-21.jsonl

.PHONY: run test lint prove deep fuzz bench demo figures test-art test-trainers clean

run:
	rm -rf .venv/run
	$(PYTHON) -m venv .venv/run
	$(RUN_BIN)/pip install $(PIP_FLAGS) '.[cli,plot]'
	mkdir -p out
	$(RUN_BIN)/pricing backtest $(TRACES) $(FOOTPRINT_TRACES) --skip 3 --plot out/backtest.png

test: $(ENVIRONMENT)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(ENVIRONMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

deep: $(ENVIRONMENT)
	HYPOTHESIS_PROFILE=deep PRICING_STRATEGIES=seeded $(BIN)/python -m pytest tests/properties -o timeout=0
	HYPOTHESIS_PROFILE=deep OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/adapters/trainer_rank/test_full_fine_tuning.py -o timeout=0
	$(BIN)/python -m tests.adapters.torch_memory.fragmenting --output spec/evidence/fragmenting.json
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.adapters.trainer_rank.identity_pairs --models 600 --seed 28 --output spec/evidence/identity-pairs.json
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.adapters.trainer_rank.identity_table --output spec/evidence/identity-table.json

fuzz: $(ENVIRONMENT)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --output spec/evidence/fuzz.json

prove: $(ENVIRONMENT)
	$(BIN)/python -m proofs
	$(BIN)/python -m proofs.breaks

bench: $(ENVIRONMENT)
	mkdir -p benchmarks/results
	$(BIN)/pricing backtest $(TRACES) $(FOOTPRINT_TRACES) --skip 3 --json > benchmarks/results/backtest.json
	$(BIN)/pricing backtest $(TRACES) $(FOOTPRINT_TRACES) --skip 3 --order descending --json > benchmarks/results/backtest-descending.json
	$(BIN)/python -m benchmarks.price --output benchmarks/results/price.json
	$(BIN)/python -m benchmarks.plan --output benchmarks/results/plan.json
	$(BIN)/python -m benchmarks.frontier_price --output benchmarks/results/frontier_price.json
	$(BIN)/python -m benchmarks.frontier_oracle --output benchmarks/results/frontier_oracle.json
	$(BIN)/python -m spec.frontier_figures
	$(BIN)/python -m spec.footprint_figures

demo: $(ENVIRONMENT)
	$(BIN)/python -m adapters.trainer_rank.demo

figures: $(ENVIRONMENT)
	mkdir -p docs out
	$(BIN)/pricing backtest $(TRACES) $(FOOTPRINT_TRACES) --skip 3 --plot docs/backtest.png
	$(BIN)/pricing learn spec/evidence/h200/dense-1.jsonl -o out/profile.json
	$(BIN)/pricing plan examples/rollouts.jsonl --profile out/profile.json --budget 12GiB --plot docs/plan.png || [ $$? = 1 ]  # two items are refused

test-art:
	ART_PYTHON=$(PYTHON) sh tests/art/run.sh

TRAINERS_BIN := .venv/trainers/bin

test-trainers: $(if $(filter $(TEST_BIN),$(BIN)),.venv/trainers/.installed)
	OMP_NUM_THREADS=1 $(if $(filter $(TEST_BIN),$(BIN)),$(TRAINERS_BIN),$(BIN))/python -m pytest tests/trainers tests/adapters/hf_trainer

.venv/trainers/.installed: pyproject.toml constraints.txt
	rm -rf .venv/trainers
	$(PYTHON) -m venv .venv/trainers
	$(TRAINERS_BIN)/pip install $(PIP_FLAGS) -e '.[test,trl]'
	touch $@

.venv/test/.installed: pyproject.toml constraints.txt
	@echo "Installing the test environment into .venv/test, once: PyTorch for the CPU, transformers, peft, solvers, test tools"
	rm -rf .venv/test
	$(PYTHON) -m venv .venv/test
	$(TEST_BIN)/pip install $(PIP_FLAGS) -e '.[test]'
	touch $@

clean:
	rm -rf .venv out build *.egg-info .mypy_cache .ruff_cache .hypothesis
