# Sourced by the scripts beside it: installs what is missing, and says what.

missing=()

# need COMMAND PACKAGE...: notes the Debian packages if the command isn't there.
need() {
    command -v "$1" >/dev/null || missing+=("${@:2}")
}

install_missing() {
    ((${#missing[@]})) || return 0
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        echo "missing: ${missing[*]} (Debian's names), and there is no apt-get to install them" >&2
        exit 1
    fi
    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            echo "missing: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    echo "installing: ${missing[*]}"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qy --no-install-recommends "${missing[@]}"
}

need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "cargo is missing: install Rust with rustup, https://rustup.rs" >&2
        exit 1
    fi
    need cc gcc libc6-dev
}
