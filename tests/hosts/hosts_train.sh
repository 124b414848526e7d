#!/bin/sh
# `fsdp train` on several hosts, which are namespaces of this machine (hosts.sh), over cables of
# 1 Gbit/s: the weights have the bits of a run on one host, a byte crosses the network once, and a
# failure ends the job everywhere.
# usage: FSDP_BUILD=build tests/hosts/hosts_train.sh       (make test-hosts; needs root)
. "$(dirname "$0")/lib.sh"
begin hosts_train
export FSDP_TIMEOUT_S=60

# --- a model of 4 x 1,049,088 parameters in blocks; what is outside of them is small ---
mkdir model
cat >model/config.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 67, "hidden_size": 256,
 "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4,
 "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.02,
 "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}
END
awk 'BEGIN { srand(7); for (i = 0; i < 64; i++) { printf "{\"input_ids\": ["
    for (k = 0; k < 12; k++) printf "%s%d", k ? ", " : "", 3 + int(60 * rand()); print "]}" } }' >ids.jsonl
block=1049088 blocks=4
flags="--model model --from-config --data ids.jsonl --batch-size 1 --learning-rate 1e-3 --seed 3 --device cpu"

# on_hosts MPI SLOTS COMMAND...: start SLOTS ranks on each host, and save their output
on_hosts() {
    mpirun_of "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
sent() { "$hosts" bytes | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }

# sent_in STEPS FLAGS...: train so many steps, and print the bytes that all hosts have sent
sent_in() {
    steps=$1
    shift
    before=$(sent)
    on_hosts "$mpi" "$slots" "$fsdp" train $flags --max-steps "$steps" --no-save-model "$@" || return
    echo $(($(sent) - before))
}
# planned FLAGS...: print the bytes that all hosts send in a step, as the plan says
planned() {
    run plan $flags --max-seq-length 12 --world-size "$ranks" --local-world-size "$slots" \
        --interconnect 1Gb,50us --flops-per-rank 10G --json "$@"
    sed -n 's/.*"host_sent_bytes": *\([0-9.e+]*\).*/\1/p' out | awk -v hosts="$n_hosts" '{ printf "%.0f\n", hosts * $1 }'
}
# compare_bytes NAME EXPECTED FLAGS...: count the bytes of a step, and compare them with a formula and
# with the plan
compare_bytes() {
    what=$1 expected=$2
    shift 2
    more=$(sent_in 8 "$@")
    less=$(sent_in 2 "$@")
    counted=$(((more - less) / 6)) plan=$(planned "$@")
    echo "$what: $((counted / n_hosts)) bytes a host and step, expected $((expected / n_hosts)), planned $((plan / n_hosts))"
    check "a_byte_crosses_once_$what" is_near "$counted" "$expected"
    check "the_plan_knows_the_bytes_$what" is_near "$counted" "$plan"
}
# is_near ACTUAL EXPECTED: at most 5 % more, and not much less
is_near() { awk -v a="$1" -v e="$2" 'BEGIN { exit !(a >= 0.99 * e && a <= 1.05 * e) }'; }

for shape in "2 1 openmpi" "2 2 openmpi" "2 1 mpich" "4 1 mpich"; do
    set -- $shape
    n_hosts=$1 slots=$2 mpi=$3 ranks=$(($1 * $2)) shape=$1_x_$2_$3
    has_mpi "$mpi" || { skip "$shape" "$mpi is not installed"; continue; }
    hosts_up "$n_hosts" 1gbit
    if [ ! -e "one$ranks" ]; then
        run launch -n "$ranks" train $flags --max-steps 6 --output "one$ranks"
        expect "one_host_with_$ranks" 0
    fi
    rm -rf many
    on_hosts "$mpi" "$slots" "$fsdp" train $flags --max-steps 6 --output many
    expect "trains_$shape" 0 "^ranks: $ranks \(mpi\)" out
    check "same_bits_$shape" cmp "one$ranks/model.safetensors" many/model.safetensors
    # Each step: two gathers, of which every rank sends its rows to each other host, and one reduce, of
    # which every host sends each other host the sums of its ranks for the rows that this host owns.
    all=$((4 * block * blocks))
    others=$((n_hosts - 1))
    compare_bytes "$shape" $((3 * all * others))
    [ "$slots" = 1 ] || compare_bytes "${shape}_bf16" $(((2 * all + all / 2) * others)) --internode-reduce-dtype bf16
    # Replicas: no gather. Two hosts exchange their sums, more hosts sums of pieces and their results.
    compare_bytes "${shape}_replicas" $((2 * all * others)) --sharding-strategy HYBRID_SHARD --shard-size "$slots"
    # A host that keeps what forward gathers: no second gather.
    compare_bytes "${shape}_kept" $((2 * all * others)) --sharding-strategy SHARD_GRAD_OP
    kept="--reshard-after-forward $((ranks / 2))"
    if [ "$n_hosts" = 4 ]; then
        # Two hosts keep a unit together, so the second gather is between two and two hosts.
        compare_bytes "${shape}_kept_by_two_hosts" $((2 * all * others + 2 * all)) $kept
    elif [ "$slots" != 1 ]; then
        compare_bytes "${shape}_kept_by_a_host" $((2 * all * others)) $kept
    fi
    [ "$ranks" != 4 ] || {
        rm -rf many
        on_hosts "$mpi" "$slots" "$fsdp" train $flags --max-steps 6 $kept --output many
        check "same_bits_kept_$shape" cmp "one$ranks/model.safetensors" many/model.safetensors
    }
    "$hosts" down
done

# --- failures ---
no_ranks() { [ -z "$(rank_of 1)$(rank_of 2)" ]; }
rank_of() { the_ranks "$1" | head -n 1; }
has_a_rank() { [ -n "$(rank_of 2)" ]; }
# endless: train in the background until the ranks of both hosts run
endless() {
    hosts_up 2 1gbit
    (on_hosts openmpi 1 "$fsdp" train $flags --epochs 100000 --no-save-model; echo "$rc" >ended) &
    job=$!
    wait_until 20 has_a_rank
    sleep 3
}
if has_mpi openmpi; then
    "$hosts" down
    rm -f ended
    endless
    kill -STOP "$(rank_of 2)"
    check a_stopped_rank_ends_the_job wait_until 20 [ -e ended ]
    check and_is_named says 'rank 1 .*has not moved for'
    kill -CONT "$(rank_of 2)" 2>/dev/null
    check and_nothing_is_left wait_until 20 none_left
    wait $job
    "$hosts" down
    rm -f ended
    endless
    "$hosts" cut 2
    sleep 2
    "$hosts" heal 2
    sleep 8
    check a_cable_may_be_out_for_2_s [ ! -e ended ]
    "$hosts" cut 2
    # mpirun itself waits until the cable is plugged in again.
    check a_pulled_cable_ends_the_ranks_of_both_hosts wait_until 20 no_ranks
    check and_the_rank_behind_it_is_named says 'rank 1 .*has not moved for .*its host [a-z0-9]+2 is down, cut off'
    "$hosts" heal 2
    check and_then_nothing_is_left wait_until 20 none_left
fi
tally
