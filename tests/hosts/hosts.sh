#!/bin/sh
# Hosts on one machine: Linux namespaces with a network, a host name, shared memory and temporary
# files of their own, joined by cables to a switch. No file of the machine is changed, and nothing
# can be reached from outside. Needs root, ip and tc (iproute2), nsenter and unshare (util-linux).
#
#   hosts.sh up N RATE       make hosts ${HOSTS_PREFIX}1 to N with cables of RATE, such as 1gbit
#   hosts.sh exec I CMD...   run a command on host I
#   hosts.sh ssh HOST CMD... the same, called as ssh is: the launch agent of mpirun
#   hosts.sh bytes           for each host, the payload bytes that its cable has sent
#   hosts.sh cut I | heal I  pull the cable of host I | plug it in
#   hosts.sh pids I          the processes of host I
#   hosts.sh list SLOTS      NAME:SLOTS,NAME:SLOTS, as mpirun -H takes it
#   hosts.sh down            end all processes of the hosts, and remove them
#
# HOSTS_PREFIX (fsdph), HOSTS_NET (10.79.0) and HOSTS_STATE (/tmp/PREFIX) keep sets of hosts apart.
set -eu
prefix=${HOSTS_PREFIX:-fsdph} net=${HOSTS_NET:-10.79.0}
state=${HOSTS_STATE:-/tmp/$prefix}
die() { echo "hosts.sh: $*" >&2; exit 2; }
count() { cat "$state/count" 2>/dev/null || die "no hosts are up"; }
each() { seq "$(count)"; }

# A token bucket of 4 ms. It must hold two packets of 64 KiB, because veth carries such packets whole.
shape() { # NAMESPACE DEVICE RATE
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 500000 latency 50ms
}

make_host() { # I RATE
    ip netns add "$prefix$1"
    ip -n "$prefix$1" link set lo up
    ip link add eth0 netns "$prefix$1" type veth peer name "p$1" netns "${prefix}sw"
    ip -n "$prefix$1" addr add "$net.$1/24" dev eth0
    ip -n "$prefix$1" link set eth0 up
    ip -n "${prefix}sw" link set "p$1" master br0
    ip -n "${prefix}sw" link set "p$1" up
    shape "$prefix$1" eth0 "$2"
    shape "${prefix}sw" "p$1" "$2"
    mkdir -p "$state/tmp$1"
    # This process keeps the other namespaces of the host.
    setsid nsenter --net="/run/netns/$prefix$1" unshare --uts --ipc --mount --propagation private \
        sh -c 'hostname "$1"; mount -t sysfs sysfs /sys; mount -t tmpfs -o mode=1777 tmpfs /dev/shm
            mount --bind "$2/hosts" /etc/hosts; : >"$2/up.$1"; exec sleep infinity' \
        sh "$prefix$1" "$state" </dev/null >/dev/null 2>&1 &
    echo $! >"$state/$1.pid"
}

up() { # N RATE
    [ "$(id -u)" = 0 ] || die "needs root"
    [ ! -e "$state/count" ] || die "hosts are up already: hosts.sh down"
    mkdir -p "$state"
    echo "$1" >"$state/count"
    { echo "127.0.0.1 localhost"; for i in $(each); do echo "$net.$i $prefix$i"; done; } >"$state/hosts"
    ip netns add "${prefix}sw"
    ip -n "${prefix}sw" link set lo up
    ip -n "${prefix}sw" link add br0 type bridge
    ip -n "${prefix}sw" link set br0 up
    for i in $(each); do make_host "$i" "$2"; done
    for i in $(each); do
        tries=0
        while [ ! -e "$state/up.$prefix$i" ]; do
            tries=$((tries + 1))
            [ $tries -lt 200 ] || die "host $i did not come up"
            sleep 0.02
        done
    done
}

pids() { # I
    holder=$(cat "$state/$1.pid")
    name=$(readlink "/proc/$holder/ns/uts") || return 0
    for entry in /proc/[0-9]*; do
        [ "${entry#/proc/}" != "$holder" ] || continue
        [ "$(readlink "$entry/ns/uts" 2>/dev/null)" != "$name" ] || echo "${entry#/proc/}"
    done
}

enter() { # I CMD...
    host=$1
    shift
    exec nsenter -t "$(cat "$state/$host.pid")" --mount --uts --ipc --net -- \
        sh -c 'cd "$1" && shift && exec "$@"' sh "$PWD" env TMPDIR="$state/tmp$host" "$@"
}

down() {
    for i in $(seq "$(cat "$state/count" 2>/dev/null || echo 0)"); do
        [ -e "$state/$i.pid" ] || continue
        for pid in $(pids "$i"); do kill -KILL "$pid" 2>/dev/null || true; done
        kill -KILL "$(cat "$state/$i.pid")" 2>/dev/null || true
        ip netns del "$prefix$i" 2>/dev/null || true
    done
    ip netns del "${prefix}sw" 2>/dev/null || true
    rm -rf "$state"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
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
list) for i in $(each); do printf '%s%s:%s' "$([ "$i" = 1 ] || echo ,)" "$prefix$i" "$1"; done ;;
down) down ;;
*) die "up, exec, ssh, bytes, cut, heal, pids, list or down" ;;
esac
