#!/bin/sh
# examples/fsdp2_train: the FSDP2 tutorial's script, its flags, its checkpoints.
# usage: FSDP_BUILD=build tests/cli/test_fsdp2_train.sh
. "$(dirname "$0")/lib.sh"

# run FOLDER RANKS FLAGS...: runs the example in that folder; output is in $dir/out and $dir/err,
# losses are in $dir/losses
run() {
    folder=$dir/$1 ranks=$2
    shift 2
    mkdir -p "$folder"
    cd "$folder" || exit 1
    capture "$fsdp" launch --nproc-per-node "$ranks" "$build/examples/fsdp2_train" "$@"
    cd "$dir" || exit 1
    grep '^step ' "$dir/out" >"$dir/losses"
}
# trains NAME: there must be ten losses, each below the one before
trains() {
    if [ "$rc" -ne 0 ]; then bad "$1" "exit code $rc"
    elif [ "$(wc -l <"$dir/losses")" -ne 10 ]; then bad "$1" "not ten steps"
    elif ! awk '{ if (NR > 1 && $4 + 0 >= last) exit 1; last = $4 + 0 }' "$dir/losses"; then
        bad "$1" "a loss that did not fall"
    else ok "$1"; fi
}
same() { # NAME FILE FILE
    if cmp -s "$2" "$3"; then ok "$1"; else bad "$1" "$(diff "$2" "$3" | head -n 3)"; fi
}
count() { find "$1" -name "$2" | wc -l; }

run plain 2
trains two_ranks_train
cp "$dir/losses" "$dir/first"
if grep -q '^FSDPTransformer(' "$dir/out" && grep -q '(0-9): 10 x FSDPTransformerBlock(' "$dir/out"
then ok the_model_is_printed_as_fsdp2_prints_it
else bad the_model_is_printed_as_fsdp2_prints_it "no FSDPTransformer of 10 x FSDPTransformerBlock"; fi
if grep -q resumed "$dir/out"; then bad the_first_run_does_not_resume "it resumed"; else ok the_first_run_does_not_resume; fi
if [ "$(count "$dir/plain/checkpoints/dtensor_api" '*_state_dict.pt')" -eq 2 ]; then ok model_and_optimizer_are_saved
else bad model_and_optimizer_are_saved "not two files"; fi

cp -r "$dir/plain" "$dir/again"
run plain 2
trains the_second_run_trains_on
if grep -q '^resumed from checkpoints/dtensor_api/' "$dir/out"; then ok the_second_run_resumes
else bad the_second_run_resumes "it does not say so"; fi
cp "$dir/losses" "$dir/second"
if [ "$(awk 'NR == 1 { print $4 }' "$dir/second" | cut -d. -f1)" -lt "$(awk 'END { print $4 }' "$dir/first" | cut -d. -f1)" ]
then ok the_loss_goes_on_from_where_it_was
else bad the_loss_goes_on_from_where_it_was "$(head -n 1 "$dir/second")"; fi
run again 2 --explicit-prefetching
same explicit_prefetching_changes_no_number "$dir/losses" "$dir/second"

run dcp 2 --dcp-api
same the_dcp_api_trains_alike "$dir/losses" "$dir/first"
run dcp 2 --dcp-api
same and_resumes_alike "$dir/losses" "$dir/second"

run mixed 3 --mixed-precision --explicit-prefetching
trains three_ranks_in_bfloat16
if cmp -s "$dir/losses" "$dir/first"; then bad bfloat16_is_another_number "as float32"; else ok bfloat16_is_another_number; fi
run mixed 1 --mixed-precision
trains one_rank_goes_on_with_what_three_saved

# Saving happens after the last step, outside of all units.
mkdir -p "$dir/full" && : >"$dir/full/checkpoints"
run full 2
expect a_failure_after_the_steps_is_reported_with_the_step_only 1 'exited with status 1 at step 10: .*checkpoints'
run plain 1 --explicit-prefetch
expect an_unknown_argument_is_named 1 "unknown option '--explicit-prefetch'; did you mean '--explicit-prefetching'"
run plain 2 --help
check help_is_printed_once [ "$rc$(grep -c '^usage: fsdp2_train' out)" = 01 ]
# A run that is killed between the two files leaves a folder with one of them.
cp -r "$dir/plain" "$dir/half"
mkdir "$dir/half/checkpoints/dtensor_api/99999999999999"
: >"$dir/half/checkpoints/dtensor_api/99999999999999/model_state_dict.pt"
run half 2
trains half_a_checkpoint_stops_no_run
expect and_it_is_named 0 '99999999999999/optim_state_dict.pt is missing, so this checkpoint is not used'
file=$(find "$dir/again/checkpoints" -name model_state_dict.pt | sort | tail -n 1)
head -c 1000 "$file" >"$dir/cut" && cat "$dir/cut" >"$file"
run again 2
if [ "$rc" -ne 0 ] && grep -q 'model_state_dict.pt' "$dir/err"; then ok a_cut_checkpoint_is_named
else bad a_cut_checkpoint_is_named "exit code $rc"; fi

tally
