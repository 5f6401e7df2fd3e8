# make run: four methods on the same clients, on embedded data. make test: lint, types and all tests. Each does the set-up it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run package package-extras test test-fast test-faults test-matrix test-edge test-flower test-flower-faults test-docs audit lint docs setup clean

run: $(VENV)/runtime
	@echo "Four methods on the same ten clients and embedded digits, ten rounds each: accuracy on all digits (personal)"
	@echo "and on each client's own mix of them (own), and the bytes of all clients. It takes about half a minute."
	$(BIN)/refprotofl compare --preset quick --set rounds=10 --seeds 0 \
		--methods 'RefProtoFL = refprotofl, local, FedAvg = fedavg:share=full, thin' \
		--columns personal,own,uplink,downlink,total --out runs/first

# The wheel and the source distribution, installed from the artefact into an empty environment and tried there.
package: $(VENV)/bin/python
	$(PIP) 'build>=1.2,<2'
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tools/try_package.py dist

# Each extra alone, from the wheel, in an environment of its own; takes many minutes and downloads.
package-extras: package
	$(BIN)/python tools/try_package.py dist --extras

setup: $(VENV)/tests

test: setup lint
	$(BIN)/pytest --numprocesses=2

# Units and pinned digests: what to run after every change. Under a minute on two cores.
UNITS := $(addprefix tests/,api core data evaluation experiment methods models pins privacy reference wire)
test-fast: setup
	$(BIN)/pytest --numprocesses=2 -m "not slow" $(UNITS)

# Every case of what test tries a part of: hostile answers, kills, power cuts, full disks, long runs; and the property
# tests on random cases. Takes long.
test-faults: setup
	-$(PIP) 'atheris>=3,<4'  # a fuzzer that not every system has; without it its tests are skipped
	REFPROTOFL_FAULTS=full $(BIN)/pytest --numprocesses=2 tests/faults \
		tests/records/test_crash_points.py tests/records/test_power_cuts.py tests/records/test_full_disk.py
	REFPROTOFL_FAULTS=full $(BIN)/pytest --numprocesses=2 -m hypothesis  # all properties, on new random cases each time

# Every method under every engine, fault and way of training, of which test tries one for each method, another one at each commit.
test-matrix: setup
	REFPROTOFL_MATRIX=all $(BIN)/pytest --numprocesses=2 tests/matrix

# The shell and Python blocks of README and docs, and the notebook, as a reader would run them. Two minutes on two cores.
test-docs: setup
	$(BIN)/pytest --numprocesses=2 tools/docs_blocks.py

# Known holes in what we install; asks the package index, so it needs a network.
audit: setup
	$(PIP) 'pip-audit>=2.10,<3'
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

# Deployments over MQTT with a real broker: needs mosquitto (apt install mosquitto), without which it says so and skips.
test-edge: setup
	$(BIN)/pytest --numprocesses=2 tests/edge tests/mqtt

# What needs flwr and Ray, which nothing else installs: the same run under Flower, in simulation and on nodes.
test-flower: $(VENV)/flower
	$(BIN)/pytest --numprocesses=2 tests/flower tests/transports

# With real processes killed, cut off and kept out; takes many minutes.
test-flower-faults: $(VENV)/flower
	REFPROTOFL_FAULTS=full $(BIN)/pytest tests/flower/test_real_faults.py

# The documentation as a site, in build/site; warnings are errors. Building and reading it needs no network.
docs: $(VENV)/docs
	$(BIN)/python tools/site.py build/site-source
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/runtime: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/tests: $(VENV)/runtime
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/docs: $(VENV)/runtime
	$(PIP) --editable '.[docs]'
	touch $@

$(VENV)/flower: $(VENV)/tests
	$(PIP) --editable '.[test,flower]' 'flwr[simulation]>=1.41,<1.42'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
