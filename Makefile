# Two commands for a fresh machine with Python 3.11 or newer:
#   make demo    make a virtual environment, install, evaluate four memory systems on a made-up lifelog
#   make test    the same, then lint, types and all tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Three processes test at once, a file each, in the order that tests/conftest.py says: also on two cores, for many tests
# wait. Tests start a thousand processes of ours: what Python compiles is kept also where the environment says otherwise,
# as in containers.
.PHONY: demo test check bench clean kafka kafka3 kafka-stop
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/egostream demo

test: $(VENV)/.installed-dev demo check
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	for bench in benchmarks/bench_*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

# Real brokers for development, without Docker (needs Java 17 and Maven): see dev/kafka/cluster.py.
kafka:
	$(PYTHON) dev/kafka/cluster.py start

kafka3:
	$(PYTHON) dev/kafka/cluster.py start --name dev3 --brokers 3

kafka-stop:
	$(PYTHON) dev/kafka/cluster.py stop --all

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "egostream needs Python 3.11 or newer; name one with make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) demo-run
