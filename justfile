# Short names for the scripts, which are what CI and people without `just` call: nothing is done here alone.
# Install: apt-get install just (Debian 13), or cargo install just. `just` lists what there is.

_list:
    @{{ just_executable() }} --list --unsorted

# start the server, from whatever state this checkout is in
run:
    ./start.sh

# build what is missing or older than its sources: all | runners | runner NAME | image | server
build *TARGETS:
    ./build.sh {{ TARGETS }}

# every test, or those that a filter names: just test compose
test *FILTER:
    ./test.sh {{ FILTER }}

# every check that needs no engine, or the ones named: just lint typos deny
lint *CHECKS:
    scripts/lint.sh {{ CHECKS }}

# what is worth running before each commit
check: (lint "fmt" "clippy")

# lay out the Rust sources
fmt:
    cargo fmt --all

# dependencies with known holes, by today's list on GitHub
advisories: (lint "advisories")

# many more cases for the properties than a test run has
fuzz CASES="100000":
    scripts/fuzz.sh {{ CASES }}

# measure the release build on this machine: bench/README.md
bench *ARGUMENTS:
    bench/run.sh {{ ARGUMENTS }}

# look for what is wrong on this host
doctor *ARGUMENTS:
    ./build.sh server
    target/release/mcp-code-sandbox doctor {{ ARGUMENTS }}

# all that CI runs
ci:
    .ci/run
