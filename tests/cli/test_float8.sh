#!/bin/sh
# Training with float8 as a user runs it: recipes, ranks, resuming, plans, and what is refused.
# usage: FSDP_BUILD=build tests/cli/test_float8.sh
. "$(dirname "$0")/lib.sh"

model=$golden/llama2/model
awk 'BEGIN { srand(5); for (i = 0; i < 48; i++) { line = ""; for (k = 0; k < 17; k++)
    line = line (k ? ", " : "") int(3 + rand() * 80); printf "{\"input_ids\": [%s]}\n", line } }' >"$dir/rows.jsonl"
common="--model $model --from-config --data $dir/rows.jsonl --lr 0.003 --batch-size 2 --bf16"
gathered="--float8-recipe tensorwise --float8-enable-fsdp-all-gather"

# --- PyTorch's numbers ---
for n in 1 2; do
    run launch -n $n verify "$golden/quant"
    expect ranks_${n}_give_pytorchs_casts 0 '^quant: float8.safetensors: per_row.bits: .*: ok$' out
done
cp -r "$golden/quant" quant
chmod u+w quant/*
size=$(wc -c <quant/float8.safetensors)
tail -c 1000 quant/float8.safetensors | tr '\000-\377' '\001-\377\000' >tail
head -c $((size - 1000)) quant/float8.safetensors | cat - tail >changed && mv changed quant/float8.safetensors
run verify quant
expect other_bytes_are_noticed 1 'FAILED$' out

# --- ranks ---
for flags in "$gathered" "--float8-recipe rowwise" "--float8-recipe rowwise_with_gw_hp --activation-checkpointing"; do
    recipe=$(echo "$flags" | cut -d" " -f2)
    run train $common $flags --gradient-accumulation-steps 4 --max-steps 4 --output one --overwrite-output
    expect ${recipe}_trains 0 "^float8: 14 linear layers, recipe $recipe" out
    for n in 2 4; do
        run launch -n $n train $common $flags --gradient-accumulation-steps $((4 / n)) --max-steps 4 --output many --overwrite-output
        expect ${recipe}_trains_on_${n}_ranks 0
        check ${recipe}_has_the_same_bits_on_${n}_ranks cmp one/model.safetensors many/model.safetensors
    done
done
run train $common --max-steps 4 --gradient-accumulation-steps 4 --output plain
check and_other_bits_than_without_float8 sh -c '! cmp -s one/model.safetensors plain/model.safetensors'

# --- an adapter over frozen weights in float8 ---
lora="--lora-r 4 --lora-target-modules all-linear"
run train $common $lora $gathered --gradient-accumulation-steps 2 --max-steps 3 --output adapter
expect an_adapter_trains 0 '^float8: 14 linear layers, recipe tensorwise, gathered in float8$' out
run launch -n 2 train $common $lora $gathered --max-steps 3 --output adapter2
expect an_adapter_trains_on_2_ranks 0
check it_has_the_same_bits_on_2_ranks cmp adapter/adapter_model.safetensors adapter2/adapter_model.safetensors
run train $common $lora --gradient-accumulation-steps 2 --max-steps 3 --output adapter_bf16
check and_other_bits_than_over_weights_in_bfloat16 sh -c '! cmp -s adapter/adapter_model.safetensors adapter_bf16/adapter_model.safetensors'

# --- resuming ---
run train $common $gathered --max-steps 6 --save-steps 3 --output whole
expect it_saves_checkpoints 0
run train $common $gathered --max-steps 6 --output resumed --resume whole-checkpoints/checkpoint-3
expect it_is_resumed 0
check resuming_gives_the_same_bits cmp whole/model.safetensors resumed/model.safetensors
run train $common --float8-recipe rowwise --max-steps 6 --output other --resume whole-checkpoints/checkpoint-3
expect another_recipe_is_not_resumed_silently 0 'float8-recipe' out
run checkpoint inspect whole-checkpoints/checkpoint-3
expect checkpoints_have_float32_weights 0 'model.layers.0.self_attn.q_proj.weight.*float32' out

# --- plans ---
plan="plan -n 2 --model $model --bf16 --batch-size 2 --max-seq-length 17 --json"
run $plan
expect a_plan_of_bf16 0
cp out bf16.json
run $plan $gathered
expect a_plan_of_float8 0
gathered_bytes() { sed -n 's/.*"all_gather_bytes": \([0-9]*\).*/\1/p' "$1" | sort -n | tail -n 1; }
check which_gathers_less awk "BEGIN { exit !($(gathered_bytes out) < $(gathered_bytes bf16.json)) }"
run $plan $gathered $lora
expect a_plan_of_an_adapter 0
check which_gathers_frozen_weights_in_float8 awk "BEGIN { exit !($(gathered_bytes out) < $(gathered_bytes bf16.json)) }"

# --- Accelerate ---
cat >acc.yaml <<END
distributed_type: FSDP
num_processes: 2
mixed_precision: fp8
fp8_config: {backend: AO, enable_fsdp_float8_all_gather: true, pad_inner_dim: true}
fsdp_config: {fsdp_version: 2}
END
if lacks libyaml; then skip accelerates_fp8 "built without libyaml"; else
    run launch --config_file acc.yaml "$fsdp" train $common --max-steps 2 --no-save-model
    expect accelerates_fp8_leaves_out_the_first_layer 0 '^float8: 13 linear layers, recipe tensorwise, gathered in float8$' out
fi

# --- what is refused ---
refuse() {
    name=$1 text=$2
    shift 2
    run train $common --max-steps 2 --no-save-model "$@"
    if [ "$rc" -eq 0 ]; then bad "$name" "it succeeded"; else expect "$name" "$rc" "$text"; fi
}
refuse rowwise_is_not_gathered '\-\-float8-enable-fsdp-all-gather: needs --float8-recipe tensorwise' --float8-recipe rowwise --float8-enable-fsdp-all-gather
refuse weights_in_4_bits "not with --load-in-4bit" --float8-recipe tensorwise --lora-r 4 --load-in-4bit
refuse dora "q_proj. has an adapter of DoRA" --float8-recipe tensorwise --lora-r 4 --use-dora
refuse a_filter_without_a_layer "--float8-filter-fqns.: 'mpl' is part of the name of no layer" --float8-recipe tensorwise --float8-filter-fqns mpl
refuse only_small_layers '14 are left out as too small' --float8-recipe tensorwise --float8-filter-fqns auto_filter_small_kn
refuse flags_without_a_recipe 'has no effect without --float8-recipe' --float8-filter-fqns mlp
refuse another_backend '\-\-fp8-backend te: is not supported' --mixed-precision fp8 --fp8-backend te
tally
