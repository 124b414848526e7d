#!/bin/sh
# `fsdp launch` as a user runs it: environment, exit codes, signals, restarts, logs, arguments
# with spaces.
# usage: FSDP_BUILD=build tests/cli/test_launch.sh
. "$(dirname "$0")/lib.sh"
unset OMP_NUM_THREADS

# run ARGUMENTS...: runs fsdp launch and sets $took to the whole seconds
run() {
    start=$(date +%s)
    capture "$fsdp" launch "$@"
    took=$(($(date +%s) - start))
}
# wait_for COMMAND...: repeats it until it succeeds, at most 10 s
wait_for() {
    tries=0
    while ! "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || return 1
        sleep 0.05
    done
}
has_lines() { [ -f "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }
none_left() { [ -z "$(pgrep -g "$1")" ]; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

# --- other launchers ---
# task WORDS... -- ARGUMENTS...: runs fsdp with the words in its environment
task() {
    words=
    while [ "$1" != -- ]; do words="$words $1"; shift; done
    shift
    capture env $words "$fsdp" "$@"
}
echo '{"input_ids": [7, 8, 9, 10]}' >ids.jsonl
step='SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2'
model=$golden/llama3/model
several='SLURM_STEP_NUM_TASKS is 2 and SLURM_PROCID 0: srun started 2 processes, .*fsdp launch -n 2'
for arguments in "train --model $model --data ids.jsonl --output o" "evaluate --model $model --data ids.jsonl" \
    "generate --model $model --input-ids ids.jsonl" "verify $golden/llama3" "bench train --steps 2" \
    "bench collectives" "launch -n 1 true"; do
    task $step SLURM_PROCID=0 -- $arguments
    expect "a_task_of_srun_does_not_run_alone: ${arguments%% --*}" 1 "$several"
    task $step SLURM_PROCID=1 -- $arguments
    check "one_of_them_says_so: ${arguments%% --*}" [ "$rc" -eq 1 -a "$(grep -c srun err)" -le 1 ]
done
task $step SLURM_PROCID=1 -- train --model $model --data ids.jsonl --output o
check and_the_others_are_silent [ "$rc" -eq 1 -a ! -s err ]
check and_nothing_is_made [ ! -e o ]
task OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 -- train --model $model --data ids.jsonl --no-save-model
expect nor_one_that_no_mpirun_started 1 'OMPI_COMM_WORLD_SIZE is (2, but Open MPI says that this process is one of 1|set, so mpirun)'
task RANK=0 WORLD_SIZE=2 -- launch -n 2 true
expect nor_does_torchrun_start_launchers 1 'WORLD_SIZE is 2 and RANK 0: torchrun started 2 processes'
task RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none -- train --model $model --data ids.jsonl --no-save-model
check and_its_ranks_are_refused [ "$rc" -eq 1 -a ! -s err ]
task RANK=1 WORLD_SIZE=2 -- train --model $model --data ids.jsonl --no-save-model
expect and_those_started_by_hand 1 'start the ranks with `fsdp launch -n 2'
task $step SLURM_PROCID=1 -- plan --model $model --seq-length 8 --batch-size 1
expect but_a_plan_is_for_any_task 0
task $step SLURM_PROCID=1 WORLD_SIZE=1 -- train --model $model --data ids.jsonl --no-save-model --epochs 1
expect and_a_run_of_its_own_may_be_asked_for 0
for given in 'SLURM_NTASKS=4 SLURM_PROCID=0' 'SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0' \
    'OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0'; do
    task $given -- launch -n 2 train --model $model --data ids.jsonl --no-save-model --epochs 1 --batch-size 1
    if [ "$rc" -eq 0 ] && grep -q 'ranks: 2 (shm)' out && ! grep -q note: err; then ok "launch_works_under $given"
    else bad "launch_works_under $given" "exit code $rc"; fi
done
task SLURM_NTASKS=4 SLURM_PROCID=0 -- train --model $model --data ids.jsonl --no-save-model --epochs 1
expect a_batch_script_may_train_alone 0 'note: SLURM_NTASKS is 4, but this run has 1 rank: `fsdp launch -n 4'

# --- environment ---
run --nnodes=1 --nproc-per-node=3 --master-addr=127.0.0.1 --master-port=29511 --node-rank=0 sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $ROLE_RANK $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RESTART_COUNT $OMP_NUM_THREADS"'
sort "$dir/out" >"$dir/sorted"
cat >"$dir/expected" <<'END'
0 0 3 3 0 0 127.0.0.1 29511 0 1
1 1 3 3 0 1 127.0.0.1 29511 0 1
2 2 3 3 0 2 127.0.0.1 29511 0 1
END
if cmp -s "$dir/sorted" "$dir/expected"; then ok ranks_get_torchruns_environment
else bad ranks_get_torchruns_environment "another environment"; fi

run --nnodes=1 --nproc_per_node=2 --standalone --rdzv-backend c10d --rdzv_endpoint=localhost:0 \
    --master_port 1234 --max_restarts=0 --monitor-interval 5 --node_rank 0 sh -c 'echo $WORLD_SIZE $MASTER_PORT'
if [ "$rc" -eq 0 ] && [ "$(sort -u "$dir/out")" = "2 1234" ]; then ok torchruns_words_are_known
else bad torchruns_words_are_known "exit code $rc"; fi

# Two jobs of other programs at the same time: each has its own port.
for words in --standalone '--master-port 0' '--rdzv-backend c10d --rdzv-endpoint localhost:0'; do
    ports=
    for job in 1 2; do
        # shellcheck disable=SC2086
        run $words -n 2 sh -c 'echo $MASTER_PORT'
        ports="$ports $(sort -u "$dir/out")"
    done
    # shellcheck disable=SC2086
    set -- $ports
    if [ $# -eq 2 ] && [ "$1" -gt 1023 ] && [ "$1" -ne "$2" ] && [ "$1" -ne 29500 ]; then ok "a_free_port_with_${words%% *}"
    else bad "a_free_port_with_${words%% *}" "$ports"; fi
done

PET_NPROC_PER_NODE=2 run sh -c 'echo $WORLD_SIZE'
if [ "$(grep -c '^2$' "$dir/out")" -eq 2 ]; then ok ranks_may_come_from_the_environment
else bad ranks_may_come_from_the_environment "other output"; fi

OMP_NUM_THREADS=5 run -n 2 sh -c 'echo $OMP_NUM_THREADS'
if [ "$(sort -u "$dir/out")" = 5 ]; then ok omp_num_threads_is_kept_if_set
else bad omp_num_threads_is_kept_if_set "other output"; fi

cp /bin/sh program.py
printf 'print(1)\n' >script.py
chmod +x script.py
run -n 2 --no-python ./program.py -c :
expect a_program_may_have_the_name_of_a_script 0
run -n 2 --no-python ./script.py
expect but_a_script_needs_an_interpreter 2 'script.py is a Python script that no interpreter is named in'
run -n 2 --no-python true
expect a_program_that_is_named_as_a_boolean_runs 0
run -n 2 --use_fsdp --fsdp_offload_params true sh -c 'echo $FSDP_OFFLOAD_PARAMS'
expect an_option_of_accelerate_takes_a_word 0 '^true$' out
# threads NAME VALUE: what the last command printed for --threads-per-rank
threads() {
    if [ "$(sed -n 's/^#* *threads-per-rank: *//p' "$dir/out" | sed 's/  *#/ #/' | sort -u | tr '\n' '|')" = "$2|" ]; then ok "$1"
    else bad "$1" "not '$2'"; fi
}
OMP_NUM_THREADS=3 capture "$fsdp" generate --model x --print-config
threads omp_num_threads_is_the_default_of_threads '3 # environment OMP_NUM_THREADS'
OMP_NUM_THREADS=4,2 capture "$fsdp" generate --model x --print-config
threads of_nested_numbers_the_first_counts '4 # environment OMP_NUM_THREADS'
OMP_NUM_THREADS=3 FSDP_THREADS_PER_RANK=2 capture "$fsdp" generate --model x --print-config
threads of_which_ours_wins '2 # environment FSDP_THREADS_PER_RANK'
run -n 2 "$fsdp" generate --model x --print-config
threads what_the_launcher_sets_is_no_choice_of_the_user '0 # default'
OMP_NUM_THREADS=3 run -n 2 "$fsdp" generate --model x --print-config
threads unlike_what_the_user_sets '3 # environment OMP_NUM_THREADS'

CUDA_VISIBLE_DEVICES='' run -n auto --bind none sh -c 'echo x'
if [ "$(wc -l <"$dir/out")" -eq "$(nproc)" ]; then ok auto_starts_a_rank_for_each_processor
else bad auto_starts_a_rank_for_each_processor "$(wc -l <"$dir/out") ranks"; fi

CUDA_VISIBLE_DEVICES='' run -n auto --cpu --gpu_ids 0,1,2 --bind none sh -c 'echo x'
if [ "$(wc -l <"$dir/out")" -eq "$(nproc)" ]; then ok auto_without_cards_ignores_their_numbers
else bad auto_without_cards_ignores_their_numbers "$(wc -l <"$dir/out") ranks"; fi
run -n gpu --gpu_ids 0,1,2 --bind none sh -c 'echo x'
if [ "$(wc -l <"$dir/out")" -eq 3 ]; then ok gpu_starts_a_rank_for_each_number_of_a_card
else bad gpu_starts_a_rank_for_each_number_of_a_card "$(wc -l <"$dir/out") ranks"; fi
# The processors that the affinity mask allows, not those of the machine.
if command -v taskset >/dev/null; then
    first=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
    for kind in cpu auto; do
        CUDA_VISIBLE_DEVICES='' capture taskset -c "$first" "$fsdp" launch -n $kind sh -c 'echo $WORLD_SIZE'
        if [ "$rc $(cat "$dir/out")" = "0 1" ]; then ok "${kind}_counts_the_processors_of_the_affinity_mask"
        else bad "${kind}_counts_the_processors_of_the_affinity_mask" "$(wc -l <"$dir/out") ranks"; fi
    done
else
    skip cpu_counts_the_processors_of_the_affinity_mask "no taskset here"
fi

if [ "$(nproc)" -ge 2 ]; then
    run -n 2 nproc
    first=$(head -n 1 "$dir/out") second=$(tail -n 1 "$dir/out")
    if [ "$((first + second))" -eq "$(nproc)" ]; then ok ranks_share_the_processors
    else bad ranks_share_the_processors "$first and $second of $(nproc)"; fi
fi

# --- arguments ---
run -n 1 -- printf '%s|' 'a b' "it's" 'say "x"' '' '$HOME' --help
if [ "$(cat "$dir/out")" = "a b|it's|say \"x\"||\$HOME|--help|" ]; then ok words_reach_the_command_unchanged
else bad words_reach_the_command_unchanged "other output"; fi

printf 'piped' | run -n 2 sh -c 'cat; echo'
if [ "$(tr -d '\n' <"$dir/out")" = piped ]; then ok rank_0_reads_what_is_piped_in
else bad rank_0_reads_what_is_piped_in "other output"; fi

# --- exit codes and messages ---
run -n 2 true
expect success_is_0 0
run -n 2 sh -c 'exit 7'
expect failure_is_1_and_reported_once 1 'rank [01] \(pid [0-9]+\) exited with status 7'
[ "$(wc -l <"$dir/err")" -eq 1 ] && ok one_message || bad one_message "more lines"
run -n 3 sh -c '[ $RANK = 1 ] || exec sleep 60; exit 3'
expect one_failing_rank_ends_all 1 'rank 1 \(pid [0-9]+\) exited with status 3$'
[ "$took" -lt 5 ] && ok within_5_s || bad within_5_s "$took s"
run -n 2 sh -c '[ $RANK = 0 ] || exec sleep 60; kill -9 $$'
expect a_killed_rank_is_named 1 'rank 0 \(pid [0-9]+\) was killed by signal 9 \(Killed\)'
[ "$took" -lt 5 ] && ok killed_within_5_s || bad killed_within_5_s "$took s"
run -n 2 sh -c 'trap "" TERM; [ $RANK = 0 ] || while :; do sleep 60; done; exit 1'
expect a_rank_that_ignores_sigterm_is_killed 1 'rank 0'
# SIGTERM comes 2 s after the abort and SIGKILL 2 s later; the rank itself would never end
[ "$took" -lt 30 ] && ok and_soon || bad and_soon "$took s"
run -n 1 --log-dir logs sh -c 'cd / && printf "{\"message\": \"disk full\"}" >$TORCHELASTIC_ERROR_FILE; exit 1'
expect from_any_folder_too 1 'exited with status 1: disk full$'

# --- an error that all ranks have is printed once: in each command and each program of examples/ ---
said_once() { # NAME TEXT WORDS...
    name=$1 text=$2
    shift 2
    run -n 3 "$@"
    check "$name" [ "$rc" -ne 0 -a "$(grep -c -e "$text" "$dir/err")" -eq 1 ]
}
for command in $("$fsdp" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    [ "$command" = launch ] || said_once "a_wrong_flag_is_reported_once_by_$command" --nonsense "$command" --nonsense
done
for program in "$root"/examples/*.c; do
    program=$(basename "$program" .c)
    said_once "and_by_$program" "$program: \(unknown option '--nonsense'\|usage:\)" "$build/examples/$program" --nonsense
done
said_once a_missing_model_is_reported_once 't5-nowhere' "$build/examples/t5_wikihow" --model t5-nowhere
said_once an_unknown_subcommand_too "did you mean 'inspect'" checkpoint inspct
said_once subcommands_are_listed_once '^usage: fsdp checkpoint' checkpoint

run -n 2 "$dir/nothing here"
expect a_missing_program_is_a_usage_error 2 "$dir/nothing here: No such file"
run -n 2 lanuch
expect a_misspelt_command_is_suggested 2 "neither an fsdp command nor a program.*did you mean 'launch'"
echo data >"$dir/file"
run -n 2 "$dir/file"
expect a_file_that_is_no_program_is_refused 2 'not an executable file'
printf '#!/nonexistent/interpreter\n' >"$dir/script"
chmod +x "$dir/script"
run -n 2 "$dir/script"
expect a_program_that_cannot_start_is_an_error 1 'cannot start'
run -n 0 true
expect no_ranks_is_a_usage_error 2 "'0' is not allowed"
run -n two true
expect a_word_for_ranks_is_a_usage_error 2 "'two' is not allowed"
run --num_processes 2 --nproc-per-node 3 true
expect total_and_ranks_of_a_host_that_differ_are_refused 2 '^fsdp launch: --num_processes: 2 contradicts --nproc-per-node 3: .* 3 on each of 1 host are 3; leave one'
capture "$fsdp" launch --num_processes 2x --nproc-per-node 2 true
expect a_total_with_a_letter_is_refused 2 "^fsdp launch: --num_processes: '2x' is not allowed"
run --num_machines 2 --nnodes 1 true
expect two_names_of_one_option_with_different_values_are_refused 2 '^fsdp launch: --num_machines 2 contradicts --nnodes 1: both are names of the option --nnodes'
run --num_processes 2 -n 2 true
expect total_and_ranks_of_a_host_that_agree_are_accepted 0
run -n 2 -n 1 sh -c 'echo $WORLD_SIZE'
expect the_last_flag_of_a_name_counts 0 '^1$' out
expect and_the_other_is_named 0 '^    -n 2: -n 1 comes later, and the last value counts$'
EMU_DEVICES=0 CUDA_VISIBLE_DEVICES='' run -n gpu true # a sanitized build has emulated cards
expect gpu_without_a_card_is_refused 2 '^fsdp launch: --nproc-per-node gpu \(a number, cpu or auto needs no card\): device cuda: '
run -n xpu true
expect xpu_is_refused 2 "no device for Intel's GPUs"
run --cpu -n 1 sh -c 'echo "$FSDP_DEVICE"'
expect cpu_is_passed_on_to_the_ranks 0 '^cpu$' out
run --nnodes 2 -n 2 true
expect several_hosts_need_an_address 2 'nnodes: 2: say where the hosts meet'
run --nnodes=4:1 -n 2 true
expect a_range_of_hosts_is_from_least_to_most 2 "'4:1' is not a number of hosts"
run --nnodes=2 --standalone -n 2 true
expect standalone_is_for_one_host 2 'contradicts --standalone'
run --nnodes none -n 2 true
expect a_word_for_hosts_is_a_usage_error 2 "'none' is not a number of hosts"
run -n 2 -m train true
expect python_modules_are_refused 2 'programs, not Python modules'
run --standalone --nnodes=1 --nproc-per-node=2 --event-log-handler null sh -c 'exit 0'
expect a_standalone_job_runs 0
run -n 2
expect a_missing_command_is_a_usage_error 2 'missing'
run -n 2 --nprocs_per_nod 3 true
expect an_unknown_option_is_suggested 2 "did you mean '--nproc-per-node'"
run -n 2 launch -n 2 true
expect launch_inside_launch_is_refused 2 'cannot start launch'

# --- restarts ---
rm -f "$dir/counts"
run -n 2 --max-restarts 3 sh -c 'echo "$RANK $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS" >>"'"$dir"'/counts"; [ $TORCHELASTIC_RESTART_COUNT -ge 2 ] || { sleep 0.2; exit 1; }'
expect restarts_until_it_succeeds 0 'starting all 2 ranks again \(restart 2 of 3\)'
[ "$(sort "$dir/counts" | tr '\n' ' ')" = "0 0/3 0 1/3 0 2/3 1 0/3 1 1/3 1 2/3 " ] &&
    ok every_rank_starts_again || bad every_rank_starts_again "$(cat "$dir/counts")"
run -n 2 --max-restarts 1 sh -c '[ $RANK = 1 ] || exec sleep 60; exit $((3 + TORCHELASTIC_RESTART_COUNT))'
expect every_failure_is_reported_with_its_reason 1 'rank 1 \(pid [0-9]+\) exited with status 3$'
expect of_the_last_attempt_too 1 'rank 1 \(pid [0-9]+\) exited with status 4$'
[ "$(wc -l <"$dir/err")" -eq 3 ] && ok in_three_lines || bad in_three_lines "$(wc -l <"$dir/err") lines"
run -n 1 --max-restarts 1 false
expect restarts_are_counted 1 'restart 1 of 1'

# --- logs ---
run -n 2 --rdzv-id job --log-dir "$dir/a/logs" --redirects 3 sh -c 'echo out $RANK; echo err $RANK >&2'
if [ "$(cat "$dir"/a/logs/job_*/attempt_0/1/stdout.log)" = "out 1" ] &&
    [ "$(cat "$dir"/a/logs/job_*/attempt_0/0/stderr.log)" = "err 0" ] &&
    [ ! -s "$dir/out" ] && [ ! -s "$dir/err" ]; then ok redirected_output_is_in_files
else bad redirected_output_is_in_files "$(find "$dir/a")"; fi
run -n 2 --log-dir "$dir/b" -r 0:1 -t 1:3 sh -c 'printf "out $RANK\nno newline"; echo err $RANK >&2'
if [ "$(cat "$dir"/b/*/attempt_0/0/stdout.log)" = "out 0
no newline" ] && [ "$(cat "$dir/out")" = "[default1]:out 1
[default1]:no newline" ] && [ "$(sort "$dir/err")" = "[default1]:err 1
err 0" ] && [ "$(cat "$dir"/b/*/attempt_0/1/stderr.log)" = "err 1" ]; then ok streams_are_chosen_by_rank
else bad streams_are_chosen_by_rank "$(find "$dir/b" -type f)"; fi
run -n 1 --log-dir "$dir/c" --tee 3 sh -c 'seq 200000; seq 200000 >&2'
if [ "$(wc -l <"$dir/out")" -eq 200000 ] && [ "$(tail -n 1 "$dir/err")" = "[default0]:200000" ] &&
    [ "$(cat "$dir"/c/*/attempt_0/0/stdout.log | cksum)" = "$(seq 200000 | cksum)" ]; then ok tee_loses_nothing
else bad tee_loses_nothing "$(wc -l <"$dir/out") lines"; fi
run -n 3 --local-ranks-filter 0,2 sh -c 'echo $RANK'
if [ "$(sort "$dir/out" | tr '\n' ' ')" = "0 2 " ]; then ok the_filter_hides_ranks
else bad the_filter_hides_ranks "other output"; fi
run -n 2 --redirects 4 true
expect wrong_streams_are_a_usage_error 2 "redirects: '4'"
run -n 2 --log-dir "$dir/r" --redirects 0:1,2:1 true
expect streams_of_a_rank_that_does_not_exist_are_refused 2 "redirects: '0:1,2:1' names rank 2, there are 2"
run -n 2 --log-dir /proc/nothing --redirects 1 true
expect an_impossible_log_folder_is_an_error 1 '/proc/nothing: cannot make the directory: No such file'

# --- signals ---
# begin COMMAND [OPTIONS]: starts two ranks of it in the background; their pids are in $dir/pids
begin() {
    rm -f "$dir/pids"
    # shellcheck disable=SC2086
    "$fsdp" launch -n 2 $2 sh -c "$1" >"$dir/out" 2>"$dir/err" &
    launcher=$!
    wait_for has_lines "$dir/pids" 2
    first=$(sed -n 1p "$dir/pids") second=$(sed -n 2p "$dir/pids")
    start=$(date +%s)
}
finish() {
    wait "$launcher"
    rc=$?
    took=$(($(date +%s) - start))
}
sleeping='echo $$ >>"'$dir'/pids"; exec sleep 60'
begin "$sleeping"
kill -INT "$launcher"
finish
expect an_interrupt_ends_all_with_130 130 'Interrupt: ending 2 ranks'
if is_gone "$first" && is_gone "$second" && [ "$(wc -l <"$dir/err")" -eq 1 ] && [ $took -lt 3 ]; then ok cleanly_with_one_line
else bad cleanly_with_one_line "$took s"; fi
begin "$sleeping"
kill -TERM "$launcher"
finish
expect sigterm_is_passed_on 143 'Terminated: ending 2 ranks'
begin "$sleeping"
kill -USR1 "$launcher"
finish
expect sigusr1_asks_to_start_again 75 'User defined signal 1: ending 2 ranks'
begin 'echo $$ >>"'$dir'/pids"; sleep 60; :'
kill -QUIT "$launcher"
finish
expect sigquit_too 131 'Quit: ending 2 ranks'
wait_for none_left "$first,$second" && ok with_what_ranks_have_started || bad with_what_ranks_have_started "still there"
begin 'trap "" INT TERM; echo $$ >>"'$dir'/pids"; while :; do sleep 60; done'
kill -INT "$launcher"
sleep 0.5
kill -INT "$launcher"
finish
expect a_second_interrupt_kills 130
if is_gone "$first" && is_gone "$second" && [ $took -lt 4 ]; then ok at_once; else bad at_once "$took s"; fi
# The shell and the kernel each send a SIGHUP when a terminal is closed.
begin 'trap "sleep 0.5; echo saved; exit 1" HUP; echo $$ >>"'$dir'/pids"; while :; do sleep 0.05; done'
kill -HUP "$launcher"
sleep 0.1
kill -HUP "$launcher"
finish
expect a_second_hangup_does_not_kill 129
[ "$(tr '\n' ' ' <"$dir/out")" = "saved saved " ] && ok ranks_save_when_the_terminal_closes ||
    bad ranks_save_when_the_terminal_closes "$(cat "$dir/out")"
# A rank that writes faster than the launcher reads
"$fsdp" launch -n 1 --log-dir "$dir/y" --tee 1 yes >/dev/null 2>"$dir/err" &
launcher=$!
sleep 0.5
kill -TERM "$launcher"
start=$(date +%s)
(sleep 20; kill -9 "$launcher") 2>/dev/null &
killer=$!
finish
kill "$killer" 2>/dev/null
expect a_rank_that_never_stops_writing_can_be_ended 143 'Terminated: ending 1 rank'
rm -rf "$dir/y"
ends_slowly='trap "" TERM; trap "sleep 6; echo saved; exit 1" INT; echo $$ >>"'$dir'/pids"; while :; do sleep 0.1; done'
begin "$ends_slowly"
kill -INT "$launcher"
finish
[ "$(tr '\n' ' ' <"$dir/out")" = "saved saved " ] && ok ranks_have_time_to_save ||
    bad ranks_have_time_to_save "$took s"
begin 'trap "" INT; echo $$ >>"'$dir'/pids"; while :; do sleep 0.1; done' '--shutdown-timeout 1'
kill -INT "$launcher"
finish
expect but_no_longer_than_they_are_given 130 'Interrupt: ending 2 ranks'
if [ $took -ge 1 ] && [ $took -lt 4 ]; then ok which_is_a_second; else bad which_is_a_second "$took s"; fi
# As when Ctrl-C ends `fsdp launch ... 2>&1 | tee log`: the reader has ended before the launcher
# prints.
mkfifo "$dir/pipe"
rm -f "$dir/pids" "$dir/saved"
"$fsdp" launch -n 2 sh -c 'trap "echo saved >>'"$dir"'/saved; exit" INT; echo $$ >>"'"$dir"'/pids"; while :; do sleep 0.1; done' >"$dir/pipe" 2>&1 &
launcher=$!
cat "$dir/pipe" >"$dir/out" &
reader=$!
wait_for has_lines "$dir/pids" 2
kill -KILL "$reader"
wait "$reader" 2>/dev/null
kill -INT "$launcher"
finish
[ "$rc" -eq 130 ] && ok a_broken_pipe_is_no_signal || bad a_broken_pipe_is_no_signal "exit code $rc"
has_lines "$dir/saved" 2 && ok and_ranks_save_as_ever || bad and_ranks_save_as_ever "they do not"
"$fsdp" launch -n 1 --log-dir "$dir/p" --tee 1 sh -c 'seq 9; sleep 0.5; seq 99999; echo end' | head -n 1 >"$dir/out"
[ "$(tail -n 1 "$dir"/p/*/attempt_0/0/stdout.log)" = end ] && ok tee_goes_on_to_its_file ||
    bad tee_goes_on_to_its_file "it ends too soon"
begin "$sleeping"
kill -KILL "$second"
finish
expect a_rank_killed_from_outside_is_named 1 "rank [01] \\(pid $second\\) was killed by signal 9"
is_gone "$first" && ok its_peer_ends || bad its_peer_ends "still there"
begin "$sleeping"
kill -KILL "$launcher"
finish
if wait_for is_gone "$first" && wait_for is_gone "$second"; then ok ranks_die_with_the_launcher
else bad ranks_die_with_the_launcher "still there"; fi

# --- the command itself ---
capture "$fsdp" --version
expect version_is_printed 0 '^fsdp [0-9]' out
capture "$fsdp" help launch
expect help_shows_options 0 '--nproc-per-node' out
capture "$fsdp" lanch
expect an_unknown_command_is_suggested 2 "did you mean 'launch'"

tally
