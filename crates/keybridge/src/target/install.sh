# Finds the helper (find HASH), starts it if it is there (start HASH PROCESSOR ARGUMENTS...), or puts it
# (put HASH, the program on standard input).
mask=$(umask)
umask 077
step=$1 hash=$2 name=keybridge-remote-$2
shift 2
user=$(id -u) || exit 1

# A folder that is ours and no link. A folder of somebody else is left alone.
ours() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }

# Whether nobody else can put another folder in the place of this one: it and all above it belong to
# us or to root, and only a sticky one may be written by others.
safe() {
    case $1 in /*) ;; *) return 1 ;; esac
    at=$(cd -P "$1" 2>/dev/null && pwd -P) || return 1
    while :; do
        set -- $(ls -ldn "$at")
        [ "$3" = "$user" ] || [ "$3" = 0 ] || return 1
        case $1 in
        d????-??-*) ;;
        d????????[tT]*) ;;
        *) return 1 ;;
        esac
        [ "$at" = / ] && return 0
        at=${at%/*}
        at=${at:-/}
    done
}

good() {
    [ -f "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] &&
        [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$hash" ]
}

# Whether programs may run there: a temporary folder is often mounted noexec.
runs() {
    try=$1/.try-$$
    printf '#!/bin/sh\nexit 0\n' >"$try" 2>/dev/null && chmod 700 "$try" && "$try" 2>/dev/null
    result=$?
    rm -f "$try"
    return $result
}

# The folders that a helper can be in, best first. Those in a temporary folder have another name
# where somebody else has taken the plain one.
folders() {
    cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    if [ -n "$cache" ] && safe "${cache%/*}"; then
        mkdir "$cache" 2>/dev/null
        safe "$cache" && echo "$cache/keybridge"
    fi
    for base in "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
        safe "$base" || continue
        for there in "$base/keybridge-$user" "$base/keybridge-$user"-*; do
            echo "$there"
        done
    done
}

find_helper() {
    echo "processor $(uname -m)"
    [ -n "$hash" ] || return 0
    folders | while IFS= read -r folder; do
        if ours "$folder" && good "$folder/$name"; then
            echo "path $folder/$name"
            break
        fi
    done
}

# Makes a folder usable, or answers with another name beside it where somebody else has the name.
make_folder() {
    mkdir "$1" 2>/dev/null
    if ours "$1"; then
        chmod 700 "$1" && echo "$1"
    elif [ -e "$1" ] || [ -L "$1" ]; then
        mktemp -d "$1-XXXXXXXXXX" 2>/dev/null
    fi
}

put_helper() {
    if ! command -v sha256sum >/dev/null; then
        cat >/dev/null
        echo "sha256sum is missing there, and the helper can't be checked without it" >&2
        return 1
    fi
    folder=$(folders | while IFS= read -r wanted; do
        case $wanted in *-\*) continue ;; esac
        made=$(make_folder "$wanted")
        if [ -n "$made" ] && ours "$made" && runs "$made"; then
            echo "$made"
            break
        fi
        [ -n "$made" ] && rmdir "$made" 2>/dev/null
    done)
    [ -n "$folder" ] || { cat >/dev/null; return 0; }
    new=$folder/.new-$$
    trap 'rm -f "$new"; rmdir "$folder" 2>/dev/null' EXIT
    if ! cat >"$new" || ! good "$new"; then
        cat >/dev/null
        echo "the helper did not arrive whole in $folder; is the disk full?" >&2
        return 1
    fi
    chmod 700 "$new" && mv -f "$new" "$folder/$name" && echo "path $folder/$name" || return 1
    # Those of other versions; one that runs doesn't need its file.
    for old in "$folder"/keybridge-remote-*; do
        [ "$old" = "$folder/$name" ] || rm -f "$old"
    done
}

case $step in
find) find_helper ;;
start)
    found=$(find_helper)
    echo "$found"
    case $found in "processor $1
path "*)
        shift
        echo runs
        umask "$mask"
        exec "${found#*
path }" "$@"
        ;;
    esac
    ;;
put) put_helper ;;
esac
