#!/bin/sh
# usage: FSDP_BUILD=build tests/hosts/hosts_slurm.sh
# `fsdp train` in jobs of Slurm, on nodes that are namespaces of this machine: srun with Open MPI and
# MPICH, what is refused, and examples/slurm/*.sbatch, whose jobs save, are requeued and resume by
# themselves. `make test-hosts` runs it. Needs root, slurmctld, slurmd and munged; skipped with a
# reason without. No service is started, and nothing below /etc is read or written.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
begin hosts_slurm
for program in slurmctld slurmd srun munged; do
    command -v $program >/dev/null || { skip hosts_slurm "$program is not installed"; tally; exit; }
done
needs nettle MPI
hosts_up 2
HOME=$dir
export HOME

# --- a Slurm of its own ---
slurm=$dir/slurm
SLURM_CONF=$slurm/slurm.conf
export SLURM_CONF
slurm_down() {
    for file in "$slurm"/slurmctld.pid "$slurm"/munged.pid; do
        [ -e "$file" ] && kill "$(cat "$file")" 2>/dev/null
    done
    wait_until 10 no_daemons || true
}
no_daemons() { ! kill -0 "$(cat "$slurm/munged.pid" 2>/dev/null || echo 999999999)" 2>/dev/null; }
trap 'slurm_down; "$hosts" down; rm -rf "$dir"' EXIT
slurm_up() {
    mkdir -p "$slurm/state"
    chmod 755 "$dir" "$slurm"
    dd if=/dev/urandom of="$slurm/munge.key" bs=1 count=1024 status=none
    chmod 600 "$slurm/munge.key"
    # All hosts share the file system, so one munged serves them.
    munged --key-file="$slurm/munge.key" --socket="$slurm/munge.sock" --pid-file="$slurm/munged.pid" \
        --log-file="$slurm/munged.log" --seed-file="$slurm/munge.seed" --force 2>/dev/null || return
    address() { awk -v name="$host$1" '$2 == name { print $1 }' "/tmp/$host/hosts"; }
    cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=${host}1($(address 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.sock
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.%n.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.%n.log
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=20
SlurmctldTimeout=30
SlurmdTimeout=20
MailProg=/bin/true
$(for i in 1 2; do echo "NodeName=$host$i NodeHostname=$host$i NodeAddr=$(address $i) CPUs=$(nproc) State=UNKNOWN"; done)
PartitionName=all Nodes=${host}1,${host}2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
    # PMIx's folder of a step has the same name on every node, and the hosts share /tmp.
    echo PMIxCliTmpDirBase=/dev/shm >"$slurm/mpi.conf"
    on 1 slurmctld -f "$SLURM_CONF" || return
    for i in 1 2; do
        mkdir -p "$slurm/spool.$host$i"
        on "$i" slurmd -N "$host$i" -f "$SLURM_CONF" || return
    done
    wait_until 60 nodes_are_up
}
nodes_are_up() { [ "$(on 1 sinfo -h -N -o %T 2>/dev/null | grep -cE 'idle|mixed|alloc')" = 2 ]; }
slurm_up >"$dir/out" 2>"$dir/err" || {
    bad slurm_starts "see below"
    tail -n 5 "$slurm"/*.log
    tally
    exit 1
}
# srun_ OPTIONS...: on two nodes with one task each
srun_() { capture "$hosts" exec 1 srun --nodes 2 --ntasks-per-node 1 --overcommit "$@"; }
plugins=$(on 1 srun --mpi=list 2>&1 | tr '\n\t' '  ')
has_plugin() { case " $plugins " in *" $1 "*) ;; *) return 1 ;; esac; }

awk 'BEGIN { srand(7); for (i = 0; i < 64; i++) { printf "{\"input_ids\": ["
    for (k = 0; k < 12; k++) printf "%s%d", k ? ", " : "", 3 + int(60 * rand()); print "]}" } }' >ids.jsonl
tiny_llama model
flags="--model model --from-config --data ids.jsonl --batch-size 1 --learning-rate 1e-3 --seed 3 --device cpu"

# --- srun ---
run launch -n 2 train $flags --max-steps 6 --output one
expect one_host_trains 0
for mpi in openmpi mpich; do
    plugin=pmix
    [ $mpi = openmpi ] || plugin=pmi2
    has_mpi $mpi || { skip "srun_$mpi" "not installed"; continue; }
    has_plugin $plugin || { skip "srun_$mpi" "this Slurm has no --mpi=$plugin"; continue; }
    srun_ --mpi=$plugin "$fsdp" train $flags --max-steps 6 --output "srun_$mpi"
    expect "srun_with_$mpi" 0 '^ranks: 2 \(mpi\)' out
    check "srun_with_${mpi}_has_the_bits_of_one_host" cmp one/model.safetensors "srun_$mpi/model.safetensors"
done
srun_ "$fsdp" train $flags --max-steps 6 --output refused
expect plain_srun_is_refused 1 'SLURM_STEP_NUM_TASKS is 2 .*srun --mpi=pmix for Open MPI, srun --mpi=pmi2 for MPICH'
if has_mpi mpich && has_plugin pmix; then
    srun_ --mpi=pmix env FSDP_MPI=mpich "$fsdp" train $flags --max-steps 6 --output refused
    expect mpich_under_pmix_is_refused 1 'use srun --mpi=pmi2'
fi
check a_refused_run_writes_nothing [ ! -e refused ]

# --- sbatch ---
job_is() { [ "$(on 1 scontrol show job "$job" 2>/dev/null | sed -n "s/.*$1=\([^ ]*\).*/\1/p" | head -n 1)" = "$2" ]; }
has_steps() { [ "$(sed -n 's/.*"step": \([0-9]*\),.*"loss".*/\1/p' "$name.jsonl" 2>/dev/null | tail -n 1)" -ge "$1" ] 2>/dev/null; }
is_over() { ! on 1 squeue -h -j "$job" 2>/dev/null | grep -q .; }
# submit NAME SCRIPT OPTIONS...: sets $job
submit() {
    name=$1 script=$2
    shift 2
    job=$(on 1 env FSDP="$fsdp" MPI_PLUGIN="$plugin" RANKS_PER_NODE=1 sbatch --parsable --ntasks-per-node 1 --overcommit --output "$dir/$name.log" \
        "$@" "$root/examples/slurm/$script.sbatch" $flags --max-steps "$steps" --save-steps 500 --logging-steps 1 \
        --output "$name" --metrics "$name.jsonl")
}
# is_requeued_and_resumes NAME: the job that got a signal starts again, and has the bits of `whole`
is_requeued_and_resumes() {
    wait_until 60 job_is Restarts 1 && ok "$1_is_requeued" || bad "$1_is_requeued" "$(tail -n 12 "$1.log")"
    # Slurm lets a requeued job wait for two minutes.
    wait_until 30 job_is JobState PENDING
    on 1 scontrol update JobId="$job" StartTime=now 2>"$dir/err"
    wait_until 200 is_over && ok "$1_ends" || bad "$1_ends" "$(on 1 scontrol show job "$job" | head -n 5)"
    check "$1_resumes_by_itself" grep -Eq "^resum.*$1-checkpoints/checkpoint-[0-9]+" "$1.log"
    check "$1_has_the_bits_of_a_run_without_interruption" cmp whole/model.safetensors "$1/model.safetensors" || tail -n 12 "$1.log"
}
steps=3000
run launch -n 2 train $flags --max-steps $steps --output whole
expect a_run_without_interruption 0
for mpi in openmpi mpich; do
    plugin=pmix
    [ $mpi = openmpi ] || plugin=pmi2
    has_mpi $mpi && has_plugin $plugin || { skip "sbatch_$mpi" "not installed"; continue; }
    for number in USR1 TERM; do
        submit "sbatch_${mpi}_$number" train
        wait_until 60 has_steps 20 || bad "sbatch_${mpi}_$number" "$(tail -n 12 "$name.log")"
        on 1 scancel --signal=$number "$job"
        is_requeued_and_resumes "sbatch_${mpi}_$number"
    done
done
submit launch_USR1 launch
wait_until 60 has_steps 20 || bad launch_USR1 "$(tail -n 12 launch_USR1.log)"
on 1 scancel --signal=USR1 "$job"
is_requeued_and_resumes launch_USR1
no_ranks() { [ -z "$(the_ranks 1)$(the_ranks 2)" ]; }
check nothing_is_left wait_until 20 no_ranks
tally
