# Everything from a fresh clone: `make demo`, `make test`, `make docs`, `make bench`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
ARENA := build/arena


# Where your copy of the Yale faces is, for `make gallery`; without it that picture stays as it is.
FACES ?=

.PHONY: demo test lint docs gallery bench bench-peers bench-arena clean

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plot]'
	touch $@

$(VENV)/installed-test: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $(VENV)/installed $@

$(VENV)/installed-docs: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $(VENV)/installed $@

# Cluster a built-in data set and write labels, memberships, embedding and a picture.
demo: $(VENV)/installed
	$(BIN)/sgpmic demo --out demo-output --force

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The longest first, so that both cores end together.
test: $(VENV)/installed-test lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=25 --max-worker-restart=0 \
	  tests/parallel tests/cli tests/estimator tests

# The documentation as a site: open site/index.html.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# The pictures of the gallery, from the scripts in examples/; docs/gallery/million.md says how long
# the largest takes.
gallery: $(VENV)/installed-test
	$(BIN)/python examples/make_gallery.py $(if $(FACES),--faces $(FACES))

# Our own benchmarks, some six minutes; docs/performance.md explains them.
bench: $(VENV)/installed-test
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/fit_time.py
	$(BIN)/python benchmarks/processes.py --out benchmarks/results/processes.csv
	$(BIN)/python benchmarks/draw.py

# The libraries we compare with have an environment of their own; nothing else needs it.
$(PEERS)/installed: benchmarks/peers-requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --extra-index-url https://download.pytorch.org/whl/cpu -r $<
	touch $@

bench-peers: $(VENV)/installed-test $(PEERS)/installed
	$(BIN)/python benchmarks/peers.py --python $(PEERS)/bin/python
	$(BIN)/python benchmarks/end_to_end.py --peers $(PEERS)/bin/python

# How good the clusters are (docs/quality.md): hours on one core. It resumes where it stopped, and
# each environment runs the methods that it has.
bench-arena: $(VENV)/installed-test $(PEERS)/installed
	$(BIN)/python benchmarks/arena.py --export $(ARENA)
	$(BIN)/python benchmarks/arena.py --folder $(ARENA)
	$(PEERS)/bin/python benchmarks/arena.py --folder $(ARENA)
	$(BIN)/python benchmarks/arena.py --page docs/quality.md --plot docs/images/ranks.svg

clean:
	rm -rf $(VENV) $(PEERS) demo-output site .mypy_cache .ruff_cache .pytest_cache .hypothesis
