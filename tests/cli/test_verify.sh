#!/bin/sh
# `fsdp verify` from outside: what passes, what must fail, what is not compared, exit codes.
# usage: FSDP_BUILD=build tests/cli/test_verify.sh
fsdp=${FSDP_BUILD:-build}/fsdp
case $fsdp in /*) ;; *) fsdp=$(pwd)/$fsdp ;; esac
golden=$(cd "$(dirname "$0")/../golden" && pwd) || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok $1"; }
bad() {
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    tail -n 5 "$dir/out" | cut -c 1-200 | sed 's/^/    out: /'
    head -n 5 "$dir/err" | cut -c 1-200 | sed 's/^/    err: /'
}
# run ARGUMENTS...: output in $dir/out and $dir/err, exit code in $rc
run() {
    timeout -s KILL 120 "$fsdp" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
# expect NAME RC TEXT: the exit code, and TEXT (extended regular expression) in the output
expect() {
    if [ "$rc" -ne "$2" ]; then bad "$1" "exit code $rc, not $2"
    elif ! cat "$dir/out" "$dir/err" | grep -Eq -- "$3"; then bad "$1" "no '$3'"
    else ok "$1"
    fi
}
# copy: a case of its own to spoil, in $dir/case
copy() {
    rm -rf "$dir/case"
    cp -r "$golden/t5_v1_0" "$dir/case"
}

# --- what must pass ---
run verify "$golden/t5_v1_0" "$golden/t5_v1_1"
expect one_rank_gives_pytorchs_numbers 0 '^verify: 1[0-9][0-9] compared, 0 failed, 0 not compared$'
for n in 2 3 4; do
    run launch -n $n verify "$golden/t5_v1_0" "$golden/t5_v1_1"
    expect ranks_${n}_give_pytorchs_numbers 0 '^verify: 1[0-9][0-9] compared, 0 failed, 0 not compared$'
done
run launch -n 2 verify "$golden/t5_v1_1"
for quantity in 'logits' 'hidden.decoder.block.1' 'grad.lm_head.weight' 'trajectory_accum_w2: loss' \
    'trajectory_sgd_w2: grad_norm' 'final_params: each' 'bf16 all_micro_batches: grad_norm' \
    'bf16 trajectory_cosine_w2.json: loss' 'config_other_form.json'; do
    if grep -q "^t5_v1_1: $quantity: .*: ok$" "$dir/out"; then ok "compares $quantity"
    else bad "compares $quantity" "no such line"
    fi
done
run verify "$golden/generation"
expect generated_ids_are_transformers 0 '^generation: t5_greedy.json: sequences: .*: ok$'
expect beam_search_is_listed 0 '^generation: t5_beam4.json: not compared: beam search'
run verify "$golden/t5_v1_1" --threads-per-rank 2 --isa x86-64
expect the_plainest_kernels_pass_too 0 ' 0 failed, 0 not compared$'
mkdir "$dir/both" && cp -r "$golden/t5_v1_0" "$golden/generation" "$dir/both"
run verify "$dir/both"
expect a_folder_of_cases_is_each_of_them 0 '^verify: [0-9]+ compared, 0 failed, 1 not compared$'
grep -q '^t5_v1_0: logits' "$dir/out" && grep -q '^generation: t5_greedy' "$dir/out" ||
    bad a_folder_of_cases_is_each_of_them "one is missing"

# --- what must fail ---
copy
printf '\075' | dd of="$dir/case/model/model.safetensors" bs=1 conv=notrunc \
    seek=$(($(wc -c <"$dir/case/model/model.safetensors") - 1)) 2>/dev/null
run verify "$dir/case"
expect another_weight_fails 1 '^verify: [0-9]+ compared, [1-9][0-9]* failed, 0 not compared$'
expect another_weight_fails_by_name 1 '^case: logits: .*: FAILED$'
run launch -n 2 verify "$dir/case"
expect another_weight_fails_on_2_ranks 1 '^verify: [0-9]+ compared, [1-9][0-9]* failed, 0 not compared$'
copy
sed -i 's/"lr": 0.003, "step_size"/"lr": 0.0031, "step_size"/' "$dir/case/trajectory_step_w1.json"
run verify "$dir/case"
expect another_rate_fails 1 '^case: trajectory_step_w1: loss: .*: FAILED$'
copy
sed -i 's/"clip_grad_norm": 1.0/"clip_grad_norm": 0.9/' "$dir/case/trajectory_sgd_w1.json"
run verify "$dir/case"
expect another_clip_factor_fails 1 '^case: trajectory_sgd_w1: loss: .*: FAILED$'
copy
sed -i 's/"logits": {"absolute": [0-9.e-]*}/"logits": {"absolute": 1e-12}/' "$dir/case/tolerance.json"
run verify "$dir/case"
expect the_folders_tolerance_counts 1 '^case: logits: largest difference [0-9.e-]+ absolute, tolerance 1e-12: FAILED$'

# --- what is not compared, and what cannot be ---
mkdir -p "$dir/llama/model" && echo '{"model_type": "llama"}' >"$dir/llama/model/config.json"
for mesh in w1 w2 hsdp2x2; do echo "{\"mesh\": \"$mesh\"}" >"$dir/llama/trajectory_step_$mesh.json"; done
run verify "$dir/llama"
expect another_model_is_not_compared 1 '^llama: trajectory_step_w1.json: not compared: models of type llama'
expect nothing_compared_is_no_success 1 '^verify: 0 compared, 0 failed, 1 not compared$'
run launch -n 4 verify "$dir/llama"
expect what_four_ranks_made_is_of_four_ranks 1 '^llama: trajectory_step_hsdp2x2.json: not compared'
copy
mv "$dir/case/model" "$dir/elsewhere"
run verify "$dir/case"
expect without_a_model_the_rest_is_compared 0 '^case: trajectory_step_w1.json: not compared: .* no model'
copy
mkdir "$dir/case/dcp_step4" && echo x >"$dir/case/something.txt"
run verify "$dir/case"
expect what_is_unknown_is_listed 0 '^verify: [0-9]+ compared, 0 failed, 2 not compared$'
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
expect json_lines_end_with_the_counts 0 '^\{"compared": [0-9]+, "failed": 0, "not_compared": 0\}$'
if [ "$(grep -c '"outcome": "ok"' "$dir/out")" -eq "$(sed -n 's/.*"compared": \([0-9]*\).*/\1/p' "$dir/out")" ]
then ok json_has_a_line_for_each_quantity
else bad json_has_a_line_for_each_quantity "other counts"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
