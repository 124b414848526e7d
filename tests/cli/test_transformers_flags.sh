#!/bin/sh
# Flags of transformers' example scripts in runs of one or two steps: what they change, in the words
# of the scripts. tests/train_config/test_config_trainer.c has all that act;
# tools/check_flags.py asks transformers itself for their names.
# usage: FSDP_BUILD=build tests/cli/test_transformers_flags.sh
. "$(dirname "$0")/train.sh"
needs libyaml

rates() { numbers m.jsonl | sed -n 's/^[0-9]* [^ ]* [^ ]* //p' | tr '\n' ' '; }
rows_from=ids.jsonl
script() { # FLAGS...: a command as those of run_summarization.py, which trains on $rows_from
    rm -rf o o-checkpoints m.jsonl
    run train --model_name_or_path tiny --from-config --train_file "$rows_from" --output_dir o --do_train \
        --per_device_train_batch_size 4 --dataloader_num_workers 0 --metrics m.jsonl "$@"
}

# --- rates ---
script --max_steps 4 --learning_rate 1e-3 --lr_scheduler_type linear --warmup_ratio 0.5 --report_to none
check warmup_ratio_is_a_share_of_all_steps [ "$(rates)" = '0.0 0.0005 0.001 0.0005 ' ]
keep ratio
script --max_steps 4 --learning_rate 1e-3 --lr_scheduler_type linear --warmup_steps 0.5
keep steps
check warmup_steps_below_1_too same ratio steps
script --max_steps 4 --learning_rate 1e-3 --lr_scheduler_type cosine_with_min_lr --lr_scheduler_kwargs '{"min_lr": 0.001}'
check kwargs_of_the_schedule_act [ "$(rates)" = '0.001 0.001 0.001 0.001 ' ]
script --max_steps 4 --lr_scheduler_kwargs '{"min_lr": 1e-9, "no_such": 1}'
refused others_are_errors "'no_such' is none of the keys that have an effect"

script --max_steps 2 --num_train_epochs 1 --lr_scheduler_type constant --learning_rate 1e-3 --warmup_steps 1 --report_to tensorboard csv
check constant_has_no_warmup [ "$(rates)" = '0.001 0.001 ' ]
check and_a_note_says_which_has says 'constant_with_warmup has'
check a_list_is_several_words test -e "$(ls o/runs/*/metrics.csv)" -a -e "$(ls o/runs/*/events*)"
rows=$(wc -l <ids.jsonl)
script --num_train_epochs 1 --max_steps $((rows / 4 + 3))
check max_steps_takes_the_place_of_epochs [ "$(steps)" -eq $((rows / 4 + 3)) ]
script --epochs 1 --max_steps $((rows / 4 + 3))
check but_not_of_this_projects_name [ "$(steps)" -eq $((rows / 4 + 1)) ]

# --- order of rows ---
script --max_steps 2 --dropout 0 --seed 42
keep seed
script --max_steps 2 --dropout 0 --seed 42 --data_seed 7
keep data_seed
script --max_steps 2 --dropout 0 --seed 42 --data_seed 42
keep same_seed
check data_seed_changes_the_order [ -s seed.numbers -a "$(cat seed.numbers)" != "$(cat data_seed.numbers)" ]
check and_only_the_order same seed same_seed
script --max_steps 2 --dropout 0 --seed 42 --train_sampling_strategy sequential
keep sequential
script --max_steps 2 --dropout 0 --seed 42 --no-shuffle
keep in_order
check sequential_is_the_order_of_the_file same sequential in_order
script --max_steps 2 --dropout 0 --seed 42 --group_by_length --pad_to_max_length
keep grouped
check grouping_and_padding_change_nothing same seed grouped
check and_a_note_says_why says 'group-by-length.*packed without padding'

# --- the best model, and the last one ---
best() { script --validation_file validation.jsonl --max_steps 3 --learning_rate 1 --eval_strategy steps --eval_steps 1 "$@"; }
best --metric_for_best_model eval_loss --greater_is_better False --load_best_model_at_end
keep best
check the_best_model_is_saved shows 'saved the model in o .validation improved'
validations() { sed -n 's/.*"kind": "validation", "step": \([0-9]*\),.*"loss": \([^,]*\),.*/\1 \2/p' m.jsonl; }
best
keep without_start
validations >after_steps
best --eval_on_start
keep with_start
sed -i '/^validation 0 /d' with_start.numbers
check validation_before_the_first_step_changes_no_step same without_start with_start
check and_is_reported_as_that_of_step_0 [ "$(validations | sed -n '1s/ .*//p;2,$p' | tr '\n' ' ')" = "0 $(tr '\n' ' ' <after_steps)" ]
start=$(validations | sed -n '1s/.* //p')
check and_printed grep -q "^Before training: Validation Loss: $(printf %.4f "$start")$" out
best --eval_on_start --optimizer schedule_free_adamw
check also_by_an_optimizer_that_averages_weights [ "$(validations | sed -n '1s/.* //p')" = "$start" ]
script --max_steps 1 --eval_on_start
refused it_needs_validation_rows '--eval-on-start needs --validation-data'
for flag in '--eval_strategy no' --no-run-validation; do
    # shellcheck disable=SC2086
    script --validation_file validation.jsonl --max_steps 1 --eval_on_start $flag
    refused "and_not_$(echo "$flag" | tr -cd a-z_)" '--eval-on-start needs .* neither --eval-strategy no'
done
best --load_best_model_at_end False
keep last
check or_the_last_one shows 'saved the model in o .end of training.$'
check once [ "$(grep -c 'saved the model' out)" -eq 1 ]
check the_steps_are_the_same cmp -s best.numbers last.numbers
check but_not_the_models test -s best.weights -a "$(cksum <best.weights)" != "$(cksum <last.weights)"
script --validation_file validation.jsonl --max_steps 3 --learning_rate 1 --eval_strategy no
keep unvalidated
check the_last_model_is_that_without_validation cmp -s last.weights unvalidated.weights

# --- rows for validation ---
# The first rows are for validation: a run with the same rows in two files has the same numbers.
losses_of() { sed -nE 's/.*"kind": "(step|validation)", "step": ([0-9]+).*"loss": ([^,]*),.*/\1 \2 \3/p' m.jsonl; }
held_back=$(((rows * 30 + 50) / 100))
head -n $held_back ids.jsonl >first.jsonl
tail -n +$((held_back + 1)) ids.jsonl >others.jsonl
script --validation_split_percentage 30 --max_steps 2 --dropout 0 --eval_strategy steps --eval_steps 1
check a_share_of_the_rows_is_for_validation shows "^validation: $held_back rows, the first 30 % of ids\.jsonl; training has the $((rows - held_back)) rows after them$"
losses_of >split.losses
rows_from=others.jsonl
script --validation_file first.jsonl --max_steps 2 --dropout 0 --eval_strategy steps --eval_steps 1
losses_of >files.losses
rows_from=ids.jsonl
check as_if_they_were_in_another_file cmp -s split.losses files.losses
check which_was_validated grep -q '^validation 1 ' files.losses
script --validation_split_percentage 30 --validation_file first.jsonl --max_steps 1
refused a_share_beside_a_file_is_refused '--validation-split-percentage is for training rows without rows for validation'
script --validation_split_percentage 1 --max_steps 1
expect a_share_without_rows_is_refused 1 "ids\.jsonl: $rows rows, of which 1 % are 0: too few"
mkdir -p folders/train folders/validation words
cp others.jsonl folders/train/rows.jsonl
cp first.jsonl folders/validation/rows.jsonl
cp others.jsonl words/train-00000-of-00001.jsonl
cp first.jsonl words/validation-00000-of-00001.jsonl
for folder in folders words; do
    rows_from=$folder
    script --max_steps 2 --dropout 0 --eval_strategy steps --eval_steps 1
    losses_of >$folder.losses
    check "rows_for_validation_are_found_in_$folder" cmp -s $folder.losses files.losses
    check "which_a_line_says_of_$folder" shows "^validation: $held_back rows of $folder"
done
rows_from=ids.jsonl

# --- checkpoints ---
script --max_steps 2 --save_strategy epoch --save_steps 500 --logging_strategy epoch --logging_steps 500 \
    --validation_file validation.jsonl --eval_strategy no --eval_steps 500
check steps_beside_another_strategy_are_accepted test $rc -eq 0 -a "$(ls o-checkpoints)" = checkpoint-2
for option in save evaluation logging; do
    check "and_a_note_says_so_once_of_$option" [ "$(grep -Ec -- "--?$option.steps" err)" -eq 1 ]
done
script --max_steps 4 --save_strategy steps --save_steps 1 --save_total_limit 2
check the_newest_checkpoints_are_kept [ "$(ls o-checkpoints)" = "$(printf 'checkpoint-3\ncheckpoint-4')" ]
keep whole
rm -rf o o-checkpoints/checkpoint-4
run train --model_name_or_path tiny --from-config --train_file ids.jsonl --output_dir o --do_train \
    --per_device_train_batch_size 4 --dataloader_num_workers 0 --metrics n.jsonl --max_steps 4 \
    --save_steps 4 --resume_from_checkpoint True
check a_run_continues_from_the_newest cmp -s whole.weights o/model.safetensors
rm -rf o o-checkpoints
script --max_steps 2 --save_strategy best
refused the_best_checkpoint_is_not_kept '--save-strategy best: .*saved in --output'

# --- FSDP ---
# sharded NAME STRATEGY FLAGS...: trains on two ranks
sharded() {
    name=$1 want=$2
    shift 2
    train 2 --max_steps 2 --dropout 0 "$@"
    check "$name" shows "bfloat16 compute, .*$want"
}
sharded words_of_fsdp_are_strategies FULL_SHARD --bf16 --fsdp 'full_shard auto_wrap offload' --fsdp_transformer_layer_cls_to_wrap T5Block
sharded each_of_them SHARD_GRAD_OP --bf16 --fsdp shard_grad_op
echo '{"fsdp_version": 2, "reshard_after_forward": false, "transformer_layer_cls_to_wrap": ["T5Block"]}' >short.json
echo '{"fsdp_version": 2, "fsdp_reshard_after_forward": false, "fsdp_transformer_layer_cls_to_wrap": ["T5Block"]}' >long.json
sharded a_file_says_so_too SHARD_GRAD_OP --bf16 --fsdp_config short.json
keep short
sharded with_long_names SHARD_GRAD_OP --bf16 --fsdp_config long.json
keep long
check both_spellings_of_keys_are_read same short long
sharded or_without_a_file SHARD_GRAD_OP --bf16 --fsdp_config "$(cat long.json)"
# An error names the flag that was given.
run train --model model --data data.jsonl --fsdp_config missing.json
expect a_missing_file_of_fsdp_config 2 '--fsdp-config missing.json: No such file'

# --- what is refused says what to use ---
while read -r flag value text; do
    script --max_steps 1 "$flag" "$value"
    if [ $rc -ne 0 ] && grep -q -- "$text" err && [ ! -e o ]; then
        ok "refused$(echo "$flag" | tr - _)"
    else
        bad "refused$(echo "$flag" | tr - _)" "$(head -1 err)"
    fi
done <<'ROWS'
--deepspeed ds.json ZeRO-3
--push_to_hub True hf upload
--task_name mrpc label-column
--dataset_name xsum --data FILE
--test_file t.csv fsdp evaluate
--do_predict True fsdp evaluate
--optim lion_32bit it takes adamw
--lr_scheduler_type warmup_stable_decay it takes step
--optim_args momentum=0.9 --momentum
--ignore_pad_token_for_loss False not padded
--num_beams 4 needs --predict-with-generate
--report_to wandb --tracker-command
ROWS

# --- what must not pass silently ---
base="--model_name_or_path tiny --from-config --train_file ids.jsonl --output_dir o --max_steps 2"
rm -rf o o-checkpoints
# shellcheck disable=SC2086
run train $base --validation_file ids.jsonl --do_eval
refused evaluating_alone_does_not_train '--do-eval without --do-train: transformers. scripts would only evaluate'
# shellcheck disable=SC2086
run train $base --lr_scheduler_type cosine --lr_scheduler_kwargs '{"num_cycles": 1}'
refused whole_cycles_of_a_cosine '--num-cycles is for --lr-schedule cosine-with-restarts'
# shellcheck disable=SC2086
run train $base --lr_scheduler_kwargs '{"lr": 5}'
refused other_options_in_the_kwargs "--lr_scheduler_kwargs: 'lr' is none of the keys that have an effect"
# shellcheck disable=SC2086
run train $base --lr_scheduler_kwargs '{"num_cycles": [1]}'
refused kwargs_that_are_no_numbers '--lr_scheduler_kwargs: num_cycles: expected a number'
# shellcheck disable=SC2086
run train $base --lr_scheduler_type cosine --lr_scheduler_kwargs '{"num_cycles": 0.5}'
check half_a_cycle_is_the_cosine_of_transformers [ "$rc" -eq 0 ]
rm -rf o
# shellcheck disable=SC2086
capture env FSDP_LEARNING_RATE=0.7 "$fsdp" train $base
check a_variable_of_another_spelling_is_named grep -q 'FSDP_LEARNING_RATE: no option here reads this variable; --lr reads FSDP_LR' err
tally
