#!/bin/sh
# usage: tools/same_as.sh OLD_BUILD NEW_BUILD [PATTERN]
# Runs a matrix of small training runs with the programs of two builds, and compares losses and
# gradient norms to the last digit, and peak memory by tag on every rank. Then compares the memory
# plans of the same runs, and for four ranks also that of two hosts.
# PATTERN: only runs whose line matches this extended regular expression.
# Run it before and after a change that must not affect numbers and memory.
old=$1 new=$2 pattern=${3:-.}
[ -x "$old/fsdp" ] && [ -x "$new/fsdp" ] || {
    echo "usage: tools/same_as.sh OLD_BUILD NEW_BUILD [PATTERN]: no program fsdp in '$old' or '$new'" >&2
    exit 2
}
old=$(cd "$old" && pwd)/fsdp
new=$(cd "$new" && pwd)/fsdp
cd "$(dirname "$0")/.." || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# Token ids below 16, which every golden model has.
awk 'BEGIN { for (i = 0; i < 41; i++) {
    printf "{\"input_ids\": [%d", 2 + i % 14
    for (k = 1; k < 2 + i * 7 % 6; k++) printf ", %d", 2 + (i * 31 + k * k * 7) % 14
    printf "], \"labels\": ["
    for (k = 0; k < 1 + i * 5 % 7; k++) printf "%d, ", 2 + (i + k * 3) % 14
    print "1]}" } }' >"$dir/seq2seq.jsonl"
sed 's/"labels.*/"label": 0}/; n; s/"labels.*/"label": 1}/' "$dir/seq2seq.jsonl" >"$dir/classification.jsonl"
awk 'BEGIN { for (i = 0; i < 41; i++) {
    printf "{\"input_ids\": [%d", 2 + i % 14
    for (k = 1; k < 3 + i * 7 % 5; k++) printf ", %d", 2 + (i * 31 + k * k * 7) % 14
    print "]}" } }' >"$dir/causal-lm.jsonl"

data_of() {
    case $1 in
    *bert*) echo "$dir/classification.jsonl" ;;
    *t5*) echo "$dir/seq2seq.jsonl" ;;
    *) echo "$dir/causal-lm.jsonl" ;;
    esac
}

# What must be equal in a metrics file: everything except times, rates, and memory that the
# allocator keeps.
numbers() {
    sed -E 's/"(seconds|tokens_per_s|step_s|total_s|peak_host_mib|reserved)": [^,}]*[,}]//g' "$1"
}

# run PROGRAM NAME: trains and plans with $ranks, $model and $flags; returns 1 if it failed, with
# the messages in NAME.log
run() {
    program=$1 out=$dir/$2
    rm -rf "$out" "$dir/offload"
    mkdir "$out"
    common="--model $model --from-config --data $data --max-steps 3 --no-save-model --num-workers 0"
    # shellcheck disable=SC2086
    "$program" launch -n "$ranks" train $common --output "$out/o" --metrics "$out/metrics" --lr 0.01 --max-grad-norm 1 \
        $flags >"$out/log" 2>&1 || return 1
    numbers "$out/metrics" >"$out/numbers"
    # shellcheck disable=SC2086
    "$program" plan $common -n "$ranks" --json $flags >"$out/plan" 2>"$out/log" || return 1
    [ "$ranks" -ne 4 ] ||
        # shellcheck disable=SC2086
        "$program" plan $common -n 8 --nproc-per-node 4 --json $flags >>"$out/plan" 2>"$out/log"
}

compared=0 failed=0
compare() {
    ranks=$1 model=$2
    shift 2
    flags=$*
    line="$ranks $model $flags"
    echo "$line" | grep -Eq -e "$pattern" || return
    data=$(data_of "$model")
    flags=$(echo "$flags" | sed "s|DIR|$dir/offload|")
    run "$old" old
    a=$?
    run "$new" new
    b=$?
    compared=$((compared + 1))
    if [ $a -ne 0 ] && [ $b -ne 0 ]; then
        echo "not comparable, both fail: $line: $(head -n 1 "$dir/old/log")"
        failed=$((failed + 1))
    elif [ $a -ne $b ]; then
        echo "differs: $line: one fails: $(cat "$dir/old/log" "$dir/new/log" | grep -m 1 'error')"
        failed=$((failed + 1))
    elif ! cmp -s "$dir/old/numbers" "$dir/new/numbers"; then
        echo "differs: $line"
        diff "$dir/old/numbers" "$dir/new/numbers" | head -n 4
        failed=$((failed + 1))
    elif ! cmp -s "$dir/old/plan" "$dir/new/plan"; then
        echo "plan differs: $line"
        diff "$dir/old/plan" "$dir/new/plan" | head -n 4
        failed=$((failed + 1))
    fi
}

golden="llama2 llama3 llama_bias mistral qwen2 gpt2 gpt2_tiny bert bert_tiny t5_v1_0 t5_v1_1 t5_debian_mini"
for name in $golden; do
    model=tests/golden/$name/model
    for ranks in 1 2 3 4; do
        compare $ranks "$model"
        compare $ranks "$model" --param-dtype bf16
    done
    compare 2 "$model" --param-dtype fp16
    compare 2 "$model" --param-dtype bf16 --master-dtype bfloat16 --reduce-dtype bfloat16
    for strategy in NO_SHARD SHARD_GRAD_OP; do
        compare 2 "$model" --sharding-strategy $strategy
        compare 2 "$model" --sharding-strategy $strategy --param-dtype bf16
    done
    for strategy in HYBRID_SHARD HYBRID_SHARD_ZERO2; do
        compare 4 "$model" --sharding-strategy $strategy --shard-size 2
        compare 4 "$model" --sharding-strategy $strategy --shard-size 2 --param-dtype bf16
    done
    compare 2 "$model" --activation-checkpointing
    compare 3 "$model" --activation-checkpointing --param-dtype bf16 --activation-checkpointing-kind op
    compare 2 "$model" --gradient-accumulation-steps 3
    compare 2 "$model" --gradient-accumulation-steps 2 --gradient-accumulation-mode no-sync
    compare 2 "$model" --cpu-offload --offload-dir DIR
    compare 2 "$model" --cpu-offload --offload-dir DIR --param-dtype bf16 --sharding-strategy NO_SHARD
    compare 4 "$model" --reshard-after-forward 2
    compare 2 "$model" --shard-placement "*.weight:-1" --param-dtype bf16
done

# Frozen parameters, by the name prefix in each model.
while read -r name prefix; do
    model=tests/golden/$name/model
    for flags in "" "--param-dtype bf16" "--param-dtype bf16 --sharding-strategy NO_SHARD" "--sharding-strategy NO_SHARD" \
        "--cpu-offload --offload-dir DIR --param-dtype bf16" "--gradient-accumulation-steps 2 --activation-checkpointing"; do
        # shellcheck disable=SC2086
        compare 2 "$model" --frozen-prefixes "$prefix" $flags
    done
    compare 4 "$model" --frozen-prefixes "$prefix" --sharding-strategy HYBRID_SHARD --shard-size 2 --param-dtype bf16
done <<'MODELS'
llama2 model.embed_tokens,model.layers.0.
gpt2 transformer.h.0.
bert bert.embeddings
t5_v1_1 encoder.
t5_v1_0 shared
MODELS

for name in llama2 t5_v1_1; do
    model=tests/golden/$name/model
    compare 2 "$model" --explicit-prefetching
    compare 3 "$model" --no-limit-all-gathers --forward-prefetch
    compare 2 "$model" --backward-prefetch BACKWARD_POST --no-reshard-after-forward
    compare 2 "$model" --backward-prefetch NO_PREFETCH --no-forward-prefetch
    compare 2 "$model" --no-reshard-after-backward --gradient-accumulation-steps 2
    compare 2 "$model" --no-set-is-last-backward --gradient-accumulation-steps 2
    compare 4 "$model" --sharding-strategy HYBRID_SHARD --shard-size 2 --gradient-accumulation-steps 2 \
        --gradient-accumulation-mode reduce-scatter
    compare 2 "$model" --blocks-per-unit 2 --param-dtype bf16
    compare 2 "$model" --auto-wrap-policy SIZE_BASED_WRAP --min-num-params 3000
    compare 2 "$model" --auto-wrap-policy NO_WRAP --param-dtype bf16
    compare 2 "$model" --mixed-precision bfSixteen
    compare 2 "$model" --mixed-precision fpSixteen
    compare 2 "$model" --optimizer adafactor --param-dtype bf16
    compare 2 "$model" --optimizer sgd --momentum 0.9 --master-dtype bfloat16
    compare 2 "$model" --gradient-divide-factor 3 --output-dtype bfloat16
done
compare 2 tests/golden/llama2/model --joint-units model.embed_tokens,lm_head
compare 2 tests/golden/llama2/model --ignored-modules model.norm --frozen-prefixes model.norm
compare 2 tests/golden/llama2/model --unit-mp-policy "model.layers.0:bfloat16:bfloat16"
compare 2 tests/golden/llama2/model --no-unshard-in-backward model.embed_tokens --param-dtype bf16

[ $compared -gt 0 ] || {
    echo "no run matches '$pattern'" >&2
    exit 2
}
echo "$((compared - failed)) of $compared runs are the same"
[ $failed -eq 0 ]
