#!/bin/sh
# Hosts on one machine: Linux namespaces with a network, a host name, shared memory and temporary
# files of their own, joined by cables to a switch. No file of the machine is changed, and nothing
# can be reached from outside. Needs root, ip and tc (iproute2), nsenter and unshare (util-linux).
#
#   hosts.sh missing         print what this machine lacks for it, or nothing
#   hosts.sh up N [RATE]     make hosts ${HOSTS_PREFIX}1 to N; RATE, such as 1gbit, limits the cables
#   hosts.sh exec I CMD...   run a command on host I
#   hosts.sh ssh HOST CMD... the same, called as ssh is: the launch agent of mpirun
#   hosts.sh bytes           for each host, the payload bytes that its cable has sent
#   hosts.sh cut I | heal I  pull the cable of host I | plug it in
#   hosts.sh pids I          the processes of host I, without those that have ended
#   hosts.sh kill I          kill all processes of host I
#   hosts.sh list SLOTS      NAME:SLOTS,NAME:SLOTS, as mpirun -H takes it
#   hosts.sh down            end all processes of the hosts, and remove them
#
# HOSTS_PREFIX (fsdph), HOSTS_NET (10.79.0) and HOSTS_STATE (/tmp/PREFIX) keep sets of hosts apart.
# tests/hosts/lib.sh makes a set for one script.
set -eu
prefix=${HOSTS_PREFIX:-fsdph} net=${HOSTS_NET:-10.79.0}
state=${HOSTS_STATE:-/tmp/$prefix}
die() { echo "hosts.sh: $*" >&2; exit 2; }
count() { cat "$state/count" 2>/dev/null || die "no hosts are up"; }
each() { seq "$(count)"; }

missing() {
    [ "$(id -u)" = 0 ] || { echo "needs root"; return; }
    for program in ip tc nsenter unshare setsid; do
        command -v $program >/dev/null || { echo "$program is not installed"; return; }
    done
    unshare --net --uts --ipc --mount true 2>/dev/null || { echo "no namespaces can be made"; return; }
    ip netns add "${prefix}try" 2>/dev/null || { echo "ip netns does not work"; return; }
    ip netns del "${prefix}try"
}

# A token bucket of 4 ms. It must hold two packets of 64 KiB, because veth carries such packets whole.
shape() { # NAMESPACE DEVICE RATE
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 500000 latency 50ms
}

make_host() { # I [RATE]
    ip netns add "$prefix$1"
    ip -n "$prefix$1" link set lo up
    ip link add eth0 netns "$prefix$1" type veth peer name "p$1" netns "${prefix}sw"
    ip -n "$prefix$1" addr add "$net.$1/24" dev eth0
    ip -n "$prefix$1" link set eth0 up
    ip -n "${prefix}sw" link set "p$1" master br0
    ip -n "${prefix}sw" link set "p$1" up
    if [ -n "$2" ]; then
        shape "$prefix$1" eth0 "$2"
        shape "${prefix}sw" "p$1" "$2"
    fi
    mkdir -p "$state/tmp$1"
    # This process keeps the other namespaces of the host. slurmd needs the cgroups in the new /sys.
    setsid nsenter --net="/run/netns/$prefix$1" unshare --uts --ipc --mount --propagation private \
        sh -c 'hostname "$1"; mount --rbind /sys/fs/cgroup "$2/cgroup.$1"; mount -t sysfs sysfs /sys
            mount --rbind "$2/cgroup.$1" /sys/fs/cgroup; mount -t tmpfs -o mode=1777 tmpfs /dev/shm
            mount --bind "$2/hosts" /etc/hosts; : >"$2/up.$1"; exec sleep infinity' \
        sh "$prefix$1" "$state" </dev/null >/dev/null 2>&1 &
    echo $! >"$state/$1.pid"
}

up() { # N [RATE]
    [ "$(id -u)" = 0 ] || die "needs root"
    [ ! -e "$state/count" ] || die "hosts are up already: hosts.sh down"
    mkdir -p "$state"
    echo "$1" >"$state/count"
    { echo "127.0.0.1 localhost"; for i in $(each); do echo "$net.$i $prefix$i"; done; } >"$state/hosts"
    ip netns add "${prefix}sw"
    ip -n "${prefix}sw" link set lo up
    ip -n "${prefix}sw" link add br0 type bridge
    ip -n "${prefix}sw" link set br0 up
    for i in $(each); do
        mkdir -p "$state/cgroup.$prefix$i"
        make_host "$i" "${2:-}"
    done
    for i in $(each); do
        tries=0
        while [ ! -e "$state/up.$prefix$i" ]; do
            tries=$((tries + 1))
            [ $tries -lt 500 ] || die "host $i did not come up"
            sleep 0.02
        done
    done
}

pids() { # I
    holder=$(cat "$state/$1.pid")
    name=$(readlink "/proc/$holder/ns/uts") || return 0
    { find /proc/[0-9]*/ns/uts -maxdepth 0 -printf '%p %l\n' 2>/dev/null || true; } |
        awk -F'[/ ]' -v name="$name" -v holder="$holder" '$NF == name && $3 != holder { print $3 }'
}

# New processes may appear while the old ones are killed, so repeat it until there are none.
kill_host() { # I
    tries=0
    while found=$(pids "$1") && [ -n "$found" ]; do
        kill -KILL $found 2>/dev/null || true
        tries=$((tries + 1))
        [ $tries -lt 100 ] || die "processes of host $1 do not end: $found"
    done
}

enter() { # I CMD...
    host=$1
    shift
    exec nsenter -t "$(cat "$state/$host.pid")" --mount --uts --ipc --net --wdns="$PWD" -- \
        env TMPDIR="$state/tmp$host" "$@"
}

down() {
    for i in $(seq "$(cat "$state/count" 2>/dev/null || echo 0)"); do
        [ -e "$state/$i.pid" ] || continue
        kill_host "$i"
        kill -KILL "$(cat "$state/$i.pid")" 2>/dev/null || true
        ip netns del "$prefix$i" 2>/dev/null || true
    done
    ip netns del "${prefix}sw" 2>/dev/null || true
    rm -rf "$state"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
missing) missing ;;
up) up "$@" ;;
exec) enter "$@" ;;
ssh)
    while :; do
        case $1 in -[opl]) shift 2 ;; -*) shift ;; *) break ;; esac
    done
    name=$1
    shift
    case $name in "$net".*) name=$prefix${name##*.} ;; esac
    enter "${name#"$prefix"}" sh -c "$*"
    ;;
bytes)
    for i in $(each); do ip netns exec "$prefix$i" cat /sys/class/net/eth0/statistics/tx_bytes; done
    ;;
cut) ip -n "${prefix}sw" link set "p$1" down ;;
heal) ip -n "${prefix}sw" link set "p$1" up ;;
pids) pids "$1" ;;
kill) kill_host "$1" ;;
list) for i in $(each); do printf '%s%s:%s' "$([ "$i" = 1 ] || echo ,)" "$prefix$i" "$1"; done ;;
down) down ;;
*) die "missing, up, exec, ssh, bytes, cut, heal, pids, kill, list or down" ;;
esac
