# Shared by the scripts hosts_*.sh of this folder, whose hosts are namespaces of this machine. Each
# begins with `. "$(dirname "$0")/lib.sh"` and `begin NAME`, and ends with `tally`, as with
# tests/cli/lib.sh.
#   $hosts                  hosts.sh, with a set of hosts of this script's own
#   $host                   the hosts have the names ${host}1, ${host}2, ...
#   hosts_up N [RATE]       make N hosts; begin's trap removes them
hosts=$(cd "$(dirname "$0")" && pwd)/hosts.sh
. "$(dirname "$0")/../cli/lib.sh"
host=${HOSTS_PREFIX:-fsdpt$$x}
HOSTS_PREFIX=$host
export HOSTS_PREFIX OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset XDG_CONFIG_HOME
n_up=0

# begin NAME: ends the script with the reason if hosts cannot be made
begin() {
    reason=$("$hosts" missing)
    if [ -n "$reason" ]; then
        skip "$1" "$reason"
        tally
        exit
    fi
    "$hosts" down
    trap '"$hosts" down; rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexec %s ssh "$@"\n' "$hosts" >"$dir/agent"
    chmod +x "$dir/agent"
}
hosts_up() {
    "$hosts" up "$@" || { bad hosts_up "cannot make hosts"; tally; exit 1; }
    n_up=$1
}
on() { "$hosts" exec "$@"; }
# has_mpi openmpi|mpich: its launcher and daemon are installed
has_mpi() {
    case $1 in
    openmpi) command -v mpirun.openmpi >/dev/null && command -v orted >/dev/null ;;
    mpich) command -v mpiexec.hydra >/dev/null && command -v hydra_pmi_proxy >/dev/null ;;
    esac
}
# mpirun_of openmpi|mpich SLOTS COMMAND...: starts SLOTS ranks on each host, from host 1
mpirun_of() {
    mpirun_kind=$1 mpirun_slots=$2
    shift 2
    if [ "$mpirun_kind" = openmpi ]; then
        on 1 mpirun.openmpi --mca plm_rsh_agent "$dir/agent" --mca plm_rsh_no_tree_spawn 1 \
            --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --mca pml ob1 \
            --mca btl self,vader,tcp --bind-to none --oversubscribe $(env | sed -n "s/^\(FSDP_[A-Z_]*\)=.*/-x \1/p") \
            -H "$("$hosts" list "$mpirun_slots")" "$@"
    else
        on 1 mpiexec.hydra -launcher ssh -launcher-exec "$dir/agent" -iface eth0 \
            -hosts "$("$hosts" list "$mpirun_slots")" -n "$((n_up * mpirun_slots))" -bind-to none "$@"
    fi
}
# wait_until SECONDS COMMAND...: repeats the command until it succeeds
wait_until() {
    wait_end=$(($(date +%s) + $1))
    shift
    while ! "$@"; do
        [ "$(date +%s)" -le "$wait_end" ] || return 1
        sleep 0.05
    done
}
none_left() { for i in $(seq "$n_up"); do [ -z "$("$hosts" pids "$i")" ] || return 1; done; }
# what_is_left: prints the command lines of the processes on all hosts
what_is_left() {
    for i in $(seq "$n_up"); do
        for pid in $("$hosts" pids "$i"); do
            echo "$host$i: $(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c 1-150)"
        done
    done
}
# the_launcher I: the process of `fsdp launch` of host I, which is not one of its ranks
the_launcher() {
    for pid in $("$hosts" pids "$1"); do
        [ "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | awk '{ print $2 }')" = launch ] && { echo "$pid"; return; }
    done
}
# the_ranks I: the processes of host I that are ranks of `fsdp train`, without those that watch them
the_ranks() {
    for pid in $("$hosts" pids "$1"); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != fsdp-guard ] || continue
        { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null |
            awk -v pid="$pid" '$1 ~ /(^|\/)fsdp$/ && $2 == "train" { print pid }'
    done
}
is() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1" "$2, not $3"; fi; }
