#!/bin/sh
# Adapters as a user trains, resumes, evaluates and merges them.
# usage: FSDP_BUILD=build tests/cli/test_lora.sh
. "$(dirname "$0")/lib.sh"

model=$golden/llama3/model
awk 'BEGIN { srand(3); for (i = 0; i < 24; i++) { line = ""; for (k = 0; k < 17; k++)
    line = line (k ? ", " : "") int(3 + rand() * 80); printf "{\"input_ids\": [%s], \"labels\": [%s]}\n", line, line } }' >"$dir/rows.jsonl"
common="--model $model --data $dir/rows.jsonl --lr 0.01 --batch-size 1"
lora="--lora-r 4 --lora-alpha 8 --lora-dropout 0.1 --lora-target-modules all-linear"

# --- PyTorch's numbers ---
for n in 1 2; do
    run launch -n $n verify "$golden/llama3_lora"
    expect ranks_${n}_give_pefts_numbers 0 '^verify: [0-9]+ compared, 0 failed, 0 not compared$' out
done
check the_trained_adapter_is_compared grep -q '^llama3_lora: final_params: each: .*: ok$' "$dir/out"

for n in 1 2; do
    run launch -n $n verify "$golden/llama3_dora"
    expect ranks_${n}_give_pefts_numbers_of_dora 0 '^verify: [0-9]+ compared, 0 failed, 0 not compared$' out
done
check the_trained_magnitudes_are_compared grep -q '^llama3_dora: final_params: each: .*: ok$' "$dir/out"

# --- training ---
run train $common $lora --gradient-accumulation-steps 2 --max-steps 6 --save-steps 3 --output "$dir/one"
expect an_adapter_is_trained 0 '100\.3 k parameters, loaded; 7\.808 k are trained' out
check the_folder_is_pefts test -f "$dir/one/adapter_config.json" -a -f "$dir/one/adapter_model.safetensors" -a ! -e "$dir/one/config.json" -a ! -e "$dir/one/model.safetensors"
run launch -n 2 train $common $lora --max-steps 6 --output "$dir/two"
expect two_ranks_train_it 0
check two_ranks_and_two_micro_steps_give_the_same_bits cmp "$dir/one/adapter_model.safetensors" "$dir/two/adapter_model.safetensors"
run train $common $lora --gradient-accumulation-steps 2 --max-steps 6 --output "$dir/resumed" --resume "$dir/one-checkpoints/checkpoint-3"
expect it_is_resumed 0
check resuming_gives_the_same_bits cmp "$dir/one/adapter_model.safetensors" "$dir/resumed/adapter_model.safetensors"
run checkpoint inspect "$dir/one-checkpoints/checkpoint-3"
expect a_checkpoint_has_no_base_weights 0 'lora_B' out
check but_only_what_is_trained sh -c "! grep -q 'model.layers.0.self_attn.q_proj.weight ' '$dir/out'"
run train $common $lora --lora-alpha 16 --gradient-accumulation-steps 2 --max-steps 6 --output "$dir/other" --resume "$dir/one-checkpoints/checkpoint-3"
expect another_alpha_is_not_resumed_silently 0 'lora-alpha' out

# --- using it ---
run evaluate --model "$dir/one" --data "$dir/rows.jsonl" --json
expect an_adapter_names_its_model 0 '"loss"' out
cp "$dir/out" "$dir/with_adapter"
run evaluate --model "$model" --adapter "$dir/one" --data "$dir/rows.jsonl" --json
expect or_is_named_beside_it 0 "$(sed -n 's/.*\("loss": [0-9.]*\).*/\1/p' "$dir/with_adapter")" out
run evaluate --model "$model,$model" --adapter "$dir/one" --data "$dir/rows.jsonl"
expect but_of_one_model 1 '\-\-adapter .*: is for one model, and --model names 2'
run checkpoint merge-adapter "$dir/one" "$dir/merged"
expect it_is_merged 0 'merged: [0-9]+ tensors, 14 of them with the update added' out
run evaluate --model "$dir/merged" --data "$dir/rows.jsonl" --json
expect the_merged_model_is_evaluated 0 '"loss"' out
loss() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1"; }
check it_has_the_same_loss awk "BEGIN { d = $(loss "$dir/out") - $(loss "$dir/with_adapter"); exit !(d < 1e-4 && d > -1e-4) }"
run checkpoint merge-adapter "$dir/one" "$dir/back" --model "$dir/merged" --subtract
expect it_is_taken_off_again 0 'with the update subtracted' out
run checkpoint diff "$model" "$dir/back" --tolerance 1e-6
expect which_gives_the_base_model_again 0
# A base model whose tensors do not have the shapes that its config.json gives
mkdir "$dir/narrow" "$dir/flat"
cp "$model/config.json" "$dir/narrow"
cp "$golden/mistral/model/model.safetensors" "$dir/narrow"
cp "$model/config.json" "$dir/flat"
LC_ALL=C sed '1s/\(layers.0.self_attn.q_proj.weight":{"dtype":"F32","shape":\)\[64,64\]/\1[4096] /' "$model/model.safetensors" >"$dir/flat/model.safetensors"
for base in narrow flat; do
    for adapter in one dora; do
        [ $adapter = one ] || run train $common $lora --use-dora --max-steps 1 --output "$dir/$adapter"
        run checkpoint merge-adapter "$dir/$adapter" "$dir/x" --model "$dir/$base"
        expect "tensors_of_a_${base}_base_are_not_read_beyond_their_end_with_$adapter" 1 "does not fit .*config.json: .*tensor '.*_proj.weight' has shape \[[0-9, ]+\], expected \[[0-9]+, [0-9]+\]"
    done
    run checkpoint convert "$dir/$base" "$dir/x" --load-in-4bit
    expect "nor_of_a_${base}_model_in_4_bits" 1 "tensor '.*_proj.weight' has shape \[[0-9, ]+\], expected \[[0-9]+, [0-9]+\]"
done
run checkpoint merge-adapter "$dir/one" "$dir/huge" --weights 1e9
expect large_weights_are_merged 0 'tensors, 14 of them' out
[ -s "$dir/err" ] && bad without_a_note "$(cat "$dir/err")" || ok without_a_note
run checkpoint merge-adapter "$dir/one" "$dir/infinite" --weights 1e9 --dtype float16
expect weights_that_float16_cannot_hold_are_noted 0 "note: [0-9]+ elements are too large for float16 and became infinite, the first of them of 'model"
run checkpoint convert "$dir/huge" "$dir/huge_nf4" --load-in-4bit
run checkpoint convert "$dir/huge_nf4" "$dir/undone" --dtype float16
expect and_of_weights_that_were_in_4_bits 0 "note: [0-9]+ elements are too large for float16 and became infinite, the first of them of 'model"
run checkpoint merge-adapter "$dir/one" "$dir/two" "$dir/half" --weights 0.5,0.5
expect several_adapters_are_merged 0 '14 of them with the updates added' out
run checkpoint diff "$dir/merged" "$dir/half" --tolerance 1e-6
expect two_halves_are_one 0
run train $common --adapter "$dir/one" --max-steps 2 --output "$dir/more"
expect an_adapter_is_trained_further 0 'are trained' out

# --- PiSSA ---
run checkpoint init-adapter "$model" "$dir/pissa" "$dir/residual" --lora-r 4 --lora-alpha 8 --lora-target-modules all-linear
expect pissa_makes_an_adapter_and_a_residual 0 'pissa: an adapter for 14 layers' out
run evaluate --model "$model" --data "$dir/rows.jsonl" --json
expect the_base_model_is_evaluated 0 '"loss"' out
cp "$dir/out" "$dir/base_loss"
run evaluate --model "$dir/pissa" --data "$dir/rows.jsonl" --json
expect the_adapter_names_the_residual 0 '"loss"' out
check both_together_are_the_base_model awk "BEGIN { d = $(loss "$dir/out") - $(loss "$dir/base_loss"); exit !(d < 1e-5 && d > -1e-5) }"
run evaluate --model "$dir/residual" --data "$dir/rows.jsonl" --json
check the_residual_alone_is_not awk "BEGIN { d = $(loss "$dir/out") - $(loss "$dir/base_loss"); exit !(d > 1e-3 || d < -1e-3) }"
run checkpoint merge-adapter "$dir/pissa" "$dir/again"
expect the_first_adapter_is_merged 0 'again: [0-9]+ tensors, 14 of them with the update added' out
run checkpoint diff "$model" "$dir/again" --tolerance 1e-6
expect which_is_the_base_model 0
for n in 1 2; do
    run launch -n $n train $common --model "$dir/residual" --adapter "$dir/pissa" --gradient-accumulation-steps $((2 / n)) --max-steps 4 --output "$dir/pissa$n"
    expect pissa_is_trained_on_${n} 0 'are trained' out
done
check pissa_has_the_same_bits_on_2 cmp "$dir/pissa1/adapter_model.safetensors" "$dir/pissa2/adapter_model.safetensors"
# The trained adapter minus the first one is an update of the model itself.
run checkpoint merge-adapter "$dir/pissa1" "$dir/trained"
expect the_trained_adapter_is_merged 0
run checkpoint merge-adapter "$dir/pissa1" "$dir/pissa" "$dir/difference" --weights 1,-1 --model "$model"
expect the_difference_is_merged_into_the_base_model 0
run checkpoint diff "$dir/trained" "$dir/difference" --tolerance 1e-5
expect both_are_the_same_model 0
run train $common --model "$dir/residual" --adapter "$dir/pissa" --load-in-4bit --max-steps 1 --output "$dir/qpissa"
expect the_residual_is_quantized 0
run checkpoint convert "$model" "$dir/nf4" --load-in-4bit
mkdir "$dir/taken" && echo mine >"$dir/taken/file"
run checkpoint init-adapter "$model" "$dir/p" "$dir/taken"
expect a_residual_that_would_replace_files_is_refused 1 'taken: the directory exists and is not empty'
check and_no_adapter_is_left_without_it [ ! -e "$dir/p" ]
run checkpoint init-adapter "$model" "$dir/p" "$dir/p"
expect both_in_one_folder_are_refused 1 'the adapter and the residual need two folders'
for way in "$dir/./p" "$dir/p/" "$dir/p/q"; do
    run checkpoint init-adapter "$model" "$dir/p" "$way"
    expect "nor_is_one_in_the_other: ${way#"$dir"}" 1 "$dir/p: the adapter and the residual need two folders"
    check and_nothing_is_made test ! -e "$dir/p"
done
cp -r "$dir/residual" "$dir/base"
for way in "$dir/base $dir/p $dir/base" "$dir/base $dir/base/. $dir/q" "base p ./base/"; do
    run checkpoint init-adapter $way --overwrite
    expect "the_model_itself_is_not_replaced: $way" 1 'base[/.]*: it is, or holds, what is decomposed: .*base'
done
check and_stays_as_it_was diff -r "$dir/residual" "$dir/base"
run checkpoint init-adapter "$model" "$dir/p" "$dir/q" --lora-alpha 0
expect an_alpha_of_zero_is_an_error 2 '\-\-lora-alpha 0: the update is multiplied by alpha / r'
cp -r "$dir/one" "$dir/mine"
run checkpoint merge-adapter "$dir/mine" "$dir/mine" --overwrite
expect an_adapter_is_not_replaced_by_its_merge 1 'mine: it is, or holds, what is merged'
run checkpoint merge-adapter "$dir/mine" "$dir/base" --model "$dir/base" --overwrite
expect nor_is_its_base_model 1 'base: it is, or holds, what is merged'
check and_both_stay_as_they_were sh -c 'diff -r one mine && diff -r residual base'
(ulimit -f 100 && run checkpoint init-adapter "$model" "$dir/p" "$dir/q")
check nothing_is_left_if_the_residual_cannot_be_written [ ! -e "$dir/p" -a ! -e "$dir/q" ]
run checkpoint init-adapter "$dir/nf4" "$dir/p" "$dir/q"
expect weights_in_nf4_are_not_decomposed 1 'is in NF4: PiSSA decomposes weights in float32.*--load-in-4bit'
check and_nothing_is_written test ! -e "$dir/p" -a ! -e "$dir/q"
run checkpoint init-adapter "$model" "$dir/p" "$dir/q" --lora-r 1000
expect a_rank_above_the_size_of_a_weight_is_an_error 1 'lora-r 1000: .* has fewer singular values'
run checkpoint init-adapter "$model" "$dir/p" "$dir/q" --lora-alpha -1
expect a_negative_alpha_is_an_error 1 'PiSSA needs a positive number'
run checkpoint init-adapter "$model" "$dir/p" "$dir/q" --init-lora-weights gaussian
expect other_first_values_are_for_train 2 "gaussian: is neither pissa nor pissa_niter_N .*'fsdp train --lora-r'"
run checkpoint init-adapter "$model" "$dir/p" "$dir/q" --init-lora-weights pissa_niter_
expect iterations_are_a_number 2 'pissa_niter_: is neither pissa nor pissa_niter_N'
run checkpoint init-adapter "$golden/gpt2/model" "$dir/pissa_gpt2" "$dir/residual_gpt2" --init-lora-weights pissa_niter_4 --use-rslora
expect transposed_weights_are_decomposed 0 'an adapter for 2 layers' out
run checkpoint merge-adapter "$dir/pissa_gpt2" "$dir/again_gpt2"
run checkpoint diff "$golden/gpt2/model" "$dir/again_gpt2" --tolerance 1e-5
expect and_give_gpt2_again 0
run train $common $lora --init-lora-weights pissa --output "$dir/no"
expect train_says_which_command_makes_pissa 2 'fsdp checkpoint init-adapter MODEL ADAPTER RESIDUAL --lora-r 4'

# --- DoRA ---
# Four micro-batches a step on 1, 2 and 4 ranks, and three on 1 and 3.
for n in 1 2 4; do
    run launch -n $n train $common $lora --use-dora --gradient-accumulation-steps $((4 / n)) --max-steps 4 --save-steps 2 --output "$dir/dora$n"
    expect dora_is_trained_on_${n} 0
    check dora_has_the_same_bits_on_${n} cmp "$dir/dora1/adapter_model.safetensors" "$dir/dora$n/adapter_model.safetensors"
done
for n in 1 3; do
    run launch -n $n train $common $lora --use-dora --gradient-accumulation-steps $((3 / n)) --max-steps 4 --output "$dir/three$n"
    expect three_micro_batches_of_dora_on_${n} 0
done
check three_ranks_give_dora_the_same_bits cmp "$dir/three1/adapter_model.safetensors" "$dir/three3/adapter_model.safetensors"
run launch -n 2 train $common $lora --use-dora --gradient-accumulation-steps 2 --max-steps 4 --output "$dir/dora_resumed" --resume "$dir/dora1-checkpoints/checkpoint-2"
expect dora_is_resumed 0
check resuming_dora_gives_the_same_bits cmp "$dir/dora1/adapter_model.safetensors" "$dir/dora_resumed/adapter_model.safetensors"
run train $common $lora --gradient-accumulation-steps 4 --max-steps 4 --output "$dir/without" --resume "$dir/dora1-checkpoints/checkpoint-2"
expect dora_is_not_resumed_without_it 1 'use-dora' out
run evaluate --model "$dir/dora1" --data "$dir/rows.jsonl" --json
expect dora_is_evaluated 0 '"loss"' out
cp "$dir/out" "$dir/with_dora"
run checkpoint merge-adapter "$dir/dora1" "$dir/merged_dora"
expect dora_is_merged 0 'merged_dora: [0-9]+ tensors, 14 of them with the update added' out
run evaluate --model "$dir/merged_dora" --data "$dir/rows.jsonl" --json
check merged_dora_has_the_same_loss awk "BEGIN { d = $(loss "$dir/out") - $(loss "$dir/with_dora"); exit !(d < 1e-4 && d > -1e-4) }"
run checkpoint merge-adapter "$dir/dora1" "$dir/x" --model "$dir/merged_dora" --subtract
expect a_merge_of_dora_is_not_undone 1 'use_dora is set, and --subtract cannot undo its merge'
run checkpoint merge-adapter "$dir/dora1" "$dir/one" "$dir/x"
expect dora_is_merged_by_itself 1 'dora1: use_dora is set.*only by itself'
# A new adapter does not change the model, with or without magnitudes.
for flags in "" "--use-dora"; do
    run train $common --lora-r 4 $flags --lr 0 --weight-decay 0 --max-steps 1 --output "$dir/new$flags"
    expect a_new_adapter_is_saved${flags} 0
    run evaluate --model "$dir/new$flags" --data "$dir/rows.jsonl" --json
    loss "$dir/out" >"$dir/loss$flags"
done
check new_magnitudes_do_not_change_the_model cmp "$dir/loss" "$dir/loss--use-dora"
# Over weights in 4 bits: one rank and two, and the plan counts the magnitudes.
for n in 1 2; do
    run launch -n $n train $common $lora --use-dora --load-in-4bit --gradient-accumulation-steps $((4 / n)) --max-steps 2 --output "$dir/qdora$n"
    expect dora_over_nf4_is_trained_on_${n} 0
done
check dora_over_nf4_has_the_same_bits cmp "$dir/qdora1/adapter_model.safetensors" "$dir/qdora2/adapter_model.safetensors"
# allocated ROW FILE: what the table of a plan or of a run says was allocated at most
allocated() { awk -F'│' -v row="$1" '$2 ~ row { gsub(/ /, "", $9); print $9; exit }' "$2"; }
how="--model $model $lora --use-dora --max-seq-length 17 --batch-size 2 --max-steps 3"
run plan $how -n 2
expect dora_is_planned 0
cp "$dir/out" "$dir/planned"
run launch -n 2 train $how --data "$dir/rows.jsonl" --no-save-model
expect dora_runs_as_planned 0 'peak memory' out
check dora_allocates_what_is_planned test "$(allocated 'at the peak' "$dir/planned")" = "$(allocated 'rank 0' "$dir/out")"

# --- what is refused ---
run train $common --lora-alpha 8 --output "$dir/x"
expect options_without_a_rank_are_refused 2 '\-\-lora-alpha: has no effect without --lora-r'
run train $common $lora --adapter "$dir/one" --output "$dir/x"
expect a_new_and_an_old_adapter_are_refused 2 '\-\-adapter'
run train $common --lora-r 2 --lora-target-modules qproj --output "$dir/x"
expect unknown_layers_are_listed 1 "'qproj': no layer .*model\.layers\.0\.self_attn\.q_proj"
run train $common --lora-r 2 --lora-layers-to-transform one --output "$dir/x"
expect a_layer_is_a_number 1 '\-\-lora-layers-to-transform one: is not the index'
run checkpoint merge-adapter "$dir/one" "$dir/x" --weights 1,2
expect as_many_weights_as_adapters 2 '\-\-weights: 2 numbers for 1 adapter'
run checkpoint merge-adapter "$dir/one" "$dir/x" --subtract
expect subtracting_needs_the_merged_model 2 '\-\-subtract: needs --model'
cp -r "$dir/one" "$dir/odd"
sed 's/"use_dora": false/"use_dora": true/' "$dir/one/adapter_config.json" >"$dir/odd/adapter_config.json"
run evaluate --model "$dir/odd" --data "$dir/rows.jsonl"
expect magnitudes_that_are_missing_are_named 1 "there is no tensor 'model.layers.0.self_attn.q_proj.lora_magnitude_vector'"
sed 's/"use_dora": false/"use_qalora": true/' "$dir/one/adapter_config.json" >"$dir/odd/adapter_config.json"
run evaluate --model "$dir/odd" --data "$dir/rows.jsonl"
expect other_methods_are_refused 1 "adapter_config.json: 'use_qalora' is set"
sed 's/"r": 4/"r": 3/' "$dir/one/adapter_config.json" >"$dir/odd/adapter_config.json"
run evaluate --model "$dir/odd" --data "$dir/rows.jsonl"
expect another_rank_is_refused 1 'lora_A'
rm "$dir/odd/adapter_model.safetensors"
run evaluate --model "$dir/odd" --data "$dir/rows.jsonl"
expect missing_values_are_named 1 'contains neither adapter_model.safetensors nor adapter_model.bin'
check nothing_was_left test ! -e "$dir/x"
tally
