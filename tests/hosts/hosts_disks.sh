#!/bin/sh
# `fsdp train` on hosts with disks of their own: the hosts are namespaces of this machine (hosts.sh),
# and each has a small tmpfs of its own at the same path. A disk that is lost, full or new is named, a
# host that is killed while it saves costs at most the checkpoint in progress, and `fsdp checkpoint
# gather` puts the files together.
# usage: FSDP_BUILD=build tests/hosts/hosts_disks.sh       (make test-hosts; needs root)
. "$(dirname "$0")/lib.sh"
begin hosts_disks
export FSDP_TIMEOUT_S=60
mkdir data disk
awk 'BEGIN { srand(7); for (i = 0; i < 64; i++) { printf "{\"input_ids\": ["
    for (k = 0; k < 12; k++) printf "%s%d", k ? ", " : "", 3 + int(50 * rand()); print "]}" } }' >data/ids.jsonl
# Each rank writes a file of about 1 MB.
flags="--model $golden/llama3/model --data $dir/data/ids.jsonl --batch-size 1 --learning-rate 1e-3 --seed 3
    --lr-schedule constant --device cpu --output $dir/disk/o --no-save-model --save-steps 2"
folder=$dir/disk/o-checkpoints/checkpoint
numbers() { sed -n 's/.*"kind": "step".*"step": \([0-9]*\),.*"loss": \([^,]*\),.*/\1 \2/p' "$1"; }
# new_disk I [SIZE]: host I gets an empty disk
new_disk() {
    on "$1" umount "$dir/disk" 2>/dev/null
    on "$1" mount -t tmpfs -o "size=${2:-40m}" tmpfs "$dir/disk"
}
# job ARGUMENTS...: fsdp with one rank on each host
job() {
    mpirun_of "$mpi" 1 "$fsdp" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
train() { job train $flags --metrics "$dir/data/m.jsonl" "$@"; }

run launch -n 2 train $flags --output one --metrics data/one.jsonl --max-steps 8 --save-strategy no
expect one_host 0
numbers data/one.jsonl >all
for mpi in openmpi mpich; do
    has_mpi "$mpi" || { skip "$mpi" "not installed"; continue; }
    hosts_up 2
    new_disk 1
    new_disk 2
    train --max-steps 4
    expect "saves_$mpi" 0 'checkpoints are on 2 disks' out
    check "each_disk_has_its_file_$mpi" [ "$(on 1 ls "$folder-4" | grep distcp) $(on 2 ls "$folder-4" | grep distcp)" = \
        "__0_0.distcp __1_0.distcp" ]
    train --max-steps 8 --resume
    numbers data/m.jsonl >now
    check "numbers_$mpi" cmp now all
    job checkpoint gather "$folder-8" -o "$dir/data/whole_$mpi"
    expect "gathers_$mpi" 0 'whole: 2 files of ranks, .*, from 2 hosts' out
    run checkpoint verify "data/whole_$mpi"
    expect "what_is_gathered_is_whole_$mpi" 0
    "$hosts" down
done
mpi=openmpi
has_mpi $mpi || { tally; exit; }

# --- lost disks ---
hosts_up 3
for i in 1 2 3; do new_disk $i; done
# With the files of a disk on host 3, host 3 takes the place of host 2.
on_the_first_two() { n_up=2; }
on_the_first_two
mpirun_on() { # HOST:1,HOST:1 ARGUMENTS...
    list=$1
    shift
    on 1 mpirun.openmpi --mca plm_rsh_agent "$dir/agent" --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth0 \
        --mca btl_tcp_if_include eth0 --mca pml ob1 --mca btl self,vader,tcp --bind-to none --oversubscribe \
        -x FSDP_TIMEOUT_S -H "$list" "$fsdp" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
two="${host}1:1,${host}2:1" other="${host}1:1,${host}3:1"
mpirun_on "$two" train $flags --max-steps 4 --metrics "$dir/data/m.jsonl"
expect saves_two_of_three 0
on 2 rm -rf "$folder-4"
mpirun_on "$two" train $flags --max-steps 6 --metrics "$dir/data/m.jsonl" --resume "$folder-4"
check a_lost_folder_is_named says "host ${host}2 \(rank 1\) has no folder $folder-4; no host has whole __1_0.distcp \(saved on host ${host}2\)\. The newest checkpoint that is whole on all hosts is $folder-2: --resume $folder-2"
mpirun_on "$two" train $flags --max-steps 8 --metrics "$dir/data/m.jsonl" --resume
expect the_older_checkpoint_is_taken 0 "^resuming from $folder-2: step 2 of 8" out
numbers data/m.jsonl >now
check numbers_after_a_lost_folder cmp now all
mpirun_on "$other" train $flags --max-steps 8 --metrics "$dir/data/m.jsonl" --resume
check a_new_host_is_named says "host ${host}3 \(rank 1\) has no folder $folder-8; no host has whole __1_0.distcp \(saved on host ${host}2\)"
new_disk 2
mpirun_on "$two" checkpoint gather "$folder-8" -o "$dir/data/lost"
check gather_names_the_lost_host says "there is no __1_0.distcp \(saved on host ${host}2\)"
check and_writes_nothing [ ! -e data/lost ]

# --- a full disk ---
new_disk 1
new_disk 2 1200k
mpirun_on "$two" train $flags --max-steps 8 --metrics "$dir/data/m.jsonl"
check a_full_disk_ends_the_job [ "$rc" -ne 0 ]
check a_full_disk_is_named says "host ${host}2 \\(rank 1\\): $folder-4.* bytes needed, .* free"
check the_first_host_has_no_more_than_the_second [ "$(on 1 ls "$dir/disk/o-checkpoints") $(on 2 ls "$dir/disk/o-checkpoints")" = "checkpoint-2 checkpoint-2" ]
on 2 mount -o remount,size=40m "$dir/disk"
mpirun_on "$two" train $flags --max-steps 8 --metrics "$dir/data/m.jsonl" --resume
expect continues_after_a_full_disk 0 "^resuming from $folder-2: step 2 of 8" out
numbers data/m.jsonl >now
check numbers_after_a_full_disk cmp now all

# --- killed while it saves ---
steps_of() { on "$1" ls "$dir/disk/o-checkpoints" 2>/dev/null | grep -v fsdp- | sed 's/.*-//' | sort -n | tr '\n' ' '; }
for seed in 1 2 3 4; do
    new_disk 1
    new_disk 2
    rm -f data/m.jsonl
    (mpirun_on "$two" train $flags --max-steps 400 --save-steps 1 --save-total-limit 2 --metrics "$dir/data/m.jsonl"; : >data/ended$seed) &
    job=$!
    wait_until 20 on $((1 + seed % 2)) test -e "$folder-$((3 * seed))"
    sleep "0.0$((seed * 2))"
    "$hosts" kill $((1 + seed % 2))
    wait_until 20 [ -e data/ended$seed ]
    wait $job 2>/dev/null
    # With mpirun's host killed, the rank of the other host goes on for some seconds, and owns its files.
    wait_until 20 none_left
    last=$(numbers data/m.jsonl | tail -n 1 | cut -d ' ' -f 1)
    both=$(for step in $(steps_of 1); do for other in $(steps_of 2); do [ "$step" != "$other" ] || echo "$step"; done; done | tail -n 1)
    echo "seed $seed: killed after step $last; host 1 has $(steps_of 1), host 2 has $(steps_of 2)"
    check "a_whole_one_is_left_$seed" [ -n "$both" ]
    mpirun_on "$two" train $flags --max-steps $((both + 2)) --save-steps 1 --save-total-limit 2 --metrics "$dir/data/m.jsonl" --resume
    expect "continues_after_a_kill_$seed" 0 "^resuming from $folder-$both: step $both of" out
    check "no_unfinished_files_$seed" [ -z "$(on 1 ls -A "$dir/disk/o-checkpoints" | grep fsdp-)$(on 2 ls -A "$dir/disk/o-checkpoints" | grep fsdp-)" ]
done

# --- two of three hosts share a file system ---
n_up=3
for i in 1 2 3; do on $i umount "$dir/disk"; done
new_disk 3
three="${host}1:1,${host}2:1,${host}3:1"
mpirun_on "$three" train $flags --max-steps 2 --metrics "$dir/data/m.jsonl"
expect saves_on_two_disks 0 'checkpoints are on 2 disks' out
check the_shared_disk_has_two_files [ "$(ls "$folder-2" | grep -c distcp) $(on 3 ls "$folder-2" | grep -c distcp)" = "2 1" ]
mpirun_on "${host}3:1,${host}1:1,${host}2:1" train $flags --max-steps 4 --metrics "$dir/data/m.jsonl" --resume
expect resumes_on_two_disks 0 "^resuming from $folder-2: step 2 of 4" out
"$hosts" down
tally
