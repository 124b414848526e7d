# Hosts on one machine, made of Linux namespaces: each has its own network, name, IPC, /dev/shm and
# /etc/hosts, and all are joined by cables to a bridge. Needs root, iproute2 and util-linux. No file
# of the machine is changed, and nothing is reachable from outside. To be sourced.
#   hosts_missing            prints what is missing, or nothing
#   hosts_up N               makes hosts $host_prefix1 ... with addresses $host_net.1 ...
#   on I COMMAND...          runs a command on host I, with TMPDIR of its own
#   unplug I, plug I         pulls and plugs the cable of host I
#   host_pids I              prints the processes that run on host I
#   hosts_down               ends them all
host_prefix=${FSDP_TEST_HOST_PREFIX:-fsdpt$$x} host_net=${FSDP_TEST_HOST_NET:-10.79.$(($$ % 250))}
host_state= host_count=0

hosts_missing() {
    [ "$(id -u)" = 0 ] || { echo "needs root"; return; }
    for program in ip nsenter unshare setsid; do
        command -v $program >/dev/null || { echo "$program is not installed"; return; }
    done
    unshare --net --uts --ipc --mount true 2>/dev/null || { echo "no namespaces can be made"; return; }
    ip netns add "${host_prefix}try" 2>/dev/null || { echo "ip netns does not work"; return; }
    ip netns del "${host_prefix}try"
}

hosts_up() {
    host_count=$1
    host_state=$(mktemp -d) || return 1
    { echo "127.0.0.1 localhost"
      for i in $(seq "$1"); do echo "$host_net.$i $host_prefix$i"; done; } >"$host_state/hosts"
    ip netns add "${host_prefix}sw" && ip -n "${host_prefix}sw" link add br0 type bridge &&
        ip -n "${host_prefix}sw" link set br0 up || return 1
    for i in $(seq "$1"); do
        ip netns add "$host_prefix$i" && ip -n "$host_prefix$i" link set lo up &&
            ip link add eth0 netns "$host_prefix$i" type veth peer name "p$i" netns "${host_prefix}sw" &&
            ip -n "$host_prefix$i" addr add "$host_net.$i/24" dev eth0 &&
            ip -n "$host_prefix$i" link set eth0 up &&
            ip -n "${host_prefix}sw" link set "p$i" master br0 &&
            ip -n "${host_prefix}sw" link set "p$i" up || return 1
        mkdir -p "$host_state/tmp$i"
        # This process keeps the namespaces. setsid and nsenter exec, so $! is its id.
        setsid nsenter --net="/run/netns/$host_prefix$i" unshare --uts --ipc --mount \
            --propagation private sh -c 'hostname "$1"; mount -t tmpfs -o mode=1777 tmpfs /dev/shm
            mount --bind "$2/hosts" /etc/hosts; : >"$2/up.$1"; exec sleep infinity' \
            sh "$host_prefix$i" "$host_state" </dev/null >/dev/null 2>&1 &
        echo $! >"$host_state/holder$i"
    done
    for i in $(seq "$1"); do
        for _ in $(seq 200); do
            [ -e "$host_state/up.$host_prefix$i" ] && break
            sleep 0.02
        done
    done
}
on() {
    on_host=$1
    shift
    nsenter -t "$(cat "$host_state/holder$on_host")" --mount --uts --ipc --net --wdns="$PWD" -- \
        env TMPDIR="$host_state/tmp$on_host" "$@"
}
unplug() { ip -n "${host_prefix}sw" link set "p$1" down; }
plug() { ip -n "${host_prefix}sw" link set "p$1" up; }
host_pids() {
    holder=$(cat "$host_state/holder$1")
    namespace=$(readlink "/proc/$holder/ns/uts")
    for process in /proc/[0-9]*; do
        [ "${process#/proc/}" = "$holder" ] && continue
        [ "$(readlink "$process/ns/uts" 2>/dev/null)" = "$namespace" ] && echo "${process#/proc/}"
    done
}
hosts_down() {
    [ -n "$host_state" ] || return 0
    for i in $(seq "$host_count"); do
        [ -e "$host_state/holder$i" ] || continue
        for pid in $(host_pids "$i"); do kill -KILL "$pid" 2>/dev/null; done
        kill -KILL "$(cat "$host_state/holder$i")" 2>/dev/null
        ip netns del "$host_prefix$i" 2>/dev/null
    done
    ip netns del "${host_prefix}sw" 2>/dev/null
    rm -rf "$host_state"
    host_state=
}
