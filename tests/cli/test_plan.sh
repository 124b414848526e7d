#!/bin/sh
# `fsdp plan` as a user runs it: large models take seconds and little memory; its output formats;
# errors; and a run within --memory-limit is measured to stay within it.
# usage: FSDP_BUILD=build tests/cli/test_plan.sh
. "$(dirname "$0")/lib.sh"
models=$fixtures/plan
LC_ALL=C # tables in ASCII
export LC_ALL

# --- large models ---

# A sanitizer reserves addresses beyond any limit, and memory that is not in the plan. The 2 GiB
# for a plan and the memory of a run are checked only without one.
limited() {
    if ! sanitized; then
        (ulimit -v 2097152 && timeout -s KILL 10 "$fsdp" "$@" >out 2>err)
    else
        timeout -s KILL 60 "$fsdp" "$@" >out 2>err
    fi
    rc=$?
}
for model in llama3-70b t5-3b t5-11b; do
    limited plan --model "$models/$model" --world-size 512 --local-world-size 8 --bf16
    check "${model}_on_512_ranks_takes_seconds_and_less_than_2_gib" test $rc -eq 0
    check "${model}_is_counted_by_unit" shows '^\| a step '
done
limited plan --model "$models/llama3-70b" --world-size 512
check the_parameters_of_llama3_70b_are_counted shows '^LlamaForCausalLM: 70\.55 G parameters in 83 units over 512 ranks$'
check an_assumed_length_is_reported shows '^batch of a rank: 4 x 1024 tokens \(assumed: --max-seq-length is not given\), 1 micro-step$'
check equal_blocks_are_one_row shows '^\| model\.layers\.0-79 +\| LlamaDecoderLayer \|'

# --- output formats ---

run plan --model "$models/t5-3b" --world-size 4 --bf16 --cpu-offload
check cpu_offload_speaks_of_the_run_not_of_meta says 'CPU offload changes nothing: this build computes on the CPU'

run plan --model "$models/t5-3b" --world-size 4 --fp16 --json --schedule
check json_is_one_line test "$(wc -l <out)" -eq 1
check json_has_the_schedule shows '"schedule": \[\{"phase": "forward", "computes": "root", "waits_for": "root", "all_gathers": "encoder.block.0"'
check its_peak_is_the_sum_of_its_tags awk '
    { sub(/.*"peak": \{/, ""); sub(/\}.*/, ""); n = split($0, part, /[,:] */)
      for (i = 2; i <= n; i += 2) if (part[i - 1] ~ /allocated/) all = part[i]; else sum += part[i]
      exit !(sum == all && all > 1e9) }' out
fails_on_a_full_disk json_on_a_full_disk plan --model "$models/t5-3b" --world-size 4 --json
fails_on_a_full_disk a_table_on_a_full_disk plan --model "$models/t5-3b" --world-size 4
run plan --model "$models/t5-3b" --world-size 4 --fp16 --schedule
check a_schedule_says_what_is_under_way shows '^\| forward +\| encoder\.block\.0 +\| +\| encoder\.block\.1 +\|'
check a_schedule_says_what_is_reduced shows '^\| backward +\| decoder\.block\.21 +\| .*\| decoder\.block\.22 +\|'
run plan --model "$models/t5-3b" --world-size 4 --fp16 --explicit-prefetching --print-model --schedule
check explicit_prefetching_is_in_the_schedule shows '^\| forward +\| encoder\.block\.0 +\| +\| encoder\.block\.1, encoder\.block\.2 +\|'
check the_tree_of_the_plan_is_printed shows '^FSDPT5ForConditionalGeneration\(  # float16 of float32, .*[0-9]+ of [0-9]+ elements$'
run plan --help
check help_has_the_options_of_train shows 'no-\]activation-checkpointing'

# --- accepted and refused options ---

run plan --model "$models/t5-3b" --world-size 2 --data nowhere.csv --output out-dir --epochs 3 --lr 0.1 --metrics m.jsonl
check options_of_train_are_accepted test $rc -eq 0
check nothing_is_written test ! -e out-dir -a ! -e m.jsonl
run plan --world-size 2
check a_model_is_needed test $rc -eq 2
run plan --model "$models/t5-3b" --world-size 6 --local-world-size 4
check hosts_must_be_full says '6 ranks do not fill hosts of local_world_size 4'
run plan --model "$models" --world-size 2
check a_folder_without_a_config_is_an_error test $rc -eq 1
run plan --model "$models/t5-3b" --world-size 2 --bf16 --no-unshard-in-backward decoder.block.3
check what_a_run_would_fail_with_is_refused test $rc -eq 1
check and_reported_in_its_words says "linear: '.*' of unit 'decoder.block.3' is resharded: .*--no-unshard-in-backward"
run plan --model "$models/t5-3b" --world-size 8 --memory-limit 60GiB
check a_plan_beyond_the_limit_fails test $rc -eq 1
check and_says_what_would_fit says 'the 8 ranks of a host would hold .* \(param .*, grad .*, optim .*, activation .*\), most in .*; it fits with --activation-checkpointing: [0-9.]+ GiB'
run plan --model "$models/llama3-70b" --world-size 8 --memory-limit 1GiB
check a_limit_needs_a_length says '--max-seq-length'

# --- the time of a step on many hosts ---

hosts="--local-world-size 8 --bf16 --interconnect 100Gb,2us"
limited plan --model "$models/llama3-8b" --world-size 8..4096 $hosts --flops-per-rank 100T --max-seq-length 2048
check an_estimate_up_to_4096_ranks_takes_seconds test $rc -eq 0
check it_has_a_row_for_each_size test "$(grep -c '^| *[0-9]' out)" -eq 10
check one_host_waits_for_nothing shows '^\| +8 +\| +1 +\| .* \| +100\.0 % \|'
check it_says_what_is_assumed shows '^a rank computes 100\.0 TFLOP/s \(--flops-per-rank\); a host sends 100\.0 Gbit/s, a message takes 2\.000 us$'
cp out first.out
limited plan --model "$models/llama3-8b" --world-size 8..4096 $hosts --flops-per-rank 100T --max-seq-length 2048
check two_estimates_are_equal cmp -s out first.out
run plan --model "$models/llama3-8b" --world-size 16,512 $hosts --flops-per-rank 100T --max-seq-length 2048 --straggler 5% --internode-reduce-dtype bf16 --json
check an_estimate_is_one_json_line test "$(wc -l <out)" -eq 1
check with_every_size shows '"estimates": \[\{"world_size": 16, "local_world_size": 8, "hosts": 2, .*\{"world_size": 512,'
check and_its_stragglers shows '"straggler": 0\.05, "internode_reduce_dtype": "bfloat16"'
run plan --model "$models/llama3-8b" --world-size 16 $hosts --flops-per-rank 100T --max-seq-length 2048
check one_size_has_its_plan_and_an_estimate test "$(grep -c '^| a step \|^|    16 |' out)" -eq 2
run plan --model "$models/llama3-8b" --world-size 16 $hosts --max-seq-length 512 --threads-per-rank 2
check a_rate_that_is_not_given_is_measured shows '\(measured here: 2 threads at the rate of the fastest product'
run plan --model "$models/llama3-8b" --world-size 8..64 --local-world-size 8
check several_sizes_need_an_interconnect says '\-\-world-size 8\.\.64: .*needs --interconnect'
run plan --model "$models/llama3-8b" --world-size 8..64 --interconnect 100Gb,2us
check several_sizes_need_the_size_of_a_host says 'needs --local-world-size'
run plan --model "$models/llama3-8b" --world-size 8 --straggler 5%
check what_is_for_an_estimate_needs_one says '\-\-straggler 5% is for an estimate, which needs --interconnect'
run plan --model "$models/llama3-8b" --world-size 8..64 $hosts --schedule --flops-per-rank 1T
check a_schedule_is_that_of_one_size says '\-\-schedule .* needs a single --world-size'
run plan --model "$models/llama3-8b" --world-size 8x
check a_wrong_size_is_refused says "world-size '8x': there is more text"
run plan --model "$models/llama3-8b" --world-size 16 $hosts --flops-per-rank 10TB
check a_wrong_rate_is_refused says "flops-per-rank '10TB'"
run plan --model "$models/llama3-8b" --world-size 8..24 $hosts --flops-per-rank 1T --max-seq-length 64 --memory-limit 1GiB
check each_size_is_held_against_the_limit test $rc -eq 1
check and_the_first_that_does_not_fit_is_named says '\-\-world-size 8: --memory-limit'
run plan --model "$models/llama3-8b" --world-size 12..24 $hosts --flops-per-rank 1T
check a_size_that_does_not_fill_hosts_is_named says '\-\-world-size 12: plan: 12 ranks do not fill hosts'
fails_on_a_full_disk an_estimate_on_a_full_disk plan --model "$models/llama3-8b" --world-size 8..64 $hosts --flops-per-rank 1T --max-seq-length 64

# --- a run within its limit ---

mkdir model
cat >model/config.json <<'JSON'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 4096, "n_embd": 384,
 "n_layer": 6, "n_head": 6, "n_positions": 64, "activation_function": "gelu_new"}
JSON
awk 'BEGIN { for (i = 0; i < 16; i++) { printf "{\"input_ids\": [%d", i
             for (k = 1; k < 64; k++) printf ", %d", (i * 31 + k * 7) % 4096
             print "]}" } }' >rows.jsonl
train="--model model --data rows.jsonl --batch-size 2 --from-config --no-save-model --max-steps 3"
train="$train --threads-per-rank 1"
run plan $train --json
limit=$(($(number host_bytes) * 105 / 100))
# For one rank without peers, only its data segments count.
if ! sanitized; then
    (ulimit -d $((limit / 1024)) && timeout -s KILL 120 "$fsdp" train $train --memory-limit $limit >out 2>err)
    rc=$?
    check a_run_at_its_plan_and_5_percent_ends_within_that_data_limit test $rc -eq 0
    mib=$(sed -n 's/.*host memory of all ranks \([0-9.]*\) MiB at most.*/\1/p' out)
    check and_its_host_memory_is_below_the_plan awk "BEGIN { exit !($mib > 50 && $mib * 1048576 < $limit / 1.05) }"
else
    skip a_run_at_its_plan_and_5_percent_ends_within_that_data_limit "a sanitizer's memory is not in the plan"
fi
run train $train --memory-limit $((limit / 2))
check a_run_beyond_its_limit_is_refused test $rc -eq 1
check before_it_began test ! -s out
check with_the_figure says '--memory-limit .* the 1 rank of a host would hold'
run plan $train --world-size 2 --json
limit=$(number host_bytes)
cp out plan.json
run launch -n 2 plan $train --json
check a_plan_that_is_launched_is_of_its_ranks_and_printed_once cmp -s out plan.json
run launch -n 2 plan $train --world-size 3 --json
check or_of_those_that_are_given test "$(number world_size)" -eq 3
run launch -n 2 train $train --memory-limit "$limit"
check two_ranks_run_at_their_plan test $rc -eq 0
if ! sanitized; then
    mib=$(sed -n 's/.*host memory of all ranks \([0-9.]*\) MiB at most.*/\1/p' out)
    check and_share_what_was_planned awk "BEGIN { exit !($mib > 50 && $mib * 1048576 < $limit) }"
fi
# For two ranks, each one's data segments have its half. Shared memory is not in data segments; it
# is counted above.
limit=$((limit * 105 / 100))
if ! sanitized; then
    (ulimit -d $((limit / 2048)) && timeout -s KILL 120 "$fsdp" launch -n 2 train $train --memory-limit $limit >out 2>err)
    rc=$?
    check two_ranks_end_within_the_data_limit_of_their_plan_and_5_percent test $rc -eq 0
else
    skip two_ranks_end_within_the_data_limit_of_their_plan_and_5_percent "a sanitizer's memory is not in the plan"
fi
run launch -n 2 train $train --memory-limit $((limit / 2))
check ranks_refuse_together test $rc -ne 0
check and_say_so_once test "$(grep -c 'memory-limit' err)" -eq 1

# --- a model larger than its memory limit ---

sed -i 's/"vocab_size": 4096/"vocab_size": 512/; s/"n_layer": 6/"n_layer": 14/' model/config.json
sed -i 's/[0-9]\{4\}/7/g; s/\b[5-9][0-9][0-9]\b/7/g' rows.jsonl
train="$train --max-steps 2 --activation-checkpointing"
run plan $train --offload-dir spool --json
limit=$(($(number host_bytes) * 105 / 100))
state=$(($(number numel) * 12)) # master weights and moments in float32
check masters_and_moments_are_more_than_the_limit_of_a_run_with_offload_dir test $state -gt $limit
if ! sanitized; then
    (ulimit -d $((limit / 1024)) && timeout -s KILL 120 "$fsdp" train $train --offload-dir spool --memory-limit $limit >out 2>err)
    rc=$?
    check that_run_ends_within_the_limit test $rc -eq 0
    (ulimit -d $((limit / 1024)) && timeout -s KILL 120 "$fsdp" train $train >out 2>err)
    rc=$?
    check without_offload_dir_it_does_not test $rc -eq 1
    check and_says_that_there_is_no_memory says 'refused [0-9]+ bytes of memory'
else
    skip that_run_ends_within_the_limit "a sanitizer's memory is not in the plan"
fi
run train $train --memory-limit $limit
check a_limit_below_what_stays_in_memory_is_refused test $rc -eq 1

# --- --fit ---
run plan --model "$models/llama3-1b" --fit 0
expect no_memory_is_refused 2 '^fsdp plan: --fit 0: a rank needs some memory'
run plan --model "$models/llama3-1b" --fit 64GiB
expect what_fits_is_said 0 '^--fit 64.00 GiB: it fits as given' out
run plan --model "$models/llama3-1b" --fit 10KiB
expect what_does_not_fit_is_an_error_with_the_smallest 1 'no setting that this command knows is enough: the least that a rank needs with those it tried is'
tally
