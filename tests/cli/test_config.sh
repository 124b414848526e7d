#!/bin/sh
# `fsdp config`: the files that it writes are read by `fsdp train`, converted and explained.
# tools/check_accelerate.py compares with Accelerate itself.
# usage: FSDP_BUILD=build tests/cli/test_config.sh
. "$(dirname "$0")/train.sh"
needs libyaml

HOME=$dir/home
export HOME
unset HF_HOME XDG_CACHE_HOME
run config --default
check the_default_file_is_accelerates test -f home/.cache/huggingface/accelerate/default_config.yaml
HF_HOME=$dir/hf
export HF_HOME
run config default
check hf_home_moves_it test -f hf/accelerate/default_config.yaml
unset HF_HOME

run config --config_file a.yaml fsdp_version=1 sharding_strategy=2 num_processes=2 mixed_precision=bf16 transformer_layer_cls_to_wrap=T5Block
check answers_on_the_command_line test $rc -eq 0
check are_in_the_file grep -qx '  fsdp_reshard_after_forward: SHARD_GRAD_OP' a.yaml
train 2 --config a.yaml --max-steps 2
check train_reads_it test $rc -eq 0
check and_does_what_it_says shows 'bfloat16 compute, .*SHARD_GRAD_OP'
run config -o - num_processes=3
check a_dash_prints_it shows '^num_processes: 3$'
printf 'text,headline\n' >rows.csv
run config -o rows.csv num_processes=2
expect other_files_are_not_overwritten 1 'no configuration of Accelerate'
ln -s nowhere.yaml link.yaml
run config -o link.yaml num_processes=2
expect a_link_to_nothing_is_named_as_such 1 'link.yaml: a symbolic link to a file that does not exist'
check and_is_left_as_it_is test -h link.yaml -a ! -e nowhere.yaml
# Without questions, a value of the old file is lost only if the command gives another one.
run config -o kept.yaml num_processes=4 mixed_precision=bf16 transformer_layer_cls_to_wrap=T5Block,BertLayer
cp kept.yaml before.yaml
run config -o kept.yaml mixed_precision=fp16
expect a_value_of_the_old_file_is_not_lost 1 'kept.yaml:[0-9]+: fsdp_transformer_layer_cls_to_wrap: .* would be lost.*--overwrite'
check and_the_file_stays cmp -s kept.yaml before.yaml
run config -o kept.yaml mixed_precision=fp16 transformer_layer_cls_to_wrap=T5Block
expect the_number_of_ranks_is_not_lost 1 'kept.yaml:[0-9]+: num_processes: 4 would be lost, and become 1'
run config --default -o kept.yaml
expect defaults_do_not_replace_it 1 'would be lost'
run config -o kept.yaml mixed_precision=bf16 num_processes=4 transformer_layer_cls_to_wrap=T5Block,BertLayer
expect the_same_values_are_written_again 0 'configuration saved'  out
check with_the_same_bytes cmp -s kept.yaml before.yaml
run config -o kept.yaml mixed_precision=no num_processes=8 transformer_layer_cls_to_wrap=T5Block
expect other_values_may_be_given 0
check and_are_in_the_file grep -q '^num_processes: 8' kept.yaml
run config -o kept.yaml --overwrite mixed_precision=fp16
expect overwrite_replaces_the_file 0
check with_defaults grep -q '^num_processes: 1' kept.yaml

run config -o b.yaml num_proceses=2
expect a_wrong_key_gets_the_nearest 2 'did you mean num_processes'
check and_nothing_is_written test ! -e b.yaml
"$fsdp" config -o b.yaml </dev/null >out 2>err
rc=$?
expect the_end_of_the_input_is_an_error 1 'the input ended'
check and_leaves_no_file test ! -e b.yaml

run config convert a.yaml --output_file b.yaml
expect converting_says_what_is_gone 0 'fsdp_backward_prefetch has been removed in FSDP2'
check the_result_is_fsdp2 grep -qx '  fsdp_version: 2' b.yaml
check with_its_boolean grep -qx '  fsdp_reshard_after_forward: false' b.yaml
train 2 --config b.yaml --max-steps 2
check it_trains_the_same_way shows 'bfloat16 compute, .*SHARD_GRAD_OP'
run config convert --config_file a.yaml
expect without_a_place_nothing_is_written 2 'output-file is missing'
run config to-fsdp2 a.yaml -o b.yaml
expect an_existing_file_is_kept 1 'b.yaml exists'
run config convert b.yaml -o c.yaml
expect fsdp2_is_not_converted_again 1 'is 2 already'
cp a.yaml d.yaml
run config convert d.yaml --overwrite
check overwriting_in_place cmp -s d.yaml b.yaml

sed -e 's/^num_processes: .*/num_processes: -1/' a.yaml >e.yaml
run config convert e.yaml -o f.yaml
check numbers_below_0_stay_numbers grep -qx 'num_processes: -1' f.yaml
sed -e 's/^mixed_precision: .*/fp16: true/' a.yaml >e.yaml
run config explain e.yaml
check an_old_key_has_its_effect shows 'fp16|float16'

run config explain a.yaml
check the_strategy_is_explained shows '^strategy +SHARD_GRAD_OP: .*ZeRO stage 2'
check the_memory_too shows '^memory .* 8 bytes'
check what_has_no_effect_is_listed shows '^  fsdp_use_orig_params: '
run config explain a.yaml --model tiny --batch-size 2
check with_a_model_there_are_numbers shows '^the model +T5ForConditionalGeneration: 20.00 k parameters'
check and_bytes shows 'a rank receives in a step: [0-9.]+ KiB of parameters'
sed 's/fsdp_offload_params/fsdp_ofload_params/' a.yaml >e.yaml
run config explain e.yaml
expect a_wrong_key_in_a_file_is_named 1 'e.yaml:[0-9]+: unknown option .fsdp_ofload_params.; did you mean .fsdp-offload-params'
printf 'distributed_type: FSDP\nfp16: true\nfsdp_config: {fsdp_sharding_strategy: 1}\n' >old.yaml
run config update --config_file old.yaml
expect an_old_file_is_updated 0 'configuration updated at old.yaml' out
check it_has_the_new_keys grep -qx 'mixed_precision: fp16' old.yaml
check and_its_own grep -qx '  fsdp_sharding_strategy: 1' old.yaml
cp old.yaml before.yaml
echo 'num_proceses: 2' >>old.yaml
cp old.yaml wrong.yaml
run config update old.yaml
expect an_unknown_key_is_not_dropped 1 'old.yaml:[0-9]+: num_proceses is not a key .*did you mean num_processes'
check the_file_is_as_it_was cmp -s old.yaml wrong.yaml
run config -o c.json num_processes=2
check a_json_name_gets_json grep -qx '  "num_processes": 2,' c.json
run config explain c.json
check which_is_read_too shows '^ranks +2'
run config update --config_file none.yaml
expect a_missing_file_is_an_error 1 'none.yaml'
printf 'distributed_type: FSDP\nnum_machines: 2\nnum_processes: 4\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n' >hybrid.yaml
for what in explain update convert; do
    cp hybrid.yaml other.yaml
    run config $what hybrid.yaml --config-file other.yaml
    expect "two_files_are_refused_by_$what" 2 'two files are given: hybrid.yaml, and --config-file other.yaml'
    cmp -s hybrid.yaml other.yaml && ok "which_${what}_leaves_alone" || bad "which_${what}_leaves_alone" "changed"
done
run config explain hybrid.yaml
check a_hybrid_strategy_has_a_replica_on_each_machine shows '^replicas +2, each sharded over 2 rank'
run config explain hybrid.yaml --model tiny
check and_so_has_the_plan shows 'of gradients, and [0-9.]+ KiB are added over the replicas'
run config to-fsdp2 hybrid.yaml -o mesh.yaml
expect a_hybrid_strategy_becomes_a_mesh 0 'parallelism_config with 2 replicas of 2 shards'
{ cat hybrid.yaml; printf 'parallelism_config: {parallelism_config_dp_replicate_size: 4, parallelism_config_dp_shard_size: 1}\n'; } >own.yaml
run config to-fsdp2 own.yaml -o own2.yaml
expect a_mesh_of_the_file_is_kept 0 'the parallelism_config that the file has is kept'
check with_its_sizes grep -q 'dp_replicate_size: 4$' own2.yaml
run config -o - num_processes=4 use_parallelism_config=yes dp_replicate_size=5 dp_shard_size=3689348814741910324
expect a_product_that_overflows_is_no_number_of_ranks 2 'dp_replicate_size=5 times dp_shard_size=3689348814741910324 is not num_processes=4'
# --- what the launcher refuses, explain refuses with the same words ---
printf 'distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\nparallelism_config: {tp_size: 2}\n' >tp.yaml
run launch --config_file tp.yaml train --model tiny
tp=$(sed -n 's/^fsdp launch: //p' err)
run config explain tp.yaml
check the_words_are_the_same [ $rc -ne 0 -a -n "$tp" -a "$(sed -n 's/^fsdp config explain: //p' err)" = "$tp" ]
printf 'distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\nfsdp_config: {fsdp_version: 2}\nparallelism_config: {dp_replicate_size: 2}\n' >hsdp.yaml
train 2 --config hsdp.yaml --max-steps 2
check replicas_of_a_file_are_replicas shows 'bfloat16 compute, .*HYBRID_SHARD'
keep by_file
run config explain hsdp.yaml
check and_are_explained shows '^replicas +2, each sharded over 1 rank'
rm -rf o
run launch --config_file hsdp.yaml train --model tiny --from-config --data ids.jsonl --output o --epochs 1 --batch-size 4 --num-workers 0 --metrics m.jsonl --max-steps 2
keep by_launch
check the_launcher_means_the_same same by_file by_launch
train 1 --config hsdp.yaml --max-steps 2
refused another_number_of_ranks_is_refused "dp_replicate_size times dp_shard_size are 2 ranks, but there is 1"
fails_on_a_full_disk a_full_disk_is_an_error config -o - num_processes=3
run config -o - distributed_type=MULTI_GPU num_processes=2
check several_cards_are_not_fsdp grep -qx 'distributed_type: MULTI_GPU' out
for choice in 5 multi-GPU; do
    run config -o - distributed_type=$choice num_processes=2
    check "nor_are_they_as_$choice" grep -qx 'distributed_type: MULTI_GPU' out
done
run config -o - distributed_type=MULTI_GPU use_fsdp=yes num_processes=2
check unless_it_is_asked_for grep -qx 'distributed_type: FSDP' out
# --- a signal during a menu leaves the terminal as it was ---
if script -qec true /dev/null >/dev/null 2>&1; then
    cat >menu.sh <<'end'
stty -g >before
(
    until grep -q 'arrow or number keys' typed; do sleep 0.1; done
    sleep 0.2
    stty -g </dev/tty >during
    kill -TERM "$(cat pid)"
) &
sh -c 'echo $$ >pid; exec "$0" config -o menu.yaml' "$1"
stty -g >after
end
    # script(1) passes the end of its input on, which would end the menu. This pipe has no end.
    mkfifo keys
    TERM=xterm capture timeout 30 script -qefc "sh menu.sh '$fsdp'" typed <>keys
    check a_menu_changes_the_terminal [ -s during -a "$(cat before)" != "$(cat during)" ]
    check a_signal_leaves_it_as_before cmp -s before after
else
    skip a_signal_leaves_it_as_before 'there is no script(1)'
fi
tally
