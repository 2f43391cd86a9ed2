# Sourced by the scripts beside it: builds for this machine's processor, and for another one.
# An own Rust toolchain that has the other processor's standard library is used as it is. Elsewhere
# Debian's compiler is, which takes the standard library of Debian's package for that processor.

native=$(uname -m)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# The processors that have a helper, and what Debian calls them.
processors=(x86_64 aarch64)
declare -A debian_names=([x86_64]=amd64 [aarch64]=arm64)
[[ -v debian_names[$native] ]] || processors+=("$native")

# has_library TRIPLE: whether the own toolchain can build for it.
has_library() {
    compgen -G "$(rustc --print target-libdir --target "$1")/libstd-*.rlib" >/dev/null
}

# Ubuntu has no current compiler, and keeps the packages of other processors elsewhere.
is_debian() {
    grep -qsx 'ID=debian' /etc/os-release
}

# has_debian_rust: whether Debian's current compiler is there. The older ones are too old for us.
has_debian_rust() {
    local missing=()
    need_package rustc-web cargo-web
    ((${#missing[@]} == 0))
}

# can_build PROCESSOR
can_build() {
    [[ $1 == "$native" ]] && return
    is_there "$1-linux-gnu-gcc" && { has_library "$1-unknown-linux-gnu" || has_debian_rust; }
}

# need_cross PROCESSOR: notes the packages that building for it takes.
need_cross() {
    [[ $1 == "$native" ]] && return
    need "$1"
    has_library "$1-unknown-linux-gnu" && return
    if ! is_debian; then
        echo "missing: Rust's standard library for $1; run: rustup target add $1-unknown-linux-gnu" >&2
        exit 1
    fi
    need_package rustc-web cargo-web
}

# debian_library PROCESSOR: prints the folder with the standard library of Debian's compiler for it,
# which is kept under its version. This machine's own lists of packages stay as they are.
debian_library() {
    local version folder new apt
    version=$(dpkg-query -W -f '${Version}' rustc-web)
    folder=$target/cross/library/$1-$version
    if [[ ! -d $folder ]]; then
        new=$target/cross/library/.new-$$
        mkdir -p "$new"/{lists,cache}/partial "$new/sysroot/lib/rustlib"
        apt=(apt-get -q -o "APT::Architecture=${debian_names[$1]}" -o "APT::Architectures=${debian_names[$1]}"
            -o "Dir::State::Lists=$new/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$new/cache"
            -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o "APT::Sandbox::User=$(id -un)")
        echo "downloading: Rust's standard library for $1" >&2
        if ! (
            "${apt[@]}" update && cd "$new" && "${apt[@]}" download "libstd-rust-web-dev=$version" &&
                dpkg-deb -x libstd-rust-web-dev_*.deb package &&
                mv "package/usr/lib/rustlib/$1-unknown-linux-gnu" sysroot/lib/rustlib/ &&
                mv -T sysroot "$folder"
        ) >&2; then
            echo "can't get the standard library of Rust $version for $1; is rustc-web up to date?" >&2
            rm -rf "$new"
            return 1
        fi
        rm -rf "$new"
    fi
    echo "$folder"
}

# cargo_for PROCESSOR COMMAND...: runs cargo for static programs of a processor.
# The explicit --target keeps these flags from procedural macros, which can't be static.
cargo_for() {
    local processor=$1 command=$2 triple=$1-unknown-linux-gnu
    local flags='-C target-feature=+crt-static' variables=() linker library
    shift 2
    if [[ $processor != "$native" ]]; then
        linker=CARGO_TARGET_${triple^^}_LINKER
        variables+=("${linker//-/_}=$processor-linux-gnu-gcc")
        if ! has_library "$triple"; then
            library=$(debian_library "$processor") || return
            flags="--sysroot=$library $flags"
            # Another compiler, which must not make the own one build everything again.
            variables+=(PATH=/usr/bin:/bin RUSTC=/usr/bin/rustc "CARGO_TARGET_DIR=$target/cross")
        fi
    fi
    env "${variables[@]}" RUSTFLAGS="$flags" cargo "$command" --locked --target "$triple" "$@"
}

# built_for PROCESSOR: the folder of what cargo_for builds with $profile.
built_for() {
    local folder=$target
    if [[ $1 != "$native" ]] && ! has_library "$1-unknown-linux-gnu"; then folder+=/cross; fi
    echo "$folder/$1-unknown-linux-gnu/$profile"
}
