#!/bin/bash
# Makes up input for a target. usage: run.sh TARGET [SECONDS]   (default 600)
# These flags are cargo-fuzz's without a sanitizer, so that neither it nor a nightly compiler is needed.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")"
target=$1 seconds=${2:-600} triple=x86_64-unknown-linux-gnu
coverage="-Cpasses=sancov-module -Ccodegen-units=1"
for option in sanitizer-coverage-level=4 sanitizer-coverage-inline-8bit-counters sanitizer-coverage-pc-table sanitizer-coverage-trace-compares; do
  coverage+=" -Cllvm-args=-$option"
done
# With --target, build scripts and macros stay without instruments.
RUSTFLAGS="$coverage --cfg fuzzing" cargo build --release --locked --target "$triple" --bin "$target"
[ "$seconds" -gt 0 ] || exit 0
mkdir -p "target/found/$target" "artifacts/$target"
exec "target/$triple/release/$target" "target/found/$target" "corpus/$target" \
  -artifact_prefix="artifacts/$target/" -dict=words.dict -max_total_time="$seconds" -timeout=10 -print_final_stats=1
