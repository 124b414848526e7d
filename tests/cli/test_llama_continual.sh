#!/bin/sh
# The Llama job of the continual pretraining tutorial: `fsdp train` with the tutorial's arguments, and
# examples/llama_continual.c.
# usage: FSDP_BUILD=build tests/cli/test_llama_continual.sh
. "$(dirname "$0")/train.sh"

tiny_llama llama
mkdir data
row() { awk -v n="$1" -v k="$2" 'BEGIN { for (i = 0; i < n; i++) { printf "{\"input_ids\": [1"
    for (j = 1; j < 12; j++) printf ", %d", 3 + (i * k + j * j) % 60; print "]}" } }'; }
row 48 7 >data/train.jsonl
row 6 5 >data/validation.jsonl
tutorial="--tpu False --model_name llama --from-config --precision 32-true --auto_wrap_policy LlamaDecoderLayer
    --sharding_strategy FULL_SHARD --state_dict_type full --limit_all_gathers True --cpu_offload False --resume False
    --number_epochs 2 --micro_batch_size 1 --gradient_accumulation_steps 4 --grad_clip 1.0 --max_step 12 --lr 0.01
    --lr_decay True --warmup_steps 0 --weight_decay 0.01 --beta1 0.9 --beta2 0.95 --eval_batch_size 1
    --eval_iters 1000000 --eval_step_interval 4 --save_step_interval 1000 --entity e --project p --log_model all"
# job RANKS FLAGS...: `fsdp train` without a launcher
job() {
    rm -rf o o-checkpoints m.jsonl
    ranks=$1
    shift
    # shellcheck disable=SC2086
    run train --devices "$ranks" --train_data_dir data $tutorial --output o --metrics m.jsonl "$@"
}
job 2 --min_lr 0.001
check the_tutorials_arguments_run_without_a_launcher [ "$rc" -eq 0 ]
check the_first_line_says_what_is_started grep -q "^--devices 2: starting 2 ranks, as 'fsdp launch -n 2 train ...' does" out
check notes_are_printed_once [ "$(grep -c -- '--log-model' err) $(grep -c 'accepted, without effect here' err)" = "1 1" ]
expect two_ranks_take_part 0 '^ranks: 2 ' out
check validations_are_at_intervals_and_ends_of_epochs_not_twice \
    [ "$(sed -n 's/.*"validation", "step": \([0-9]*\),.*/\1/p' m.jsonl | tr '\n' ' ')" = "4 6 8 12 " ]
sed -n 's/.*"kind": "step".*"loss": \([^,]*\),.*/\1/p' m.jsonl >two
job 1 --min_lr 0.001
check one_device_needs_no_launcher sh -c '! grep -q starting out'
job 2 --min_lr 0.01
expect a_rate_that_does_not_decay_is_named 0 '^--min-lr 0.01 is --lr, so the rate does not decay' out
job 2 --min_lr 0.001 --max_step 20
expect steps_beyond_the_epochs_are_named 0 '^--max-steps 20: --epochs 2 end after 12 steps, so a rank has 48 micro-batches, not 20 x 4' out
job 2 --min_lr 0.001 --max_step 9
expect steps_before_their_end_too 0 '^--max-steps 9 x 4 micro-batches of a rank end before --epochs 2, which have 12 x 4' out
job many
expect devices_is_a_number 2 '--devices many: must be a number of ranks'
job 2 --no-such-option
expect wrong_options_start_nothing 2 'no-such-option'

# --- bf16-true: weights and moments in bfloat16 ---
losses() { sed -n 's/.*"kind": "step".*"loss": \([^,]*\),.*/\1/p' m.jsonl; }
job 1 --min_lr 0.001 --precision bf16-true --gradient_accumulation_steps 8
losses >one
cp o/model.safetensors one.safetensors
check it_trains_in_bfloat16 [ "$rc" -eq 0 -a "$(wc -l <one)" -eq 12 ]
check it_says_what_it_costs grep -q "^weights and the optimizer's moments are kept in bfloat16: .*; gradients are float32" out
check it_asks_for_no_other_beta2 sh -c '! grep -q "^--beta2" out'
job 2 --min_lr 0.001 --precision bf16-true --save_step_interval 5
losses >two-bf16
check two_ranks_have_its_losses cmp -s one two-bf16
check and_its_weights cmp -s o/model.safetensors one.safetensors
check the_model_is_saved_in_it grep -q "\"dtype\": \"bfloat16\"" o/config.json
run checkpoint inspect o-checkpoints/checkpoint-5/optim_state_dict.pt
check moments_are_saved_in_bfloat16 sh -c "grep exp_avg out | grep -q ' bfloat16 ' && ! grep exp_avg out | grep -q ' float32 '"
cp -r o-checkpoints kept
job 2 --min_lr 0.001 --precision bf16-true --resume kept/checkpoint-5
losses >resumed
check a_resumed_run_goes_on_with_them sh -c 'tail -n 7 two-bf16 | cmp -s - resumed'
job 2 --min_lr 0.001 --precision bf16-true --beta2 0.999
expect a_second_moment_that_cannot_change_is_named 0 '^--beta2 0.999: a second moment in bfloat16 hardly follows' out

# --- the rate of a causal model ---
run train --model llama --from-config --data data/train.jsonl --output o2 --batch-size 8 --epochs 1 --lr 1 --metrics m2.jsonl
check a_causal_model_has_a_cosine_by_default \
    [ "$(sed -n 's/.*"kind": "step".*"lr": \([0-9.]*\),.*/\1/p' m2.jsonl | cut -c 1-6 | tr '\n' ' ')" = "1.0 0.9330 0.75 0.5 0.2500 0.0669 " ]
run train --model llama --from-config --data data/train.jsonl --output o3 --batch-size 8 --epochs 2 --lr 1 --gamma 0.5 --metrics m3.jsonl
check or_the_steps_that_are_asked_for \
    [ "$(sed -n 's/.*"kind": "step".*"lr": \([0-9.]*\),.*/\1/p' m3.jsonl | tail -n 1)" = 0.5 ]

# --- the program ---
program=$build/examples/llama_continual
if [ -x "$program" ]; then
    mkdir work && cp -r llama data work && cd work || exit 1
    flags="--devices 2 --train_data_dir data --model_name llama --from_config --precision 32-true --gradient_accumulation_steps 4 --max_step 12 --lr 0.01 --min_lr 0.001 --eval_step_interval 4 --save_step_interval 5"
    # shellcheck disable=SC2086
    capture "$fsdp" launch -n 2 "$program" $flags
    check the_program_runs [ "$rc" -eq 0 ]
    sed -n 's/^step [0-9]*: loss \([0-9.]*\),.*/\1/p' ../out >losses
    # shellcheck disable=SC2016
    check its_losses_are_those_of_train sh -c 'paste losses ../two | awk "(\$1 - \$2) ^ 2 > 1e-8 || NF != 2 { exit 1 }"'
    check it_validates_at_the_same_steps \
        [ "$(sed -n 's/^step \([0-9]*\): validation loss.*/\1/p' ../out | tr '\n' ' ')" = "4 6 8 12 " ]
    mv output whole
    # shellcheck disable=SC2086
    capture "$program" $flags --output alone --save_step_interval 6
    check it_starts_its_ranks_itself grep -q '^--devices 2: starting 2 ranks with fsdp launch$' ../out
    check a_checkpoint_is_saved_once [ "$(grep '^saved checkpoints/' ../out | tr '\n' ' ')" = \
        "saved checkpoints/step-6.pt saved checkpoints/step-12.pt " ]
    check with_the_same_bits cmp -s alone/model.safetensors whole/model.safetensors
    # shellcheck disable=SC2086
    capture "$fsdp" launch -n 2 "$program" $flags --resume --checkpoint checkpoints/step-5.pt
    check it_resumes_with_the_same_bits cmp -s output/model.safetensors whole/model.safetensors
    run generate --model output --input-ids data/validation.jsonl --max-new-tokens 2
    check the_result_is_a_folder_that_generates [ "$rc" -eq 0 ]
    # refuses NAME TEXT FLAGS...: the program must say so before it trains, and keep the checkpoints
    refuses() {
        name=$1 text=$2
        shift 2
        # shellcheck disable=SC2086
        capture "$fsdp" launch -n 2 "$program" $flags "$@"
        check "$name" sh -c '[ "$1" -ne 0 ] && grep -q -- "$2" ../err && ! grep -q "^step " ../out' sh "$rc" "$text"
    }
    refuses no_step_is_an_error '--gradient_accumulation_steps 400: an epoch has only 24 micro-batches' --gradient_accumulation_steps 400
    mkdir my-run && cp checkpoints/step-5.pt my-run/model.pt
    refuses the_name_of_a_checkpoint_is_strict 'step-N.pt, .*my-run/model.pt' --resume --checkpoint my-run/model.pt
    cp checkpoints/step-5.pt my-run/step-80.pt
    cp checkpoints/step-12.pt kept.pt
    refuses a_step_beyond_the_run_is_refused 'of step 80, but this run ends after step 12' --resume --checkpoint my-run/step-80.pt
    check and_overwrites_nothing cmp -s checkpoints/step-12.pt kept.pt
    refuses the_output_is_tested_first '--output missing/folder: No such file' --output missing/folder
    cd .. || exit 1
else
    skip the_program_runs "$program is not built"
fi
tally
