# Every command of the project. To begin with, two are enough: make demo, make test.
.PHONY: help build demo demo-cluster test soak miri compat bench fmt lint clean

help:
	@echo "make demo    build, run the published benchmark on one node and on a cluster that loses a node under load, show the tables"
	@echo "make demo-cluster   its second part alone: three nodes, two of them with data, behind one address"
	@echo "make test    install what the tests need and run every kind of test except fuzzing, in less than half an hour"
	@echo "make soak    long random and fault runs and long fuzzing (FAILOVER_SECONDS=14400: clusters under faults for hours);  make compat   every client library, Redis's own tests, and redis-server at length"
	@echo "make bench   print every figure, against redis-server"
	@echo "make build   a binary for trying and developing, target/release/flintkv: packages and make bench use the dist profile instead"
	@echo "make fmt     format the sources;  make lint   check format and lints;  make clean   remove all build output"

build:
	@scripts/need.sh cargo cc
	cargo build --release -p flintkv

demo:
	@scripts/demo.sh

demo-cluster:
	@scripts/demo-cluster.sh

test:
	@scripts/test.sh

soak:
	@scripts/soak.sh $(SECONDS)

miri:
	@scripts/miri.sh

compat:
	@scripts/compat.sh $(SECONDS)

bench:
	@scripts/bench.sh

fmt:
	cargo fmt --all

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

clean:
	cargo clean
	rm -rf .scratch
