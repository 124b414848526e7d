#!/bin/sh
# `fsdp bench train` from outside: the JSON line, the text, wrong command lines.
# usage: FSDP_BUILD=build tests/cli/test_bench.sh
. "$(dirname "$0")/lib.sh"
run() { capture "$fsdp" bench "$@"; }
# millionths KEY: prints a value of the JSON line, times 10^6
millionths() { number "$1" | awk '{ printf "%.0f", $1 * 1e6 }'; }

mkdir "$dir/shape"
cat >"$dir/shape/config.json" <<'JSON'
{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 203,
 "d_model": 48, "d_ff": 80, "d_kv": 16, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3,
 "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "dropout_rate": 0.1,
 "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0, "feed_forward_proj": "relu",
 "is_encoder_decoder": true, "tie_word_embeddings": true, "pad_token_id": 0, "eos_token_id": 1,
 "decoder_start_token_id": 0}
JSON

fails_on_a_full_disk json_on_a_full_disk bench train --shape "$dir/shape" --ranks 2 --threads-per-rank 1 --batch 1 \
    --seq 8 --target 3 --steps 2 --json
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
        [ "$(millionths $key)" -gt 0 ] 2>/dev/null || missing="$missing $key"
    done
    if [ -n "$missing" ]; then
        bad "$name" "no positive$missing"
    elif ! grep -q "\"ranks\": $ranks," "$dir/out"; then
        bad "$name" "another number of ranks"
    elif [ "$(millionths first_step_after_s)" -lt "$(millionths ready_after_s)" ]; then
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

name="time by category, without a trace"
run train --shape "$dir/shape" --ranks 2 --batch 1 --seq 8 --target 3 --steps 2 --breakdown --json
missing=
for key in where_ms where_processor_ms matmul attention other_operations optimizer sharding_itself \
    waiting_for_peers data unexplained_rest step sharding_percent gflops page_faults_per_step page_faults_last_step \
    operations operation category calls processor_ms; do
    grep -q "\"$key\": " "$dir/out" || missing="$missing $key"
done
if [ $rc -ne 0 ] || [ -n "$missing" ]; then
    bad "$name" "exit code $rc, no$missing: $(head -n 2 "$dir/err")"
else
    ok "$name"
fi
run train --shape "$dir/shape" --ranks 1 --batch 1 --seq 8 --target 3 --steps 2 --json
check "none is asked for, none is given" [ "$rc-$(grep -c where_ms "$dir/out")" = 0-0 ]

# The shards have the same values as in the run without it, so the losses are bit for bit the
# same.
plain=$(number last_loss)
run train --shape "$dir/shape" --ranks 1 --batch 1 --seq 8 --target 3 --steps 2 --json \
    --activation-checkpointing --backward-prefetch BACKWARD_POST --save-model "$dir/drawn"
check "checkpointing and prefetch change no loss" [ "$(number last_loss)" = "$plain" ]
check "the drawn weights are saved" [ -s "$dir/drawn/model.safetensors" ]
run train --shape "$dir/drawn" --ranks 1 --batch 1 --seq 8 --target 3 --steps 2 --json
check "what was saved is a shape" [ "$(number last_loss)" = "$plain" ]
run train --shape "$dir/shape" --ranks 1 --batch 1 --seq 8 --target 3 --steps 2 \
    --save-model "$dir/shape/config.json/drawn"
expect "a folder that cannot be made is reported" 1 "shape/config.json"
# The losses in float8 differ, and are near those in float32.
run train --shape "$dir/shape" --ranks 1 --batch 1 --seq 8 --target 3 --steps 2 --json --float8-recipe tensorwise
check "float8 is measured" grep -q '"float8_recipe": "tensorwise"' "$dir/out"
check "its losses are others, and near" awk -v a="$plain" -v b="$(number last_loss)" \
    'BEGIN { d = a - b; exit !(d != 0 && d < 0.05 * a && -d < 0.05 * a) }'
run train --backward-prefetch BEFORE
expect "prefetches are listed" 2 "BACKWARD_PRE, BACKWARD_POST"

mkdir "$dir/bert"
cat >"$dir/bert/config.json" <<'JSON'
{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 203,
 "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80,
 "max_position_embeddings": 40, "type_vocab_size": 2}
JSON
name="a classifier has no target"
run train --shape "$dir/bert" --ranks 2 --batch 2 --seq 24 --steps 2 --json
if [ $rc -eq 0 ] && grep -q '"target": 0,' "$dir/out" && [ "$(millionths first_loss)" -lt 2000000 ]; then
    ok "$name"
else
    bad "$name" "exit code $rc: $(head -n 2 "$dir/err")"
fi
run train --shape "$dir/bert" --ranks 1 --seq 41 --steps 2
expect "rows longer than the positions are refused" 1 "seq is 41.*only 40 positions"
run train --shape gpt2 --ranks 1 --seq 1 --steps 2
expect "rows without a successor to learn are refused" 1 "seq is 1: GPT2LMHeadModel .*at least 2"

name="tools/bench.sh makes tables of it"
RUNS="$dir/shape:fp32:2:1:8 $dir/shape:bf16:1:2:8" STEPS=2 capture sh "$root/tools/bench.sh" "$build"
if [ $rc -eq 0 ] && [ "$(grep -c "^$dir/shape " "$dir/out")" -eq 2 ] &&
    [ "$(grep -Ec "^$dir/shape:(fp32:2:1|bf16:1:2):8( +[0-9.]+){7,10}$" "$dir/out")" -eq 4 ] &&
    [ "$(grep -Ec "^$dir/shape:.*[0-9]( [a-z_ ]+ [0-9.]+;){6}$" "$dir/out")" -eq 2 ]; then
    ok "$name"
else
    bad "$name" "exit code $rc: $(head -n 2 "$dir/err")"
fi
RUNS="$dir/shape:fp32:2:1:8" STEPS=2 JSON=1 capture sh "$root/tools/bench.sh" "$build"
check "or JSON lines" [ "$rc-$(wc -l <"$dir/out")-$(grep -c '^{"shape".*}$' "$dir/out")" = 0-1-1 ]
RUNS="$dir/none:fp32:2:1:8" capture sh "$root/tools/bench.sh" "$build"
expect "tools/bench.sh ends with what fails" 1 "unknown model shape"

name="tools/bench_features.sh compares runs"
SHAPE="$dir/shape" BATCH=1 SEQ=8 STEPS=2 ROUNDS=1 MANY=3 capture sh "$root/tools/bench_features.sh" "$build"
if [ $rc -eq 0 ] && [ "$(sed -n '/^medians/,$p' "$dir/out" | grep -Ec ' [0-9]+\.[0-9]{3} s?$')" -eq 11 ] &&
    shows '^ranks-3: .* [0-9]+\.[0-9]{3} $'; then
    ok "$name"
else
    bad "$name" "exit code $rc: $(head -n 2 "$dir/err")"
fi
SHAPE="$dir/none" capture sh "$root/tools/bench_features.sh" "$build"
expect "tools/bench_features.sh ends with what fails" 1 "unknown model shape"

# --- collectives ---

name="a JSON line for each collective and size"
run collectives --ranks 3 --min-size 1KiB --max-size 4KiB --seconds 0.0001 --json
missing=
for text in '"collective": "memcpy"' '"collective": "all_gather"' '"collective": "reduce_scatter"' \
    '"collective": "all_reduce"' '"collective": "broadcast"' '"how": "shared"' '"ranks": 3' \
    '"bytes": 960' '"bytes": 4032' '"bytes_per_s"' '"memcpy_bytes_per_s"' '"of_memcpy"' \
    '"transport": "shm"' '"count": 80, "type": "float", "redop": "none", "root": -1' \
    '"redop": "sum"' '"root": 0' '"bus_bytes_per_s"' '"wrong": 0'; do
    grep -q -- "$text" "$dir/out" || missing="$missing $text"
done
if [ $rc -ne 0 ] || [ "$(wc -l <"$dir/out")" -ne 16 ] || [ -n "$missing" ]; then
    bad "$name" "exit code $rc, no$missing: $(head -n 2 "$dir/err")"
else
    ok "$name"
fi
run collectives -b 1K -e 16K -f 4 --seconds 0.0001
check "the columns are those of nccl-tests" [ "$rc-$(grep -c '^ *[0-9]\+ \+[0-9]\+ \+float \+\(sum\|none\) \+\(-1\|0\) \+[0-9.]\+ \+[0-9.]\+ \+[0-9.]\+ \+0$' "$dir/out")" = 0-24 ]
check "and its last lines" grep -q '^# Out of bounds values : 0 OK$' "$dir/out"
run collectives --transport threads --ranks 3 -b 1K -e 1K --seconds 0.0001 --json
check "ranks may be threads" [ "$rc-$(grep -c '"transport": "threads", "ranks": 3' "$dir/out")" = 0-8 ]
capture "$fsdp" launch -n 3 bench collectives --transport job -b 1K -e 1K --seconds 0.0001 --json
check "or the ranks of a job" [ "$rc-$(grep -c '"transport": "shm", "ranks": 3' "$dir/out")" = 0-8 ]
run collectives --transport job --ranks 2
expect "a job has its ranks" 2 "ranks are those of the job"
run collectives --transport job
expect "one rank is no job" 1 "1 ranks: collectives are measured between 2"
run collectives --min-size 2KiB --max-size 1KiB
expect "sizes ascend" 2 "min-size is 2.000 KiB, above --max-size"
run collectives --ranks 1
expect "one rank has no collectives" 2 "ranks"
run collectives --factor 1
expect "sizes grow" 2 "factor"
run collectives --seconds 0
expect "time is needed" 2 "seconds"
run collectives --max-size many
expect "a size is a number" 2 "max-size.*many"
run collectives --max-size 1TB
expect "buffers that do not fit are refused" 1 "2 ranks need .* MiB"
capture "$fsdp" launch -n 2 bench collectives
expect "collectives start their ranks themselves" 1 "without 'fsdp launch'"

run
expect "what to measure is asked for" 2 "'train' or 'collectives'"
run --help
expect "kinds are listed" 0 "collectives +bytes per second" out
run compile
expect "another kind is named" 2 "'compile'"
run train --shape t5-tiny
expect "an unknown shape lists the known ones" 2 "t5-small"
run train --dtype int32
expect "integers are refused" 2 "float32, bfloat16 or float16"
run train --steps 1
expect "one step is too few" 2 "steps"
capture "$fsdp" launch -n 2 bench train
expect "under fsdp launch it says --ranks" 1 "without 'fsdp launch'"

tally
