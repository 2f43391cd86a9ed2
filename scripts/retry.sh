# Sourced by the scripts that run tests with real engines, agents and editors. A test that needs a second
# try is a defect. It is run once more so that the rest of the run is not lost, and so that a test that is
# broken can be told from one that has a race; the run names it at its end, and fails. On CI it is only
# named: a race must not hold back a change that has nothing to do with it.

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
    printf '%s\n' "${names[@]/#/"$* -- --exact "}" >>"$unstable"
}

# retry COMMAND...: runs a command that tests something as a whole, and once more if it fails.
retry() {
    if "$@"; then return; fi
    echo "== once more: $*"
    "$@" || return 1
    echo "$*" >>"$unstable"
}

# Fails if something passed only the second time, and says how to run it: it has a race, or a time limit
# that a busy machine exceeds.
fail_if_unstable() {
    local status=0
    if [[ -s $unstable ]]; then
        echo "== UNSTABLE, passed only the second time:" >&2
        sed 's/^/   /' "$unstable" >&2
        [[ ${CI-} == true ]] || status=1
    fi
    rm -f "$unstable"
    return "$status"
}
