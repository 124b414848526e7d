#!/bin/sh
# `fsdp compare` as a user runs it, on metrics files written by hand: the output, equal losses,
# and files that cannot be compared.
# usage: FSDP_BUILD=build tests/cli/test_compare.sh
. "$(dirname "$0")/lib.sh"
run() { capture "$fsdp" compare "$@"; }
steps() { # FIRST LAST: prints lines of kind "step" whose loss is 10 / step
    i=$1
    while [ "$i" -le "$2" ]; do
        printf '{"kind": "step", "step": %d, "loss": %s, "lr": 0.1}\n' "$i" "$(awk "BEGIN { printf \"%.17g\", 10 / $i }")"
        i=$((i + 1))
    done
}
rank() { # PARAM_BYTES
    printf '{"allocated": %d, "reserved": 9999999, "param": %d, "grad": 0, "optim": 2048, "activation": 0, "comm": 0, "data": 0}' \
        $(($1 + 2048)) "$1"
}
summary() { # STEPS PARAM_BYTES PARAM_BYTES
    printf '{"kind": "summary", "step": %d, "world_size": 2, "train_loss": 1.25, "validation_loss": "NaN", "best_validation_loss": "Infinity", "step_s": 0.5, "total_s": 90, "peak_host_mib": 3, "memory_peak_by_rank": [%s, %s]}\n' \
        "$1" "$(rank "$2")" "$(rank "$3")"
}

{ steps 1 5; summary 5 1048576 1572864; } >"$dir/a.jsonl"
{ steps 3 9; summary 9 2097152 2097152; } >"$dir/b.jsonl"
run "$dir/a.jsonl" "$dir/b.jsonl" --same-losses
check common_steps_are_the_same test $rc -eq 0
check they_are_counted shows '^a and b: the losses of all 3 common steps are the same in every bit$'
check memory_of_each_rank_is_shown shows ' a +\S+ +1 .* 1\.500 MiB'
check and_its_sum shows ' b +\S+ +0 .* 2\.002 MiB'
check what_was_not_measured_is_a_dash shows ' a .* 1\.2500 +\S+ +- '
check times_and_host_memory_are_shown shows '500\.0 ms .* 1 min 30 s .* 3\.000 MiB'

run "$dir/a.jsonl" --same-losses
expect one_run_is_not_the_same_as_nothing 2 '--same-losses needs two runs or more: there is only .*a.jsonl'
printf 'kind,step,loss\nstep,1,nan\nstep,2,1\n' >"$dir/nan1.csv"
printf 'kind,step,loss\nstep,1,-nan\nstep,2,1\n' >"$dir/nan2.csv"
run "$dir/nan1.csv" "$dir/nan2.csv" --same-losses
expect losses_that_are_no_numbers_are_the_same 0 'the losses of all 2 common steps are the same' out
printf 'kind,step,loss\nstep,1e300,1\n' >"$dir/far.csv"
run "$dir/far.csv"
expect a_step_is_a_number_that_can_be_counted 1 'far.csv:2: the step is not a number from 0 to 2\^53'

# --metrics writes JSON lines whatever the name of the file is.
cp "$dir/b.jsonl" "$dir/lines.csv"
run "$dir/a.jsonl" "$dir/lines.csv" --same-losses
check lines_in_a_file_named_csv_are_read test $rc -eq 0

# Change one loss by one unit in the last place.
sed 's/"loss": 2\.5,/"loss": 2.5000000000000004,/' "$dir/b.jsonl" >"$dir/c.jsonl"
run "$dir/a.jsonl" "$dir/c.jsonl" --same-losses
check one_bit_is_a_difference test $rc -eq 1
check it_is_described shows '^a and c: the losses of 1 of 3 common steps differ, from step 4 on, by 4.44e-16 at most$'
run "$dir/a.jsonl" "$dir/c.jsonl"
check without_the_flag_it_is_no_failure test $rc -eq 0
run "$dir/a.jsonl" "$dir/b.jsonl" "$dir/c.jsonl" --same-losses
check one_of_several_is_enough test $rc -eq 1
{ steps 7 8; summary 8 1 1; } >"$dir/d.jsonl"
run "$dir/a.jsonl" "$dir/d.jsonl" --same-losses
check no_common_step_is_not_the_same test $rc -eq 1
check and_it_says_so shows '^a and d have no step in common$'

steps 1 5 >"$dir/running.jsonl"
run "$dir/a.jsonl" "$dir/running.jsonl"
check a_run_that_has_not_ended_is_named says 'running\.jsonl: no summary line'
printf 'version https://git-lfs.github.com/spec/v1\n' >"$dir/lfs.jsonl"
run "$dir/a.jsonl" "$dir/lfs.jsonl"
check what_is_no_file_of_metrics_is_named says 'lfs.jsonl: not a file of metrics, but a Git LFS pointer'
sed 's/"grad": 0/"grad": "x"/' "$dir/a.jsonl" >"$dir/bad.jsonl"
run "$dir/bad.jsonl"
check a_bad_value_is_named_with_its_line says 'line 6.*grad'
check with_code_1 test $rc -eq 1
run
check a_file_is_required test $rc -eq 2

tally
