#!/usr/bin/env bash
# usage: FSDP_BUILD=build tests/hosts/fuzz_rendezvous.sh [SECONDS [SEED]]
# For SECONDS (600), forms one job of two launchers after the other on loopback, while strangers open
# connections to the first launcher, before the job has formed and while it runs:
#   noise    random bytes, of 0 to 5,000
#   echo     sends back what the launcher has sent, as a reflected challenge
#   replay   sends what a launcher of an earlier job has sent, whole, cut off, or with a byte changed
#   idle     says nothing, and stays connected
#   secret   a launcher with another secret
#   second   a launcher with the job's secret, of a job that has all its hosts
# Each job must end with 0 on both launchers, and each rank must have its number. Prints how many jobs
# and connections there were. Needs an MPI and python3, which records what launchers send.
set -u
seconds=${1:-600} RANDOM=${2:-1}
build=$(realpath "${FSDP_BUILD:-build}")
fsdp=$build/fsdp
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
HOME=$dir FSDP_JOB_SECRET=the-secret-of-the-fuzz OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HOME FSDP_JOB_SECRET OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
unset XDG_CONFIG_HOME
mpi=openmpi
command -v hydra_pmi_proxy >/dev/null && command -v mpiexec.hydra >/dev/null && mpi=mpich
port=$((20000 + $$ % 9000))

# Passes bytes on between the second launcher and the first, and keeps what the second one sends.
cat >relay.py <<'END'
import select, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open(sys.argv[3] + ".up", "w")
near = server.accept()[0]
far = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
with open(sys.argv[3], "wb") as record:
    while True:
        for s in select.select([near, far], [], [])[0]:
            data = s.recv(65536)
            if not data:
                sys.exit()
            if s is near:
                record.write(data)
                record.flush()
            (far if s is near else near).sendall(data)
END
# start NAME PORT COMMAND...: a launcher in the background
start() {
    local name=$1 to=$2
    shift 2
    mkdir -p "tmp$name"
    TMPDIR=$dir/tmp$name timeout -s KILL 60 "$fsdp" launch --mpi $mpi --nnodes 2 --master-addr 127.0.0.1 --master-port "$to" -n 1 "$@" >"out$name" 2>"err$name" &
}
connections=0
count() { echo "$1" >>kinds; }
# One stranger of a random kind, to the port
stranger() {
    local length=$((RANDOM % 5000)) cut=$((RANDOM % 400))
    case $((RANDOM % 6)) in
    0) count noise; head -c $length /dev/urandom ;;
    1) count echo; exec {fd}<>/dev/tcp/127.0.0.1/"$1" && timeout 0.3 cat <&$fd >&$fd; return ;;
    2) count replay; cat record 2>/dev/null ;;
    3) count cut; head -c $cut record 2>/dev/null ;;
    4) count changed; { head -c $cut record; printf "\\x$(printf %02x $((RANDOM % 256)))"; tail -c +$((cut + 2)) record; } 2>/dev/null ;;
    5) count idle; exec {fd}<>/dev/tcp/127.0.0.1/"$1" && sleep 2; return ;;
    esac >"noise.$BASHPID"
    { cat "noise.$BASHPID" >/dev/tcp/127.0.0.1/"$1"; } 2>/dev/null
    rm -f "noise.$BASHPID"
}
strangers() { # PORT: until the file `done` is there
    while [ ! -e done ]; do
        (stranger "$1") 2>/dev/null &
        sleep 0.0$((RANDOM % 5))
    done
}
failed=0 jobs=0
: >kinds
while [ $SECONDS -lt "$seconds" ]; do
    port=$((port < 60000 ? port + 2 : 20000))
    rm -f done out? err?
    start 0 $port --node-rank 0 sh -c 'sleep 1; echo $RANK/$WORLD_SIZE'
    first=$!
    for _ in $(seq 200); do grep -q "waiting at" err0 2>/dev/null && break; sleep 0.02; done
    strangers $port &
    noisy=$!
    FSDP_JOB_SECRET=of-another-job start 2 $port --node-rank 1 true
    wrong=$!
    sleep 0.$((RANDOM % 10))
    to=$port
    if [ ! -s record ] && command -v python3 >/dev/null; then
        python3 relay.py $((port + 1)) $port record &
        for _ in $(seq 200); do [ -e record.up ] && break; sleep 0.02; done
        to=$((port + 1))
    fi
    start 1 $to --node-rank 1 sh -c 'sleep 1; echo $RANK/$WORLD_SIZE'
    second=$!
    for _ in $(seq 500); do grep -q "ranks on 2 hosts by" err0 2>/dev/null && break; sleep 0.02; done
    start 3 $port --node-rank 1 true
    late=$!
    wait $first; rc0=$?
    wait $second; rc1=$?
    : >done
    wait $wrong; rc2=$?
    wait $late; rc3=$?
    wait $noisy
    jobs=$((jobs + 1))
    said=$(cat out0 out1 | sort | tr '\n' ' ')
    if [ "$rc0$rc1 $said" != "00 0/2 1/2 " ] || [ $rc2 = 0 ] || [ $rc3 = 0 ]; then
        failed=$((failed + 1))
        echo "FAIL job $jobs: exit codes $rc0 $rc1, of strangers $rc2 $rc3, ranks '$said'"
        tail -n 5 err?
    fi
done
wait
sort kinds | uniq -c | awk '{ printf "%s%d %s", (NR > 1 ? ", " : "connections: "), $1, $2 } END { print "" }'
echo "$((jobs - failed)) passed, $failed failed"
[ $failed = 0 ]
