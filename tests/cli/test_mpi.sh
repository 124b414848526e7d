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
