#!/bin/sh
# Checkpoints whose files are in several folders: `fsdp checkpoint gather` puts them together, and
# `fsdp train` saves and resumes on hosts that do not share a file system. The hosts are imagined
# (FSDP_TEST_HOSTS): each has a working directory of its own, in which --output is.
# usage: FSDP_BUILD=build tests/cli/test_own_disks.sh
. "$(dirname "$0")/lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 FSDP_TIMEOUT_S=60
# The MPI libraries leak.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
unset WORLD_SIZE RANK FSDP_MPI

awk 'BEGIN { srand(3); for (i = 0; i < 24; i++) { printf "{\"input_ids\": ["
    for (k = 0; k < 5 + i % 7; k++) printf "%s%d", k ? ", " : "", 3 + int(50 * rand()); print "]}" } }' >ids.jsonl
# Eight rows a step: the bits are those of any other 1, 2, 4 or 8 ranks.
flags="train --model $golden/llama3/model --data $dir/ids.jsonl --batch-size 1 --learning-rate 1e-3 --seed 3
    --lr-schedule constant --device cpu --output o --save-steps 2"
numbers() { sed -n 's/.*"kind": "step".*"step": \([0-9]*\),.*"loss": \([^,]*\),.*/\1 \2/p' "$1"; }
folder=o-checkpoints/checkpoint

# --- gather: folders on this host ---
run launch -n 2 $flags --gradient-accumulation-steps 4 --max-steps 4 --no-save-model
expect saves 0
for step in 2 4; do
    for rank in 0 1; do
        mkdir -p "host$rank"
        cp -r $folder-$step "host$rank/$step"
        rm "host$rank/$step/__$((1 - rank))_0.distcp" "host$rank/$step/__$((1 - rank))_0.crc32"
    done
done
run checkpoint gather host0/4 host1/4 -o whole
expect gather 0 '^whole: whole: 2 files of ranks' out
check what_is_gathered_is_what_was_saved diff -r whole $folder-4
run checkpoint verify whole
expect what_is_gathered_is_verified 0 '^whole: whole' out
run checkpoint gather host1/4 host0/4 -o other
check the_order_of_folders_does_not_matter diff -r other $folder-4
run launch -n 2 checkpoint gather host0/4 host1/4 -o launched
expect several_ranks_gather 0
check several_ranks_gather_the_same diff -r launched $folder-4
# refuses NAME TEXT FOLDER...: gather fails, and writes nothing
refuses() {
    name=$1 text=$2
    shift 2
    run checkpoint gather "$@" -o new
    expect "$name" 1 "$text"
    check "${name}_and_writes_nothing" nothing_new
}
nothing_new() { [ -z "$(find . -maxdepth 1 -name 'new*')" ]; }
refuses a_missing_part_is_named 'host0/4: there is no __1_0.distcp\. Name the folders' host0/4
refuses two_saves_are_refused 'host1/2: is of step 2, but host0/4 is of step 4: they are of two saves' host0/4 host1/2
refuses a_missing_folder_is_named 'host9: there is no such folder' host0/4 host9
run checkpoint gather host0/4 host1/4 -o whole
expect an_existing_folder_is_not_replaced 1 'whole: the directory exists and is not empty'
check and_stays_as_it_is diff -r whole $folder-4
cp -r host1/4 damaged
printf 'X' | dd of=damaged/__1_0.distcp bs=1 seek=100000 conv=notrunc 2>/dev/null
refuses a_damaged_part_is_named 'damaged/__1_0.distcp is damaged: checksum of bytes' host0/4 damaged
truncate -s 5000 damaged/__1_0.distcp
refuses a_short_part_is_named 'damaged/__1_0.distcp: has 5000 bytes; its checksums are of' host0/4 damaged
cp host1/2/__1_0.* damaged
refuses a_part_of_another_save_is_named 'damaged/trainer_state.json belongs to another save than __1_0.crc32' host0/4 damaged
rm damaged/__1_0.crc32
refuses missing_checksums_are_named 'damaged/__1_0.distcp: there is no .crc32 file' host0/4 damaged
rm -rf damaged
cp -r host1/4 edited
sed -i 's/"global_step": 4/"global_step": 5/' edited/trainer_state.json
refuses an_edited_state_is_named 'edited/trainer_state.json is damaged' host0/4 edited
for form in full local; do
    rm -rf o-checkpoints
    run launch -n 2 $flags --gradient-accumulation-steps 4 --max-steps 2 --no-save-model --state-dict-type $form
    refuses "${form}_is_refused" "is a $(echo $form | tr a-z A-Z)_STATE_DICT: " $folder-2
done
run checkpoint gather host0/4
expect the_output_is_needed 2 '--output: is needed'
run checkpoint --help
expect help_lists_gather 0 '^ *gather +put the files' out
# PyTorch's own checkpoints have no checksums of blocks, and no trainer_state.json.
theirs=$fixtures/dcp/fsdp2/checkpoint
mkdir -p first second
cp -r "$theirs"/. first && cp "$theirs/.metadata" second
file=$(cd first && ls __*.distcp | tail -n 1)
mv "first/$file" second
run checkpoint gather first second -o theirs
expect gathers_checkpoints_of_pytorch 0 '^theirs: whole' out
check gathers_what_pytorch_saved cmp "theirs/$file" "$theirs/$file"

# --- hosts that share no file system ---
! lacks MPI || { skip disks "built without MPI"; tally; exit; }
command -v mpirun.openmpi >/dev/null || { skip disks "Open MPI is not installed"; tally; exit; }
# on_hosts RANKS "HOST..." ARGUMENTS...: run fsdp with so many ranks on each host, in its folder. The
# command of host $faulty begins with $fault.
fault='' faulty=''
on_hosts() {
    per=$1 list=$2 n_hosts=0 parts=
    shift 2
    words="$fsdp $*"
    for h in $list; do
        [ "$h" = "$faulty" ] && with=$fault || with=
        parts="$parts ${parts:+:} -np $per -wdir $dir/$h $with $words"
        n_hosts=$((n_hosts + 1))
    done
    export FSDP_TEST_HOSTS=$n_hosts
    # shellcheck disable=SC2086
    capture mpirun.openmpi --oversubscribe --bind-to none $parts
    unset FSDP_TEST_HOSTS
}
fresh() { rm -rf a b c; mkdir a b c; }
# restored: as after the four steps of the first job
restored() { rm -rf a b c && cp -r kept/a kept/b kept/c .; }
has_only() { # HOST STEP...
    h=$1
    shift
    [ "$(ls "$h/o-checkpoints" | sort | tr '\n' ' ')" = "$(printf 'checkpoint-%s ' "$@")" ]
}
rm -rf o-checkpoints o
run launch -n 4 $flags --gradient-accumulation-steps 2 --max-steps 8 --metrics m.jsonl
expect one_host 0
numbers m.jsonl >all
sed -n '5,$p' all >last

fresh
on_hosts 2 "a b" $flags --gradient-accumulation-steps 2 --max-steps 4 --no-save-model
expect saves_on_own_disks 0 "checkpoints are on 2 disks.*'fsdp checkpoint gather o-checkpoints/checkpoint-2 -o DIR'" out
check says_so_once [ "$(grep -c 'checkpoints are on' out)" = 1 ]
check the_first_host_has_its_files [ "$(cd a/$folder-4 && ls -A | tr '\n' ' ')" = \
    ".metadata __0_0.crc32 __0_0.distcp __1_0.crc32 __1_0.distcp trainer_state.json " ]
check the_second_host_has_its_files [ "$(cd b/$folder-4 && ls -A | tr '\n' ' ')" = \
    ".metadata __2_0.crc32 __2_0.distcp __3_0.crc32 __3_0.distcp trainer_state.json " ]
check nothing_else_is_left [ -z "$(find a b -name '*fsdp-*')" ]
mkdir kept && cp -r a b c kept

run checkpoint verify a/$folder-4
expect verify_names_gather 1 "__2_0.distcp.*this folder has the files of one of them; 'fsdp checkpoint gather' puts it together" out
on_hosts 1 "a b" checkpoint gather $folder-4 -o whole
expect gathers_from_hosts 0 '^whole: whole: 4 files of ranks, .*, from 2 hosts$' out
check only_on_the_first_host [ -e a/whole -a ! -e b/whole ]
run checkpoint gather a/$folder-4 b/$folder-4 -o copied
check gathers_the_same_as_from_folders diff -r copied a/whole
run launch -n 2 $flags --gradient-accumulation-steps 4 --max-steps 8 --resume a/whole --metrics one.jsonl --no-save-model --save-strategy no
numbers one.jsonl >now
check one_host_resumes_what_is_gathered cmp now last

# same NAME RANKS "HOST..." FLAGS...: a job on these hosts continues with the numbers of one host
same() {
    what=$1 per=$2 list=$3
    shift 3
    restored
    accumulate=$((8 / per / $(echo "$list" | wc -w)))
    # shellcheck disable=SC2086
    on_hosts "$per" "$list" $flags --gradient-accumulation-steps "$accumulate" --max-steps 8 --resume --metrics m.jsonl "$@"
    expect "resumes_$what" 0 '^resuming from o-checkpoints/checkpoint-4: step 4 of 8' out
    numbers "${list%% *}/m.jsonl" >now
    check "numbers_$what" cmp now last
    check "weights_$what" cmp o/model.safetensors "${list%% *}/o/model.safetensors"
}
same same_hosts 2 "a b" --save-total-limit 1
check only_the_last_checkpoint_is_left_on_a has_only a 8
check only_the_last_checkpoint_is_left_on_b has_only b 8
same hosts_in_another_order 2 "b a"
same fewer_ranks 1 "a b"
same more_ranks 4 "b a"
same async_save 2 "a b" --async-save --save-total-limit 2
check two_checkpoints_are_left has_only b 6 8

# --- what is lost or damaged ---
# resumes NAME RC TEXT FLAGS...
resumes() {
    what=$1 code=$2 text=$3
    shift 3
    on_hosts 2 "a b" $flags --gradient-accumulation-steps 2 --max-steps 6 --no-save-model "$@"
    if [ "$code" = 0 ]; then expect "$what" 0 "$text" out; else
        # mpirun ends with the code of a rank
        check "${what}_fails" [ "$rc" -ne 0 ]
        check "$what" says "$text"
    fi
}
restored
rm -rf b/$folder-4
resumes a_lost_folder_is_named 0 "checkpoint-4 is not whole and is skipped: host .* \(ranks 2 to 3\) has no folder $folder-4; no host has whole __2_0.distcp \(saved on host .*\), __3_0.distcp" --resume
check the_older_checkpoint_is_taken shows "^resuming from $folder-2: step 2 of 6"
restored
rm -rf b/o-checkpoints
resumes a_lost_disk_is_an_error 1 "no checkpoint in o-checkpoints is whole on all hosts. The newest one: host .* \(ranks 2 to 3\) has no folder $folder-4; no host has whole __2_0.distcp" --resume
restored
rm -rf a/o-checkpoints
resumes a_lost_first_disk_is_an_error 1 "The newest one: host .* \(ranks 0 to 1\) has no folder $folder-4; no host has whole __0_0.distcp" --resume
restored
rm b/$folder-4/__3_0.distcp
resumes a_lost_part_is_named 0 "checkpoint-4 is not whole and is skipped: no host has whole __3_0.distcp \(saved on host" --resume
restored
truncate -s 9999 b/$folder-4/__3_0.distcp
resumes a_short_part_is_named 1 "--resume $folder-4: it is not whole: no host has whole __3_0.distcp .*whole on all hosts is $folder-2: --resume $folder-2" --resume $folder-4
restored
printf 'X' | dd of=b/$folder-4/__3_0.distcp bs=1 seek=100000 conv=notrunc 2>/dev/null
resumes a_damaged_part_is_named 1 "host .* \(ranks 2 to 3\): $folder-4/__3_0.distcp is damaged: checksum of bytes .*--resume $folder-2 uses another checkpoint" --resume
# The same part is now read by the other host.
on_hosts 2 "b a" $flags --gradient-accumulation-steps 2 --max-steps 6 --no-save-model --resume
check a_damaged_part_of_another_host_is_named says "host .* \(ranks 0 to 1\): $folder-4/__3_0.distcp is damaged"
on_hosts 1 "a b" checkpoint gather $folder-4 -o new
check gather_names_the_host_of_a_damaged_part says "host .* \(rank 1\): $folder-4/__3_0.distcp is damaged"
check and_writes_nothing_there [ -z "$(find a b -name 'new*')" ]
restored
rm -rf b/$folder-4
cp -r b/$folder-2 b/$folder-4
resumes another_save_is_named 0 "checkpoint-4 is not whole and is skipped: host .* \(ranks 2 to 3\) has another save there than host .* \(ranks 0 to 1\)" --resume
fresh
on_hosts 1 "a b" $flags --max-steps 2 --no-save-model --state-dict-type full
check other_forms_are_refused says "on the disks of 2 hosts, where only --state-dict-type SHARDED_STATE_DICT"

# --- two of three hosts share a folder ---
fresh
on_hosts 1 "a b b" $flags --max-steps 4 --no-save-model --async-save --save-total-limit 1
expect two_of_three_hosts_share 0
check the_first_has_its_file [ "$(cd a/$folder-4 && ls __*.distcp | tr '\n' ' ')" = "__0_0.distcp " ]
check the_others_have_theirs [ "$(cd b/$folder-4 && ls __*.distcp | tr '\n' ' ')" = "__1_0.distcp __2_0.distcp " ]
on_hosts 1 "b c a" $flags --max-steps 6 --no-save-model --resume
check a_new_host_is_named says "host .* \(rank 1\) has no folder $folder-4"
on_hosts 1 "b b a" $flags --max-steps 6 --no-save-model --resume
expect they_resume_in_another_order 0 "^resuming from $folder-4: step 4 of 6" out
fresh
on_hosts 1 "a a" $flags --max-steps 2 --no-save-model --gradient-accumulation-steps 4
check a_shared_folder_is_as_before [ "$rc" = 0 -a "$(cd a/$folder-2 && ls __*.distcp | wc -l)" = 2 ]
check and_is_not_reported [ "$(grep -c 'checkpoints are on' out)" = 0 ]

# --- killed while the hosts give the folder its name ---
# soak_fault.c kills the process of a host at its n-th rename. A save has five on each host: two of
# the rank's files, two of rank 0's files, and the last of the folder.
if sanitized; then skip killed_between_renames "preloading does not go with sanitizers"
elif ! ${CC:-cc} -O1 -shared -fPIC -o fault.so "$root/tools/soak_fault.c" 2>err; then
    skip killed_between_renames "${CC:-cc} cannot compile soak_fault.c"
else
    half=0
    for n in 9 10 11; do
        for faulty in a b; do
            fresh
            fault="env LD_PRELOAD=$dir/fault.so SOAK_FAULT=rename:$n:0"
            on_hosts 1 "a b" $flags --gradient-accumulation-steps 4 --max-steps 6 --save-total-limit 1 --metrics m.jsonl
            fault=''
            check "killed_at_rename_${n}_on_$faulty" [ "$rc" -ne 0 ]
            [ -e a/$folder-4/.metadata ] && on_a=1 || on_a=0
            [ -e b/$folder-4/.metadata ] && on_b=1 || on_b=0
            [ $on_a = $on_b ] || half=$((half + 1))
            on_hosts 1 "a b" $flags --gradient-accumulation-steps 4 --max-steps 8 --save-total-limit 1 --metrics m.jsonl --resume
            expect "resumes_after_rename_${n}_on_$faulty" 0 "^resuming from $folder-[24]: " out
            numbers a/m.jsonl >now
            check "numbers_after_rename_${n}_on_$faulty" cmp now all
            check "nothing_left_after_rename_${n}_on_$faulty" [ -z "$(find a b -name '*fsdp-*')" ]
        done
    done
    faulty=''
    check some_were_killed_between_the_hosts_renames [ $half -gt 0 ]
fi
tally
