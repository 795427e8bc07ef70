# Every target sets up what it needs. `make` alone lists them.

PYTHON ?= python3.11
PYTEST_ARGS ?=
SLOW_ARGS ?=
# Each file goes to one of two processes: a compilation of MindSpore keeps one core busy and no more.
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder
STACK_ARGS ?=
# "stack and not slow" leaves out what takes minutes: an image that is built, a hundred kills.
STACK_MARKS ?= stack
ASCEND_ARGS ?=
MSPROBE_ARGS ?=
ZOO_ARGS ?=
# Which eighth of the zoo is run, and which faults strike: a number. Two processes must not disagree at midnight.
ZOO_SEED ?= $(shell date +%Y%m%d)
WHEEL_TEST_ARGS ?= -m "not slow and not stack"
# What shows that a wheel has all its parts; how they work is no matter of packaging. tests/test_layout.py compares the
# files one by one; the others run what is found beside the source: commands, rules of alerts, the style of a report,
# what enables itself.
WHEEL_TESTS := tests/test_layout.py tests/asd/cli tests/asd/test_sinks.py tests/exporters/test_dashboard_file.py \
	tests/exporters/report tests/e2e/test_run.py tests/e2e/test_demo.py \
	tests/operators/start/test_enable.py
# What meets MindSpore: all else is the same with every version of it.
TESTS_2.10 := tests/operators tests/e2e/test_run.py tests/e2e/test_replay.py
# Of these what hangs on MindSpore's private names and on how it compiles.
QUICK_2.10 := $(addprefix tests/operators/,gate monitor private sensors) tests/e2e/test_run.py
TEST_2.10_ARGS ?= -m "not slow and not stack"
DEMO_ARGS ?=
COST_ARGS ?=
WALK_ARGS ?=
# What `make test-changed` compares with.
BASE ?= HEAD
MUTATION_ARGS ?= --share 0.3

# What needs no MindSpore is tested on every Python that the package is for; MindSpore itself on the one of .venv.
PYTHONS ?= 3.10 3.12
CORE_TESTS := tests/asd tests/exporters
CORE_ARGS ?= -m "not slow and not stack and not zoo"
VENV := .venv
VENV_2.10 := .venv-2.10
VENV_MSPROBE := .venv-msprobe
BIN := $(VENV)/bin
PIP := -m pip --disable-pip-version-check --quiet --quiet
# What is copied into an environment, also by an editable install.
BUILD_INPUTS := pyproject.toml setup.py $(wildcard asd/bootstrap/mindspore_asd*)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-bench test-changed test-release test-slow test-slow-jobs test-slow-rooms test-thorough test-stack test-ascend test-zoo test-zoo-eighth test-2.10 test-2.10-quick test-msprobe test-core wheel-test wheels examples release chart image docs detection cost walk size mutation lint format types layers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

venv: $(VENV)/.stamp ## make the environment alone, in .venv

demo: venv ## the main job: train, corrupt a gradient, catch it (DEMO_ARGS=...)
	@$(BIN)/asd demo $(DEMO_ARGS)

test: venv ## run the tests but the long ones (PYTEST_ARGS=...)
	@$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not stack and not zoo" $(PYTEST_ARGS)

test-changed: venv ## run the tests that mirror what differs from the commit BASE, in a few minutes (BASE=HEAD)
	@$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not stack and not zoo" $(PYTEST_ARGS) \
		$$($(BIN)/python -m tests.changed --base $(BASE))

# A part takes an hour at most. It leaves the commit that it passed on in .release, and is not run again while TESTED is as
# on that commit: a mended test costs no other part, and results are measured on a commit and can only be committed
# after it. PASSED has all parts in the end; once committed, `make release` puts it beside the files.
PASSED := benchmarks/results/passed.txt
TESTED := asd operators exporters deploy examples benchmarks/held_out pyproject.toml setup.py ':!*.md'
AS_TESTED = git diff --quiet $$passed HEAD -- $(TESTED) 2>/dev/null
RELEASE_PARTS := slow-jobs slow-rooms thorough stack ascend zoo-eighth 2.10 msprobe core wheels bench detection
test-release: $(RELEASE_PARTS:%=test-release-%) ## run all that is too slow for each landing, in parts, before a release
	@cd .release && for part in $(RELEASE_PARTS); do echo "$$part: passed on $$(cat $$part)"; done | tee ../$(PASSED)
test-release-%:
	@set -e; mkdir -p .release; commit=$$(git rev-parse HEAD); passed=$$(cut -d ' ' -f 1 .release/$* 2>/dev/null || true); \
	if [ -n "$$passed" ] && $(AS_TESTED); then echo "make: $* passed on $$passed before"; exit 0; fi; \
	test -z "$$(git status --porcelain)" || { echo "make: commit first: a part notes the commit it passed on" >&2; exit 1; }; \
	target=test-$*; case $* in wheels|detection) target=$*;; esac; \
	timeout --foreground 3600 $(MAKE) --no-print-directory $$target; echo "$$commit on $$(date -u +%F)" > .release/$*; \
	echo "make: $* passed on $$commit"

test-slow: test-slow-jobs test-slow-rooms test-thorough ## run the three below (SLOW_ARGS=...)

test-slow-jobs: venv ## run the long ones that start whole trainings, of several ranks too
	@$(BIN)/python -m pytest $(PARALLEL) -m "slow and not stack and not zoo" $(SLOW_ARGS) tests/e2e

test-slow-rooms: venv ## run the other long ones: kills at random points, all rows of each table
	@$(BIN)/python -m pytest $(PARALLEL) -m "slow and not stack and not zoo" --ignore=tests/e2e $(SLOW_ARGS)

test-thorough: venv ## run the tests of properties with ten times as many examples
	@$(BIN)/python -m pytest $(PARALLEL) -m "hypothesis and not slow and not stack and not zoo" \
		--hypothesis-profile=thorough $(SLOW_ARGS)

test-stack: venv ## run the tests with real Prometheus and Alertmanager; installs Debian's when missing (STACK_ARGS=...)
	$(call install_debian,$(STACK),munge etcd)
	@test -x $(VENV)/share/kubernetes/helm || $(BIN)/python tests/stack/get_kube_tools.py $(VENV)/share/kubernetes
	@$(BIN)/python -m pytest -m "$(STACK_MARKS)" $(STACK_ARGS) tests/stack

test-ascend: venv ## compile trainings for Ascend, on a machine without one (ASCEND_ARGS=...)
	@$(BIN)/python -m pytest -m dry_run $(ASCEND_ARGS) tests/ascend

test-zoo: venv ## train the whole zoo, all kinds of trainings with faults, and write docs/zoo.md (ZOO_ARGS=...)
	@ZOO_SEED=$(ZOO_SEED) $(BIN)/python tests/zoo/table.py $(ZOO_ARGS)

test-zoo-eighth: venv ## an eighth of it, by ZOO_SEED or the date, and all that once failed (ZOO_ARGS=...)
	@ZOO_SEED=$(ZOO_SEED) $(BIN)/python -m pytest -n 2 --dist worksteal -m zoo $(ZOO_ARGS) tests/zoo

test-2.10: $(VENV_2.10)/.stamp ## run the tests on MindSpore 2.10, in .venv-2.10 (TEST_2.10_ARGS=...)
	@$(VENV_2.10)/bin/python -m pytest $(PARALLEL) $(TEST_2.10_ARGS) $(TESTS_2.10)

test-2.10-quick: $(VENV_2.10)/.stamp ## run those of them that hang on MindSpore's private names
	@$(VENV_2.10)/bin/python -m pytest $(PARALLEL) $(TEST_2.10_ARGS) $(QUICK_2.10)

test-msprobe: venv $(VENV_MSPROBE)/.stamp ## compare dumps with those of the real msprobe, in .venv-msprobe (MSPROBE_ARGS=...)
	@MSPROBE_PYTHON="$(CURDIR)/$(VENV_MSPROBE)/bin/python" $(BIN)/python -m pytest $(MSPROBE_ARGS) tests/msprobe

# Its newest release and what it runs with; it wants other versions than we do, so it is not in .venv.
$(VENV_MSPROBE)/.stamp:
	@test -x $(VENV_MSPROBE)/bin/python || $(PYTHON) -m venv $(VENV_MSPROBE)
	@$(VENV_MSPROBE)/bin/python $(PIP) install "mindstudio-probe==26.2.0" "mindspore==2.10.0" "numpy<2" "pandas<3" \
		"onnx<1.20" "ml_dtypes<0.6"
	@touch $@

test-core: ## run the tests that need no MindSpore on other versions of Python (PYTHONS="3.10 3.12", CORE_ARGS=...)
	@set -e; for version in $(PYTHONS); do \
		python=python$$version; \
		$$python -c '' 2>/dev/null || python="$$(pyenv prefix $$(pyenv latest $$version) 2>/dev/null)/bin/python"; \
		$$python -c 'import ensurepip, venv' 2>/dev/null || { echo "make: Python $$version with its venv module is needed;" \
			"install it, or leave it out: make test-core PYTHONS=..." >&2; exit 1; }; \
		test -x .venv-$$version/bin/python || $$python -m venv .venv-$$version; \
		.venv-$$version/bin/python $(PIP) install -e '.[web,k8s,compare,test]'; \
		echo "make: the core on Python $$version"; \
		.venv-$$version/bin/python -m pytest $(PARALLEL) $(CORE_ARGS) $(CORE_TESTS); \
	done

# The throw-away environment sees the third-party packages of .venv through a .pth file. A folder named there does not have
# its own .pth files read, so the editable install stays out of sight, and what is tested is the wheel. Programs of these
# packages, such as MindSpore's launcher, are found in PATH.
wheel-test: venv ## build the wheel and run the tests on it, away from the checkout (WHEEL_TEST_ARGS=...)
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; trap 'exit 1' HUP INT TERM; \
	rm -rf build; \
	$(BIN)/python $(PIP) wheel --no-deps --wheel-dir "$$work" .; \
	rm -rf build; \
	$(BIN)/python -m venv --without-pip "$$work/venv"; \
	$(BIN)/python $(PIP) --python "$$work/venv/bin/python" install --no-deps --no-index "$$work"/*.whl; \
	site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	$(BIN)/python -c "$$site" > "$$("$$work/venv/bin/python" -c "$$site")/third_party.pth"; \
	cp -R tests benchmarks examples "$$work"; \
	cd "$$work"; \
	venv/bin/python -c 'import asd, sys; assert asd.__file__.startswith(sys.prefix), asd.__file__'; \
	venv/bin/asd --version; \
	PATH="$(CURDIR)/$(BIN):$$PATH" venv/bin/python -m pytest -c "$(CURDIR)/pyproject.toml" --rootdir "$$work" \
		-o pythonpath= -p no:cacheprovider \
		$(PARALLEL) $(WHEEL_TEST_ARGS) $(WHEEL_TESTS)

wheels: venv ## build an sdist, and from it the wheel, into dist
	@rm -rf build dist
	@$(BIN)/python -m build --quiet --outdir dist . >/dev/null
	@WHEELS_FOLDER="$(CURDIR)/dist" $(BIN)/python -m pytest tests/wheels

examples: venv ## run every program in examples/
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; trap 'exit 1' HUP INT TERM; \
	for file in $(wildcard examples/*.py); do \
		echo "== $$file"; \
		(cd "$$work" && "$(CURDIR)/$(BIN)/python" "$(CURDIR)/$$file"); \
	done

# No registry is ours: what a release has are files. IMAGE_ARGS may name another base, as --build-arg BASE=...
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' asd/__init__.py)
COMMIT = $(shell git describe --always --dirty --exclude='*' --abbrev=12)
BUILDER ?= $(shell docker info >/dev/null 2>&1 && command -v docker || command -v buildah)
IMAGE_ARGS ?=
release: wheels docs chart ## build all that a release has into dist, and try each file: sdist, wheel, documents, chart, image
	@tar -czf dist/mindspore-asd-$(VERSION)-docs.tgz -C build/site .
	@rm -f dist/mindspore-asd-$(VERSION)-tests.txt; (for passed in $$(cut -d ' ' -f 4 $(PASSED) 2>/dev/null || echo none); do $(AS_TESTED) || exit 1; done) && \
		cp $(PASSED) dist/mindspore-asd-$(VERSION)-tests.txt || echo 'make: `make test-release` did not pass on this code'
	@test -z "$(BUILDER)" || $(MAKE) --no-print-directory image
	@WHEELS_FOLDER="$(CURDIR)/dist" $(BIN)/python -m pytest tests/wheels/test_files.py
	@cd dist && sha256sum -- * > ../SHA256SUMS && mv ../SHA256SUMS . && ls -l
	@test -n "$(BUILDER)" || echo 'make: no image: docker or buildah is needed to build it'

chart: ## pack the Helm chart into dist
	@mkdir -p dist && tar -czhf dist/mindspore-asd-$(VERSION)-chart.tgz -C deploy/helm mindspore-asd

image: ## build the image of agent and handler, with docker or buildah, into a file in dist
	@test -n "$(BUILDER)" || { echo 'make: docker or buildah is needed to build the image.' >&2; exit 1; }
	@mkdir -p dist && $(BUILDER) build --build-arg COMMIT=$(COMMIT) $(IMAGE_ARGS) -f deploy/Dockerfile -t mindspore-asd:$(VERSION) . >/dev/null
	@file=dist/mindspore-asd-$(VERSION)-image.tar; rm -f $$file; case $(BUILDER) in \
		*buildah) $(BUILDER) push mindspore-asd:$(VERSION) docker-archive:$$file:mindspore-asd:$(VERSION);; \
		*) $(BUILDER) save -o $$file mindspore-asd:$(VERSION);; esac

docs: venv ## build the documents as a site in build/site, in English and Chinese, with links checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@$(BIN)/python docs/build/links.py build/site

detection: venv ## break devices below trainings, and fail if detection got worse; needs g++ (DETECTION_ARGS=...)
	@$(BIN)/python -m benchmarks.held_out --quick --check $(DETECTION_ARGS)

test-bench: venv ## run the programs of benchmarks that know --quick for a moment, to see that they work
	@set -e; for file in $$(grep -l '"--quick"' benchmarks/*.py); do echo "== $$file"; $(BIN)/python "$$file" --quick; done
	@$(BIN)/python -m benchmarks.first_wrong --faults 2
	@$(BIN)/python -m benchmarks.first_wrong --mode ranks --faults 3
	@$(BIN)/python -m benchmarks.mutation --share 0.02 asd/event.py

cost: venv ## count what the checks add on Ascend to Llama-2 7B, in bytes and launches (COST_ARGS=...)
	@$(BIN)/python tests/ascend/cost.py $(COST_ARGS)

walk: venv ## list the functions that one step calls, healthy and with an anomaly, in both modes (WALK_ARGS=...)
	@$(BIN)/python benchmarks/walk.py $(WALK_ARGS)

size: venv ## count the lines of each room beside the most it may have
	@$(BIN)/python -m tests.rooms

mutation: venv ## change the code that judges and decides, a place at a time; 90 % have to be noticed (MUTATION_ARGS=...)
	@$(BIN)/python -m benchmarks.mutation $(MUTATION_ARGS)

lint: venv ## check style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: venv ## repair what can be repaired of the style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: venv ## check types
	@$(BIN)/mypy

layers: venv ## check who imports whom
	@PYTHONPATH=. $(BIN)/lint-imports --no-logo

clean: ## remove everything that make made, the environments too
	rm -rf $(VENV) $(VENV_2.10) $(VENV_MSPROBE) $(PYTHONS:%=.venv-%) build dist *.egg-info
	rm -rf .release .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

define make_venv
	@test -x $(@D)/bin/python || $(PYTHON) -c 'import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' \
		2>/dev/null || { echo 'make: Python 3.10, 3.11 or 3.12 with its venv module is needed, and `$(PYTHON)` is not that;' \
		'install it, or say where it is: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11' >&2; exit 1; }
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@echo 'make: installing into $(@D); the first time this takes a minute or two and downloads about 1 GB.'
endef

# Programs, and the Debian package of each where it has another name; a browser needs a font. No service may start, neither now nor at boot.
STACK := prometheus prometheus-alertmanager prometheus-node-exporter chromium \
	slurmctld scontrol:slurm-client etcd:etcd-server buildah debootstrap slurmd strace curl
define install_debian
@set -e; missing=; \
for program in $(1); do command -v $${program%:*} >/dev/null || missing="$$missing $${program#*:}"; done; \
case $$missing in *chromium*) missing="$$missing fonts-dejavu-core";; esac; \
test -n "$$missing" || exit 0; \
command -v apt-get >/dev/null || { echo "make: these are missing:$$missing; they are installed by apt-get, which is not here:" \
	'install them in another way and try again.' >&2; exit 1; }; \
root=; \
if [ "$$(id -u)" -ne 0 ]; then \
	command -v sudo >/dev/null || { echo "make: these are missing:$$missing; installing them takes root or sudo." >&2; \
		exit 1; }; \
	root=sudo; \
fi; \
echo "make: installing$$missing"; \
$$root env DEBIAN_FRONTEND=noninteractive missing="$$missing" sh -ec ' \
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then \
		trap "rm -f $$policy" EXIT; trap "exit 1" HUP INT TERM; \
		printf "#!/bin/sh\nexit 101\n" > $$policy; chmod 755 $$policy; \
	fi; \
	log=$$(mktemp); \
	{ apt-get update && apt-get install --no-install-recommends -y $$missing; } > $$log 2>&1 || { \
		tail -n 20 $$log >&2; echo "make: apt-get could not install$$missing; the end of its log is above." >&2; exit 1; }; \
	rm -f $$log; \
	for service in $$missing $(2); do systemctl disable --quiet $$service 2>/dev/null || true; done'
endef

# The versions in constraints.txt are those of Python 3.11; another Python gets the newest that fit.
$(VENV)/.stamp: $(BUILD_INPUTS) constraints.txt
	$(make_venv)
	@pins=$$($(@D)/bin/python -c 'import sys; print("-c constraints.txt" * (sys.version_info[:2] == (3, 11)))'); \
	$(@D)/bin/python $(PIP) install $$pins -e '.[mindformers,web,k8s,compare,docs,test,dev,mutation,wheels]'
	@touch $@

# mindformers 1.9.0 asks for MindSpore 2.9 but runs on 2.10 just as well, so the complete list goes in as it stands.
$(VENV_2.10)/.stamp: $(BUILD_INPUTS) constraints-2.10.txt
	$(make_venv)
	@$(@D)/bin/python $(PIP) install --no-deps -r constraints-2.10.txt
	@$(@D)/bin/python $(PIP) install --no-deps -e .
	@touch $@
