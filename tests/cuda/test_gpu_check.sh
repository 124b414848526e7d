#!/bin/sh
# tools/gpu_check.sh, rehearsed on the emulated card: its parts pass, it goes on after a part that
# failed or ran out of time, and its results and exit code say so. Without a card it says what to
# do.
# usage: FSDP_BUILD=build tests/cuda/test_gpu_check.sh
. "$(dirname "$0")/../cli/lib.sh"
script=$root/tools/gpu_check.sh
results=$dir/check/gpu_check.jsonl
# rehearse [NAME=VALUE...]: runs the script in such an environment
rehearse() { capture env FSDP_DEVICE=cuda BUILD="$build" GPU_CHECK_OUT="$dir/check" REHEARSE=1 "$@" "$script"; }
# has_result PART STATUS [TEXT]: a result has that status, and TEXT in its figures or its reason
has_result() {
    grep "\"part\": \"$1\", \"status\": \"$2\"" "$results" | grep -Eq -- "${3:-.}"
}
line='^\{"part": "[^"]*", "status": "(passed|failed|skipped|timeout)", "seconds": [0-9.]*, '
line=$line'"figures": \{.*\}, "why": "[^"]*"\}$'

if sanitized || "$build/tests/cuda/tests" --file test_memory | grep -q '^skip'; then
    skip "$(basename "$0" .sh)" "no emulated card in this build"
    tally
    exit
fi

# missing_kernels: prints the slots that the card's table does not have. Models need all of them.
missing_kernels() {
    folder=$root/src/kernels/cuda
    sed -n 's/^FSDP_CUDA_SLOT(\(.*\));/\1/p' "$folder/slots.h" | while read -r slot; do
        grep -q "SLOT($slot)" "$folder/table.c" || echo "$slot"
    done
}
# Without them the script itself is still rehearsed, with models on the CPU.
models_on=cuda
[ -z "$(missing_kernels)" ] || models_on=cpu

# --- all parts ---
rehearse GPU_CHECK_PARTS="build conformance kernels sanitizer" GPU_CHECK_FILES="test_memory"
expect parts_without_a_model_pass 0 ' 0 failed or late' out
check kernels_need_cupti has_result kernels skipped 'there is no .*libkernels.so'
check the_build_is_resolved has_result build passed
check kernels_are_compared has_result conformance passed '"passed": [1-9]'
check four_tools_run has_result sanitizer passed '"memcheck_clean": 1.*"synccheck_clean": 1'
check the_head_says_what_was_checked has_result head passed '"commit": .*"card": "emulated'
rehearse FSDP_DEVICE=$models_on GPU_CHECK_PARTS="verify ranks options curve commands bench" \
    GPU_CHECK_CASES="$golden/bert_tiny" GPU_CHECK_SHAPES="bert-base llama"
expect parts_with_a_model_pass 0 ' 0 failed or late' out
check verify_counts_both_dtypes has_result verify passed \
    '"f32_ok": [1-9].*"bf16_ok": [1-9].*"f32_failed": 0'
check ranks_have_a_loss has_result ranks passed '"last_loss_bfloat16": "[0-9]'
check options_are_counted has_result options passed '"sets_of_options": 7'
check commands_are_as_on_the_cpu has_result commands passed
check the_curve_is_measured has_result curve passed '"cpu_bf16_distance": 0\.[0-9]*[1-9]'
check each_shape_has_a_result has_result 'bench llama' passed \
    '"step_ms": [0-9.]*, .*"peak_allocated_mib": [0-9]'
check shapes_are_chosen [ "$(grep -c '"part": "bench ' "$results")" -eq 3 ]
check llama_is_measured_in_float8 has_result 'bench llama tensorwise' passed '"step_ms": [0-9.]*, '
check and_it_is_another_loss [ "$(grep '"part": "bench llama' "$results" | sed 's/.*"last_loss": //' |
    sort -u | wc -l)" -eq 2 ]
if command -v python3 >/dev/null; then
    rehearse FSDP_DEVICE=$models_on GPU_CHECK_PARTS="bench torch" GPU_CHECK_SHAPES=bert-base \
        GPU_CHECK_COMPILED=1
    expect the_table_compares_with_pytorch 0 '^bert-base  .* 1000.00 .* 1000.00 ' out
    check each_shape_is_compared has_result 'torch eager bert-base' passed \
        '"times_ours": [0-9.]*, "our_part_of_its_memory"'
else
    skip the_table_compares_with_pytorch "no python3"
fi
check each_line_is_an_object [ "$(grep -vcE "$line" "$results")" -eq 0 ]

# --- what fails ---
cp -r "$golden/bert_tiny" case
sed -i 's/"logits": {"absolute": [0-9.e-]*/"logits": {"absolute": 1e-30/' case/tolerance.json
rehearse FSDP_DEVICE=$models_on GPU_CHECK_PARTS="nothing conformance verify conformance" \
    GPU_CHECK_FILES=test_nothing GPU_CHECK_CASES="$dir/case"
expect a_failure_is_the_exit_code 1 ' 4 failed or late' out
check an_unknown_part_fails has_result nothing failed 'no such part'
check no_tests_are_a_failure has_result conformance failed
check a_difference_has_its_name has_result verify failed 'case, 1 ranks: 1 differ, first .logits'
rehearse GPU_CHECK_PARTS="conformance bench" GPU_CHECK_FILES=test_memory GPU_CHECK_SECONDS=0 \
    GPU_CHECK_SHAPES=bert-base
expect no_time_is_the_exit_code 1 ' 2 failed or late' out
check what_was_not_run_is_late has_result conformance timeout 'test_memory: not within'
check and_the_next_part_too has_result 'bench bert-base' timeout

# --- without a card ---
mkdir bin
printf '#!/bin/sh\necho no devices were found\nexit 6\n' >bin/nvidia-smi
chmod +x bin/nvidia-smi
capture env PATH="$dir/bin:$PATH" GPU_CHECK_OUT="$dir/check" BUILD="$dir/none" "$script"
expect without_a_card_it_stops 1 'no devices were found.*--rehearse' out
check and_nothing_is_built [ ! -e "$dir/none" ]
tally
