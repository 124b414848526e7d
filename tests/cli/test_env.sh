#!/bin/sh
# `fsdp env`: what a bug report needs, as text and as JSON, without what is private.
. "$(dirname "$0")/lib.sh"

run env
expect prints_the_version 0 '^fsdp [0-9]' out
for line in 'compiler: (gcc|clang) ' 'flags: .*-O' 'machine:' '  processors +[1-9]' '  affinity +[0-9]' \
    '  CPU quota ' '  memory +[0-9]' '  memory limit ' '  system +Linux ' '  C library +glibc' \
    '  jansson +[0-9]' 'limits:' '  open files +[0-9]' 'job:' '  started by +no launcher' 'environment:'; do
    check "has_$(echo "$line" | tr -cd 'a-zA-Z')" shows "^$line"
done
grep -o '^  [^=]*' "$dir/out" >/dev/null
cp "$dir/out" "$dir/text"

# Nothing private: no secrets, no names of hosts, no home folder.
HOME=/home/somebody FSDP_TRACKER_COMMAND='send --token abc123' ACCELERATE_API_KEY=abc123 \
    FSDP_CHECKPOINT_DIR=/home/somebody/runs:/home/somebodyelse PET_RDZV_ENDPOINT=secrethost:29500 \
    WANDB_API_KEY=abc123 SLURM_JOB_NODELIST=secrethost SLURM_JOB_NUM_NODES=3 SLURM_NTASKS=12 run env
expect settings_are_shown 0 '^  FSDP_CHECKPOINT_DIR=~/runs:/home/somebodyelse$' out
check slurm_is_counted shows '^  Slurm +3 hosts, 12 tasks'
check secrets_are_named shows '^  FSDP_TRACKER_COMMAND=\(not shown\)$'
check and_not_shown sh -c "! grep -E 'abc123|secrethost' out"

run launch -n 2 --local-ranks-filter 1 env
expect a_rank_says_who_started_it 0 '^  started by +fsdp launch$' out
check and_which_it_is shows '^  rank +1 of 2$'
OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 run env
check mpirun_is_recognized shows '^  started by +mpirun$'
check from_its_own_variable shows '^  seen from +OMPI_COMM_WORLD_RANK$'
check with_its_rank shows '^  rank +3 of 4$'
SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 run env
check one_task_of_srun_is_recognized shows '^  started by +srun$'
# The script of sbatch is no task of srun.
SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_PROCID=0 run env
check a_batch_script_was_started_by_no_launcher shows '^  started by +no launcher$'

HOME=/home/somebody FSDP_CHECKPOINT_DIR=/data/home/somebody/runs FSDP_OPTIONS=a=/home/somebody run env
expect a_longer_path_is_shown_as_it_is 0 '^  FSDP_CHECKPOINT_DIR=/data/home/somebody/runs$' out
check and_a_path_after_an_equals_sign_begins shows '^  FSDP_OPTIONS=a=~$'
FSDP_RUN_NAME=$(printf 'a\377b') run env --json
expect a_variable_that_is_not_utf8_is_shown 0 '^    "FSDP_RUN_NAME": "a..xFFb"' out
FSDP_LOG=warn run env --json
expect json 0 '^\{$' out
check ends_as_an_object test "$(tail -n 1 "$dir/out")" = '}'
check has_the_version shows '^  "fsdp": "[0-9.]+"'
check has_variables shows '^    "FSDP_LOG": "warn"'
# The text and the object have the same names.
sed -n 's/^  \([a-zA-Z][^=]\{0,12\}[^ ]\) .*/\1/p' "$dir/text" | sed 's/ *$//' | sort -u >"$dir/names"
while read -r name; do
    grep -qF "\"$name\": " "$dir/out" || echo "$name" >>"$dir/missing"
done <"$dir/names"
touch "$dir/missing"
check json_has_every_name test ! -s "$dir/missing"
check and_names_were_compared test "$(wc -l <"$dir/names")" -gt 20
if [ -e /usr/bin/python3 ]; then
    check json_can_be_read /usr/bin/python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$dir/out"
fi
run env more
expect no_positional_words 2
fails_on_a_full_disk a_full_disk_is_an_error env
fails_on_a_full_disk a_full_disk_is_an_error_of_json env --json

tally
