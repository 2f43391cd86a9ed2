# Runs in a shell of the target, from its standard input, up to the call of `listen`. The shell has read
# all of it by then, and nothing else comes until it has answered, so what comes next is read by `read`
# and by `head`, and at last by the program that the shell becomes.

# Prints a line that the host knows ($1$2), the facts about this target and the helper with the hash $3.
# Then does what each line says, and prints its facts. `end` is the last line of each answer.
listen() {
    mask=$(umask)
    umask 077
    user=$(id -u) || exit 1
    # What a profile has printed may lack the end of its line.
    printf '\n%s%s\n' "$1" "$2"
    [ -t 0 ] && echo terminal
    echo "system $(uname -s)"
    echo "processor $(uname -m)"
    find_helper "$3"
    echo end
    while IFS= read -r line; do
        eval "$line"
        echo end
    done
}

# Becomes a program.
start() {
    umask "$mask"
    exec "$@"
}

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
        [ "$(sha256sum <"$1" 2>/dev/null | cut -d ' ' -f 1)" = "$hash" ]
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
# where somebody else has taken the plain one. Others can make names there too: one with a line break
# would be two folders, the second of them anywhere. `make` makes the cache folder if it is missing.
folders() {
    cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    if [ -n "$cache" ] && safe "${cache%/*}"; then
        [ "${1:-}" = make ] && mkdir "$cache" 2>/dev/null
        safe "$cache" && echo "$cache/keybridge"
    fi
    for base in "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
        safe "$base" || continue
        for there in "$base/keybridge-$user" "$base/keybridge-$user"-*; do
            case ${there##*/} in *[!0-9A-Za-z-]*) ;; *) echo "$there" ;; esac
        done
    done
}

# Looks for the helper with the hash $1.
find_helper() {
    hash=$1 name=keybridge-remote-$1
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

# The processor that the programs here are for, going by the byte of a program's header that names it.
programs_for() {
    case $(head -c 19 "$(command -v head)" 2>/dev/null | tail -c 1) in
    '>') echo x86_64 ;;
    "$(printf '\267')") echo aarch64 ;;
    esac
}

# Writes the helper with the hash $1 for the processor $2, whose $3 bytes come next. A failure ends the
# shell: some of the bytes may still be to come. A helper for a processor that isn't the one of the programs
# here isn't even tried: shells read such a file as a script. With `keep` as $4 other versions stay.
put_helper() {
    hash=$1 name=keybridge-remote-$1
    command -v sha256sum >/dev/null || give_up "missing sha256sum"
    command -v head >/dev/null || give_up "missing head"
    programs=$(programs_for)
    [ "${programs:-$2}" = "$2" ] || give_up "programs $programs"
    folder=$(folders make | while IFS= read -r wanted; do
        made=$(make_folder "$wanted")
        if [ -n "$made" ] && ours "$made" && runs "$made"; then
            echo "$made"
            break
        fi
        [ -n "$made" ] && rmdir "$made" 2>/dev/null
    done)
    [ -n "$folder" ] || give_up no-folder
    # What was left by a shell that was killed.
    for old in "$folder"/.new-*; do
        kill -0 "${old##*-}" 2>/dev/null || rm -f "$old"
    done
    new=$folder/.new-$$
    trap 'rm -f "$new"; drop_folder' EXIT
    trap 'exit 1' HUP INT TERM PIPE
    head -c "$3" >"$new" 2>/dev/null
    good "$new" || give_up "incomplete $folder"
    chmod 700 "$new" && mv -f "$new" "$folder/$name" || give_up "incomplete $folder"
    trap - EXIT HUP INT TERM PIPE
    echo "path $folder/$name"
    # Those of other versions; one that runs doesn't need its file.
    for old in "$folder"/keybridge-remote-*; do
        [ "$old" = "$folder/$name" ] || [ "$4" = keep ] || rm -f "$old"
    done
}

# Removes a folder in which there is nothing, and the cache folder that was made for it.
drop_folder() {
    rmdir "$folder" 2>/dev/null || return
    case ${folder%/*} in */.cache) rmdir "${folder%/*}" 2>/dev/null ;; esac
}

# Answers with a last fact.
give_up() {
    echo "$1"
    echo end
    exit 1
}
