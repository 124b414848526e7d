#!/bin/sh
# usage: tests/hosts/hosts_launch.sh: `fsdp launch` over several hosts, which are namespaces of this
# machine: names, failures, cables, ssh. Needs root, and Open MPI or MPICH; skipped with a reason
# otherwise. `make test-hosts` runs it. tests/hosts/test_launch_hosts.sh has what needs no root.
. "$(dirname "$0")/lib.sh"
begin hosts_launch
needs nettle
hosts_up 4
FSDP_JOB_SECRET=the-secret-of-these-tests HOME=$dir
export FSDP_JOB_SECRET HOME

# launch I OPTIONS...: starts the launcher of host I (from 1) in the background
launch() {
    number=$1
    shift
    on "$number" timeout -s KILL 100 "$fsdp" launch "$@" >"$dir/out$number" 2>"$dir/err$number" &
    eval "pid$number=\$!"
}
# all N OPTIONS...: starts N launchers with --node-rank
all() {
    n=$1
    shift
    rm -f "$dir"/out? "$dir"/err? "$dir"/up.*
    for i in $(seq "$n"); do
        launch "$i" --nnodes "${nnodes:-$n}" --node-rank $((i - 1)) --master-addr "${host}1" $mpi "$@"
    done
}
finish() {
    for i in $(seq "$n"); do
        eval "wait \$pid$i"
        eval "rc$i=$?"
    done
    cat "$dir"/err? >"$dir/err"
    cat "$dir"/out? >"$dir/out"
}
are_up() { [ "$(ls "$dir"/up.* 2>/dev/null | wc -l)" -ge "$1" ]; }
# ended NAME FROM_S WITHIN_S: the job has ended in time, and no process is left on any host
ended() {
    took=$(($(date +%s) - $2))
    [ "$took" -le "$3" ] && ok "$1_in_time" || bad "$1_in_time" "$took s"
    wait_until 15 none_left && ok "$1_and_nothing_is_left" ||
        bad "$1_and_nothing_is_left" "$(what_is_left)"
}
sleeping='trap "exit 0" TERM; : >'$dir'/up.$RANK; while :; do sleep 0.1; done'

awk 'BEGIN { srand(3); for (i = 0; i < 24; i++) { printf "{\"input_ids\": ["
    for (k = 0; k < 5 + i % 7; k++) printf "%s%d", k ? ", " : "", 3 + int(50 * rand()); print "]}" } }' >"$dir/ids.jsonl"
train="--model $golden/llama3/model --data $dir/ids.jsonl --batch-size 1 --max-steps 4 --learning-rate 1e-3 --seed 3 --device cpu"

for library in openmpi mpich; do
    has_mpi $library || { skip "$library" "not installed"; continue; }
    mpi="--mpi $library"
    all 3 -n 2 sh -c 'echo $(hostname) $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR'
    finish
    is "${library}_runs_on_three_hosts" "$rc1$rc2$rc3" 000
    is "${library}_gives_the_environment_of_torchrun" "$(sort "$dir/out" | tr '\n' ' ')" \
        "${host}1 0/6 0/2 0/3 ${host}1 ${host}1 1/6 1/2 0/3 ${host}1 ${host}2 2/6 0/2 1/3 ${host}1 ${host}2 3/6 1/2 1/3 ${host}1 ${host}3 4/6 0/2 2/3 ${host}1 ${host}3 5/6 1/2 2/3 ${host}1 "
    is "${library}_prints_on_each_host" "$(wc -l <"$dir/out2")" 2
    all 4 -n 1 sh -c 'echo $(hostname) $RANK/$WORLD_SIZE'
    finish
    is "${library}_runs_on_four_hosts" "$rc1$rc2$rc3$rc4 $(sort "$dir/out" | tr '\n' ' ')" \
        "0000 ${host}1 0/4 ${host}2 1/4 ${host}3 2/4 ${host}4 3/4 "

    # the ranks of `fsdp train` are one job, with the bits of a run on one host
    if ! lacks MPI; then
        rm -rf "$dir/one" "$dir/many"
        run launch -n 4 train $train --output "$dir/one"
        expect "${library}_one_host_trains" 0
        all 2 -n 2 "$fsdp" train $train --output "$dir/many"
        finish
        is "${library}_trains_on_two_hosts" "$rc1$rc2" 00
        grep -q '^ranks: 4 (mpi)' "$dir/out" && ok "${library}_as_one_job" || bad "${library}_as_one_job" "$(cat "$dir/err")"
        check "${library}_with_the_bits_of_one_host" cmp "$dir/one/model.safetensors" "$dir/many/model.safetensors"
    fi

    # the launcher of a host is killed
    all 3 -n 1 sh -c "$sleeping"
    wait_until 15 are_up 3
    start=$(date +%s)
    kill -KILL "$(the_launcher 2)"
    finish
    is "${library}_a_killed_launcher_ends_the_job" "$rc1$rc3" 11
    grep -q "host ${host}2 is lost" "$dir/err1" && grep -q "host ${host}2 is lost" "$dir/err3" &&
        ok "${library}_and_all_name_it" || bad "${library}_and_all_name_it" "no"
    ended "${library}_a_killed_launcher" "$start" 12

    # the first launcher is killed
    all 2 -n 1 sh -c "$sleeping"
    wait_until 15 are_up 2
    start=$(date +%s)
    kill -KILL "$(the_launcher 1)"
    finish
    is "${library}_a_killed_first_launcher_ends_the_job" "$rc2" 1
    grep -q "the first host, ${host}1, is lost" "$dir/err2" && ok "${library}_and_it_is_named" ||
        bad "${library}_and_it_is_named" "no"
    ended "${library}_a_killed_first_launcher" "$start" 12

    # a host is cut off: both sides notice
    all 2 -n 1 sh -c "$sleeping"
    wait_until 15 are_up 2
    start=$(date +%s)
    "$hosts" cut 2
    finish
    is "${library}_a_host_that_is_cut_off_ends_the_job" "$rc1$rc2" 11
    grep -q "host ${host}2 is lost: it has not answered for" "$dir/err1" &&
        grep -q "first host, ${host}1, is lost: it has not answered for" "$dir/err2" &&
        ok "${library}_and_is_named_on_both_sides" || bad "${library}_and_is_named_on_both_sides" "no"
    ended "${library}_a_cut_off_host" "$start" 20
    "$hosts" heal 2

    # the cable is out for 2 s
    all 2 -n 1 sh -c ': >'"$dir"'/up.$RANK; sleep 6'
    wait_until 15 are_up 2
    "$hosts" cut 2
    sleep 2
    "$hosts" heal 2
    finish
    is "${library}_survives_two_seconds_without_a_cable" "$rc1$rc2" 00

    # a launcher is stopped
    all 2 -n 1 sh -c "$sleeping"
    wait_until 15 are_up 2
    start=$(date +%s)
    stopped=$(the_launcher 2)
    kill -STOP "$stopped"
    eval "wait \$pid1"
    is "${library}_a_stopped_launcher_ends_the_job" $? 1
    grep -q "host ${host}2 is lost: it has not answered for" "$dir/err1" && ok "${library}_and_its_host_is_named" ||
        bad "${library}_and_its_host_is_named" "$(cat "$dir/err1")"
    kill -CONT "$stopped"
    finish
    ended "${library}_a_stopped_launcher" "$start" 20

    # Ctrl-C on another host: ranks save, and all launchers end alike
    all 2 -n 1 sh -c 'trap "sleep 2; echo saved $RANK; exit 0" INT; : >'"$dir"'/up.$RANK; while :; do sleep 0.1; done'
    wait_until 15 are_up 2
    start=$(date +%s)
    kill -INT "$(the_launcher 2)"
    finish
    is "${library}_an_interrupt_ends_all_hosts" "$rc1 $rc2" "130 130"
    is "${library}_ranks_have_time_to_save" "$(sort "$dir/out" | tr '\n' ' ')" "saved 0 saved 1 "
    ended "${library}_an_interrupted_job" "$start" 10

    # a host leaves, the job goes on without it, and the host comes back
    nnodes=1:2
    all 2 -n 1 --max-restarts 2 --rdzv-conf last_call_timeout=1 \
        sh -c 'echo round $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE; : >'"$dir"'/up.$WORLD_SIZE.$RANK.$TORCHELASTIC_RESTART_COUNT; trap "exit 0" TERM; while [ ! -e '"$dir"'/stop ]; do sleep 0.1; done'
    rm -f "$dir/stop"
    is_there() { ls "$dir"/$1 >/dev/null 2>&1; }
    wait_until 15 is_there 'up.2.1.*' || bad "${library}_starts_with_two_hosts" "$(cat "$dir/err1")"
    "$hosts" kill 2
    wait_until 15 is_there 'up.1.0.*' && ok "${library}_goes_on_without_a_host" ||
        bad "${library}_goes_on_without_a_host" "$(cat "$dir/err1")"
    rm -f "$dir"/up.*
    launch 2 --nnodes 1:2 --node-rank 1 --master-addr "${host}1" $mpi -n 1 --max-restarts 2 --rdzv-conf last_call_timeout=1 \
        sh -c 'echo round $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE; : >'"$dir"'/up.$WORLD_SIZE.$RANK.$TORCHELASTIC_RESTART_COUNT; trap "exit 0" TERM; while [ ! -e '"$dir"'/stop ]; do sleep 0.1; done'
    # The loss of the host was a failure, and its return is none.
    wait_until 15 is_there 'up.2.1.1' && ok "${library}_and_with_it_when_it_is_back" ||
        bad "${library}_and_with_it_when_it_is_back" "$(cat "$dir/err1" "$dir/err2")"
    : >"$dir/stop"
    finish
    is "${library}_and_succeeds" "$rc1$rc2" 00
    rm -f "$dir/stop"
    unset nnodes

    # by ssh: here a script that enters the host
    printf '# two hosts\n%s1 slots=2\n%s2:1\n' "$host" "$host" >"$dir/hosts.txt"
    n=1
    rm -f "$dir"/out? "$dir"/err?
    on 1 env OMPI_MCA_plm_rsh_agent="$dir/agent" HYDRA_LAUNCHER_EXEC="$dir/agent" FSDP_TEST_VALUE=7 \
        timeout -s KILL 60 "$fsdp" launch $mpi --hostfile "$dir/hosts.txt" --log-dir "$dir/logs$library" -t 1 \
        sh -c 'echo $(hostname) $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $FSDP_TEST_VALUE' \
        >"$dir/out" 2>"$dir/err"
    is "${library}_runs_by_ssh" $? 0
    is "${library}_with_the_same_environment" "$(sort "$dir/out" | tr '\n' ' ')" \
        "[default0]:${host}1 0/3 0/2 0/2 7 [default0]:${host}2 2/3 0/1 1/2 7 [default1]:${host}1 1/3 1/2 0/2 7 "
    is "${library}_and_logs_of_each_host" "$(cat "$dir/logs$library"/*/"${host}2"/attempt_0/0/stdout.log)" "${host}2 2/3 0/1 1/2 7"
    on 1 env OMPI_MCA_plm_rsh_agent="$dir/agent" HYDRA_LAUNCHER_EXEC="$dir/agent" \
        timeout -s KILL 60 "$fsdp" launch $mpi -H "${host}1,${host}2" \
        sh -c '[ $RANK = 0 ] || exit 3; exec sleep 60' >"$dir/out" 2>"$dir/err"
    rc=$?
    expect "${library}_a_rank_that_fails_by_ssh_ends_all" 1 'rank 1 \(pid [0-9]+\) exited with status 3'
    wait_until 15 none_left && ok "${library}_and_leaves_nothing" || bad "${library}_and_leaves_nothing" "something is left"
done
tally
