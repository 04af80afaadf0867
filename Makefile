# `make demo` and `make test` need Python 3.11+ and nothing else; everything is installed into .venv from locked versions.
PYTHON ?= python3
RUN := .venv/bin/python
BOOTSTRAP ?=
FLIGHTS ?=
SEED ?=

.PHONY: setup demo test lint bench compare soak lock clean

setup:
	@$(PYTHON) scripts/set_up.py

demo: setup
	@$(RUN) -m demo $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP)) $(if $(FLIGHTS),--flights $(FLIGHTS))

test: setup
	$(RUN) -m pytest

lint: setup
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

bench: setup
	$(RUN) -m benchmarks

compare: setup
	FENCEPOST_SEED=$(SEED) $(RUN) -m pytest -m compare

soak: setup
	FENCEPOST_SEED=$(SEED) $(RUN) -m pytest -m soak

# Written anew only when pyproject.toml changes; needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --extra test pyproject.toml -o requirements/lock.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  requirements/build.in -o requirements/build.txt

clean:
	rm -rf .venv .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
