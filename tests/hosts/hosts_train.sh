#!/bin/sh
# `fsdp train` on several hosts, which are namespaces of this machine (hosts.sh), over cables of
# 1 Gbit/s: the weights have the bits of a run on one host, a byte crosses the network once, and a
# failure ends the job everywhere.
# usage: FSDP_BUILD=build tests/hosts/train.sh       (make test-hosts; needs root)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../cli/lib.sh"
export HOSTS_PREFIX=${HOSTS_PREFIX:-fsdpt} HOSTS_NET=${HOSTS_NET:-10.79.1}
hosts=$here/hosts.sh
[ "$(id -u)" = 0 ] || { skip train_on_hosts "needs root"; tally; exit; }
for program in ip tc nsenter unshare; do
    command -v "$program" >/dev/null || { skip train_on_hosts "$program is not installed"; tally; exit; }
done
"$hosts" down
trap '"$hosts" down; rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 FSDP_TIMEOUT_S=60

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

# on_hosts MPI SLOTS COMMAND...: start SLOTS ranks on each host
on_hosts() {
    mpi=$1 slots=$2
    shift 2
    if [ "$mpi" = openmpi ]; then
        capture "$hosts" exec 1 mpirun.openmpi --mca plm_rsh_agent "$hosts ssh" --mca plm_rsh_no_tree_spawn 1 \
            --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --mca pml ob1 \
            --mca btl self,vader,tcp --bind-to none --oversubscribe -x FSDP_TIMEOUT_S \
            -H "$("$hosts" list "$slots")" "$@"
    else
        printf '#!/bin/sh\nexec %s ssh "$@"\n' "$hosts" >agent
        chmod +x agent
        capture "$hosts" exec 1 mpiexec.hydra -launcher ssh -launcher-exec "$dir/agent" -iface eth0 \
            -hosts "$("$hosts" list "$slots")" -n "$((n_hosts * slots))" -bind-to none "$@"
    fi
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
    launcher=mpirun.openmpi
    [ "$mpi" = openmpi ] || launcher=mpiexec.hydra
    command -v $launcher >/dev/null || { skip "$shape" "$launcher is not installed"; continue; }
    "$hosts" up "$n_hosts" 1gbit
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
# wait_for COMMAND...: repeats it until it succeeds, at most 20 s
wait_for() {
    tries=0
    while ! "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || return 1
        sleep 0.1
    done
}
none_left() { [ -z "$("$hosts" pids 1)$("$hosts" pids 2)" ]; }
no_ranks() { [ -z "$(rank_of 1)$(rank_of 2)" ]; }
rank_of() { for pid in $("$hosts" pids "$1"); do
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != fsdp ] || { echo "$pid"; return; }; done; }
# endless NAME: train in the background until the ranks of both hosts run
endless() {
    "$hosts" up 2 1gbit
    n_hosts=2
    (on_hosts openmpi 1 "$fsdp" train $flags --epochs 100000 --no-save-model; echo "$rc" >ended) &
    job=$!
    wait_for sh -c "[ -n \"\$($hosts pids 2)\" ]"
    sleep 3
}
if command -v mpirun.openmpi >/dev/null; then
    "$hosts" down
    rm -f ended
    endless
    kill -STOP "$(rank_of 2)"
    check a_stopped_rank_ends_the_job wait_for [ -e ended ]
    check and_is_named says 'rank 1 .*has not moved for'
    kill -CONT "$(rank_of 2)" 2>/dev/null
    check and_nothing_is_left wait_for none_left
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
    check a_pulled_cable_ends_the_ranks_of_both_hosts wait_for no_ranks
    check and_the_rank_behind_it_is_named says 'rank 1 .*has not moved for .*its host [a-z]+2 is down, cut off'
    "$hosts" heal 2
    check and_then_nothing_is_left wait_for none_left
fi
tally
