# `make demo` and `make test` need Python 3.11+ and nothing else; everything is installed into .venv from locked versions.
PYTHON ?= python3
RUN := .venv/bin/python
BOOTSTRAP ?=
FLIGHTS ?=
SEED ?=
HOURS ?= 1

.PHONY: setup demo test lint bench compare soak pages docs lock clean

setup:
	@$(PYTHON) scripts/set_up.py

demo: setup
	@$(RUN) -m demo $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP)) $(if $(FLIGHTS),--flights $(FLIGHTS))

# One process more than cores, up to four: some tests wait for a killed process, a disk, or Java.
test: setup
	$(RUN) -m pytest --numprocesses $$($(RUN) -c 'import os; print(min(4, os.cpu_count() + 1))') --dist loadfile --no-loadscope-reorder

lint: setup
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

bench: setup
	$(RUN) -m benchmarks

compare: setup
	FENCEPOST_SEED=$(SEED) $(RUN) -m pytest -m compare

# New simulated seeds on all cores for HOURS, failures kept in build/soak/failures, then the long tests on all cores.
soak: setup
	@$(RUN) scripts/soak.py --hours $(HOURS); found=$$?; [ $$found -le 1 ] || exit $$found; \
	  FENCEPOST_SEED=$(SEED) $(RUN) -m pytest --numprocesses auto --dist worksteal -m soak && exit $$found

# The generated pages in docs/, from the code and the tests.
pages: setup
	@for page in scripts/*_page.py scripts/*_reference.py; do $(RUN) $$page || exit 1; done

# The site in build/site, from the pages in docs/ and the docstrings; a link that leads nowhere is an error.
docs:
	@$(PYTHON) scripts/set_up.py docs
	.venv-docs/bin/python -m sphinx --quiet --fresh-env --fail-on-warning docs build/site
	@echo "wrote build/site/index.html"

# Written anew only when pyproject.toml changes; needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --extra test pyproject.toml -o requirements/lock.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  requirements/build.in -o requirements/build.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --extra docs pyproject.toml -o requirements/docs.txt

clean:
	rm -rf .venv .venv-docs build .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
