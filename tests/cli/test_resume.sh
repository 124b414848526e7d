#!/bin/sh
# `fsdp train --save-steps, --resume` as a user runs it: runs that are killed at any moment
# continue with the same numbers, on any number of ranks. Damaged checkpoints are refused by name.
# usage: FSDP_BUILD=build tests/cli/test_resume.sh
. "$(dirname "$0")/lib.sh"
theirs=$fixtures/dcp/fsdp2
mkdir tmp
TMPDIR=$dir/tmp
export TMPDIR

# split RANKS: 12 rows per step. On 1, 2 and 4 ranks there are four leaves of three rows, which
# gives the same bits. On 3 ranks there are three leaves of four; with dropout they drop other
# elements.
split() {
    if [ "$1" -eq 3 ]; then echo --batch-size 4; else
        echo --batch-size 3 --gradient-accumulation-steps $((4 / $1)); fi
}
options="--model tiny --from-config --data ids.jsonl --output o --validation-data validation.jsonl
    --epochs 3 --num-workers 0 --metrics m.jsonl --max-grad-norm 1.0 --lr-schedule cosine
    --warmup-steps 2 --evaluation-steps 2"
# train RANKS ARGUMENTS...: runs training
extra=
train() {
    ranks=$1
    shift
    # shellcheck disable=SC2046,SC2086
    run launch -n "$ranks" train $options $(split "$ranks") $extra "$@"
}
fresh() { rm -rf o o-checkpoints m.jsonl; }
numbers() {
    sed -n 's/.*"step", "step": \([0-9]*\), "epoch": \([0-9]*\), "loss": \([^,]*\),.*"grad_norm": \([^,]*\), "lr": \([^,]*\),.*/\1 \2 \3 \4 \5/p
        s/.*"validation", "step": \([0-9]*\),.*"loss": \([^,]*\),.*/validation \1 \2/p' "$1"
}
# same NAME: numbers and weights must be those of the uninterrupted run
same() {
    numbers m.jsonl >now.numbers
    if [ "$rc" -ne 0 ]; then
        bad "$1" "exit code $rc"
    elif ! cmp -s now.numbers whole.numbers; then
        bad "$1" "$(diff now.numbers whole.numbers | head -n 4 | tr '\n' ';')"
    elif ! cmp -s o/model.safetensors whole.safetensors; then
        bad "$1" "the weights differ"
    else
        ok "$1"
    fi
}
# curve NAME RANKS FILE: only the numbers must be the same: bit for bit, and on 3 ranks
# approximately
curve() {
    numbers m.jsonl >now.numbers
    if [ "$rc" -ne 0 ]; then
        bad "$1" "exit code $rc"
    elif [ "$2" -ne 3 ] && cmp -s now.numbers "$3"; then
        ok "$1"
    elif [ "$2" -eq 3 ] && paste -d ' ' now.numbers "$3" | awk '
        function apart(a, b) { return (a > b ? a - b : b - a) > 1e-4 * (b > 1 ? b : 1) }
        { for (i = 1; i <= NF / 2; i++) if (NF % 2 || (i > 1 && apart($i, $(i + NF / 2)))) exit 1 }'; then
        ok "$1"
    else
        bad "$1" "$(diff now.numbers "$3" | head -n 4 | tr '\n' ';')"
    fi
}
checkpoints() { ls o-checkpoints 2>/dev/null | sort -t - -k 2 -n | tr '\n' ' '; }
# until_step N: waits until the run in the background has written step N to its metrics
until_step() {
    tries=0
    while [ "$(grep -c '"kind": "step"' m.jsonl 2>/dev/null || true)" != "$1" ] && [ $tries -lt 2000 ]; do
        [ "$(grep -c '"kind": "step"' m.jsonl 2>/dev/null || echo 0)" -ge "$1" ] 2>/dev/null && break
        tries=$((tries + 1))
        sleep 0.01
    done
}

# --- a model and data ---
tiny_t5 tiny 21 5 3 37 2 67
id_rows 41 >ids.jsonl
head -n 13 ids.jsonl >validation.jsonl

# 41 rows, 12 per step: 4 steps per epoch, the last one short; 12 steps in total
fresh
train 1
cp o/model.safetensors whole.safetensors
numbers m.jsonl >whole.numbers
[ "$(grep -vc validation whole.numbers)" -eq 12 ] && ok twelve_steps || bad twelve_steps "$(wc -l <whole.numbers)"

# --- every few steps ---
fresh
train 2 --save-steps 5
same saving_changes_nothing
[ "$(checkpoints)" = "checkpoint-5 checkpoint-10 checkpoint-12 " ] && ok every_five_steps_and_at_the_end ||
    bad every_five_steps_and_at_the_end "$(checkpoints)"
for step in 5 10; do
    for ranks in 1 2 4; do
        rm -rf o
        train $ranks --resume o-checkpoints/checkpoint-$step
        # The best model by validation may be older than the checkpoint.
        curve "from_${step}_on_${ranks}_ranks" $ranks whole.numbers
    done
done
train 1 --resume
same nothing_is_left_to_do
check the_newest_has_none_beyond_it test "$(grep -c 'of a later step' out)" -eq 0
train 1 --resume o-checkpoints/checkpoint-5 --max-steps 6 --save-steps 3 --save-total-limit 1
expect later_ones_are_reported 0 '^o-checkpoints holds checkpoint-12 of a later step: it is kept until' out
check and_stay test "$(checkpoints)" = "checkpoint-6 checkpoint-10 checkpoint-12 "
fresh
train 2 --save-steps 5
mv m.jsonl linked.jsonl
ln -s linked.jsonl m.jsonl
train 1 --resume o-checkpoints/checkpoint-10 --profile p.json
check the_profile_is_of_steps_that_are_left [ -s p.json ]
check metrics_go_on_behind_a_link [ -L m.jsonl ]
curve and_are_whole 1 whole.numbers
rm -f p.json linked.jsonl
fresh
train 2 --save-steps 3 --save-total-limit 2
[ "$(checkpoints)" = "checkpoint-9 checkpoint-12 " ] && ok the_newest_two_stay || bad the_newest_two_stay "$(checkpoints)"
[ "$(grep -c '"kind": "checkpoint", .*"step_seconds": [0-9]' m.jsonl)" -eq 4 ] &&
    grep -q '^4 checkpoints written: a step that triggers one took at most .* of it for the checkpoint$' out &&
    ok what_such_a_step_took_is_reported || bad what_such_a_step_took_is_reported "$(cat out)"
# Another program's checkpoint is never removed; --output o/ is the same as --output o.
fresh
train 2 --save-steps 4
rm -r o-checkpoints/checkpoint-8 o-checkpoints/checkpoint-12
cp -r o-checkpoints/checkpoint-4 o-checkpoints/checkpoint-3
echo '{"global_step": 3}' >o-checkpoints/checkpoint-3/trainer_state.json
train 2 --save-steps 4 --save-total-limit 1 --resume --output o/
[ "$(checkpoints)" = "checkpoint-3 checkpoint-12 " ] && ok one_of_another_program_stays || bad one_of_another_program_stays "$(checkpoints)"
same a_slash_behind_output_changes_nothing
# A longer run continues the epoch that --max-steps cut off.
fresh
constant="--lr-schedule constant --warmup-steps 0"
# shellcheck disable=SC2086
train 2 $constant
grep '^Train Epoch' out | tail -n 2 >epochs.whole
fresh
# shellcheck disable=SC2086
train 2 $constant --max-steps 6 --save-steps 6
# shellcheck disable=SC2086
train 2 $constant --resume
grep '^Train Epoch' out >epochs.now
check an_epoch_cut_by_max_steps_goes_on cmp -s epochs.whole epochs.now
check and_is_one_epoch_of_the_table [ "$(grep -Ec '^(│|\|)? *[1-9] .*[0-9]' out)" -eq 3 ]
# A run that is resumed after its best validation still saves a model.
fresh
# shellcheck disable=SC2086
train 2 $constant --epochs 2 --save-strategy epoch
rm -r o
# shellcheck disable=SC2086
train 2 $constant --lr 1 --resume
expect the_end_is_the_model_if_there_is_no_best_one 0 'best validation was before --resume' out
check and_it_is_saved [ -s o/model.safetensors ]
# The same, if the folder exists because of the reports in it.
# shellcheck disable=SC2086
train 2 $constant --lr 1 --resume o-checkpoints/checkpoint-8 --output reports --report-to csv
expect reports_are_not_a_model 0 'best validation was before --resume' out
check a_folder_of_reports_gets_the_model [ -s reports/model.safetensors ]
rm -rf reports reports-checkpoints
fresh
train 2 --save-strategy epoch
[ "$(checkpoints)" = "checkpoint-4 checkpoint-8 checkpoint-12 " ] && ok each_epoch || bad each_epoch "$(checkpoints)"
fresh
train 1 --resume auto --save-steps 100
same without_a_checkpoint_from_the_beginning
fresh
train 2 --save-steps 5 --async-save
same saving_beside_training_changes_nothing
[ "$(checkpoints)" = "checkpoint-5 checkpoint-10 checkpoint-12 " ] &&
    grep -q '^--> saved o-checkpoints/checkpoint-12 in .* during training' out &&
    [ "$(grep -c '"kind": "checkpoint", .*"step_seconds": [0-9]' m.jsonl)" -eq 3 ] &&
    grep -q '^3 checkpoints written during training: a step that triggers one took at most' out &&
    ok what_the_step_took_is_reported || bad what_the_step_took_is_reported "$(checkpoints)"
rm -rf o
train 1 --resume o-checkpoints/checkpoint-10
curve from_one_that_was_written_beside_training 1 whole.numbers
fresh
train 2 --evaluation-steps 1 --save-steps 1 --async-save --checkpoint-dir o/c
# After the second record there is a checkpoint to wait for.
[ "$rc" -eq 0 ] && [ "$(ls o/c | wc -l)" -eq 12 ] && awk '
    /New Val Loss Record/ { records++; saved = 0 }
    /^--> saved o\/c\/checkpoint/ { saved = 1 }
    /^--> saved the model/ && records > 1 && !saved { early = 1 }
    END { exit early || records < 2 }' out && ok the_model_waits_for_checkpoints_in_its_folder ||
    bad the_model_waits_for_checkpoints_in_its_folder "$rc, $(ls o/c | tr '\n' ' ')"
for form in "--sharding-strategy NO_SHARD" "--sharding-strategy SHARD_GRAD_OP" \
    "--auto-wrap-policy NO_WRAP" "--activation-checkpointing"; do
    rm -rf o o-checkpoints
    train 1 --save-steps 5
    rm -rf o-checkpoints/checkpoint-1? o
    # shellcheck disable=SC2086
    train 2 --resume $form
    curve "resumed_with$form" 2 whole.numbers
done

# --- optimizers ---
for optimizer in "sgd --momentum 0.9 --lr 0.05" "adafactor"; do
    fresh
    # shellcheck disable=SC2086
    train 1 --optimizer $optimizer
    numbers m.jsonl >other.numbers
    fresh
    train 2 --optimizer $optimizer --save-steps 5
    rm -rf o-checkpoints/checkpoint-1?
    train 4 --optimizer $optimizer --resume
    curve "resumed_${optimizer%% *}" 4 other.numbers
done

# --- SGD counts no steps: from another program's checkpoint, the position in the data is unknown
# ---
fresh
sgd="--optimizer sgd --momentum 0.9 --lr 0.05"
# shellcheck disable=SC2086
train 2 $sgd --save-steps 5
numbers m.jsonl | grep -v validation | tail -n +6 >rest.numbers
cp -r o-checkpoints/checkpoint-5 foreign
rm foreign/trainer_state.json m.jsonl
# shellcheck disable=SC2086
train 2 $sgd --resume foreign
expect a_checkpoint_of_elsewhere_gives_no_leave_to_replace_a_model 1 'overwrite-output replaces the model'
mv o o.other
# shellcheck disable=SC2086
train 2 $sgd --resume foreign
expect a_foreign_folder_without_step_is_refused 1 'foreign: the number of steps taken is unknown, since sgd does not count them: give --resume-step N'
# shellcheck disable=SC2086
train 2 $sgd --resume foreign --resume-step 5
numbers m.jsonl | grep -v validation >now.numbers
check and_goes_on_after_that_step cmp -s now.numbers rest.numbers
check which_are_some test -s rest.numbers
rm -r o.other
# shellcheck disable=SC2086
train 2 $sgd --resume o-checkpoints/checkpoint-5 --resume-step 4
expect another_step_than_a_folder_says_is_refused 1 'checkpoint-5 is of step 5, not of --resume-step 4'
train 2 --resume --resume-step 5
expect a_step_is_of_a_certain_folder 1 'resume-step 5: needs a certain checkpoint, --resume DIR'
rm -r foreign

# --- checkpoints of other programs: other keys, numbers and files; their options are compared ---
# They are made from this program's checkpoints by removing trainer_state.json.
fresh
train 2 --save-steps 5
cp -r o-checkpoints/checkpoint-5 foreign
rm foreign/trainer_state.json
rm -rf o-checkpoints/checkpoint-1?
run checkpoint inspect foreign
expect what_a_scheduler_of_torch_asks_for_is_there 0 'optim.param_groups.0.initial_lr .* 0.002 ' out
run checkpoint convert foreign both.pt
expect a_file_of_torch_save_is_made 0
# goes_on NAME ARGUMENTS...: must continue from step 5 as if it had not been interrupted
grep -v validation whole.numbers | tail -n +6 >rest.numbers
goes_on() {
    name=$1
    shift
    rm -rf o m.jsonl
    train 2 "$@"
    numbers m.jsonl | grep -v validation | tail -n 7 >now.numbers
    if [ "$rc" -eq 0 ] && cmp -s now.numbers rest.numbers; then ok "$name"; else bad "$name" "exit code $rc"; fi
}
goes_on a_folder_without_state_goes_on --no-save-model --resume foreign
check without_a_word_about_options test "$(grep -c 'resuming with' out)" -eq 0
goes_on a_file_of_torch_save_goes_on --no-save-model --resume both.pt
mkdir -p o
echo 1 >o/model.safetensors
train 2 --resume both.pt
expect but_gives_no_leave_to_replace_a_model 1 'overwrite-output replaces the model'
rm -rf o m.jsonl
train 2 --no-save-model --resume foreign --lr 0.5 --beta1 0.8 --no-decay auto --weight-decay 0.25
expect a_rate_that_differs_is_reported 0 '^resuming with --lr 0.5, which was ' out
check and_betas shows '^resuming with --beta1 0.8, which was 0.9$'
check and_weight_decay_of_each_group shows '^resuming with --weight-decay 0.25, which was 0.01 for [0-9]+ of [0-9]+ parameters, first '
check also_of_those_without shows '^resuming with --weight-decay 0, which was 0.01 for [0-9]+ of [0-9]+ parameters, first '
rm -rf m.jsonl
train 2 --no-save-model --resume foreign --optimizer adam
expect another_class_of_optimizer_is_refused 1 'foreign: the run had --optimizer adamw, this one adam'
train 2 --no-save-model --resume both.pt --optimizer sgd --momentum 0.5 --resume-step 5
expect state_of_another_optimizer_is_refused 1 "both.pt: the optimizer that was saved keeps 'exp_avg'; --optimizer sgd"
run checkpoint convert foreign weights.pt --model-only
train 2 --no-save-model --resume weights.pt
expect a_file_without_an_optimizer_is_refused 1 "weights.pt: no optimizer's state in it"
train 2 --no-save-model --resume ids.jsonl
expect a_file_that_is_none_is_refused 1 'resume ids.jsonl: not a checkpoint: give a folder'
# Accelerate numbers its folders; transformers' Trainer writes a trainer_state.json of its own.
fresh
train 2 --save-steps 5 --checkpoint-format accelerate
rm -rf o-checkpoints/checkpoint-1?
mkdir accelerated
cp -r o-checkpoints/checkpoint-5 accelerated/checkpoint_9
rm accelerated/checkpoint_9/trainer_state.json
cp -r accelerated/checkpoint_9 accelerated/checkpoint_10
cp -r accelerated/checkpoint_9 accelerated/trainer
goes_on the_last_of_accelerate_is_found --no-save-model --resume --checkpoint-dir accelerated
check which_is_that_of_the_highest_number shows '^resuming from accelerated/checkpoint_10: step 5 '
# In the order of the folder, checkpoint_1 comes before checkpoint_10, and checkpoint_9 after it.
cp -r accelerated/checkpoint_9 accelerated/checkpoint_1
mv accelerated/checkpoint_10 whole
cp -r whole accelerated/checkpoint_10
: >accelerated/checkpoint_10/pytorch_model_fsdp_0/.metadata
train 2 --no-save-model --resume --checkpoint-dir accelerated
expect a_damaged_one_names_the_one_before_it 1 '; --resume accelerated/checkpoint_9 uses another checkpoint'
rm -r accelerated/checkpoint_1 accelerated/checkpoint_10
mv whole accelerated/checkpoint_10
echo '{"global_step": 5, "epoch": 1.25, "log_history": []}' >accelerated/trainer/trainer_state.json
goes_on the_state_of_trainer_says_the_step --no-save-model --resume accelerated/trainer
run checkpoint verify accelerated/trainer
expect and_is_whole 0
echo '{"global_step": 7, "epoch": 3.5}' >accelerated/trainer/trainer_state.json
rm -rf m.jsonl
train 2 --no-save-model --resume accelerated/trainer
expect steps_that_were_skipped_count 0 '^resuming from accelerated/trainer: step 7 ' out
check and_epochs_of_another_length_are_reported shows '^resuming with 4 steps in an epoch; the saved run had 2 '
echo '{"global_step": 4}' >accelerated/trainer/trainer_state.json
train 2 --no-save-model --resume accelerated/trainer
expect a_state_of_an_earlier_save_is_refused 1 'trainer_state.json belongs to another save: it is of step 4'
echo '{"steps": 4}' >accelerated/trainer/trainer_state.json
train 2 --no-save-model --resume accelerated/trainer
expect a_state_of_an_unknown_program_is_refused 1 'trainer_state.json: it has neither "format"'
rm -r accelerated/trainer
# Whatever looks like a checkpoint is used or reported.
rm -rf accelerated/checkpoint_9 o-checkpoints
mkdir -p o/checkpoints
mv accelerated/checkpoint_10 o/checkpoints
train 2 --resume
expect one_in_the_output_is_named 1 'there is no checkpoint in o-checkpoints, but o/checkpoints/checkpoint_10: --resume o/checkpoints/checkpoint_10'
mkdir project
mv o/checkpoints project
train 2 --no-save-model --resume --checkpoint-dir project
expect one_in_the_project_is_named 1 'there is no checkpoint in project, but project/checkpoints/checkpoint_10: --resume'
rm -r project
mkdir accelerated/checkpoint-4
cp whole.safetensors accelerated/checkpoint-4/model.safetensors
train 2 --no-save-model --resume --checkpoint-dir accelerated
expect a_model_alone_is_no_fresh_start 1 'no checkpoint in accelerated can be resumed; checkpoint-4: there is a model, but no optimizer'
rm -rf accelerated foreign both.pt weights.pt o m.jsonl

# --- trainer_state.json belongs to one save ---
# of_another_save NAME FORM...: replaces files of a checkpoint by those of another one
of_another_save() {
    name=$1
    shift
    fresh
    train 2 --save-steps 5 "$@"
    rm -rf o-checkpoints/checkpoint-12
    cp o-checkpoints/checkpoint-10/trainer_state.json state.json
    cp -r o-checkpoints/checkpoint-5/. o-checkpoints/checkpoint-10
    mv state.json o-checkpoints/checkpoint-10/trainer_state.json
    train 2 --resume
    expect "${name}_is_refused" 1 'checkpoint-10/trainer_state.json belongs to another save than .*--resume o-checkpoints/checkpoint-5 uses'
    run checkpoint verify o-checkpoints/checkpoint-10
    [ "$rc" -eq 1 ] && grep -q 'belongs to another save' out err && ok "${name}_is_damage" ||
        bad "${name}_is_damage" "exit code $rc"
}
of_another_save a_save_over_a_folder
of_another_save a_save_over_files --state-dict-type FULL_STATE_DICT
of_another_save a_save_over_accelerate --checkpoint-format accelerate
# Without the field, as earlier versions wrote it, the optimizer's count must not exceed the step.
fresh
train 2 --save-steps 5
old() { sed -i '/"saved_files": \[/,/^  \],/d; /"optimizer_steps"/d; /"crc32"/d' "$1"; }
old o-checkpoints/checkpoint-5/trainer_state.json
rm -rf o-checkpoints/checkpoint-1[02]
goes_on an_old_state_goes_on --no-save-model --resume o-checkpoints/checkpoint-5
sed -i 's/"global_step": 5/"global_step": 3/' o-checkpoints/checkpoint-5/trainer_state.json
train 2 --no-save-model --resume
expect a_count_beyond_the_step_is_refused 1 'it is of step 3, where the optimizer had counted at most 3, but .* has counted 5'
cp "$theirs/checkpoint/.metadata" o-checkpoints/checkpoint-5
train 2 --no-save-model --resume
expect metadata_of_another_program_are_refused 1 'checkpoint-5/trainer_state.json belongs to another save than .metadata'

# --- float16: the loss scale is restored too ---
fresh
train 1 --mixed-precision fp16
numbers m.jsonl >other.numbers
fresh
train 2 --mixed-precision fp16 --save-steps 5
rm -rf o-checkpoints/checkpoint-1?
train 1 --mixed-precision fp16 --resume
curve resumed_fp16 1 other.numbers
rm -rf o-checkpoints/checkpoint-1?
train 1 --mixed-precision fp16 --resume --growth-interval 7 --save-steps 5
expect another_growth_of_the_scale_is_reported 0 'resuming with --growth-interval 7, which was 2000' out
check and_counts grep -q '"growth_interval": 7' o-checkpoints/checkpoint-12/trainer_state.json

# --- killed ---
# Each of these runs is killed after some more steps; the last one finishes.
others=o-checkpoints/checkpoint-99.fsdp-tmp-1-00000000-0123456789abcdef
for way in "1 2 4" "1 2 3"; do
    if [ "$way" = "1 2 3" ]; then
        extra="--dropout 0"
        fresh
        train 1
        numbers m.jsonl >plain.numbers
        cp plain.numbers want.numbers
    else
        cp whole.numbers want.numbers
    fi
    fresh
    at=2
    for most in $way; do
        # shellcheck disable=SC2046,SC2086
        setsid "$fsdp" launch -n $most train $options $(split $most) $extra --save-steps 1 --resume >out 2>err &
        pid=$!
        until_step $at
        kill -9 -$pid 2>/dev/null
        wait $pid 2>/dev/null
        at=$((at + 3))
    done
    [ -n "$(checkpoints)" ] && ok "killed_runs_leave_checkpoints_$most" ||
        bad "killed_runs_leave_checkpoints_$most" none
    mkdir "$others"
    train 1 --save-steps 1 --resume
    curve "killed_on_1_2_and_${most}_ranks_and_ended_on_1" $most want.numbers
done
extra=
grep -q "^note: $others is an unfinished checkpoint that another host has begun" out &&
    rmdir "$others" && ok what_another_host_writes_is_kept || bad what_another_host_writes_is_kept ""
grep -q '^resuming from o-checkpoints/checkpoint-' out && ok it_was_resumed || bad it_was_resumed ""
ls o-checkpoints | grep -q '\.' && bad nothing_half_written_is_left "$(ls o-checkpoints)" || ok nothing_half_written_is_left

# --- a signal ---
fresh
# shellcheck disable=SC2046,SC2086
"$fsdp" launch -n 2 train $options $(split 2) --save-steps 1000 >out 2>err &
pid=$!
until_step 3
kill -TERM $pid
wait $pid
rc=$?
[ "$rc" -ne 0 ] && [ "$(checkpoints | wc -w)" -eq 1 ] && ok a_signal_saves || bad a_signal_saves "rc $rc, $(checkpoints)"
grep -q '^--> saved o-checkpoints/checkpoint-' out && ok which_is_reported || bad which_is_reported ""
train 2 --resume
same and_the_run_goes_on
# SIGUSR1, by which a batch system asks to save and to be started again
for n in 1 2; do
    fresh
    # shellcheck disable=SC2046,SC2086
    "$fsdp" launch -n $n train $options $(split $n) --save-steps 1000 >out 2>err &
    pid=$!
    until_step 3
    kill -USR1 $pid
    wait $pid
    rc=$?
    [ "$rc" -eq 75 ] && [ "$(checkpoints | wc -w)" -eq 1 ] && ok "sigusr1_saves_on_$n" ||
        bad "sigusr1_saves_on_$n" "rc $rc, $(checkpoints)"
done
fresh
# shellcheck disable=SC2046,SC2086
"$fsdp" train $options $(split 1) --save-steps 1000 >out 2>err &
pid=$!
until_step 3
kill -USR1 $pid
wait $pid
rc=$?
[ "$rc" -eq 75 ] && [ "$(checkpoints | wc -w)" -eq 1 ] && ok sigusr1_saves_without_a_launcher ||
    bad sigusr1_saves_without_a_launcher "rc $rc, $(checkpoints)"
train 1 --resume
same and_the_run_goes_on_after_sigusr1
# A checkpoint that cannot be written is a failure: the batch system must not start the run again.
for n in 1 2; do
    fresh
    # shellcheck disable=SC2046,SC2086
    "$fsdp" launch -n $n train $options $(split $n) --save-steps 1000 >out 2>err &
    pid=$!
    until_step 3
    rm -rf o-checkpoints
    : >o-checkpoints
    kill -USR1 $pid
    wait $pid
    rc=$?
    [ "$rc" -eq 1 ] && grep -q 'o-checkpoints.*: cannot write a directory there' err && ok "a_checkpoint_that_fails_is_reported_on_$n" ||
        bad "a_checkpoint_that_fails_is_reported_on_$n" "rc $rc, $(cat err)"
    rm -f o-checkpoints
done
fresh
mkfifo pipe
cat pipe >out &
reader=$!
# shellcheck disable=SC2046,SC2086
"$fsdp" launch -n 2 train $options $(split 2) --save-steps 1000 >pipe 2>&1 &
pid=$!
until_step 3
kill -KILL $reader
wait $reader 2>/dev/null
until_step 5
kill -INT $pid
wait $pid
rc=$?
[ "$rc" -eq 130 ] && [ "$(checkpoints | wc -w)" -eq 1 ] && ok a_signal_saves_when_no_one_reads_the_log ||
    bad a_signal_saves_when_no_one_reads_the_log "rc $rc, $(checkpoints)"
fresh
# shellcheck disable=SC2046,SC2086
"$fsdp" launch -n 2 train $options $(split 2) --save-steps 3 --async-save >out 2>err &
pid=$!
until_step 4
kill -TERM $pid
wait $pid
case $(checkpoints) in "checkpoint-3 "*) ok a_signal_ends_what_is_under_way ;; *) bad a_signal_ends_what_is_under_way "$(checkpoints)" ;; esac
train 2 --resume --save-steps 3 --async-save
same and_the_run_goes_on_from_there
fresh
# shellcheck disable=SC2046,SC2086
setsid "$fsdp" launch -n 2 train $options $(split 2) --save-steps 1000 >out 2>err &
pid=$!
until_step 3
kill -TERM $(pgrep -P $pid) $pid
wait $pid
[ "$(checkpoints | wc -w)" -eq 1 ] && ok a_signal_to_all_processes_saves || bad a_signal_to_all_processes_saves "$(checkpoints)"

# --- damage ---
fresh
train 2 --save-steps 5
rm -rf o-checkpoints/checkpoint-12
keep() { rm -rf kept && cp -r o-checkpoints kept; }
restore() { rm -rf o-checkpoints && cp -r kept o-checkpoints; }
keep
truncate -s 1000 o-checkpoints/checkpoint-10/__1_0.distcp
train 2 --resume
expect a_truncated_file_is_refused 1 'checkpoint-10/__1_0.distcp.*--resume o-checkpoints/checkpoint-5'
train 2 --resume o-checkpoints/checkpoint-5
numbers m.jsonl | cmp -s - whole.numbers && ok the_one_before_it_goes_on || bad the_one_before_it_goes_on ""
restore
printf 'x' | dd of=o-checkpoints/checkpoint-10/.metadata bs=1 seek=40 conv=notrunc 2>/dev/null
train 1 --resume
expect damaged_metadata_are_refused 1 'checkpoint-10.*--resume o-checkpoints/checkpoint-5'
restore
# Data of one rank's chunk, which no rank reads as a whole with 3 ranks.
at=$(($(stat -c %s o-checkpoints/checkpoint-10/__0_0.distcp) / 2))
printf '\377\377\377\377' | dd of=o-checkpoints/checkpoint-10/__0_0.distcp bs=1 seek=$at conv=notrunc 2>/dev/null
train 3 --resume
expect damage_is_seen_by_ranks_that_read_parts 1 '__0_0.distcp is damaged: checksum of bytes'
restore
rm o-checkpoints/checkpoint-10/__0_0.distcp
train 2 --resume
expect a_missing_file_is_refused 1 'checkpoint-10/__0_0.distcp'
restore
echo '{"format": 1' >o-checkpoints/checkpoint-10/trainer_state.json
train 2 --resume
expect a_damaged_state_is_refused 1 'checkpoint-10/trainer_state.json'
restore
sed -i 's/"global_step": 10/"global_step": 9/' o-checkpoints/checkpoint-10/trainer_state.json
train 2 --resume
expect a_step_that_was_edited_is_refused 1 'trainer_state.json is damaged: .*--resume o-checkpoints/checkpoint-5'
restore
rm o-checkpoints/checkpoint-10/.metadata
train 2 --resume
numbers m.jsonl | cmp -s - whole.numbers && grep -q 'from o-checkpoints/checkpoint-5:' out &&
    ok an_incomplete_one_is_passed_over || bad an_incomplete_one_is_passed_over ""
restore
truncate -s 1000 o-checkpoints/checkpoint-5/__1_0.distcp
train 2 --resume o-checkpoints/checkpoint-5/
expect the_newest_beside_one_that_was_given_is_named 1 '; --resume o-checkpoints/checkpoint-10 uses another'
restore

# --- files that another run left ---
rm -rf o
train 2 --save-steps 5
expect checkpoints_of_another_run_are_refused 1 'o-checkpoints holds checkpoint-10 of an earlier run: --resume .*--overwrite-output'
mkdir o-checkpoints/checkpoint-11
echo 1 >o-checkpoints/checkpoint-11/optimizer.pt
train 2 --save-steps 1 --resume
expect what_is_no_checkpoint_is_not_replaced 1 'o-checkpoints/checkpoint-11 is not a checkpoint of'
echo '{"global_step": 11}' >o-checkpoints/checkpoint-11/trainer_state.json
train 2 --save-steps 1 --resume
expect nor_is_that_of_another_tool 1 'o-checkpoints/checkpoint-11 is not a checkpoint of'
rm -r o-checkpoints/checkpoint-11
train 2 --save-steps 3 --max-steps 3 --overwrite-output
[ "$rc" -eq 0 ] && [ "$(checkpoints)" = "checkpoint-3 " ] && ok a_run_that_begins_again_leaves_its_own ||
    bad a_run_that_begins_again_leaves_its_own "$rc, $(checkpoints)"

# --- from PyTorch's FSDP2: two ranks saved after four of eight steps (fixtures/dcp/make_fsdp2.py) ---
tail -n 4 "$theirs/losses.txt" >want.losses
for ranks in 1 2 3; do
    rm -f m.jsonl
    run launch -n $ranks train --model "$theirs/model" --from-config --data "$theirs/rows.jsonl" \
        --no-save-model --no-shuffle --batch-size $((12 / ranks)) --epochs 1 --max-steps 8 --lr 2e-3 \
        --lr-schedule constant --weight-decay 0.01 --num-workers 0 --metrics m.jsonl \
        --resume "$theirs/checkpoint"
    numbers m.jsonl | cut -d ' ' -f 3 | paste -d ' ' - want.losses >both.losses
    if [ "$rc" -eq 0 ] && awk '{ apart = $1 > $2 ? $1 - $2 : $2 - $1; good += NF == 2 && apart <= 2e-5 * $2 }
        END { exit NR != 4 || good != 4 }' both.losses; then
        ok "what_fsdp2_saved_goes_on_as_there_on_${ranks}_ranks"
    else
        bad "what_fsdp2_saved_goes_on_as_there_on_${ranks}_ranks" "$(tr '\n' ';' <both.losses)"
    fi
done

# --- a run that fails while a checkpoint is being saved ---
# The checkpoint is from before the failure: with this rate, after warm-up, the third step is not
# finite.
fresh
train 2 --optimizer sgd --lr 1e30 --save-steps 1 --async-save
expect a_step_that_is_not_finite_ends_the_run 1 'step 3: the .* NaN'
[ "$(checkpoints)" = "checkpoint-1 checkpoint-2 " ] && grep -q '^--> saved o-checkpoints/checkpoint-2 in' out &&
    ok what_was_under_way_is_finished || bad what_was_under_way_is_finished "$(checkpoints)"
run checkpoint verify o-checkpoints/checkpoint-2
expect and_whole 0
restore

# --- kinds of state dicts, and Accelerate's names ---
# verifies FILES...: verify must report each file if it is missing or a folder, and changes in
# trainer_state.json
verifies() {
    c=o-checkpoints/checkpoint-5
    run checkpoint verify $c
    expect "whole_with$form" 0
    for file in "$@"; do
        mv "$c/$file" away
        mkdir -p "$c/$file"
        run checkpoint verify o-checkpoints
        expect "verify_misses_$file" 1 "$c/$file: no such file" out
        rmdir "$c/$file"
        mv away "$c/$file"
    done
    mv "$c/$1" away
    train 2 --resume $c
    expect "resuming_misses_$1" 1 "$c/${1%/*}: no (such file|.metadata)"
    mv away "$c/$1"
    cp $c/trainer_state.json away
    sed -i 's/"global_step": 5/"global_step": 4/' $c/trainer_state.json
    run checkpoint verify $c
    expect "verify_sees_a_step_edited_with$form" 1 'trainer_state.json is damaged: the checksum of its content' out
    : >$c/trainer_state.json
    run checkpoint verify $c
    expect "verify_sees_an_empty_state_with$form" 1 "$c/trainer_state.json" out
    mv away $c/trainer_state.json
}
# files_of FORM: prints the files of a checkpoint of this form
files_of() {
    case $1 in
    *full) echo pytorch_model_fsdp.bin optimizer.bin scheduler.bin ;;
    *FULL_STATE_DICT) echo model_state_dict.pt optim_state_dict.pt ;;
    *LOCAL_STATE_DICT) echo local_state_dict_rank0.pt local_state_dict_rank1.pt ;;
    *) echo pytorch_model_fsdp_0/.metadata optimizer_0/.metadata random_states_1.pkl ;;
    esac
}
for form in "--state-dict-type FULL_STATE_DICT" "--fsdp_state_dict_type LOCAL_STATE_DICT" "--checkpoint-format accelerate"; do
    fresh
    # shellcheck disable=SC2086
    train 2 --save-steps 5 $form
    train 2 --resume o-checkpoints/checkpoint-5
    curve "resumed_with$form" 2 whole.numbers
    # shellcheck disable=SC2046
    verifies $(files_of "$form")
done
fresh
form="--checkpoint-format accelerate --state-dict-type full"
# shellcheck disable=SC2046,SC2086
train 2 --save-steps 5 --max-steps 5 $form
# shellcheck disable=SC2046
verifies $(files_of "$form")
fresh
train 2 --save-steps 5 --max-steps 5 --checkpoint-format accelerate --mixed-precision fp16
run checkpoint verify o-checkpoints
expect whole_with_a_scaler 0
rm o-checkpoints/checkpoint-5/scaler.pt
run checkpoint verify o-checkpoints
expect verify_misses_the_scaler 1 'checkpoint-5/scaler\.pt: no such file, which the run wrote' out
for async in "" --async-save; do
    fresh
    # shellcheck disable=SC2086
    train 2 --save-steps 5 --max-steps 5 $async
    rm o-checkpoints/checkpoint-5/trainer_state.json
    run checkpoint verify o-checkpoints/checkpoint-5
    expect "verify_misses_the_state_altogether$async" 1 'checkpoint-5/trainer_state\.json: no such file, which \.metadata in its folder names' out
done
train 2 --save-steps 5 --checkpoint-format accelerate --state-dict-type local
expect accelerate_has_no_local_state_dict 1 'Accelerate has no LOCAL_STATE_DICT'
train 2 --save-steps 5 --state-dict-type full --async-save
expect whole_tensors_are_not_written_beside_training 1 'async-save needs --state-dict-type SHARDED_STATE_DICT'
restore

# --- checkpoints that do not fit ---
train 2 --resume --gradient-accumulation-steps 3
expect another_global_batch_is_refused 1 'rows in a step'
grep -q 'uses another checkpoint' err && bad without_advice_that_does_not_help "" || ok without_advice_that_does_not_help
train 2 --resume --seed 7
expect another_seed_is_refused 1 'the run had --seed 1, this one 7'
head -n 40 ids.jsonl >fewer.jsonl
of_run=$options
options=$(echo "$options" | sed 's/ids.jsonl/fewer.jsonl/')
train 2 --resume
options=$of_run
expect other_data_are_refused 1 'the run had 41 rows, this one 40'
train 2 --resume --optimizer sgd
expect another_optimizer_is_refused 1 'the run had --optimizer adamw, this one sgd'
train 2 --resume nowhere
expect a_checkpoint_that_is_not_there_is_refused 1 '--resume nowhere: there is no such file or folder'
train 2 --resume o-checkpoints/checkpoint-99999
expect with_the_newest_beside_it 1 'no such file or folder; the newest checkpoint in the same folder is o-checkpoints/checkpoint-[0-9]+'
train 1 --save-steps 2 --resume 999
expect a_number_is_no_path 1 "resume 999: a checkpoint is given by its path, and there is no o-checkpoints/checkpoint-999"
last=$(ls o-checkpoints | sed -n 's/^checkpoint-//p' | sort -n | tail -n 1)
train 1 --save-steps 2 --resume "$last"
expect that_of_a_step_names_the_path 1 "resume $last: a checkpoint is given by its path: --resume o-checkpoints/checkpoint-$last"
train 2 --resume --frozen-prefixes shared
[ "$rc" -eq 0 ] && grep -q '^resuming with --frozen-prefixes shared, which was none' out && ok what_was_not_given_was_none ||
    bad what_was_not_given_was_none "$rc"
train 2 --resume --lr 0.0001
[ "$rc" -eq 0 ] && grep -q '^resuming with --lr 0.0001, which was 0.002' out && ok another_rate_is_reported ||
    bad another_rate_is_reported "$rc"
fresh
train 2 --frozen-prefixes encoder,shared --max-steps 10 --save-steps 5
train 2 --resume --frozen-prefixes encoder
expect what_was_frozen_has_no_state 1 'shared.weight was frozen when this was saved and is trained now; --frozen-prefixes must'
check and_no_other_checkpoint_has test "$(grep -c 'another checkpoint' err)" -eq 0
fresh
train 2 --optimizer sgd --frozen-prefixes shared --max-steps 5 --save-steps 5
train 2 --optimizer sgd --resume
expect which_sgd_does_not_miss 0
run train --model tiny --from-config --data ids.jsonl --no-save-model --save-steps 5
expect checkpoints_need_a_place 2 'checkpoint-dir'

# --- a checkpoint of a larger model ---
mkdir shallow
sed 's/"num_layers": [0-9]*, "num_decoder_layers": [0-9]*/"num_layers": 1, "num_decoder_layers": 1/' tiny/config.json >shallow/config.json
for form in '' '--state-dict-type FULL_STATE_DICT' '--state-dict-type LOCAL_STATE_DICT' \
    '--checkpoint-format accelerate' '--checkpoint-format accelerate --state-dict-type FULL_STATE_DICT'; do
    fresh
    # shellcheck disable=SC2086
    train 2 $form --max-steps 3 --save-steps 3 --no-save-model
    # shellcheck disable=SC2086
    train 2 $form --model shallow --max-steps 4 --save-steps 4 --no-save-model --resume
    expect "weights_that_a_run_has_no_use_for_are_refused$(echo "$form" | tr ' ' '_')" 1 \
        "checkpoint-3.*: the model of this run has no use for [0-9]+ tensors of the model there, '[^']*block\.1\.[^']*' the first"
done

# --- a full disk ---
if mkdir small && mount -t tmpfs -o size=400k tmpfs small 2>/dev/null; then
    fresh
    train 2 --save-steps 1 --checkpoint-dir small/c
    expect a_full_disk_is_an_error 1 'small/c'
    [ -z "$(ls small/c 2>/dev/null | grep '\.')" ] && ok a_full_disk_leaves_nothing_half_written ||
        bad a_full_disk_leaves_nothing_half_written "$(ls small/c)"
    fresh
    train 2 --save-steps 1 --checkpoint-dir small/c --async-save --overwrite-output
    expect a_full_disk_beside_training_is_an_error 1 'small/c'
    [ -z "$(ls small/c 2>/dev/null | grep '\.')" ] && ok which_leaves_nothing_half_written ||
        bad which_leaves_nothing_half_written "$(ls small/c)"
    umount small
else
    skip a_full_disk "tmpfs cannot be mounted here"
fi

tally
