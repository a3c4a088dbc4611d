# make repro   the whole pipeline on drawn scenes            make repro RECIPE=recipes/flickr8k/attention_infonce.yaml
# make test    tests of up to seconds                        make test-slow   browsers, MLflow servers, whole pipelines, rehearsals
# make check   linters, types and rendered files, before every commit
PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Python caches compiled packages in .venv, also where the environment forbids it: without, each stage compiles them for seconds.
unexport PYTHONDONTWRITEBYTECODE
READY := $(VENV)/ready
RUN := $(if $(RECIPE),runs/$(notdir $(patsubst %/,%,$(dir $(RECIPE))))/$(basename $(notdir $(RECIPE))),.)

.PHONY: setup repro test test-slow test-abroad test-real test-nodes attack faults reports leaderboard leaderboard-flickr8k check size requirements demo-model wheel-test peers docs docs-test containers-test rehearse rehearse-schedule rehearse-refresh rehearse-moves rehearse-year mlflow clean
.DELETE_ON_ERROR:

setup: $(READY)

$(READY): requirements/dev.txt requirements/installer.txt
	test -x $(VENV)/bin/uv || { $(PYTHON) -m venv $(VENV) \
	  && $(VENV)/bin/python -m pip install --quiet --require-hashes --requirement requirements/installer.txt; }
	uv pip install --quiet --compile-bytecode --require-hashes --python $(VENV)/bin/python --requirement requirements/dev.txt
	uv pip install --quiet --no-deps --no-build-isolation --python $(VENV)/bin/python --editable .
	touch $@

repro: setup
	python -m pipelines render --dvc-only $(if $(RECIPE),--recipe $(RECIPE))
	dvc repro $(RUN)/dvc.yaml
	python -m pipelines register $(RUN)
	python -m pipelines metrics $(RUN)

TESTS := pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
test: setup
	$(TESTS) --durations 20 -m "not slow"

test-slow: setup
	$(TESTS) --durations 20 -m slow

# The tests of the library with fewer instructions of the processor, other threads, zones, locales, users, paths and Pythons, and
# what differs; one setting: make test-abroad ONLY=umask. Needs localedef, and a network for the newest Python.
test-abroad: setup
	python -m tests.rehearsals.abroad $(if $(ONLY),--only "$(ONLY)")

# All tests with a real server or client that is no dependency, also the long ones: PostgreSQL, nginx, Prometheus with promtool,
# Alertmanager, tritonclient, kserve; and the metrics of eccv-caption and pycocoevalcap. 'make test-slow' has those that take seconds. '.ci/run' installs Debian's servers; the summary
# names the tests that were left out, with the missing package. S3 is moto's server, and the tests of runtime/s3 also use versitygw,
# behind proxies that capitalize headers, and that refuse trailers. PyPI has no such server: go builds it.
test-real: setup $(VENV)/clients $(VENV)/bin/versitygw
	for proxy in capitals "https no-trailers"; do for server in "" $(wildcard $(VENV)/bin/versitygw); do \
	  env $${server:+BIFOCAL_TEST_S3=$(CURDIR)/$$server} BIFOCAL_TEST_S3_PROXY="$$proxy" \
	  pytest --numprocesses 0 tests/runtime/s3 || exit 1; done; done
	python -m tests.rehearsals.servers.debian pytest --numprocesses 0 tests/runtime/mlflow/test_lock.py \
	  tests/runtime/mlflow/test_retention.py tests/runtime/mlflow/test_aliases.py \
	  tests/pipelines/commands/test_promote.py tests/pipelines/commands/test_release.py tests/pipelines/commands/test_clean.py
	pytest --numprocesses 0 -m real -r s tests/deploy tests/docs/test_engines.py \
	  tests/pipelines/app/test_oldest_runtime.py \
	  tests/bifocal/serving/service/test_inference.py \
	  tests/bifocal/serving/service/test_kserve.py tests/bifocal/metrics/ranking tests/bifocal/evaluation/retrieval \
	  tests/rehearsals/servers/backup.py tests/rehearsals/servers/canary.py tests/rehearsals/servers/hosts.py

# Two nodes of Kubernetes on this machine, with Kubeflow's Trainer, and tests of what one node cannot show. Needs root, Go,
# Debian's apt-get and control groups of version 1. The first call builds Kubernetes, about ten minutes of two cores.
test-nodes: setup
	python -m tests.cluster.nodes.start pytest --numprocesses 0 -r s tests/cluster/nodes

$(VENV)/bin/versitygw: | setup
	-GOBIN=$(CURDIR)/$(VENV)/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

# kserve pins other versions, so it has an environment of its own. Without a package index, the tests of the clients are skipped.
$(VENV)/clients: | setup
	-uv venv --quiet $(VENV)/kserve && uv pip install --quiet --python $(VENV)/kserve/bin/python "kserve>=0.15,<1" \
	  && uv pip install --quiet --python $(VENV)/bin/python "tritonclient[http]>=2.60,<3" \
	  && uv pip install --quiet --no-deps --python $(VENV)/bin/python eccv-caption==0.1.0 pycocoevalcap==1.2 && touch $@

# Every recipe of recipes/papers on a miniature corpus in its published file layout, up to the registered model; writes the
# table of docs/records/rehearsal.md. 'make test-slow' rehearses one recipe, more briefly.
rehearse: setup
	python -m tests.rehearsals.papers

# Weekly schedules on a corpus in S3, with every stage: the flow train up to the promotion, then retrain, refresh and monitor;
# 'make test-slow' has a short form.
rehearse-schedule: setup
	pytest tests/rehearsals/flows/weekly_schedule.py tests/rehearsals/flows/flows.py --numprocesses 0 --capture no

# A refresh of 100,000 objects on S3, of which 100 changed.
rehearse-refresh: setup
	pytest tests/rehearsals/refresh.py --numprocesses 0 --capture no

# Random promotions, rollbacks, refreshes, additions and deletions, killed at random writes to the registry.
rehearse-moves: setup
	MOVES=$(or $(MOVES),2000) pytest tests/pipelines/commands/test_moves.py --numprocesses 0 --capture no --timeout 0

# A year of weekly albums, promotions and deletions with MLflow on PostgreSQL and two replicas behind nginx, which are killed;
# WEEKS=8 has all of the events once.
rehearse-year: setup
	WEEKS=$(or $(WEEKS),52) pytest tests/rehearsals/year/year.py --numprocesses 0 --capture no

# Kills, full disks, broken servers and damaged files; writes the table of docs/records/reliability.md. Training on two machines
# (processes with a disk each), one of which is killed. Takes about an hour; 'make test-slow' has a short form.
faults: setup
	pytest --numprocesses 0 tests/rehearsals/train_distributed.py
	python -m tests.rehearsals.faults

# Hostile requests to a served demo, with probes beside them; writes the table of docs/records/reliability.md. 'make test-slow' has a
# short form.
attack: setup
	python -m tests.rehearsals.attack

# Faults that users of other tools reported, made again on files of this command; some minutes. 'make test-slow' has a short form.
reports: setup
	python -m tests.rehearsals.reports

# The images serve and cpu in real containers: installs podman from Debian, see containers/test.sh.
containers-test: setup
	containers/test.sh

# The documentation site, into site/index.html.
docs: export NO_MKDOCS_2_WARNING := 1
docs: setup
	python -m mkdocs build --strict

# Its links, and every marked code block; 'make test-slow' follows only the links.
docs-test: docs
	pytest tests/docs --numprocesses 0
	pytest tests/rehearsals/run_blocks.py --numprocesses 0

# The model and the images of 'bifocal demo', which the wheel contains.
demo-model: setup
	python docs/make_demo.py

# The wheel in a fresh environment without torch, beside a package of the user; needs a network.
wheel-test: setup
	pytest tests/rehearsals/wheel.py --numprocesses 0 --capture no

# All systems, or one: make leaderboard ONLY=SMILE. 11 trainings of each; finished ones are kept: run it again to continue.
leaderboard: setup
	python -m benchmarks run quality.leaderboard $(if $(ONLY),--only "$(ONLY)")

# Times of Bifocal beside other packages, and their plot: docs/results.md; or one question: make peers ONLY=losses.
PEERS := sorters recall losses training text start http folder orchestration index
peers: setup $(VENV)/peers/ready
	for name in $(or $(ONLY),$(PEERS)); do \
	  OMP_NUM_THREADS=1 $(VENV)/peers/bin/python -m benchmarks run peers.$$name || failed="$$failed $$name"; \
	done; python -m docs.make_pictures && python -m benchmarks render && test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

# The peers on top of .venv, so that both sides have the same torch. Two are compiled here, which needs a C++ compiler.
INSTALL_PEERS := uv pip install --quiet --no-deps --require-hashes --python $(VENV)/peers/bin/python --requirement requirements/peers.txt
$(VENV)/peers/ready: requirements/peers.txt | setup
	uv venv --quiet --clear --python $(VENV)/bin/python $(VENV)/peers
	cd $(VENV)/peers/lib/python3*/site-packages \
	  && echo "import site; site.addsitedir('$(CURDIR)/$(VENV)/lib/$$(basename $$(dirname $$PWD))/site-packages')" > setup.pth
	$(INSTALL_PEERS) --no-build-isolation-package torchsort
	touch $@

# Photographs: Flickr8k and the weights in ../shared/data, at most eight core hours. Finished trainings are kept: run it again to continue.
leaderboard-flickr8k: setup
	python -m benchmarks run quality.leaderboard_flickr8k

# All checks of .pre-commit-config.yaml, also after one that fails; prints a list.
check: setup
	pre-commit run --all-files

# Tokens of Python, files and their median by room, and words of the documentation, with their bars.
size:
	$(PYTHON) .ci/size.py

# dev.txt is what 'make setup' installs, installer.txt installs it, peers.txt is what 'make peers' adds, the others are what the
# images hold. Versions stay as they are, except where pyproject.toml needs others; make requirements UPGRADE=--upgrade takes the newest of all.
PIN := uv pip compile --quiet --generate-hashes --no-emit-index-url --python-version 3.11 \
  --custom-compile-command "make requirements" $(UPGRADE)
requirements: setup
	$(PIN) --extra pipelines --extra cpu --extra dev pyproject.toml --output-file requirements/dev.txt
	$(PIN) --extra pipelines --extra cpu pyproject.toml --output-file requirements/cpu.txt
	$(PIN) --extra pipelines --extra gpu pyproject.toml --output-file requirements/gpu.txt
	$(PIN) --group serve --output-file requirements/serve.txt
	$(PIN) --group tracking --output-file requirements/tracking.txt
	$(PIN) --group installer --output-file requirements/installer.txt
	$(PIN) --group peers --constraint requirements/dev.txt --output-file requirements/peers.txt \
	  $$(sed -nE 's/^([a-z0-9._-]+)==.*/--no-emit-package \1/p' requirements/dev.txt)

# An MLflow server. Its store is MLFLOW_BACKEND_STORE_URI of the environment, so that no password is in a command line; S3:
# MLFLOW_FILES=s3://bucket/mlflow. PostgreSQL: export MLFLOW_BACKEND_STORE_URI=postgresql://user@host/mlflow and PGPASSWORD.
# MLFLOW_HOSTS are the names that clients call it by; with any other it answers 403. The stages find it by MLFLOW_TRACKING_URI.
MLFLOW_BACKEND_STORE_URI ?= sqlite:///mlflow.db
MLFLOW_FILES ?= mlartifacts
MLFLOW_HOST ?= 127.0.0.1
MLFLOW_PORT ?= 5000
MLFLOW_HOSTS ?= localhost,127.0.0.1,mlflow,mlflow.mlflow.svc.cluster.local
comma := ,
mlflow: export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
mlflow: export MLFLOW_BACKEND_STORE_URI := $(MLFLOW_BACKEND_STORE_URI)
mlflow: setup
	@$(if $(MLFLOW_STORE),echo 'error: MLFLOW_STORE is now the variable MLFLOW_BACKEND_STORE_URI of the environment' >&2; exit 1)
	mlflow server --artifacts-destination "$(MLFLOW_FILES)" --workers 1 \
	  --host $(MLFLOW_HOST) --port $(MLFLOW_PORT) \
	  --allowed-hosts "$(MLFLOW_HOSTS),$(subst $(comma),:$(MLFLOW_PORT)$(comma),$(MLFLOW_HOSTS)):$(MLFLOW_PORT)"

clean:
	@printf 'Delete artifacts and runs, with all trained models and indexes? [y/N] ' && read answer && test "$$answer" = y
	rm -rf artifacts runs
