#!/bin/sh
# Compares `fsdp plan --interconnect` with runs on several hosts, which are namespaces of this machine
# (hosts.sh). Prints one line for each run:
#   measured      median seconds of a step of `fsdp train`
#   plan          seconds of a step that `fsdp plan` estimates
#   ratio         measured / plan
#   MB, plan      10^6 bytes that a host sent in a step, counted on its cable, and what the plan says
#   hidden        part of the communication that computation hid: 1 - (measured - compute) / (MB / rate)
#   of the plan's the same, as a part of what the plan says can be hidden
#   MiB, plan     peak memory of rank 0's allocator, in the run and in the plan
# More ranks than cores must compute at the same time. So ranks compute at a rate far below that of a
# core (FSDP_TEST_FLOPS, src/trace/pace_testing.h) and sleep for the rest of the time. The rate of whole
# steps, which the plan gets, is measured first with one rank.
# usage: FSDP_BUILD=build tests/hosts/measure.sh [SHAPE...]     a SHAPE is HOSTSxRANKS, such as 2x1
#   MEASURE_MODELS (llama t5)   MEASURE_STRATEGIES (full grad hybrid secondary)   MEASURE_STEPS (6)
#   MEASURE_FLOPS (5e9)         operations per second of a rank
#   MEASURE_RATE (1gbit)        of the cables, with headers; MEASURE_NET (0.956Gb,50us) is what the plan gets:
#                               of 1,514 bytes on a cable, 1,448 are payload
#   MEASURE_BUFFERS (131072)    bytes of TCP's buffers for one connection. The cables have queues of 50 ms, which
#                               larger buffers fill (0: as large as the kernel makes them)
#   MEASURE_PREFIX ()           put before the programs: with "chrt -r 1", other programs disturb the ranks less
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${FSDP_BUILD:-build}
case $build in /*) ;; *) build=$(pwd)/$build ;; esac
fsdp=$build/fsdp-testing hosts=$here/hosts.sh
export HOSTS_PREFIX=${HOSTS_PREFIX:-fsdpm} HOSTS_NET=${HOSTS_NET:-10.79.2}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
models=${MEASURE_MODELS:-llama t5} strategies=${MEASURE_STRATEGIES:-full grad hybrid secondary}
buffers=${MEASURE_BUFFERS:-131072} steps=${MEASURE_STEPS:-6} rate=${MEASURE_RATE:-1gbit} net=${MEASURE_NET:-0.956Gb,50us}
export FSDP_TEST_FLOPS=${MEASURE_FLOPS:-5e9}
[ "$(id -u)" = 0 ] || { echo "measure.sh: needs root" >&2; exit 2; }
for program in ip tc nsenter unshare mpirun.openmpi "$fsdp"; do
    command -v "$program" >/dev/null || { echo "measure.sh: $program is missing" >&2; exit 2; }
done
dir=$(mktemp -d)
trap '"$hosts" down; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir"
mkdir llama t5
cat >llama/config.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 8000, "hidden_size": 512,
 "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
 "initializer_range": 0.02, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}
END
cat >t5/config.json <<'END'
{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 8128, "d_model": 512,
 "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6, "num_heads": 8, "dropout_rate": 0.0,
 "relative_attention_num_buckets": 32, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0,
 "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "is_encoder_decoder": true}
END
ids() { # N SEED
    awk -v n="$1" -v seed="$2" 'BEGIN { srand(seed)
        for (k = 0; k < n; k++) printf "%s%d", k ? ", " : "", 3 + int(7990 * rand()) }'
}
for row in $(seq 64); do
    echo "{\"input_ids\": [$(ids 64 "$row")]}" >>llama.jsonl
    echo "{\"input_ids\": [$(ids 64 "$row")], \"labels\": [$(ids 16 "1$row")]}" >>t5.jsonl
done
# number FILE KEY: the last number of this key in a file of JSON
number() { tr ',{}' '\n\n\n' <"$1" | sed -n "s/^ *\"$2\": *\([-0-9.e+]*\).*/\1/p" | tail -n 1; }
calc() { awk "BEGIN { printf \"$1\", $2 }"; }
flags_of() { # MODEL STRATEGY RANKS_OF_A_HOST HOSTS
    case $1 in
    llama) flags="--model llama --data llama.jsonl --max-seq-length 64 --bf16" ;;
    t5) flags="--model t5 --data t5.jsonl --max-source-length 64 --max-target-length 16" ;;
    esac
    flags="$flags --from-config --batch-size 1 --seed 3 --device cpu --threads-per-rank 1"
    case $2 in
    full) ;;
    grad) flags="$flags --sharding-strategy SHARD_GRAD_OP" ;;
    hybrid) flags="$flags --sharding-strategy HYBRID_SHARD --shard-size $3" ;;
    secondary) flags="$flags --reshard-after-forward $(($3 > 1 ? $3 : 2))" ;;
    esac
}
bytes() { "$hosts" bytes | awk '{ sum += $1; n++ } END { printf "%.0f\n", sum / n }'; }
# run_on SLOTS STEPS METRICS: train on the hosts that are up
run_on() {
    ${MEASURE_PREFIX:-} "$hosts" exec 1 mpirun.openmpi --mca plm_rsh_agent "$hosts ssh" \
        --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 \
        --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_sndbuf "$buffers" \
        --mca btl_tcp_rcvbuf "$buffers" --bind-to none --oversubscribe -x FSDP_TEST_FLOPS \
        -H "$("$hosts" list "$1")" "$fsdp" train $flags --max-steps "$2" --metrics "$3" \
        --no-save-model --overwrite-output >out 2>err || { cat out err >&2; return 1; }
}
compute() { # MODEL: seconds of a step of one rank alone
    [ ! -e "$1.compute" ] || { cat "$1.compute"; return; }
    flags_of "$1" full 1 1
    "$fsdp" plan $flags --world-size 1 --interconnect "$net" --flops-per-rank 1G --json >flops.json 2>err
    number flops.json flops >"$1.flops"
    ${MEASURE_PREFIX:-} "$fsdp" train $flags --max-steps "$steps" --metrics one.jsonl \
        --no-save-model --overwrite-output >out 2>err || { cat out err >&2; return 1; }
    number one.jsonl step_s >"$1.compute"
    cat "$1.compute"
}
header="model|hosts x ranks|strategy|measured s|plan s|ratio|MB|plan|hidden|of the plan's|MiB|plan|late s"
printf '| %s |\n' "$(echo "$header" | sed 's/|/ | /g')"
echo "$header" | sed 's/[^|]*/---/g; s/.*/|&|/'
measure() { # MODEL STRATEGY HOSTS SLOTS
    alone=$(compute "$1") || return
    flags_of "$1" "$2" "$4" "$3"
    per_rank=$(calc %.6g "$(cat "$1.flops") / $alone")
    "$fsdp" plan $flags --world-size $(($3 * $4)) --local-world-size "$4" --interconnect "$net" \
        --flops-per-rank "$per_rank" --json >plan.json 2>err || { cat err >&2; return 1; }
    before=$(bytes)
    run_on "$4" 2 less.jsonl || return
    middle=$(bytes)
    run_on "$4" $((2 + steps)) more.jsonl || return
    after=$(bytes)
    late=$(sed -n 's/.*late by \([0-9.]*\) s.*/\1/p' err | sort -n | tail -n 1)
    step=$(number more.jsonl step_s)
    mb=$(calc %.1f "(($after - $middle) - ($middle - $before)) / $steps / 1e6")
    mib=$(calc %.1f "$(tr -d '\n' <more.jsonl | sed 's/.*"memory_peak": *{\([^}]*\)}.*/\1/' |
        tr ',' '\n' | sed -n 's/ *"reserved": *\([0-9]*\).*/\1/p') / 1048576")
    awk -v model="$1" -v shape="$3 x $4" -v strategy="$2" -v step="$step" -v alone="$alone" -v mb="$mb" \
        -v late="${late:-?}" -v plan="$(number plan.json step_s)" -v sent="$(number plan.json host_sent_bytes)" \
        -v c="$(number plan.json compute_s)" -v bps="$(number plan.json interconnect_bytes_per_s)" \
        -v mib="$mib" -v held="$(number plan.json rank_bytes)" 'BEGIN {
        hidden = mb ? 1 - (step - alone) / (mb * 1e6 / bps) : 1
        possible = sent ? 1 - (plan - c) / (sent / bps) : 1
        share = "-"
        if (possible > 0.01) share = sprintf("%.0f %%", 100 * hidden / possible)
        printf "| %s | %s | %s | %.3f | %.3f | %.3f | %.1f | %.1f | %.0f %% | %s | %.1f | %.1f | %s |\n", model, shape,
            strategy, step, plan, step / plan, mb, sent / 1e6, 100 * hidden,
            share, mib, held / 1048576, late }'
}
status=0
for shape in ${*:-2x1 2x2 4x1}; do
    n_hosts=${shape%x*} slots=${shape#*x}
    "$hosts" down
    "$hosts" up "$n_hosts" "$rate" || exit 1
    for model in $models; do
        for strategy in $strategies; do
            # With one rank on each host, there is nothing to shard inside of a host, and two of four
            # hosts keep a unit together.
            case $shape$strategy in 2x1hybrid | 2x1secondary | *x1hybrid) continue ;; esac
            measure "$model" "$strategy" "$n_hosts" "$slots" || status=1
        done
    done
    "$hosts" down
done
exit $status
