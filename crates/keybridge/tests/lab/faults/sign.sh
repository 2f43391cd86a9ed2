# Clients that sign all the time: CLIENTS PAUSE PAUSE-AFTER-A-FAILURE, the pauses in milliseconds.
# The first process of a container, so that they come and go with it. While the file `go` is there,
# each signs a text of its own at each turn, and notes it in CLIENT.log:
#   NAME START END ok            or what gpg complained about in the place of ok
# and a line `rest` when it is idle.
export LC_ALL=C
trap 'exit 0' TERM
cd /signers || exit 1
# Nothing ever comes from there: to wait without starting a process.
exec {never}<> <(:)

wait_for() {
    local time
    printf -v time '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
    read -rt "$time" -u "$never"
}

rest() {
    echo rest >>"$1.log"
    until [[ -e go ]]; do wait_for 50; done
}

client() {
    local number=$1 boot=$EPOCHREALTIME turn=0 name start pause complaint
    # Not all at once.
    wait_for $(($2 * number / clients))
    while :; do
        [[ -e go ]] || rest "$number"
        name=$number-$boot-$((++turn)) start=$EPOCHREALTIME
        if gpg --batch --no-tty --clear-sign <<<"$name" >"$name.asc" 2>"$number.complaint"; then
            pause=$2 complaint=ok
        else
            pause=$3 complaint=
            read -rd '' complaint <"$number.complaint"
            complaint=${complaint//$'\n'/; } complaint=${complaint:0:300}
        fi
        echo "$name $start $EPOCHREALTIME $complaint" >>"$number.log"
        wait_for "$pause"
    done
}

clients=$1
for ((number = 0; number < clients; number++)); do
    client "$number" "$2" "$3" &
done
wait
