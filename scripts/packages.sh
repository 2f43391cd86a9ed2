# Sourced by the scripts beside it: installs what is missing, and says what.

missing=()

# need PURPOSE...: notes the Debian packages of those programs in programs.txt that aren't there.
need() {
    local line
    while read -ra line; do
        if [[ " $* " == *" ${line[0]:-#} "* ]] && ! is_there "${line[1]}"; then
            missing+=("${line[@]:2}")
        fi
    done <scripts/programs.txt
}

# need_package PACKAGE...: notes those Debian packages that aren't there. For programs that may be there
# in another version.
need_package() {
    local package
    for package; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
            missing+=("$package")
    done
}

# As a file: the shell has a kill of its own. Servers are in a folder that isn't in everybody's PATH.
is_there() {
    PATH=$PATH:/usr/sbin:/sbin type -P "$1" >/dev/null
}

install_missing() {
    ((${#missing[@]})) || return 0
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
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
        apt-get -o DPkg::Lock::Timeout=600 install -qy --no-install-recommends "${missing[@]}"
    missing=()
}

need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "cargo is missing: install Rust with rustup, https://rustup.rs" >&2
        exit 1
    fi
    need build
}
