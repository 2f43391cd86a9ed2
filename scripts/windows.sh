# Sourced by the scripts beside it: programs for Windows, built with Debian's parts and run under Wine.
# Needs packages.sh and cross.sh. What takes minutes to make is kept under a hash of its recipe and of the
# packages that it is made from.

windows=x86_64-pc-windows-gnu
# The programs that join those of Windows and Linux in tests.
windows_programs=crates/keybridge/tests/platforms/windows_programs
if ((EUID == 0)); then
    windows_cache=/var/cache/keybridge-lab
else
    windows_cache=${XDG_CACHE_HOME:-$HOME/.cache}/keybridge-lab
fi

# need_windows: notes the packages that building takes.
need_windows() {
    need windows
    has_library "$windows" && return
    if ! is_debian; then
        echo "missing: Rust's standard library for Windows; run: rustup target add $windows" >&2
        exit 1
    fi
    need_package rustc-web cargo-web rust-web-src
}

# need_wine: notes the packages that running programs of Windows takes, and the libraries of GnuPG.
need_wine() {
    need wine
    need_package "${gnupg_libraries[@]}"
}

# kept NAME PACKAGES RECIPE [WORD...]: prints the folder that a recipe makes, whose last argument it is. The
# recipe is a function, and runs only if the folder isn't there.
kept() {
    local name=$1 packages=$2 folder new
    shift 2
    folder=$windows_cache/$name-$({
        declare -f "$1"
        printf '%s\n' "${@:2}"
        # shellcheck disable=SC2086
        dpkg-query -W -f '${Package} ${Version}\n' $packages
    } | sha256sum | cut -c 1-12)
    if [[ ! -d $folder ]]; then
        echo "making: $folder" >&2
        new=$windows_cache/.new-$name-$$
        mkdir -p "$new"
        if ! "$@" "$new" >"$new.log" 2>&1; then
            tail -n 20 "$new.log" >&2
            echo "can't make $folder; all that was said is in $new.log" >&2
            rm -rf "$new"
            return 1
        fi
        rm "$new.log"
        # Whoever was quicker has made the same.
        mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
    fi
    echo "$folder"
}

# windows_library: prints the sysroot with the standard library for Windows.
windows_library() {
    kept windows-library 'rustc-web rust-web-src gcc-mingw-w64-x86-64' make_windows_library
}

# An own compiler takes the source of its own version alone, so Debian's compiles Debian's.
make_windows_library() (
    set -e
    crate=$1/crate
    library=$1/lib/rustlib/x86_64-pc-windows-gnu/lib
    mkdir -p "$crate/src" "$library"
    touch "$crate/src/lib.rs"
    printf '[package]\nname = "empty"\nedition = "2024"\n[workspace]\n' >"$crate/Cargo.toml"
    # Programs that end where they panic take no other form of panic_abort, and std takes both. Those that are
    # optimised as a whole need what the optimiser reads in every crate.
    cat >"$crate/rustc" <<'END'
#!/bin/sh
case " $* " in
*" --crate-name panic_abort "*) set -- "$@" -C embed-bitcode=yes -C panic=abort ;;
*" --crate-name "*) set -- "$@" -C embed-bitcode=yes ;;
esac
exec "$@"
END
    chmod +x "$crate/rustc"
    cd "$crate"
    env -u CARGO_TARGET_DIR -u RUSTFLAGS PATH=/usr/bin:/bin RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        RUSTC_WRAPPER="$crate/rustc" \
        cargo build --release -Zbuild-std=std,panic_abort,panic_unwind,test --target x86_64-pc-windows-gnu
    rm target/x86_64-pc-windows-gnu/release/deps/libempty-*
    cp target/x86_64-pc-windows-gnu/release/deps/lib*.rlib "$library"
    rm -rf "$crate"
)

# windows_gnupg: prints the folder with GnuPG's programs for Windows.
windows_gnupg() {
    kept windows-gnupg "gcc-mingw-w64-x86-64 ${gnupg_libraries[*]}" make_windows_gnupg 2.2.40 bookworm
}

gnupg_libraries=(libnpth-mingw-w64-dev libgpg-error-mingw-w64-dev libgcrypt-mingw-w64-dev
    libassuan-mingw-w64-dev libksba-mingw-w64-dev libz-mingw-w64-dev)

# make_windows_gnupg VERSION SUITE FOLDER: from the source that Debian has. Its patches are for Linux.
make_windows_gnupg() (
    set -e
    version=$1 new=$3 prefix=/usr/x86_64-w64-mingw32 source=$3/source
    mkdir -p "$source"/{lists,cache}/partial "$source/build"
    cd "$source"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $2 main" \
        >sources.list
    apt=(apt-get -q -o "Dir::Etc::sourcelist=$source/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::Lists=$source/lists" -o "Dir::Cache=$source/cache" -o "APT::Sandbox::User=$(id -un)")
    "${apt[@]}" update
    "${apt[@]}" source --download-only gnupg2
    tar -xf "gnupg2_$version.orig.tar.bz2"
    cd build
    options=(--host=x86_64-w64-mingw32 --prefix="$new")
    for library in libgpg-error libgcrypt libassuan ksba npth zlib; do
        options+=("--with-$library-prefix=$prefix")
    done
    for part in gpgtar wks-tools photo-viewers ldap sqlite gnutls ntbtls bzip2 nls doc dirmngr scdaemon g13; do
        options+=("--disable-$part")
    done
    "../gnupg-$version/configure" "${options[@]}"
    make -j "$(nproc)" SUBDIRS="common regexp kbx g10 agent tools"
    cp g10/gpg.exe agent/gpg-agent.exe tools/gpgconf.exe tools/gpg-connect-agent.exe "$new"
    cp "$prefix"/bin/*.dll "$prefix"/lib/{zlib1,libwinpthread-1}.dll "$new"
    cp "$(x86_64-w64-mingw32-gcc -print-file-name=libgcc_s_seh-1.dll)" "$new"
    x86_64-w64-mingw32-strip "$new"/*.exe
    cd "$new"
    rm -rf "$source"
)

# wine_prefix: prints a folder that is as Wine makes it for a new user.
wine_prefix() {
    kept wine 'wine64 libwine gcc-mingw-w64-x86-64' make_wine_prefix
}

# Wine 8 lacks a library that Rust's standard library imports; without it a program ends with status 53 and
# no word.
make_wine_prefix() (
    set -e
    export WINEPREFIX=$1/prefix WINEDEBUG=-all
    wine wineboot -i
    # Else it is Windows 7, which neither Rust nor Node is for.
    wine winecfg -v win10
    wineserver -w
    cat >"$1/prng.c" <<'END'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return SystemFunction036(data, size); }
END
    x86_64-w64-mingw32-gcc -shared -o "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" "$1/prng.c" -ladvapi32
    mv "$WINEPREFIX"/* "$WINEPREFIX"/.[!.]* "$1"
    rm -r "$WINEPREFIX" "$1/prng.c"
)

# cargo_windows COMMAND...: runs cargo for programs of Windows. Tests and programs that it starts run under
# Wine, if WINEPREFIX names where.
cargo_windows() {
    local variables=() library cargo=(cargo "$1")
    # Not as `cargo clippy`, which prefers the one of rustup.
    if [[ $1 == clippy ]]; then cargo=(cargo-clippy clippy); fi
    shift
    if ! has_library "$windows"; then
        library=$(windows_library) || return
        variables=(PATH=/usr/bin:/bin RUSTC=/usr/bin/rustc RUSTFLAGS="--sysroot=$library")
    fi
    # A folder of its own, since it may be another compiler that builds procedural macros. Nothing reads
    # what debuggers need, and without it tests are built sooner.
    env "${variables[@]}" CARGO_TARGET_DIR="$target/windows" CARGO_PROFILE_DEV_DEBUG=0 \
        CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine WINEDEBUG=-all \
        "${cargo[@]}" --locked --target "$windows" "$@"
}

# in_new_wine COMMAND...: runs a command with WINEPREFIX set to a copy, which goes with what runs there.
in_new_wine() {
    local from new status=0
    from=$(wine_prefix) || return
    new=$(mktemp -d "$windows_cache/.wine-XXXXXX")
    # Nobody writes to the programs of Wine's own, of which there are 700 MB.
    cp -al "$from/drive_c" "$new"
    cp -a "$from"/{*.reg,.update-timestamp,dosdevices} "$new"
    WINEPREFIX=$new "$@" || status=$?
    WINEPREFIX=$new wineserver -k || true
    WINEPREFIX=$new wineserver -w || true
    rm -rf "$new"
    return "$status"
}
