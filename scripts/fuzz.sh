#!/usr/bin/env bash
# Gives every property test many more cases than a usual run does: a night's work, or a quarter of an hour's.
#   scripts/fuzz.sh [CASES]
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# What a parser or a bound is tried with: the exit line, output, paths, and the front's reading of JSON.
readonly PROPERTIES=(docker::frame executor::output workspace::path mcp::front)

PROPTEST_CASES=${1:-100000} exec cargo test --release --locked --lib -- "${PROPERTIES[@]}"
