# Everything from a fresh clone: `make demo`, `make test`, `make test-all`, `make docs`, `make bench`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
ARENA := build/arena

# The folder with your copy of the Yale faces (yale_uncropped.csv): without it `make gallery` leaves
# that picture as it is, and the paper's table and figures do without them.
FACES ?=

# The part of the tests that runs on every Python, and with the lowest versions of what we need.
CORE_TESTS := tests/estimator/test_estimator.py tests/estimator/test_sklearn_checks.py tests/estimator/test_sparse.py \
  tests/plots tests/tables tests/storage tests/anndata tests/cli/test_fit.py \
  tests/cli/test_predict.py tests/cli/test_demo.py tests/report/test_content.py tests/jobs/test_job.py tests/hardening/test_jobs.py \
  tests/estimator/test_golden.py tests/hardening/test_threads_and_forks.py
PY ?= 3.11

.PHONY: demo test test-all test-python test-pythons test-lowest lint docs gallery tour dist bench bench-peers bench-arena \
  paper-table paper-figures judge clean

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plot]'
	touch $@

# With an extra: test, docs or paper.
$(VENV)/installed-%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $(VENV)/installed $@

# Cluster a built-in data set and write labels, memberships, embedding and a picture.
demo: $(VENV)/installed
	$(BIN)/sgpmic demo --out demo-output --force

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --durations=25 --max-worker-restart=0

# What to run before every commit, minutes on two cores.
test: $(VENV)/installed-test lint
	$(PYTEST) -m 'not slow'

# All that `make test` leaves out, with programs compiled as users have them.
# SLOW names some of them, by file or folder.
SLOW ?=
test-all: $(VENV)/installed-test
	JAX_DISABLE_MOST_OPTIMIZATIONS=false $(PYTEST) -m slow $(SLOW)

# The core tests on another Python: make test-python PY=3.13 (python3.13 must be on the path).
test-python:
	python$(PY) -m venv build/python-$(PY)
	build/python-$(PY)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test-core]'
	build/python-$(PY)/bin/python -m pytest --durations=5 $(CORE_TESTS)

test-pythons:
	for version in 3.11 3.12 3.13 3.14; do $(MAKE) test-python PY=$$version || exit 1; done

# The core tests with the lowest version of everything that pyproject.toml asks for.
test-lowest:
	python3.11 -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check -c tests/lowest.txt -e '.[test-core]'
	build/lowest/bin/python -m pytest --durations=5 $(CORE_TESTS)

# Wheel and sdist, in dist/; the wheel is made from the sdist, so that both are complete.
dist:
	test -x build/dist-tools/bin/python || $(PYTHON) -m venv build/dist-tools
	build/dist-tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	build/dist-tools/bin/python -m build --outdir dist .
	build/dist-tools/bin/python -m twine check --strict dist/*

# The documentation as a site: open site/index.html.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# The pictures of the gallery, from the scripts in examples/; docs/gallery/million.md says how long
# the largest takes.
gallery: $(VENV)/installed-test
	$(BIN)/python examples/make_gallery.py $(if $(FACES),--faces $(FACES))

# The tour of the README, recorded from a real run; needs Chromium and chromedriver.
tour: $(VENV)/installed-test
	$(BIN)/python examples/make_tour.py

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

# How good the clusters are (docs/quality.md): hours on one core. It resumes where it stopped, and
# each environment runs the methods that it has.
bench-arena: $(VENV)/installed-test $(PEERS)/installed
	$(BIN)/python benchmarks/arena.py --export $(ARENA)
	$(BIN)/python benchmarks/arena.py --folder $(ARENA)
	$(PEERS)/bin/python benchmarks/arena.py --folder $(ARENA)
	$(BIN)/python benchmarks/arena.py --plot docs/images/ranks.svg
	$(BIN)/python benchmarks/pages.py

# The paper's table and figures, hours; paper/README.md explains them. Both resume where they stopped.
paper-table: $(VENV)/installed-paper
	$(BIN)/python -m paper table $(if $(FACES),--folder $(FACES))

paper-figures: $(VENV)/installed-paper
	$(BIN)/python -m paper figures $(if $(FACES),--folder $(FACES))

# The networks of the committee (docs/judge.md), from nothing: about half an hour on sixteen cores.
judge: $(VENV)/installed-test
	cd benchmarks && JAX_PLATFORMS=cpu PYTHONPATH=. ../$(BIN)/python -m judge --folder ../build/judge

clean:
	rm -rf $(VENV) $(PEERS) build/python-* build/lowest build/dist-tools dist demo-output site .mypy_cache .ruff_cache .pytest_cache .hypothesis
