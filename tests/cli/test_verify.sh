#!/bin/sh
# `fsdp verify` as a user runs it: what passes, what must fail, what is not compared, exit codes.
# usage: FSDP_BUILD=build tests/cli/test_verify.sh
. "$(dirname "$0")/lib.sh"

# copy: makes a copy of a case in $dir/case, for a test to change
copy() {
    rm -rf "$dir/case"
    cp -r "$golden/t5_v1_0" "$dir/case"
}

# --- what must pass ---
run verify "$golden/t5_v1_0" "$golden/t5_v1_1"
expect one_rank_gives_pytorchs_numbers 0 '^verify: 1[0-9][0-9] compared, 0 failed, 0 not compared$' out
for n in 2 3 4; do
    run launch -n $n verify "$golden/t5_v1_0" "$golden/t5_v1_1"
    expect ranks_${n}_give_pytorchs_numbers 0 '^verify: 1[0-9][0-9] compared, 0 failed, 0 not compared$' out
done
expect replicas_give_pytorchs_numbers 0 '^t5_v1_1: trajectory_sgd_hsdp2x2: grad_norm: .*: ok$' out
run launch -n 2 verify "$golden/t5_v1_1"
for quantity in 'logits' 'hidden.decoder.block.1' 'grad.lm_head.weight' 'trajectory_accum_w2: loss' \
    'trajectory_accum_w2, communicated once: loss' \
    'trajectory_sgd_w2: grad_norm' 'final_params: each' 'bf16 all_micro_batches: grad_norm' \
    'bf16 trajectory_cosine: loss' 'fp32 trajectory_cosine: grad_norm' 'config_other_form.json'; do
    if grep -q "^t5_v1_1: $quantity: .*: ok$" "$dir/out"; then ok "compares $quantity"
    else bad "compares $quantity" "no such line"
    fi
done
odd=$dir/$(printf 'a\377b')
cp -r "$golden/shards" "$odd"
run verify --json "$odd"
expect a_folder_that_is_not_utf8_is_reported 0 '^\{.case.: .a..xFFb' out
rm -r "$odd"
cp -r "$golden/llama2" "$golden/llama2_frozen" "$golden/llama3" "$dir"
cp -r "$golden/llama2/model" "$dir/llama2/model_copy"
cases="$dir/llama2 $dir/llama2_frozen $dir/llama3"
for n in 1 2; do
    run launch -n $n verify $cases "$golden/shards"
    expect ranks_${n}_give_pytorchs_numbers_of_llama 0 '^verify: [0-9]+ compared, 0 failed, 0 not compared$' out
done
for line in 'llama2: packed: separate_logits' 'llama2: packed: documents alone and together' \
    'llama3: packed: grad.model.norm.weight' 'llama2: inv_freq' 'llama2: model_copy: weights' \
    'llama2: model_copy: config.json' 'llama3: config_other_form.json' \
    'llama2: trajectory_sgd_w2: grad_norm' 'llama2: bf16 trajectory_cosine: loss' \
    'llama2_frozen: trajectory_cosine_w2: grad_norm' 'llama2_frozen: final_params: each' \
    'llama2_frozen: params.json: changed and unchanged'; do
    if grep -q "^$line: .*: ok$" "$dir/out"; then ok "compares $line"
    else bad "compares $line" "no such line"
    fi
done
for n in 1 2; do
    run launch -n $n verify "$golden/bert" "$golden/bert_tiny" "$golden/gpt2" "$golden/gpt2_tiny"
    expect ranks_${n}_give_pytorchs_numbers_of_bert_and_gpt2 0 "^verify: [0-9]+ compared, 0 failed, $((2 - n)) not compared$" out
    [ $n = 2 ] || cp "$dir/out" "$dir/w1"
done
cat "$dir/w1" >>"$dir/out"
check but_two_ranks_means_are_not_continued_by_one grep -q '^gpt2_tiny: dcp_step2: continued: not compared: step 1: labels have other weights' "$dir/out"
for line in 'bert: hidden.bert.embeddings' 'bert: hidden.bert.pooler' 'bert: logits' \
    'bert: grad.bert.encoder.layer.0.attention.self.key.bias' \
    'bert_tiny: trajectory_accum_w1: local_loss' 'bert_tiny: trajectory_sgd_w2: loss' \
    'bert_tiny: bf16 all_micro_batches: loss' 'bert_tiny: final_params: each' \
    'gpt2: hidden.transformer.h.1' 'gpt2: grad.transformer.wte.weight' \
    'gpt2_tiny: dcp_step2: continued: grad_norm' 'gpt2_tiny: model_bin: weights' 'gpt2_tiny: trajectory_cosine_w2: grad_norm' \
    'gpt2_tiny: final_params: 99.9 %' 'gpt2_tiny: bf16 trajectory_cosine: loss'; do
    if grep -q "^$line: .*: ok$" "$dir/out"; then ok "compares $line"
    else bad "compares $line" "no such line"
    fi
done
for n in 1 2 3; do
    run launch -n $n verify "$golden/states"
    expect ranks_${n}_give_the_numbers_of_other_optimizers 0 '^verify: 29 compared, 0 failed, 0 not compared$' out
done
mkdir "$dir/states"
cp "$golden"/states/* "$dir/states"
sed -i 's/"warmup_steps": 6/"warmup_steps": 7/; s/"muon_match"/"lion"/' "$dir/states/states.json"
run verify "$dir/states"
expect another_warmup_is_another_result 1 '^states: states.json: schedule_free_20: params: .*: FAILED$' out
check what_no_case_has_is_reported shows '^states: muon_match.tall.params: not compared: no case of states.json has this tensor$'
check and_an_unknown_optimizer shows '^states: states.json: lion: not compared: '
# swap_names FILE A B: exchange the names of two tensors, which have different shapes
swap_names() { LC_ALL=C sed -i "s/\"$2\"/\"@@\"/; s/\"$3\"/\"$2\"/; s/\"@@\"/\"$3\"/" "$1"; }
for what in averaged state.z; do
    cp "$golden/states/states.safetensors" "$golden/states/states.json" "$dir/states"
    swap_names "$dir/states/states.safetensors" "schedule_free_20.wide.$what" "schedule_free_20.vector.$what"
    run verify "$dir/states"
    expect "a_tensor_of_another_size_is_an_error_$what" 1 "tensor 'schedule_free_20.[a-z]*.$what'"
done
for n in 1 2 3 4; do
    run launch -n $n verify "$golden/optim"
    expect ranks_${n}_give_torchs_optimizers 0 '^verify: [0-9]+ compared, 0 failed, 0 not compared$' out
done
for quantity in 'optim.json: adamw: params' 'optim.json: sgd_nesterov: state' \
    'optim.json: adafactor_t5_warmup: params' 'optim.json: adafactor_scaled_lr_momentum: state' \
    'clip.safetensors: norm_2_max_0.5.clipped' 'clip.safetensors: norm_inf_max_0.5.total_norm' \
    'schedules.json: linear_warmup_5_total_20' 'schedules.json: inverse_sqrt_warmup_5'; do
    if grep -q "^optim: $quantity: .*: ok$" "$dir/out"; then ok "compares $quantity"
    else bad "compares $quantity" "no such line"
    fi
done
# A body without a head: the head's numbers and the gradients of the loss cannot be compared.
mkdir "$dir/body"
cp -r "$golden/bert_tiny/model" "$golden/bert_tiny/tolerance.json" "$golden/bert_tiny/inputs.safetensors" \
    "$golden/bert_tiny/expected.safetensors" "$dir/body"
sed 's/BertForSequenceClassification/BertModel/' "$golden/bert_tiny/model/config.json" >"$dir/body/model/config.json"
for n in 1 2; do
    run launch -n $n verify "$dir/body"
    expect a_body_has_hidden_states_on_${n}_ranks 0 '^body: last_hidden: .*: ok$' out
    expect but_no_logits_on_${n}_ranks 0 '^body: logits: not compared: the model does not have this output' out
    expect and_no_loss_on_${n}_ranks 0 '^body: loss: not compared: the model has no loss' out
done
run verify "$golden/generation"
expect generated_ids_are_transformers 0 '^generation: t5_greedy.json: sequences: .*: ok$' out
expect beams_are_transformers 0 '^generation: t5_beam4.json: all_sequences: .*: ok$' out
expect beams_have_transformers_scores 0 '^generation: t5_beam4.json: all_scores: .*: ok$' out
expect causal_models_generate 0 '^generation: llama3_topk1.json: sequences: .*: ok$' out
sed 's/"top_k": 1,/"top_k": 2,/' "$golden/generation/llama3_topk1.json" >"$dir/llama3_topk1.json"
mkdir "$dir/drawn" && mv "$dir/llama3_topk1.json" "$dir/drawn" && cp -r "$golden/generation/llama3_model" "$dir/drawn"
run verify "$dir/drawn"
expect random_ids_are_not_compared 1 'llama3_topk1.json: not compared: its random numbers' out
run verify "$golden/t5_v1_1" --threads-per-rank 2 --isa x86-64
expect the_plainest_kernels_pass_too 0 ' 0 failed, 0 not compared$' out
mkdir "$dir/both" && cp -r "$golden/t5_v1_0" "$golden/generation" "$dir/both"
run verify "$dir/both"
expect a_folder_of_cases_is_each_of_them 0 '^verify: [0-9]+ compared, 0 failed, 0 not compared$' out
grep -q '^t5_v1_0: logits' "$dir/out" && grep -q '^generation: t5_greedy' "$dir/out" ||
    bad a_folder_of_cases_is_each_of_them "one is missing"

# --- what must fail ---
copy
printf '\075' | dd of="$dir/case/model/model.safetensors" bs=1 conv=notrunc \
    seek=$(($(wc -c <"$dir/case/model/model.safetensors") - 1)) 2>/dev/null
run verify "$dir/case"
expect another_weight_fails 1 '^verify: [0-9]+ compared, [1-9][0-9]* failed, 0 not compared$' out
expect another_weight_fails_by_name 1 '^case: logits: .*: FAILED$' out
run launch -n 2 verify "$dir/case"
expect another_weight_fails_on_2_ranks 1 '^verify: [0-9]+ compared, [1-9][0-9]* failed, 0 not compared$' out
copy
sed -i 's/"lr": 0.003, "step_size"/"lr": 0.0031, "step_size"/' "$dir/case/trajectory_step_w1.json"
run verify "$dir/case"
expect another_rate_fails 1 '^case: trajectory_step_w1: loss: .*: FAILED$' out
copy
sed -i 's/"clip_grad_norm": 1.0/"clip_grad_norm": 0.9/' "$dir/case/trajectory_sgd_w1.json"
run verify "$dir/case"
expect another_clip_factor_fails 1 '^case: trajectory_sgd_w1: loss: .*: FAILED$' out
copy
sed -i 's/"logits": {"absolute": [0-9.e-]*}/"logits": {"absolute": 1e-12}/' "$dir/case/tolerance.json"
run verify "$dir/case"
expect the_folders_tolerance_counts 1 '^case: logits: largest difference [0-9.e-]+ absolute, tolerance 1e-12: FAILED$' out

sed -i 's/"model.layers.0."/"model.layers.1."/' "$dir/llama2_frozen/trajectory_cosine_w1.json"
run verify "$dir/llama2_frozen"
expect another_frozen_layer_fails 1 '^llama2_frozen: trajectory_cosine_w1: loss: .*: FAILED$' out
expect another_frozen_layer_fails_by_name 1 '^llama2_frozen: params.json: .* 18 differing, .*: FAILED$' out
last=$(($(wc -c <"$dir/llama2/model_copy/model.safetensors") - 1))
printf '\075' | dd of="$dir/llama2/model_copy/model.safetensors" bs=1 conv=notrunc seek=$last 2>/dev/null
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$dir/llama2/model_copy/config.json"
sed -i 's/10000.0/10001.0/' "$dir/llama2/config_other_form.json"
run verify "$dir/llama2"
expect another_copy_fails 1 '^llama2: model_copy: weights: .* 1 differing, .*: FAILED$' out
expect another_copys_config_fails 1 '^llama2: model_copy: config.json: .*: FAILED$' out
expect another_meaning_fails 1 '^llama2: config_other_form.json: .*: FAILED$' out
printf '\000' | dd of="$dir/llama3/packed_inputs.safetensors" bs=1 conv=notrunc \
    seek=$(($(wc -c <"$dir/llama3/packed_inputs.safetensors") - 8)) 2>/dev/null
run verify "$dir/llama3"
expect documents_and_positions_that_disagree_are_an_error 1 'document_ids and position_ids disagree in row 1, column 19'

# --- what is not compared, and what cannot be compared ---
mkdir -p "$dir/other/model" && echo '{"model_type": "mamba"}' >"$dir/other/model/config.json"
cp "$golden"/t5_v1_0/trajectory_inputs_w*.safetensors "$dir/other"
for mesh in w1 w2 hsdp2x2; do
    sed "s/\"mesh\": \"w1\"/\"mesh\": \"$mesh\"/" "$golden/t5_v1_0/trajectory_step_w1.json" \
        >"$dir/other/trajectory_step_$mesh.json"
done
run verify "$dir/other"
expect another_model_is_not_compared 1 '^other: trajectory_step_w1.json: not compared: .*"mamba"' out
expect nothing_compared_is_no_success 1 '^verify: 0 compared, 0 failed, 1 not compared$' out
cp "$dir/other/trajectory_inputs_w2.safetensors" "$dir/other/trajectory_inputs_w4.safetensors"
run launch -n 4 verify "$dir/other"
expect what_four_ranks_made_is_of_four_ranks 1 '^other: trajectory_step_hsdp2x2.json: not compared: .*"mamba"' out
mkdir "$dir/other/adapter"
run verify "$dir/other"
expect an_adapter_needs_its_configuration 1 'adapter: contains no adapter_config.json'
copy
mv "$dir/case/model" "$dir/elsewhere"
run verify "$dir/case"
expect without_a_model_the_rest_is_compared 0 '^case: trajectory_step_w1.json: not compared: .* no model' out
# Similar losses do not imply that the gradients were the same.
cp -r "$golden/gpt2_tiny" "$dir/near"
sed -i 's/"loss_absolute": [0-9.e-]*/"loss_absolute": 10/' "$dir/near/tolerance.json"
run verify "$dir/near"
expect nor_is_what_other_means_go_on_from 0 '^near: dcp_step2: continued: not compared: step 1: labels have other weights' out
run launch -n 2 verify "$dir/near"
expect but_the_same_means_are 0 '^near: dcp_step2: continued: grad_norm: .*: ok$' out
copy
mkdir "$dir/case/dcp_other" && echo x >"$dir/case/something.txt"
run verify "$dir/case"
expect what_is_unknown_is_listed 0 '^verify: [0-9]+ compared, 0 failed, 2 not compared$' out
copy
truncate -s 1000 "$dir/case/expected.safetensors"
run verify "$dir/case"
expect a_truncated_file_is_an_error 1 'expected.safetensors'
run launch -n 2 verify "$dir/case"
expect a_truncated_file_is_an_error_on_2_ranks 1 'expected.safetensors'
copy
rm "$dir/case/tolerance.json"
run verify "$dir/case"
expect no_tolerance_is_an_error 1 'tolerance.json'
run verify "$dir/nowhere"
expect no_folder_is_an_error 1 'nowhere'
run verify
expect no_case_is_misuse 2 'CASE'

# --- JSON ---
run verify "$golden/t5_v1_0" --json
expect json_lines_end_with_the_counts 0 '^\{"compared": [0-9]+, "failed": 0, "not_compared": 0\}$' out
if [ "$(grep -c '"outcome": "ok"' "$dir/out")" -eq "$(sed -n 's/.*"compared": \([0-9]*\).*/\1/p' "$dir/out")" ]
then ok json_has_a_line_for_each_quantity
else bad json_has_a_line_for_each_quantity "other counts"
fi

tally
