#!/bin/sh
# `fsdp launch` of several hosts, here several launchers on loopback: how they meet, who is refused,
# the environment and output of ranks, failures, signals and restarts. What needs hosts with names
# and cables is in hosts_launch.sh.
. "$(dirname "$0")/../cli/lib.sh"
needs nettle
# MPICH starts and ends faster. hosts_launch.sh tries both.
if command -v hydra_pmi_proxy >/dev/null && command -v mpiexec.hydra >/dev/null; then mpi=mpich
elif command -v orted >/dev/null && command -v mpirun >/dev/null; then mpi=openmpi
else
    skip launch_hosts "neither Open MPI nor MPICH is installed"
    tally
    exit
fi
mpi=${FSDP_TEST_MPI:-$mpi}
HOME=$dir FSDP_JOB_SECRET=the-secret-of-these-tests
export HOME FSDP_JOB_SECRET
unset XDG_CONFIG_HOME
# A port that no other test of this machine has: below those that the system hands out.
port=$((20000 + $$ % 9000))

# launch I OPTIONS...: starts launcher I in the background; Open MPI wants a TMPDIR of each host
launch() {
    number=$1
    shift
    mkdir -p "$dir/tmp$number"
    TMPDIR="$dir/tmp$number" timeout -s KILL 60 "$fsdp" launch --mpi $mpi "$@" \
        >"$dir/out$number" 2>"$dir/err$number" &
    eval "pid$number=\$!"
}
# all N OPTIONS...: starts N launchers, numbers 0 to N - 1
all() {
    n=$1
    shift
    port=$((port + 1))
    rm -f "$dir"/out? "$dir"/err? "$dir"/up.*
    for i in $(seq 0 $((n - 1))); do
        launch "$i" --nnodes "${nnodes:-$n}" --node-rank "$i" --master-addr 127.0.0.1 --master-port $port "$@"
    done
}
finish() {
    for i in $(seq 0 $((n - 1))); do
        eval "wait \$pid$i"
        eval "rc$i=$?"
    done
    cat "$dir"/err? >"$dir/err"
    cat "$dir"/out? >"$dir/out"
}
wait_until() {
    for _ in $(seq 400); do
        "$@" && return
        sleep 0.02
    done
    return 1
}
open_all() { [ "$(ls "$dir"/open.* 2>/dev/null | wc -l)" -eq 4 ]; }
are_up() { [ "$(ls "$dir"/up.* 2>/dev/null | wc -l)" -ge "$1" ]; }
is() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1" "$2, not $3"; fi; }
in_file() { grep -Eq -- "$2" "$dir/$1"; }
# launcher_of I: the process of launcher I, the child of its timeout
launcher_of() { eval "ps -o pid= --ppid \$pid$1" | tr -d ' '; }
none_left() { ! ps -eo args | grep -F "$dir/up" | grep -qv grep; }

all 2 -n 2 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RUN_ID x$FSDP_JOB_SECRET x$FSDP_LAUNCH_SOCKET x$FSDP_RENDEZVOUS'
finish
is two_launchers_run "$rc0$rc1" 00
is ranks_have_the_environment_of_torchrun "$(sort "$dir/out" | tr '\n' ' ')" \
    "0/4 0/2 0/2 127.0.0.1 none x x x 1/4 1/2 0/2 127.0.0.1 none x x x 2/4 0/2 1/2 127.0.0.1 none x x x 3/4 1/2 1/2 127.0.0.1 none x x x "
is each_host_prints_its_own "$(wc -l <"$dir/out1")" 2

all 2 -n 1 --log-dir "$dir/logs" -r 1 -t 2 --rdzv-id job sh -c 'echo out $RANK; echo err $RANK >&2'
finish
is output_goes_to_files_of_each_host "$(cat "$dir"/logs/job_*/attempt_0/0/stdout.log | sort | tr '\n' ' ')" "out 0 out 1 "
in_file err1 '^\[default0\]:err 1' && ok and_is_copied_to_its_console || bad and_is_copied_to_its_console "no"

# --- meeting ---
n=2
port=$((port + 1))
for i in 0 1; do launch $i --nnodes 2 --rdzv-endpoint localhost:$port --rdzv-id 7 -n 1 sh -c 'echo $RANK $TORCHELASTIC_RUN_ID'; done
finish
is an_endpoint_needs_no_node_rank "$rc0$rc1 $(sort "$dir/out" | tr '\n' ' ')" "00 0 7 1 7 "
printf 'num_machines: 2\nnum_processes: 2\nmachine_rank: 0\nmain_process_ip: "::1"\nmain_process_port: %s\nrdzv_backend: c10d\nmixed_precision: bf16\n' $((port + 1)) >"$dir/fsdp.yaml"
if [ -e /proc/net/if_inet6 ] && grep -q '^0*1 ' /proc/net/if_inet6; then
    port=$((port + 1))
    launch 0 --config_file "$dir/fsdp.yaml" sh -c 'echo $RANK of $WORLD_SIZE $ACCELERATE_MIXED_PRECISION'
    launch 1 --config_file "$dir/fsdp.yaml" --machine_rank 1 sh -c 'echo $RANK of $WORLD_SIZE $ACCELERATE_MIXED_PRECISION'
    finish
    is files_of_accelerate_count_all_ranks "$rc0$rc1 $(sort "$dir/out" | tr '\n' ' ')" "00 0 of 2 bf16 1 of 2 bf16 "
else skip files_of_accelerate_count_all_ranks "no IPv6"; fi
run launch --nnodes 2 -n 1 true
expect an_address_is_needed 2 'say where the hosts meet: --master-addr HOST'
run launch --nnodes 2 --node-rank 2 --master-addr 127.0.0.1 true
expect node_ranks_are_below_the_number_of_hosts 2 'node-rank: 2: with 2 hosts'
run launch --nnodes 2 --rdzv-endpoint 127.0.0.1:1 --rdzv-backend etcd true
expect other_backends_are_refused 2 "rdzv-backend: 'etcd'"
run launch --nnodes 2 --rdzv-endpoint 127.0.0.1:1 --rdzv-conf joint_timeout=3 true
expect unknown_keys_of_rdzv_conf_are_refused 2 "'joint_timeout' is not supported"
nnodes=2
all 1 --rdzv-conf join_timeout=0.3 -n 1 true
finish
is a_host_that_never_comes_ends_the_job "$rc0" 1
in_file err0 '1 of at least 2 hosts came within 0 s' && ok and_it_says_who_came || bad and_it_says_who_came "$(cat "$dir/err0")"
n=1
launch 0 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port --rdzv-conf timeout=0.3 true
finish
is a_first_host_that_never_comes_too "$rc0" 1
in_file err0 'the first host did not come within' && ok and_is_named || bad and_is_named "no"
unset nnodes

# --- who may join ---
all 2 -n 1 sh -c "$(printf ': >%s/up.$RANK; while [ ! -e %s/stop ]; do sleep 0.05; done' "$dir" "$dir")"
wait_until are_up 2
first_port=$port
FSDP_JOB_SECRET=another-secret-of-another-job launch 2 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $first_port true
eval "wait \$pid2"
is another_secret_is_refused $? 1
in_file err2 'the job secret there differs' && ok and_it_is_said || bad and_it_is_said "$(cat "$dir/err2")"
launch 2 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $first_port -n 1 true
eval "wait \$pid2"
is another_job_is_refused $? 1
env -u FSDP_JOB_SECRET timeout -s KILL 60 "$fsdp" launch --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $first_port true 2>"$dir/err"
rc=$?
expect without_a_secret_nothing_is_tried 1 'this host has no job secret. Start the first host'
: >"$dir/stop"
finish
is the_job_goes_on "$rc0$rc1" 00
# While the job forms: 1,000 connections that say nothing, some with garbage, a wrong secret, and
# another job. The shells that hold the connections are of bash, which opens them by itself.
if command -v bash >/dev/null; then
    n=2
    port=$((port + 1))
    launch 0 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port -n 1 sh -c 'echo $RANK/$WORLD_SIZE'
    wait_until in_file err0 'waiting at'
    strangers=
    for _ in 1 2 3 4; do
        bash -c 'for i in $(seq 250); do exec {fd}<>/dev/tcp/127.0.0.1/'$port'; done; : >"'$dir'/open.$$"; exec sleep 60' 2>/dev/null &
        strangers="$strangers $!"
    done
    bash -c 'for i in $(seq 40); do head -c $((i * 37)) /dev/urandom >/dev/tcp/127.0.0.1/'$port'; done' 2>/dev/null
    FSDP_JOB_SECRET=another-secret-of-another-job launch 2 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port true
    wait_until open_all || bad a_thousand_connections_are_open "$(ls "$dir"/open.*)"
    launch 1 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port -n 1 sh -c 'echo $RANK/$WORLD_SIZE'
    finish
    eval "wait \$pid2"
    is strangers_and_wrong_secrets_do_not_keep_a_job_from_forming "$rc0$rc1 $(cat "$dir/out0" "$dir/out1" | tr '\n' ' ')" "00 0/2 1/2 "
    in_file err2 'the job secret there differs' && ok and_a_wrong_secret_is_said || bad and_a_wrong_secret_is_said "$(cat "$dir/err2")"
    # shellcheck disable=SC2086
    kill $strangers
else skip strangers_and_wrong_secrets_do_not_keep_a_job_from_forming "bash is not installed"; fi
n=2
port=$((port + 1))
printf '#!/bin/sh\n:\n' >"$dir/prog"
chmod +x "$dir/prog"
launch 0 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port -n 1 --rdzv-conf join_timeout=0.7 ./prog --lr 1e-4
launch 1 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port -n 1 ./prog --lr 2e-4
finish
is another_command_line_is_refused "$rc0$rc1" 11
in_file err1 "on .* it is '1e-4', word 3 of the command; here it is '2e-4', word 3" && ok and_the_word_is_named ||
    bad and_the_word_is_named "$(cat "$dir/err1")"
port=$((port + 1))
launch 0 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port --max-restarts 1 --rdzv-conf join_timeout=0.7 ./prog
launch 1 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port ./prog
finish
in_file err1 'it is --max-restarts 1; here it is --max-restarts 0' && ok and_so_is_an_option ||
    bad and_so_is_an_option "$(cat "$dir/err1")"
# The first launcher makes a secret, and prints the word for the others.
n=2
port=$((port + 1))
secret=$FSDP_JOB_SECRET
unset FSDP_JOB_SECRET
launch 0 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port -n 1 ./prog
wait_until in_file err0 FSDP_JOB_SECRET=
FSDP_JOB_SECRET=$(sed -n 's/^ *FSDP_JOB_SECRET=//p' "$dir/err0")
export FSDP_JOB_SECRET
launch 1 --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $port -n 1 ./prog
finish
is the_first_launcher_makes_a_secret "$rc0$rc1" 00
mkdir -p "$dir/.config/fsdp"
echo "$FSDP_JOB_SECRET" >"$dir/.config/fsdp/job-secret"
chmod 600 "$dir/.config/fsdp/job-secret"
unset FSDP_JOB_SECRET
all 2 -n 1 ./prog
finish
is a_secret_in_the_home_folder_needs_no_word "$rc0$rc1" 00
rm -r "$dir/.config"
FSDP_JOB_SECRET=$secret
export FSDP_JOB_SECRET

# --- ends ---
all 2 -n 2 sh -c ': >'"$dir"'/up.$RANK; [ $RANK != 3 ] || exit 7; exec sleep 60'
finish
is a_rank_that_fails_ends_all "$rc0$rc1" 11
for i in 0 1; do
    in_file err$i 'host .*: rank 3 \(pid [0-9]+\) exited with status 7$' && ok "and_launcher_${i}_names_it" ||
        bad "and_launcher_${i}_names_it" "$(cat "$dir/err$i")"
done
wait_until none_left && ok and_nothing_is_left || bad and_nothing_is_left "$(ps -eo args | grep "$dir")"
all 2 -n 1 --max-restarts 2 sh -c 'echo $RANK $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS >>'"$dir"'/counts; sleep 0.5; [ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ]'
finish
is ranks_start_again "$rc0$rc1 $(sort "$dir/counts" | tr '\n' ' ')" "00 0 0/2 0 1/2 1 0/2 1 1/2 "
all 2 -n 1 sh -c 'trap "sleep 0.3; echo saved $RANK; exit 0" INT; : >'"$dir"'/up.$RANK; while :; do sleep 0.05; done'
wait_until are_up 2
kill -INT "$(launcher_of 1)"
finish
is an_interrupt_on_one_host_ends_all "$rc0 $rc1" "130 130"
is and_ranks_save "$(sort "$dir/out" | tr '\n' ' ')" "saved 0 saved 1 "
in_file err0 'got signal 2 \(Interrupt\)' && ok and_the_host_is_named || bad and_the_host_is_named "no"
# The shell and the kernel each send a SIGHUP when a terminal is closed.
for hung in 0 1; do
    all 2 -n 1 sh -c 'trap "sleep 0.5; echo saved $RANK; exit 0" HUP; : >'"$dir"'/up.$RANK; while :; do sleep 0.05; done'
    wait_until are_up 2
    kill -HUP "$(launcher_of $hung)"
    sleep 0.1
    kill -HUP "$(launcher_of $hung)"
    finish
    is "a_second_hangup_of_launcher_${hung}_does_not_kill" "$rc0 $rc1 $(sort "$dir/out" | tr '\n' ' ')" "129 129 saved 0 saved 1 "
done
# Two signals that arrive together, before all hosts have joined.
n=1
port=$((port + 1))
launch 0 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $port --rdzv-conf join_timeout=20 train
reads_signals() { grep -qs '^SigBlk:.*[1-9a-f]' "/proc/$(launcher_of 0)/status"; }
wait_until reads_signals
kill -STOP "$(launcher_of 0)"
kill -USR1 "$(launcher_of 0)"
kill -TERM "$(launcher_of 0)"
kill -CONT "$(launcher_of 0)"
finish
is two_signals_before_all_hosts_have_joined "$rc0" 75
# A checkpoint that cannot be written is a failure: the batch system must not start the run again.
if lacks MPI; then skip a_checkpoint_that_fails_after_a_signal "built without MPI"
elif [ -n "${TSAN_OPTIONS:-}" ]; then
    skip a_checkpoint_that_fails_after_a_signal "the thread sanitizer crashes when a signal meets a thread that MPI has made"
else
    awk 'BEGIN { srand(3); for (i = 0; i < 24; i++) { printf "{\"input_ids\": ["
        for (k = 0; k < 5 + i % 7; k++) printf "%s%d", k ? ", " : "", 3 + int(50 * rand()); print "]}" } }' >"$dir/ids.jsonl"
    trains() { grep -q '"step": 3,' "$dir/m.jsonl" 2>/dev/null; }
    for way in fails saves; do
        rm -rf "$dir/o" "$dir/o-checkpoints" "$dir/m.jsonl"
        all 2 -n 1 train --model "$golden/llama3/model" --data "$dir/ids.jsonl" --batch-size 1 --epochs 2000 \
            --seed 3 --device cpu --output "$dir/o" --metrics "$dir/m.jsonl" --save-steps 100000
        wait_until trains
        if [ $way = fails ]; then
            rm -rf "$dir/o-checkpoints"
            : >"$dir/o-checkpoints"
        fi
        kill -USR1 "$(launcher_of 1)"
        finish
        if [ $way = fails ]; then
            is a_checkpoint_that_fails_after_a_signal_is_a_failure "$rc0 $rc1" "1 1"
            in_file err0 'host .*: rank [01] .*o-checkpoints: cannot make' && in_file err1 'host .*: rank [01] .*o-checkpoints: cannot make' &&
                ok and_both_launchers_report_it || bad and_both_launchers_report_it "$(cat "$dir/err")"
        else
            is a_checkpoint_that_is_saved_asks_to_start_again "$rc0 $rc1" "75 75"
        fi
    done
    rm -rf "$dir/o" "$dir/o-checkpoints"
fi
for killed in 0 1; do
    all 2 -n 1 sh -c ': >'"$dir"'/up.$RANK; exec sleep 60'
    wait_until are_up 2
    kill -KILL "$(launcher_of $killed)"
    finish
    eval "rc=\$rc$((1 - killed))"
    is "when_launcher_${killed}_is_killed_the_other_fails" "$rc" 1
    in_file "err$((1 - killed))" 'is lost: ' && ok "and_names_$killed" || bad "and_names_$killed" "no"
    wait_until none_left && ok "and_leaves_nothing_of_$killed" || bad "and_leaves_nothing_of_$killed" "$(ps -eo args | grep "$dir")"
done
PATH=/nonexistent "$fsdp" launch --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 ./prog 2>"$dir/err"
rc=$?
expect without_mpi_a_package_is_named 1 'is not installed|openmpi-bin or mpich'
tally
