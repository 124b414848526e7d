#!/bin/sh
# `fsdp train` under mpirun and mpiexec: the ranks form one job, and on imagined hosts that share no
# memory (FSDP_TEST_HOSTS) the weights get the bits of a run on one host.
# usage: FSDP_BUILD=build tests/cli/test_mpi.sh
. "$(dirname "$0")/lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 FSDP_TIMEOUT_S=60
# The MPI libraries leak.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
unset WORLD_SIZE RANK FSDP_MPI
! lacks MPI || { skip mpi "built without MPI"; tally; exit; }

awk 'BEGIN { srand(3); for (i = 0; i < 24; i++) { printf "{\"input_ids\": ["
    for (k = 0; k < 5 + i % 7; k++) printf "%s%d", k ? ", " : "", 3 + int(50 * rand())
    print "], \"labels\": [5, " 3 + i ", 1]}" } }' >pairs.jsonl
sed 's/, "labels.*/}/' pairs.jsonl >ids.jsonl

# mpi NAME RANKS HOSTS ARGUMENTS...: run fsdp with so many ranks on so many imagined hosts
mpi() {
    name=$1 ranks=$2
    export FSDP_TEST_HOSTS=$3
    shift 3
    if [ "$name" = openmpi ]; then
        capture mpirun.openmpi --oversubscribe --bind-to none -np "$ranks" "$fsdp" "$@"
    else
        capture mpiexec.hydra -np "$ranks" "$fsdp" "$@"
    fi
    unset FSDP_TEST_HOSTS
}
has() { # MPI
    case $1 in openmpi) launcher=mpirun.openmpi ;; *) launcher=mpiexec.hydra ;; esac
    command -v $launcher >/dev/null && return
    skip "$2" "$launcher is not installed"
    return 1
}
# same MPI RANKS HOSTS MODEL FLAGS...: compare with `fsdp launch`
same() {
    mpi=$1 ranks=$2 hosts=$3 model=$4
    what="$4_on_$3_hosts_of_$(($2 / $3))_$1"
    has "$mpi" "$what" || return
    shift 4
    case $model in t5*) data=pairs.jsonl ;; *) data=ids.jsonl ;; esac
    set -- train --model "$golden/$model/model" --data $data --batch-size 1 --max-steps 4 --learning-rate 1e-3 \
        --seed 3 --device cpu "$@"
    rm -rf one many
    run launch -n "$ranks" "$@" --output one
    expect "one_host_$what" 0
    mpi "$mpi" "$ranks" "$hosts" "$@" --output many
    expect "ranks_$what" 0 "^ranks: $ranks \(mpi\)" out
    check "bits_$what" cmp one/model.safetensors many/model.safetensors
}
same openmpi 4 2 t5_v1_1 --gradient-accumulation-steps 2
same mpich 2 2 llama3 --mixed-precision bf16
same mpich 4 4 llama3 --sharding-strategy HYBRID_SHARD --shard-size 2
same openmpi 4 2 llama3 --sharding-strategy HYBRID_SHARD --shard-size 2
# A unit that a host keeps from forward to backward, or two hosts together, also without masters in memory.
same openmpi 4 2 llama3 --reshard-after-forward 2 --mixed-precision bf16
same mpich 4 4 t5_v1_1 --reshard-after-forward 2 --gradient-accumulation-steps 2 --activation-checkpointing
same openmpi 8 4 llama3 --reshard-after-forward 4 --offload-dir ./kept --cpu-offload --max-grad-norm 0.5
# The ranks of a host add up their gradients before they cross: hosts of 3, 4 and 6 ranks, which have
# 2, 1 and 2 terms in the order of additions.
same openmpi 6 2 llama3 --max-grad-norm 0.5 --gradient-accumulation-steps 3
same mpich 8 2 t5_v1_1 --mixed-precision bf16 --frozen-prefixes shared
same openmpi 12 2 llama3 --offload-dir ./off --cpu-offload
same mpich 6 3 t5_v1_1 --sharding-strategy NO_SHARD --gradient-accumulation-steps 2
# Replicas on four hosts exchange sums of pieces. Replicas of one host add up their lanes.
same openmpi 8 4 llama3 --sharding-strategy HYBRID_SHARD --shard-size 2 --gradient-accumulation-steps 3 --max-grad-norm 1
same mpich 8 2 llama3 --sharding-strategy HYBRID_SHARD --shard-size 2
same openmpi 6 3 t5_v1_1 --sharding-strategy HYBRID_SHARD --shard-size 2 --gradient-accumulation-steps 2 \
    --gradient-accumulation-mode reduce-scatter
same mpich 4 4 llama3 --sharding-strategy HYBRID_SHARD --shard-size 1

losses() { sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1"; }
# losses_are_near FILE FILE: they have as many losses, which differ by at most a thousandth
losses_are_near() {
    losses "$1" >first && losses "$2" >second && [ -s first ] && [ "$(wc -l <first)" = "$(wc -l <second)" ] &&
        paste first second | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3 * $1) exit 1 }'
}
# near NAME RANKS HOSTS FLAGS...: with sums of hosts that are rounded, or added in another order, the
# losses are near those of one host
near() {
    what=$1 ranks=$2 hosts=$3
    shift 3
    has openmpi "$what" || return
    set -- train --model "$golden/llama3/model" --data ids.jsonl --batch-size 1 --max-steps 4 --learning-rate 1e-3 \
        --seed 3 --device cpu "$@"
    rm -rf one many one.jsonl many.jsonl
    run launch -n "$ranks" "$@" --output one --metrics one.jsonl
    expect "one_host_$what" 0 '--internode-reduce-dtype .* has no effect' out
    mpi openmpi "$ranks" "$hosts" "$@" --output many --metrics many.jsonl
    expect "ranks_$what" 0 "^the sum of the gradients of a host is sent to other hosts in" out
    check "losses_$what" losses_are_near one.jsonl many.jsonl
}
near rounded_sums 4 2 --internode-reduce-dtype bf16
if [ -e many/model.safetensors ]; then
    cmp -s one/model.safetensors many/model.safetensors
    check rounded_sums_have_other_bits [ $? = 1 ]
fi
near rounded_sums_of_replicas 8 4 --internode-reduce-dtype bf16 --sharding-strategy HYBRID_SHARD --shard-size 2
near one_sum_a_host 6 2 --internode-reduce-dtype float32
# A host of two ranks is a subtree of the order of additions.
same openmpi 4 2 llama3 --internode-reduce-dtype float32

# Ranks of one host share memory, as with `fsdp launch`.
if has openmpi one_host; then
    mpi openmpi 2 1 train --model "$golden/llama3/model" --data ids.jsonl --max-steps 1 --no-save-model --device cpu
    expect ranks_of_one_host_share_memory 0 '^ranks: 2 \(shm\)' out
fi
# A failure on one host ends the job, and is reported.
if has openmpi failure; then
    echo '{"input_ids": [7, "x"]}' >wrong.jsonl
    mpi openmpi 2 2 train --model "$golden/llama3/model" --data wrong.jsonl --max-steps 1 --no-save-model --device cpu
    check a_failure_ends_the_job [ "$rc" -ne 0 ]
    check and_is_reported says 'wrong.jsonl: line 1'
fi
# The library of the launcher is named if it is not there.
FSDP_MPI=other OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 run train --model "$golden/llama3/model" --data ids.jsonl \
    --max-steps 1 --no-save-model
expect an_unknown_mpi_is_refused 1 "FSDP_MPI is 'other', not openmpi or mpich"
tally
