# Sourced by the scripts that run tests with real engines, agents and editors on a busy machine. A test
# that fails there once in a thousand runs shouldn't cost a run of an hour, nor be forgotten: it is run
# once more, and named at the end of the run if it passes then.

unstable=$(mktemp)

# retry_tests COMMAND...: runs a `cargo test`, and once more the tests that failed, each on its own. More
# than three are no accident.
retry_tests() {
    local log names status=0
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" || status=1
    mapfile -t names < <(sed -n 's/^test \([^ ]*\) .*FAILED$/\1/p' "$log")
    rm -f "$log"
    if ((status == 0)); then return; fi
    if ((${#names[@]} == 0 || ${#names[@]} > 3)); then return 1; fi
    echo "== once more, each on its own: ${names[*]}"
    RUST_TEST_THREADS=1 "$@" -- --exact "${names[@]}" || return 1
    printf '%s\n' "${names[@]}" >>"$unstable"
}

# retry COMMAND...: runs a command that tests something as a whole, and once more if it fails.
retry() {
    if "$@"; then return; fi
    echo "== once more: $*"
    "$@" || return 1
    echo "$*" >>"$unstable"
}

# Names what passed only the second time: it has a race, or a time limit that a busy machine exceeds.
report_unstable() {
    if [[ -s $unstable ]]; then
        echo "== UNSTABLE, passed only the second time:"
        sed 's/^/   /' "$unstable"
    fi
    rm -f "$unstable"
}
