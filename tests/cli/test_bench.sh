#!/bin/sh
# `fsdp bench train` from outside: the JSON line, the text, wrong command lines.
# usage: FSDP_BUILD=build tests/cli/test_bench.sh
fsdp=${FSDP_BUILD:-build}/fsdp
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok $1"; }
bad() { failed=$((failed + 1)); echo "FAIL $1: $2"; }
run() {
    timeout -s KILL 60 "$fsdp" bench "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
# expect NAME RC TEXT: the exit code, and TEXT (extended regular expression) on stderr
expect() {
    if [ $rc -ne "$2" ]; then
        bad "$1" "exit code $rc, not $2: $(head -n 2 "$dir/err")"
    elif ! grep -Eq -- "$3" "$dir/err"; then
        bad "$1" "stderr lacks '$3': $(head -n 2 "$dir/err")"
    else
        ok "$1"
    fi
}
# value KEY: of the JSON line, as a whole number of thousandths
value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$dir/out" | awk '{ printf "%d", $1 * 1000 }'; }

mkdir "$dir/shape"
cat >"$dir/shape/config.json" <<'JSON'
{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 203,
 "d_model": 48, "d_ff": 80, "d_kv": 16, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3,
 "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "dropout_rate": 0.1,
 "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0, "feed_forward_proj": "relu",
 "is_encoder_decoder": true, "tie_word_embeddings": true, "pad_token_id": 0, "eos_token_id": 1,
 "decoder_start_token_id": 0}
JSON

for ranks in 1 3; do
    name="$ranks ranks give one JSON line"
    run train --shape "$dir/shape" --ranks $ranks --threads-per-rank 1 --batch 2 --seq 24 \
        --target 7 --steps 3 --json
    if [ $rc -ne 0 ] || [ "$(wc -l <"$dir/out")" -ne 1 ]; then
        bad "$name" "exit code $rc: $(head -n 2 "$dir/err")"
        continue
    fi
    missing=
    for key in step_s tok_per_s first_step_after_s peak_host_mib gemm_gflops mfu parameters; do
        [ "$(value $key)" -gt 0 ] 2>/dev/null || missing="$missing $key"
    done
    if [ -n "$missing" ]; then
        bad "$name" "no positive$missing"
    elif ! grep -q "\"ranks\": $ranks," "$dir/out"; then
        bad "$name" "another number of ranks"
    elif [ "$(value first_step_after_s)" -lt "$(value ready_after_s)" ]; then
        bad "$name" "the first step ended before it began"
    else
        ok "$name"
    fi
done

run train --shape "$dir/shape" --ranks 2 --batch 1 --seq 8 --target 3 --steps 2 --dtype fp32
if [ $rc -eq 0 ] && grep -q '^time per step' "$dir/out" && grep -q '^host memory' "$dir/out"; then
    ok "without --json it is text"
else
    bad "without --json it is text" "exit code $rc: $(head -n 2 "$dir/err")"
fi

run
expect "what to measure is asked for" 2 "train"
run compile
expect "another kind is named" 2 "'compile'"
run train --shape t5-tiny
expect "an unknown shape lists the known ones" 2 "t5-small"
run train --dtype fp16
expect "float16 is refused" 2 "float32 or bfloat16"
run train --steps 1
expect "one step is too few" 2 "steps"
timeout -s KILL 60 "$fsdp" launch -n 2 bench train >"$dir/out" 2>"$dir/err"
rc=$?
expect "under fsdp launch it says --ranks" 1 "without 'fsdp launch'"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
