#!/bin/sh
# QLoRA as a user trains, resumes, converts and merges: frozen weights in NF4 (docs/adapters.md).
# usage: FSDP_BUILD=build tests/cli/test_qlora.sh
. "$(dirname "$0")/lib.sh"

llama=$golden/llama3/model
t5=$root/models/t5-debian-mini
data=$root/data/debian/validation.csv
awk 'BEGIN { srand(3); for (i = 0; i < 24; i++) { line = ""; for (k = 0; k < 17; k++)
    line = line (k ? ", " : "") int(3 + rand() * 80); printf "{\"input_ids\": [%s], \"labels\": [%s]}\n", line, line } }' >"$dir/rows.jsonl"
common="--model $llama --data $dir/rows.jsonl --lr 0.01"
lora="--lora-r 4 --lora-alpha 8 --lora-target-modules all-linear"
plain="--load-in-4bit" double="--load-in-4bit --bnb-4bit-use-double-quant"
loss() { sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$1"; }

# --- the same bits at any number of ranks ---
# 12 rows a step: 12 micro-steps of one rank, 6 of two and 3 of four. Three ranks add the gradients of
# 3 micro-steps in the order of one rank.
for kind in plain double; do
    eval "flags=\$$kind"
    for n in 1 2 4; do
        run launch -n $n train $common $lora $flags --batch-size 1 --gradient-accumulation-steps $((12 / n)) --max-steps 4 --save-steps 2 --output "$dir/$kind$n"
        expect ${kind}_trains_on_$n 0 'are trained' out
        check ${kind}_on_${n}_gives_the_bits_of_one cmp "$dir/${kind}1/adapter_model.safetensors" "$dir/$kind$n/adapter_model.safetensors"
    done
    for n in 1 3; do
        run launch -n $n train $common $lora $flags --batch-size 1 --gradient-accumulation-steps $((3 / n)) --max-steps 4 --output "$dir/three_$kind$n"
        expect ${kind}_trains_3_rows_on_$n 0 'are trained' out
    done
    check ${kind}_on_3_gives_the_bits_of_one cmp "$dir/three_${kind}1/adapter_model.safetensors" "$dir/three_${kind}3/adapter_model.safetensors"
done
check the_scales_matter sh -c "! cmp -s '$dir/plain1/adapter_model.safetensors' '$dir/double1/adapter_model.safetensors'"
run launch -n 2 train $common $lora $double --batch-size 1 --gradient-accumulation-steps 6 --max-steps 4 --output "$dir/resumed" --resume "$dir/double1-checkpoints/checkpoint-2"
expect another_number_of_ranks_resumes 0
check with_the_same_bits cmp "$dir/double1/adapter_model.safetensors" "$dir/resumed/adapter_model.safetensors"
for n in 1 2 4; do
    run launch -n $n train --model "$t5" --data "$data" --max-train-samples 8 --bf16 --lora-r 4 --lora-target-modules all-linear $double --batch-size $((8 / n)) --max-steps 1 --output "$dir/t5_$n"
    expect t5_on_$n 0 'are trained' out
done
run launch -n 2 train $common $lora $plain --sharding-strategy NO_SHARD --batch-size 1 --gradient-accumulation-steps 6 --max-steps 4 --output "$dir/no_shard"
expect no_shard_trains 0
check no_shard_gives_the_same_bits cmp "$dir/plain1/adapter_model.safetensors" "$dir/no_shard/adapter_model.safetensors"

# --- ranks of several hosts: each has its own part only ---
if lacks MPI || ! command -v mpirun.openmpi >/dev/null; then
    skip several_hosts "no Open MPI"
else
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 FSDP_TIMEOUT_S=60 FSDP_TEST_HOSTS=2
    for kind in plain double; do
        eval "flags=\$$kind"
        # Open MPI's library does not free all of its memory.
        capture env ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}" mpirun.openmpi --oversubscribe --bind-to none -np 4 "$fsdp" train $common $lora $flags --batch-size 1 --gradient-accumulation-steps 3 --max-steps 4 --device cpu --output "$dir/hosts_$kind"
        expect ${kind}_trains_on_two_hosts 0 '^ranks: 4 \(mpi\)' out
        check ${kind}_on_two_hosts_gives_the_bits_of_one_rank cmp "$dir/${kind}1/adapter_model.safetensors" "$dir/hosts_$kind/adapter_model.safetensors"
    done
    unset FSDP_TEST_HOSTS
fi

# --- folders in NF4 ---
for kind in plain double; do
    eval "flags=\$$kind"
    run checkpoint convert "$llama" "$dir/nf4_$kind" $flags
    expect ${kind}_folder_is_written 0 '14 weights in NF4' out
    run train --model "$dir/nf4_$kind" --data "$dir/rows.jsonl" --lr 0.01 $lora --batch-size 1 --gradient-accumulation-steps 12 --max-steps 4 --output "$dir/from_$kind"
    expect ${kind}_folder_is_trained_without_flags 0
    check ${kind}_folder_gives_the_bits_of_the_flags cmp "$dir/${kind}1/adapter_model.safetensors" "$dir/from_$kind/adapter_model.safetensors"
done
cp -r "$dir/nf4_plain" "$dir/itself"
run checkpoint convert "$dir/itself" itself --dtype float32 --overwrite
expect a_folder_is_not_converted_to_itself 1 'itself: it is, or holds, what is converted'
check and_stays_as_it_was diff -r "$dir/nf4_plain" "$dir/itself"
check config_says_so grep -q '"bnb_4bit_quant_type": "nf4"' "$dir/nf4_double/config.json"
run checkpoint inspect "$dir/nf4_double"
expect it_is_inspected 0 'model\.layers\.0\.mlp\.down_proj\.weight\.quant_state\.bitsandbytes__nf4' out
run evaluate --model "$llama" $double --data "$dir/rows.jsonl" --json
expect flags_evaluate 0 '"loss"' out
cp "$dir/out" "$dir/flags"
run launch -n 2 evaluate --model "$dir/nf4_double" --data "$dir/rows.jsonl" --json
expect the_folder_evaluates_alike 0 "$(sed -n 's/.*\("loss": [0-9.]*\).*/\1/p' "$dir/flags")" out
run checkpoint convert "$dir/nf4_double" "$dir/undone" --dtype float32
expect it_is_undone 0 '14 weights were in NF4' out
check its_config_forgets_it sh -c "! grep -q quantization_config '$dir/undone/config.json'"
run evaluate --model "$dir/undone" --data "$dir/rows.jsonl" --json
expect the_values_are_those_of_nf4 0 "$(sed -n 's/.*\("loss": [0-9.]*\).*/\1/p' "$dir/flags")" out
run checkpoint convert "$dir/undone" "$dir/again" --load-in-4bit --quant-skip-modules mlp,layers.1
expect skipped_modules_keep_their_dtype 0 '4 weights in NF4' out
run checkpoint convert "$dir/nf4_double" "$dir/copy"
expect it_is_copied 0
check a_copy_has_the_same_bytes cmp "$dir/nf4_double/model.safetensors" "$dir/copy/model.safetensors"
printf '{"input_ids": [7, 8, 9]}\n' >"$dir/prompts.jsonl"
run generate --model "$dir/nf4_plain" --input-ids "$dir/prompts.jsonl" --max-new-tokens 4
expect it_generates 0

# --- merging ---
run evaluate --model "$dir/double1" $double --data "$dir/rows.jsonl" --json
expect an_adapter_is_evaluated_on_nf4 0 '"loss"' out
cp "$dir/out" "$dir/with_adapter"
run checkpoint merge-adapter "$dir/double1" "$dir/merged" --model "$dir/nf4_double"
expect it_is_merged_with_weights_in_nf4 0 '14 of them with the update added' out
check the_merged_config_has_no_quantization sh -c "! grep -q quantization_config '$dir/merged/config.json'"
run evaluate --model "$dir/merged" --data "$dir/rows.jsonl" --json
expect the_merged_model_is_evaluated 0 '"loss"' out
check it_has_the_same_loss awk "BEGIN { d = $(loss "$dir/out") - $(loss "$dir/with_adapter"); exit !(d < 1e-4 && d > -1e-4) }"

# --- the plan is the run ---
# allocated ROW FILE: what the table of a plan or of a run says was allocated at most
allocated() { awk -F'│' -v row="$1" '$2 ~ row { gsub(/ /, "", $9); print $9; exit }' "$2"; }
for n in 1 2; do
    how="--model $llama $lora $double --max-seq-length 17 --batch-size 2 --max-steps 3"
    run plan $how -n $n
    expect ${n}_are_planned 0
    cp "$dir/out" "$dir/planned"
    run launch -n $n train $how --data "$dir/rows.jsonl" --no-save-model
    expect ${n}_run_as_planned 0 'peak memory' out
    check ${n}_allocate_what_is_planned test "$(allocated 'at the peak' "$dir/planned")" = "$(allocated 'rank 0' "$dir/out")"
done
run plan --model "$dir/nf4_double" --data "$dir/rows.jsonl" $lora --batch-size 1
expect a_folder_is_planned 0

# --- histograms have the values of the weights, not their bytes ---
run train --model "$dir/nf4_double" --data "$dir/rows.jsonl" $lora --max-steps 1 --report-to tensorboard --log-histograms 1 --logging-dir "$dir/nf4_board" --no-save-model
expect nf4_has_histograms 0
run train --model "$dir/undone" --data "$dir/rows.jsonl" $lora --max-steps 1 --report-to tensorboard --log-histograms 1 --logging-dir "$dir/board" --no-save-model
expect the_same_weights_in_float32_have_them 0
check with_events sh -c "test -n \"\$(ls '$dir/nf4_board')\" -a -n \"\$(ls '$dir/board')\""

# --- what is refused ---
run train $common --load-in-4bit --output "$dir/x"
expect weights_in_4_bits_are_not_trained 2 '\-\-load-in-4bit: weights in 4 bits cannot be trained; give --lora-r'
run train --model "$dir/nf4_plain" --data "$dir/rows.jsonl" --output "$dir/x"
expect nor_those_of_a_folder 1 'quantization_config of config.json.*give --lora-r'
run train $common $lora --load-in-4bit --bnb-4bit-quant-type fp4 --output "$dir/x"
expect fp4_is_refused_by_name 2 "bitsandbytes' FP4 is not supported"
run train $common $lora --bnb-4bit-use-double-quant --output "$dir/x"
expect flags_need_the_first 2 '\-\-bnb-4bit-use-double-quant: has no effect without --load-in-4bit'
run train $common $lora --load-in-4bit --bnb-4bit-compute-dtype bfloat16 --output "$dir/x"
expect the_compute_dtype_is_the_runs 2 'give --param-dtype bfloat16'
run train --model "$dir/nf4_plain" --data "$dir/rows.jsonl" $lora --load-in-4bit --output "$dir/x"
expect twice_is_refused 1 'is in NF4 already'
run train $common $lora --load-in-4bit --offload-dir "$dir/off" --output "$dir/x"
expect no_offload 1 'cannot be in a file \(--offload-dir\)'
run launch -n 2 train $common $lora --load-in-4bit --shard-placement '*_proj.weight:-1' --output "$dir/x"
expect no_other_dimension_on_2 1 'Shard\(-1\)|Shard\(1\) of .* is stored in NF4'
run train $common --lora-r 4 --lora-target-modules q_proj --load-in-4bit --ignored-modules '*.1.mlp' --output "$dir/x"
expect no_ignored_modules 1 'must belong to a unit'
run train --model "$golden/gpt2/model" --data "$dir/rows.jsonl" --lora-r 2 --load-in-4bit --output "$dir/x"
expect conv1d_is_refused 1 'has no linear layer that could be stored in 4 bits'
fixtures=$(dirname "$golden")/fixtures
printf '{"input_ids": [7, 8, 9], "labels": [7, 8, 9]}\n' >"$dir/tiny.jsonl"
# A folder of bitsandbytes in which one layer is in NF4, a square Conv1D. Its indices are those of the transposed weight.
run evaluate --model "$fixtures/gpt2_nf4" --data "$dir/rows.jsonl"
expect conv1d_in_nf4_is_refused 1 "'transformer.h.0.attn.c_proj.weight' is in NF4, and the layer is a Conv1D, .*stores transposed"
run checkpoint convert "$fixtures/gpt2_nf4" "$dir/x" --dtype float32
expect conv1d_in_nf4_is_not_converted 1 'is a Conv1D, whose weight bitsandbytes stores transposed'
run train --model "$golden/gpt2_tiny/model" --data "$dir/tiny.jsonl" --lora-r 2 --lora-target-modules c_attn --max-steps 1 --output "$dir/gpt2_adapter"
expect gpt2_gets_an_adapter 0
run checkpoint merge-adapter "$dir/gpt2_adapter" "$dir/x" --model "$fixtures/gpt2_nf4"
expect conv1d_in_nf4_is_not_merged 1 'Conv1D'
run checkpoint convert "$llama" "$dir/x.safetensors" --load-in-4bit
expect only_folders 2 'are written to a folder of Hugging Face'
run checkpoint convert "$dir/nf4_plain" "$dir/x" --load-in-4bit
expect not_twice 1 'is in NF4 already'
check nothing_was_left test ! -e "$dir/x" -a ! -e "$dir/x.safetensors"
tally
