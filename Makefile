# make demo and make test need nothing but Go. Everything else says what it needs.
.PHONY: demo test build lint sim sim-world sim-one-lane sim-many-lanes sim-groups sim-archive sim-steps sim-functions sim-controls sim-groups-controls sim-archive-controls fuzz bench

SEEDS    ?= 200
FUZZTIME ?= 10s
BENCH    ?= .

# All of them, those first that take longest.
PACKAGES := ./sdk ./localdev/sim ./...

# Half as many packages again as there are cores are tested at a time: some tests wait more than they compute.
JOBS      := $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) * 3 + 1) / 2 )))

# The race detector needs cgo and a C compiler. It watches varve's code, Go's library, and of the other libraries all but those that do most of the work, which take
# the tests twice as long when they are watched. A package that has a copy of Go's generic code for sync.Map or atomic.Pointer in it must be watched (go tool nm
# shows that; -l leaves few): the linker may take its copy for everybody, and the detector then sees races where there are none. At its end a process would wait a
# second for goroutines that may still race, and there are many processes; the tests wait for theirs themselves. Libraries that are UNINLINED are watched too, but
# compile in two thirds of the time: nothing in them is called often enough to be worth more.
RACE      := $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && echo -race)
AWS       := github.com/aws/aws-sdk-go-v2/service
SMITHY    := github.com/aws/smithy-go
KAFKA     := github.com/twmb/franz-go
UNINLINED := $(foreach l,$(KAFKA) github.com/getkin github.com/minio github.com/tinylib go.opentelemetry.io golang.org/x,-gcflags='$(l)/...=-l')
UNWATCHED := $(UNINLINED) \
             $(foreach l,github.com/aws github.com/klauspost github.com/pierrec modernc.org/libc modernc.org/sqlite/lib $(KAFKA)/pkg/kmsg go.yaml.in,-gcflags='$(l)/...=-race=false -l') \
             $(foreach p,$(AWS)/dynamodb $(AWS)/internal/endpoint-discovery $(SMITHY)/document/internal/serde $(SMITHY)/logging,-gcflags='$(p)=')

demo: build
	./bin/varve demo

build:
	go build -o bin/varve ./cmd/varve

test:
ifeq ($(RACE),)
	@echo "no C compiler ($$(go env CC)) here: the tests run without the race detector"
	go test -vet=off -timeout 20m -p $(JOBS) $(PACKAGES)
else
	GORACE="atexit_sleep_ms=0 $$GORACE" CGO_ENABLED=1 go test -vet=off -timeout 20m -p $(JOBS) -race $(UNWATCHED) $(PACKAGES)
endif

lint:
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

# The sizes that docs/reliability.md names: some five minutes, 7 GB of disk for one of them, and 1 GB of memory.
.PHONY: limits soak
limits:
	go test -count=1 -timeout 30m ./localdev/limits -v -full

# Ten days of a log at a steady rate with retention on, by a wall clock that runs ahead, in SOAK; takes 4 GB of disk.
SOAK ?= 30m
soak:
	go run ./localdev/soak -for $(SOAK)

# The fault simulation with many seeds, without the race detector, and that it catches what it should and replays. A process plays on one core, so there
# is one for each scenario.
sim:
	$(MAKE) -j2 sim-world sim-groups sim-one-lane sim-many-lanes sim-archive sim-functions sim-steps sim-controls sim-groups-controls sim-archive-controls

# Worlds so small that each takes an eighth of a second: WORLD_SEEDS of them, from WORLD_FROM on, so that several machines or processes can play ranges side by side.
WORLD_SEEDS ?= 500
WORLD_FROM  ?= 1
sim-world:
	go test -count=1 -timeout 0 -run 'TestWorld$$' ./localdev/sim -v -from $(WORLD_FROM) -seeds $(WORLD_SEEDS)

LANE_SEEDS ?= $(SEEDS)
sim-one-lane:
	go test -count=1 -timeout 30m -run 'TestBR13_Simulation$$' ./localdev/sim -v -seeds $(LANE_SEEDS)

LANES_SEEDS ?= $(SEEDS)
sim-many-lanes:
	go test -count=1 -timeout 30m -run 'TestBR13_SimulationOfLanes$$' ./localdev/sim -v -seeds $(LANES_SEEDS)

sim-groups:
	go test -count=1 -timeout 60m -run 'TestGroups$$' ./localdev/sim -v -seeds $(SEEDS)

# Days of a log whose archive is compacted, cleaned, erased, expired and swept, and whose table is put back. A seed takes longer than the others do, so there are fewer.
ARCHIVE_SEEDS ?= 40
sim-archive:
	go test -count=1 -timeout 60m -run 'TestArchive$$|TestArchiveStandingStill$$|TestRestores$$' ./localdev/sim -v -seeds $(ARCHIVE_SEEDS)

# What plays fewer seeds, or smaller ones, with the race detector: all of it.
sim-steps:
	go test -count=1 -timeout 30m -run 'TestStepsAreExactlyOnce|TestOutboxIsAllOrNone|TestCommitWithStateIsExactlyOnce|TestX03|TestIdleMemberCosts|TestStalledStore|TestBR12a|TestReaderUnderStaleReads|TestBR13_SeededSchedule|TestRollingRestart|TestDecodedRecordsAreBounded|TestBR26_Clocks|TestBR01_CancelledSend|TestX07|TestRemote_Again|TestBR18_ObjectsGone|TestRemote_Faults|TestSmall_Latency|TestConsumerUsedByMany|TestOutageIsToldOnce|TestASeekIntoALargeExtent|TestBR14_Offsets|TestOnce_FaultsAtEachRequest|TestReplayResumes|TestReplayStops' ./sdk -v
	go test -count=1 ./segment
	go test -count=1 -run 'TestDemo' ./cmd/varve
	go test -count=1 ./functions/local ./localdev/embedded ./localdev/dynamodb/... ./metadata/group ./metadata/lane ./metadata/walk ./segment/store/dir ./internal/cost

# The background jobs, with every fault, crash and interleaving at every request, or at every seventh where there are most. REPAIR_FAULTS: empty for a share of repair's,
# of which there are 860.
REPAIR_FAULTS ?= -all-faults
sim-functions:
	go test -count=1 -timeout 30m ./functions/verify ./functions/retain ./functions/erase ./functions/forward ./functions/clean
	go test -count=1 -timeout 30m ./functions/compact -every 1
	go test -count=1 -timeout 30m -run 'TestInterleavings|TestCrashes|TestFaults|TestCostIsWhatIsNew|TestBR35|TestBR44|TestRefuses' ./functions/sweep -stride 7
	go test -count=1 -timeout 30m -run 'TestFaults$$|TestGrown|TestDrill|TestHistoriesOfRepairs|TestPutBackToTheMiddle' ./functions/repair $(REPAIR_FAULTS)

sim-controls:
	go test -count=1 -timeout 30m -run 'TestSimulation|TestReport|TestWorldCatches' ./localdev/sim -v

sim-archive-controls:
	go test -count=1 -timeout 30m -run 'TestArchiveCatches$$|TestRestoresCatches$$' ./localdev/sim -v

sim-groups-controls:
	go test -count=1 -timeout 30m -run 'TestGroupsCatches$$' ./localdev/sim -v

# Every fuzz target for FUZZTIME each (10s, or 2000x for so many inputs), those of a package by one binary, which takes longer to build than a short run takes.
fuzz:
	@mkdir -p .tools/fuzz; \
	for dir in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
	  go test -c -vet=off -fuzz . -o .tools/fuzz/test $$dir || exit 1; \
	  for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | sed 's/func //'); do \
	    echo "$$dir $$target"; \
	    (cd $$dir && $(CURDIR)/.tools/fuzz/test -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 1s -test.fuzzcachedir $(CURDIR)/.tools/fuzz/corpus/$$dir) || exit 1; \
	  done; \
	done

bench:
	go test -run '^$$' -bench '$(BENCH)' ./segment

# --- MinIO. Its server is under the AGPL: a program that is run, never linked, so it stands in no go.mod.
.PHONY: minio test-minio demo-minio minio-note

MINIO_VERSION := v0.0.0-20260212201848-7aac2a2c5b7c
MINIO         := $(CURDIR)/.tools/bin/minio

# Builds MinIO's server at MINIO_VERSION, about four minutes once. Needs Go and a module proxy that can be reached.
minio:
	@if go version -m $(MINIO) 2>/dev/null | grep -q "github.com/minio/minio[[:space:]]*$(MINIO_VERSION)"; then exit 0; fi; \
	echo "building MinIO $(MINIO_VERSION) into .tools/bin: about four minutes, once"; \
	GOBIN=$(dir $(MINIO)) GOFLAGS= nice go install github.com/minio/minio@$(MINIO_VERSION) || { \
	  echo "MinIO was not built, for the reason above. It takes Go 1.24 or newer, 4 GB of disk for Go's caches, and the module proxy of 'go env GOPROXY'."; exit 1; }

# Every test with MinIO in its name: the store's suite and what only a real server polices, the SDK and the command from end to end, crashes, credentials.
test-minio: minio
	VARVE_MINIO=$(MINIO) go test -count=1 -timeout 10m -run MinIO ./localdev/minio/... ./segment/store/s3 ./sdk ./localdev/embedded ./localdev/chaos ./cmd/varve

# The demo of `make demo` on MinIO and, behind a socket, the DynamoDB engine.
demo-minio: minio build
	go build -o bin/onminio ./localdev/minio/onminio
	VARVE_MINIO=$(MINIO) ./bin/onminio ./bin/varve demo --create-table

# A log on MinIO and, behind a port, the DynamoDB engine, until it is interrupted: what `varve dev` serves, on the adapters for S3 and DynamoDB.
.PHONY: local
local: minio build
	./bin/varve dev --minio=$(MINIO)

# Processes of a log on MinIO, then on a directory, for FOR each, while they and the servers are killed, stopped and cut off.
.PHONY: chaos
FOR ?= 2m
chaos: minio
	VARVE_MINIO=$(MINIO) go run ./localdev/chaos -for $(FOR)
	go run ./localdev/chaos -store dir -for $(FOR)

# Takes rules out of the code, one after another: a test has to notice each. About an hour on two cores.
.PHONY: mutants
mutants:
	go run ./localdev/mutants

test: minio-note
minio-note:
	@echo "the tests on a real MinIO are skipped here: 'make minio' builds its server once, 'make test-minio' runs them"

# --- Producing, reading, and from append to delivery, against the raw limit of the store. BENCH_LOG: further flags of `varve bench`.
.PHONY: bench-log bench-minio

BENCH_LOG ?=
BENCHES   := set -e; ./bin/varve topic create warm-up --create-table >/dev/null; \
  for size in 1KiB 100B; do for does in produce read; do ./bin/varve bench $$does --record-size $$size $(BENCH_LOG); echo; done; done; \
  ./bin/varve bench e2e --idle 5s $(BENCH_LOG)

# On a directory of its own under TMPDIR. Where that is in memory, it is memory that is measured.
bench-log: build
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; export VARVE_LOG="file://$$dir/log"; $(BENCHES)

# On MinIO and the DynamoDB engine.
bench-minio: minio build
	go build -o bin/onminio ./localdev/minio/onminio
	@VARVE_MINIO=$(MINIO) ./bin/onminio sh -c '$(BENCHES)'

# --- The DynamoDB engine against judges from outside: the same random requests to both, every answer compared. OPERATIONS: requests to each judge.
.PHONY: judges test-judges

OPERATIONS ?= 20000
MOTO       := 5.2.1
DYNOXIDE   := 3.2.0
DYNALITE   := 4.0.0

# Installs what can be had here, and says what cannot. dynoxide takes minutes, once.
judges:
	@python3 -c 'import moto, moto.server, flask; assert moto.__version__ == "$(MOTO)"' 2>/dev/null || .tools/moto/bin/python3 -c 'import moto.server' 2>/dev/null || \
	  { python3 -m venv .tools/moto && .tools/moto/bin/pip install -q 'moto[server]==$(MOTO)'; } || echo "judge moto cannot be installed here: it takes python3 with venv and PyPI"
	@.tools/dynoxide/bin/dynoxide --version >/dev/null 2>&1 || \
	  nice cargo install -q --debug dynoxide-rs --version $(DYNOXIDE) --locked --no-default-features --features native-sqlite,http-server,cli --root .tools/dynoxide || \
	  echo "judge dynoxide cannot be installed here: it takes cargo and crates.io"
	@test -x .tools/dynalite/node_modules/.bin/dynalite || npm install --silent --no-audit --no-fund --prefix .tools/dynalite dynalite@$(DYNALITE) || \
	  echo "judge dynalite cannot be installed here: it takes npm and its registry"

# With those that are there; VARVE_JUDGES_REQUIRED=1 fails without any of them, VARVE_JUDGE_ENDPOINT adds an endpoint with credentials from the environment.
test-judges:
	go test -count=1 -timeout 30m -run TestJudges ./localdev/dynamodb/judge -v -operations $(OPERATIONS)

# --- The functions as AWS runs them: the real binaries under a host of Lambda's Runtime API, on MinIO and the DynamoDB engine, and once under AWS's own
# runtime interface emulator. The first build takes minutes.
.PHONY: rie test-lambda

RIE_VERSION := v0.0.0-20261030222936-bef5c4ba774d
RIE         := $(CURDIR)/.tools/bin/aws-lambda-rie

rie:
	@test -x $(RIE) || GOBIN=$(dir $(RIE)) GOFLAGS= nice go install github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@$(RIE_VERSION) || { \
	  echo "AWS's runtime interface emulator was not built, for the reason above. It takes Go 1.26.6 or newer, and the module proxy of 'go env GOPROXY'."; exit 1; }

test-lambda: minio rie
	VARVE_LAMBDA=1 VARVE_MINIO=$(MINIO) VARVE_RIE=$(RIE) go test -count=1 -timeout 20m -run Lambda ./localdev/lambda -v

# --- Infrastructure. Both need Terraform and its AWS provider, test-deploy also python3 with moto; nothing is sent to AWS. VARVE_TERRAFORM_PLUGINS: a directory
# with the provider, where there is no network.
.PHONY: test-infra test-deploy

test-infra:
	infra/test.sh

test-deploy:
	infra/testdeploy.sh
