#!/bin/sh
# A short test of the installed command: training, a rank that dies, resuming, converting,
# PyTorch's numbers, and no test devices. All scripts in tests/cli run it, too; they run the
# testing build if FSDP_DEVICE is fake.
# usage: FSDP_BUILD=build tests/release/test_command.sh
. "$(dirname "$0")/../cli/lib.sh"
if [ ! -e "$build/libfsdp-testing.a" ]; then
    skip test_command "a sanitized build is a testing build as a whole"
    tally
    exit
fi
FSDP_DEVICE=cpu
export FSDP_DEVICE
fsdp=$build/fsdp
mkdir tmp
TMPDIR=$dir/tmp
export TMPDIR

tiny_t5 tiny 16 4 3 24 2 67
id_rows 24 >ids.jsonl
options="--model tiny --from-config --data ids.jsonl --batch-size 3 --max-steps 6 --epochs 9 --num-workers 0
    --lr-schedule cosine --save-steps 2 --metrics m.jsonl"
# numbers: prints loss and norm of each step
numbers() { sed -n 's/.*"step", "step": \([0-9]*\), .*"loss": \([^,]*\),.*"grad_norm": \([^,]*\), .*/\1 \2 \3/p' m.jsonl; }

# shellcheck disable=SC2086
run launch -n 2 train $options --output whole
expect two_ranks_train 0
numbers >whole.numbers
check every_step_is_in_the_metrics [ "$(wc -l <whole.numbers)" -eq 6 ]
rm m.jsonl

# A rank of a job that never ends is killed once there is a checkpoint.
# shellcheck disable=SC2086
"$fsdp" launch -n 2 sh -c '[ "$RANK" = 0 ] || echo $$ >rank1; exec "$0" "$@"' "$fsdp" train $options \
    --output o --max-steps 100000 --save-total-limit 1 >out 2>err &
launcher=$!
tries=0
until ls o-checkpoints/checkpoint-* >/dev/null 2>&1 || [ $tries -eq 400 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -KILL "$(cat rank1)"
wait $launcher
rc=$?
expect a_killed_rank_ends_the_job 1 'rank 1 \(pid [0-9]+\) was killed by signal 9'

# Repeat the first training from its checkpoint of step 2.
rm -rf o o-checkpoints m.jsonl
cp -r whole-checkpoints o-checkpoints
find o-checkpoints -maxdepth 1 -name 'checkpoint-[!2]*' -exec rm -r {} +
# shellcheck disable=SC2086
run launch -n 2 train $options --output o --resume auto
expect a_checkpoint_is_resumed 0
numbers | tail -n 4 >resumed.numbers
tail -n 4 whole.numbers >last.numbers
check resumed_steps_give_the_same_numbers cmp -s resumed.numbers last.numbers
check resumed_weights_are_the_same cmp -s o/model.safetensors whole/model.safetensors

run checkpoint convert whole-checkpoints/checkpoint-6 converted
expect a_checkpoint_is_converted 0
run checkpoint diff whole-checkpoints/checkpoint-6 o-checkpoints/checkpoint-6
expect checkpoints_of_both_runs_are_the_same 0

run verify "$golden/llama3"
expect pytorchs_numbers_are_met 0 ' 0 failed' out

# --- no hooks ---
run train --device fake --model tiny --data ids.jsonl --output other
expect device_fake_is_refused 2 "--device: unknown device 'fake' \\(known: cpu, meta, cuda, cuda:N, auto\\)"
FSDP_DEVICE=fake run train --model tiny --data ids.jsonl --output other
expect device_fake_of_the_environment_is_refused 2 "FSDP_DEVICE: unknown device 'fake'"
FSDP_DEVICE=fake run verify "$golden/llama3"
expect verify_has_no_fake_device 2 "FSDP_DEVICE: unknown device 'fake'"
run train --help all
if [ "$rc" -eq 0 ] && ! grep -q fake out; then ok help_shows_no_fake_device
else bad help_shows_no_fake_device "exit code $rc"; fi
run --version
if [ "$rc" -eq 0 ] && grep -Eq '^devices: cpu, meta(, cuda|; no cuda in this build)$' out; then ok version_shows_no_fake_device
else bad version_shows_no_fake_device "exit code $rc"; fi
tally
