# Two commands on a machine with only python3 (3.11 or newer) and make:  make run,  make test.
# Each builds its own .venv first; pyproject.toml is the one list of what goes in.

PYTHON ?= python3
PY := .venv/bin/python
# Strict: every printed output is compared. The time-out also ends a cell whose kernel has died.
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=120
# Extra words for the command, e.g.  make run ARGS="--seed 2"  or  make test ARGS="-k loss"
ARGS ?=

.PHONY: run test lab clean
.DELETE_ON_ERROR:

run:
	@start=$$(date +%s); $(MAKE) --no-print-directory .venv/.ready && \
	echo "set-up: $$(( $$(date +%s) - start )) s"
	@start=$$(date +%s); $(PY) -m grpo_lib run $(ARGS) && \
	echo "training, evaluation, report: $$(( $$(date +%s) - start )) s"

test: .venv/.ready
	$(PY) -m pytest tests notebooks $(NBVAL) -q --durations=8 $(ARGS)

lab: .venv/.ready
	$(PY) -m jupyterlab notebooks

# Leaves runs/ alone: what lies there may have taken you hours.
clean:
	rm -rf .venv .pytest_cache .hypothesis build *.egg-info
	find grpo_lib tests notebooks benchmarks \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# torch first and apart: it is by far the largest, and a broken download need not repeat the rest.
.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install -q torch==2.13.0
	$(PY) -m pip install -q -e '.[notebooks,test,real]'
	@touch $@
