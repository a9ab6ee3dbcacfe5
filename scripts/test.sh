#!/usr/bin/env bash
# Every test of the project, in stages; what this machine cannot do is skipped by name, and counted at the end.
#
#   test.sh [STAGE...]     stages: check, which is what most changes need; lint packages cores c_abi bare_metal cost examples install tests commands python play fuzz firmware linux guest spdk
#
# Without a stage it runs all of them but check, two at a time, and shows what each prints when it is over.
# Installs the Debian packages it needs, unless lint or check is all it is to do. REQUIRE_QEMU=1 makes a missing emulator a failure.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
all="check lint packages cores c_abi bare_metal cost examples install tests commands python play fuzz fuzz_build firmware linux guest spdk"
for stage; do [[ " $all " == *" $stage "* ]] || { echo "test: no stage $stage; there are: $all" >&2; exit 2; }; done
# The same random cases in each run: what fails was broken by the change. `cargo test` alone draws new ones.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-1}"

# A minute, in a new clone three: whether what decides is right, whatever calls it. It builds xtask alone, as nothing here needs the rest.
check() {
  local crates=(-p coalesce-decision -p vic-core -p cint-core -p budget-core -p coalesce-policy -p coalesce-delivery -p libcoalesce)
  cargo fmt --all --check
  cargo clippy --quiet --locked "${crates[@]}" --all-targets -- -D warnings
  cargo run --quiet --locked --package xtask -- cycles
  cargo run --quiet --locked --package xtask -- syntax
  scripts/check-recipe.sh
  cargo test --quiet --locked "${crates[@]}"
  scripts/check-cores.sh
}
xtask() { # TASK: built as the tests build it
  scripts/built.sh xtask
  "${CARGO_TARGET_DIR:-target}/debug/xtask" "$@"
}
lint() {
  cargo fmt --all --check
  cargo clippy --quiet --locked --workspace --all-targets --features coalesce-benches/criterion -- -D warnings
  cargo clippy --quiet --locked --package coalesce-sim --lib --no-default-features -- -D warnings # as in a browser
  cargo fmt --manifest-path fuzz/Cargo.toml --check
  cargo fmt --manifest-path firmware-demo/rust/Cargo.toml --check
  cargo fmt --manifest-path firmware-demo/embassy/Cargo.toml --check
  local features
  for features in "" only-auto only-budget only-cint only-vic; do
    cargo clippy --quiet --locked --manifest-path firmware-demo/rust/Cargo.toml --features "$features" \
      --target-dir "${CARGO_TARGET_DIR:-target}/firmware-host/cargo" -- -D warnings
  done
  cargo clippy --quiet --locked --manifest-path firmware-demo/embassy/Cargo.toml --all-targets \
    --target-dir "${CARGO_TARGET_DIR:-target}/firmware-host/cargo" -- -D warnings
  xtask cycles
  xtask syntax
  scripts/check-recipe.sh
  scripts/check-help.sh
  RUSTDOCFLAGS='-D warnings' cargo doc --quiet --locked --workspace --no-deps
  if command -v shellcheck > /dev/null; then
    shellcheck --external-sources guest/*.sh guest/firmware/*.sh guest/jobs/*.sh guest/plugin/*.sh measurements/*.sh scripts/*.sh firmware-demo/*.sh xtask/*.sh spdk/test/*.sh linux/*.sh linux/guest/*.sh .ci/run
  else
    echo "SKIPPED: lint of the scripts: no shellcheck"
  fi
  if command -v jq > /dev/null; then measurements/results.sh --check; else echo "SKIPPED: docs/results.md and measurements/tables.md beside their JSON: no jq"; fi
  # Each version formats a little differently.
  if clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
    git ls-files -z '*.c' '*.h' ':!crates/ffi/include/coalesce.h' | xargs -0 clang-format --dry-run -Werror
  else
    echo "SKIPPED: format of the C files: no clang-format 14"
  fi
  if ! command -v cargo-deny > /dev/null; then
    echo "SKIPPED: duplicates and sources of dependencies: no cargo-deny"
  else
    cargo deny --offline check bans licenses sources
    if [ -d "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" ]; then
      cargo deny --offline check advisories
    else
      echo "SKIPPED: advisories: cargo-deny has no database; cargo deny fetch db"
    fi
  fi
}
# What would be published, its public API, and the licences of what we build on.
packages() {
  xtask licences
  xtask packages
  xtask api
}
cores() {
  scripts/check-cores.sh
  # What is off by default: to be written down and read again, and to be logged.
  local crates=(-p coalesce-decision -p vic-core -p cint-core -p coalesce-policy)
  cargo test --quiet --locked "${crates[@]}" --features coalesce-decision/serde,vic-core/serde,cint-core/serde,coalesce-policy/serde --test serde
  cargo check --quiet --locked "${crates[@]}" -p budget-core --lib --all-features
}
c_abi() { scripts/check-c-abi.sh; }
# What firmware gets. The compilers for it are Debian's.
bare_metal() {
  if guest/packages.sh gcc-arm-none-eabi && scripts/bare-metal.sh > /dev/null; then
    scripts/check-bare-metal.sh
    scripts/size.sh > /dev/null
  elif [ -n "${REQUIRE_QEMU:-}" ]; then
    return 1
  else
    echo "SKIPPED: bare metal: no compilers for it"
  fi
}
# Instructions of a decision.
cost() { scripts/cost.sh; }
examples() { scripts/check-examples.sh; }
# libcoalesce for C; coalesce-target with what surrounds it; the workflows that do the same elsewhere.
install() {
  guest/packages.sh jq cmake meson lintian || true
  scripts/check-install.sh
  scripts/check-workflows.sh
  scripts/check-install-target.sh
  scripts/check-deb.sh
}
tests() {
  cargo test --quiet --locked --workspace
  scripts/follow-recipe.sh
  # A policy of a user's own, outside the workspace: its test, and its row wherever policies are compared.
  local own=(--quiet --locked --manifest-path examples/own-policy/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}") command
  cargo build "${own[@]}" --all-targets # at once: with what the test needs, and not again without
  cargo test "${own[@]}"
  sed 's/^policies = .*/policies = ["none", "pairs"]/; s/^duration = .*/duration = "5ms"/' crates/coalesce-sim/plans/sync.toml > target/own-policy.toml
  for command in "score --workloads optane/depth8 --duration 5ms" "run target/own-policy.toml" "replay crates/coalesce-sim/tests/traces/nvme.jsonl"; do
    # shellcheck disable=SC2086 # several words
    "${CARGO_TARGET_DIR:-target}/debug/own-policy" $command > target/own-policy.txt
    grep -q '^ *pairs ' target/own-policy.txt || { printf 'own-policy: no row in %s\n' "$command"; cat target/own-policy.txt; return 1; }
  done
}
# README.md and the help, as typed.
commands() { scripts/check-commands.sh; }
# The examples in Python: a notebook, and a property test through libcoalesce.
python() {
  local modules=(python3-pandas python3-matplotlib python3-hypothesis)
  if guest/packages.sh "${modules[@]}" || python3 -c 'import pandas, matplotlib, hypothesis' 2> /dev/null; then
    scripts/check-python.sh
  elif [ -n "${REQUIRE_QEMU:-}" ]; then
    return 1
  else
    echo "SKIPPED: python: no ${modules[*]}"
  fi
}
# The playground of the site, in a browser.
play() {
  if guest/packages.sh chromium && scripts/play.sh --compiler > /dev/null; then
    scripts/check-play.sh
  elif [ -n "${REQUIRE_QEMU:-}" ]; then
    return 1
  else
    echo "SKIPPED: play: no browser, or no compiler for it"
  fi
}
# Five seconds of arbitrary bytes for each target, two at a time: what was found before, and the roads nearby. The workflows and
# scripts/fuzz.sh take minutes and hours.
fuzz() { PROFILE=brief scripts/fuzz.sh 5; }
fuzz_build() { PROFILE=brief scripts/fuzz.sh --build; }
# The controller of firmware-demo, in C and in Rust: here, under sanitizers, and on two emulated boards. The task of embassy.
firmware() {
  firmware-demo/host.sh > target/firmware-host.log || { tail -n 20 target/firmware-host.log; return 1; }
  tail -n 1 target/firmware-host.log
  cargo test --quiet --locked --manifest-path firmware-demo/embassy/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/firmware-host/cargo"
  if guest/packages.sh qemu-system-arm gcc-arm-none-eabi && scripts/bare-metal.sh > /dev/null; then
    scripts/firmware.sh > target/firmware.log || { tail -n 20 target/firmware.log; return 1; }
    tail -n 3 target/firmware.log
  elif [ -n "${REQUIRE_QEMU:-}" ]; then
    return 1
  else
    echo "SKIPPED: firmware: no emulator or no compilers for it"
  fi
}
# The NVMe driver with hints, without a guest: its consumer beside the Rust one, and a build for Debian's kernel.
linux() { linux/test.sh; }
# SPDK's target with our policies, where there is an SPDK: SPDK=PREFIX, or PKG_CONFIG_PATH.
spdk() {
  if [ -n "${SPDK:-}" ] || pkg-config --exists spdk_event 2> /dev/null; then
    make --no-print-directory -C spdk test
  else
    echo "SKIPPED: spdk: no SPDK found by pkg-config"
  fi
}
# The guest kit's own checks: a disk that goes back in time is noticed, a job that fails is a failure, a kernel that hangs is booted once
# more, a KVM that boots nothing is none, and what the bare-metal guest counts is the same twice.
guest() { guest/check.sh stale failures hang accel bare; }

# A machine where nothing can be installed may have it all, or skip what needs it.
if [ "$*" != lint ] && [ "$*" != check ] &&
  ! { guest/packages.sh && guest/packages.sh build-essential clang-format shellcheck valgrind pkg-config; } &&
  [ -n "${REQUIRE_QEMU:-}" ]; then exit 1; fi

log=$(mktemp -d)
# What failed is said last of all: the other lane's stage may have printed hundreds of lines since.
end() {
  local stage
  if [ -e "$log/failed" ]; then
    while read -r stage; do
      printf '== %s FAILED. Its last lines:\n' "$stage"
      tail -n 25 "$log/$stage"
    done < "$log/failed" >&2
  fi
  rm -rf "$log"
}
trap end EXIT
mkdir -p target

# Runs the stages of the queue one after another; none begins once one has failed. Two may work at it.
work_off() {
  local stage status TIMEFORMAT
  while stage=$(take); do
    printf '== %s\n' "$stage"
    TIMEFORMAT="== $stage: %0R s, of CPU %0U + %0S s"
    # In a shell of its own, as a function after "if" would not stop at its first failure. For that reason no queue is worked off
    # after "if" or before "||" either.
    set +e
    { time { (set -e; "$stage") 2>&1 | tee "$log/$stage" >&3; status=${PIPESTATUS[0]}; }; } 2> "$log/time-$stage"
    set -e
    { flock 4; cat "$log/$stage" >&5; cat "$log/time-$stage"; } 4> "$log/lock"
    [ "$status" = 0 ] || { printf '%s\n' "$stage" >> "$log/failed"; return 1; }
  done
}
# The next stage of the queue.
take() {
  [ ! -e "$log/failed" ] || return 1
  { flock 4; sed -n 1p "$log/queue"; sed -i 1d "$log/queue"; } 4> "$log/lock" | grep .
}

exec 3>&1 5> /dev/null
if [ $# -gt 0 ]; then
  printf '%s\n' "$@" > "$log/queue"
  work_off
else
  # Two at a time: linking, emulators and tests that wait leave a processor to the other one. What needs the programs that the tests
  # build comes last. Fuzzing uses all it gets, so it has the machine to itself.
  exec 3> /dev/null 5>&1
  trap 'trap "" TERM; kill 0' INT TERM
  printf '%s\n' tests lint packages cores c_abi bare_metal cost install guest firmware linux fuzz_build play commands examples python spdk > "$log/queue"
  work_off & one=$!
  work_off & other=$!
  status=0
  wait $one || status=1
  wait $other || status=1
  [ $status = 0 ] || exit 1
  echo fuzz > "$log/queue"
  work_off
fi

skipped=$(cat "$log"/* | grep '^SKIPPED: ' | sort -u || true)
printf '%s' "${skipped:+$skipped$'\n'}"
printf '== all passed, %s skipped\n' "$(grep -c . <<< "$skipped" || true)"
