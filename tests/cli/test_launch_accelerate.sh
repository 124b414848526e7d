#!/bin/sh
# `fsdp launch` with Accelerate's files and flags, and with torchrun's: the environment of the ranks
# key by key, the default file, Python scripts, and training with a file from beginning to end.
# usage: FSDP_BUILD=build tests/cli/test_launch_accelerate.sh
. "$(dirname "$0")/lib.sh"
unset OMP_NUM_THREADS
"$fsdp" --version | grep -q '^ *libyaml *not found' && { skip test_launch_accelerate "built without libyaml"; tally; exit; }

# environment ARGUMENTS...: the variables of rank 1 that the launcher adds, sorted, in the file env
environment() {
    env -i PATH="$PATH" HF_HOME="$HF_HOME" "$fsdp" launch "$@" sh -c '[ $RANK != 1 ] || env | sort' >all 2>err
    rc=$?
    # values that differ from run to run
    grep -v -e '^PATH=' -e '^HF_HOME=' -e '^PWD=' -e '^_=' -e '^SHLVL=' all | sed \
        -e 's|^\(TORCHELASTIC_ERROR_FILE\)=.*|\1|' -e 's|^\(FSDP_RENDEZVOUS\)=.*|\1|' \
        -e 's|^\(FSDP_LAUNCHER_PID\)=.*|\1|' -e 's|^\(MASTER_PORT\)=[3-6][0-9]*$|\1|' \
        -e 's|^\(TORCHELASTIC_RUN_ID\)=[0-9a-f-]\{36\}$|\1|' >env
}
# same NAME: env must equal the file expected
same() {
    if [ "$rc" -eq 0 ] && LC_ALL=C sort expected | diff - env >out; then ok "$1"; else bad "$1" "other variables"; fi
}

# What torchrun 2.15 and accelerate 1.15 set. The exceptions of docs/launch.md: no store of an agent,
# and the variables by which fsdp's own ranks meet.
cat >torchrun <<'END'
FSDP_LAUNCHER_PID
FSDP_LAUNCH_OMP_DEFAULT=1
FSDP_LAUNCH_ROUND=0
FSDP_RENDEZVOUS
GROUP_RANK=0
GROUP_WORLD_SIZE=1
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
OMP_NUM_THREADS=1
RANK=1
ROLE_NAME=default
ROLE_RANK=1
ROLE_WORLD_SIZE=2
TORCHELASTIC_ERROR_FILE
TORCHELASTIC_MAX_RESTARTS=0
TORCHELASTIC_RESTART_COUNT=0
TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT
TORCHELASTIC_USE_AGENT_STORE=False
TORCH_NCCL_ASYNC_ERROR_HANDLING=1
WORLD_SIZE=2
END
LC_ALL=C
export LC_ALL
{ cat torchrun; printf '%s\n' MASTER_ADDR=localhost MASTER_PORT TORCHELASTIC_RUN_ID; } >expected
environment --standalone --nproc-per-node=2
same standalone_ranks_have_torchruns_environment
environment --nproc-per-node=2
same and_so_have_ranks_without_it
{ cat torchrun; printf '%s\n' MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 TORCHELASTIC_RUN_ID=none; } >expected
environment --nnodes=1 --nproc-per-node=2 --master-addr=127.0.0.1 --master-port=29511 --node-rank=0
same and_with_a_port

# the file of a tutorial; fsdp_backward_prefetch_policy reaches the ranks here
cat >seed.yaml <<'END'
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch_policy: BACKWARD_PRE
  fsdp_forward_prefetch: false
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
END
cat >accelerate <<'END'
ACCELERATE_DYNAMO_BACKEND=NO
ACCELERATE_DYNAMO_MODE=default
ACCELERATE_DYNAMO_USE_DYNAMIC=False
ACCELERATE_DYNAMO_USE_FULLGRAPH=False
ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=False
ACCELERATE_MIXED_PRECISION=bf16
ACCELERATE_USE_FSDP=true
FSDP_ACTIVATION_CHECKPOINTING=false
FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD=false
FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP
FSDP_BACKWARD_PREFETCH=BACKWARD_PRE
FSDP_CPU_RAM_EFFICIENT_LOADING=true
FSDP_FORWARD_PREFETCH=false
FSDP_MIN_NUM_PARAMS=100000000
FSDP_OFFLOAD_PARAMS=false
FSDP_RESHARD_AFTER_FORWARD=true
FSDP_SHARDING_STRATEGY=FULL_SHARD
FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT
FSDP_SYNC_MODULE_STATES=true
FSDP_TRANSFORMER_CLS_TO_WRAP=LlamaDecoderLayer
FSDP_USE_ORIG_PARAMS=true
FSDP_VERSION=1
END
{ cat torchrun accelerate; printf '%s\n' MASTER_ADDR=127.0.0.1 MASTER_PORT=29617 TORCHELASTIC_RUN_ID=none; } >expected
environment --config_file seed.yaml --main_process_port 29617
same ranks_have_accelerates_environment
check the_first_line_names_the_file [ "$(head -n 1 err)" = 'fsdp launch: configuration from seed.yaml' -a "$(wc -l <err)" -eq 1 ]
{ grep -v -e FORWARD=true -e STRATEGY -e PRECISION expected; printf '%s\n' FSDP_RESHARD_AFTER_FORWARD=shard_grad_op \
    FSDP_SHARDING_STRATEGY=FULL_SHARD ACCELERATE_MIXED_PRECISION=no; } >other && mv other expected
sed -e 's/sharding_strategy: FULL_SHARD/reshard_after_forward: SHARD_GRAD_OP/' -e "s/: bf16/: 'no'/" seed.yaml >newer.yaml
environment --config_file newer.yaml --main_process_port 29617
same and_with_the_keys_of_newer_files

# --- the default file ---
mkdir -p hf/accelerate
cp seed.yaml hf/accelerate/default_config.yaml
capture "$fsdp" launch sh -c 'echo $WORLD_SIZE $ACCELERATE_MIXED_PRECISION'
expect the_default_file_is_read 0 "^fsdp launch: configuration from $HF_HOME/accelerate/default_config.yaml$"
check by_all_ranks [ "$(sort -u out)" = '2 bf16' ]
capture "$fsdp" launch --config_file none -n 1 sh -c 'echo $WORLD_SIZE $ACCELERATE_MIXED_PRECISION'
check unless_none_is_wanted [ "$(cat out)" = 1 -a ! -s err ]
echo 'color: red' >hf/accelerate/default_config.yaml
capture "$fsdp" launch -n 1 true
expect a_wrong_key_in_it_is_an_error 2 "default file \(--config none reads no file\): .*default_config.yaml:1: unknown option 'color'"
printf 'num_processes: 2\nnum_machines: 2\n' >hf/accelerate/default_config.yaml
capture "$fsdp" launch -n 1 true
expect and_so_is_a_wrong_value 2 'default_config.yaml:2: num_machines: 2: say where the hosts meet.*--config_file none reads no file'
rm -r hf
capture "$fsdp" launch --config_file nothing.yaml -n 1 true
expect a_file_that_does_not_exist_is_an_error 2 'nothing.yaml: No such file'

# --- ports ---
capture "$fsdp" launch --main_process_port 0 --num_processes 2 sh -c 'echo $MASTER_PORT'
check port_0_is_a_free_one [ "$(sort -u out | wc -l)" -eq 1 -a "$(sort -u out)" -gt 1023 ]

# --- what a machine without effect lists ---
capture "$fsdp" launch --rdzv-conf a=b --local-addr h --monitor-interval 5 -n 1 sh -c :
expect what_has_no_effect_has_a_heading 0 '^fsdp launch: accepted, without effect here:$'
check and_is_listed_once [ "$(grep -c -- '--rdzv-conf, --local-addr: ranks of one host' err)" -eq 1 ]

# --- Python scripts ---
: >T5_training.py
capture "$fsdp" launch -n 2 T5_training.py --epochs 1
expect a_python_script_gets_a_hint 2 "T5_training.py is a Python script.*fsdp launch -n N train --model t5-base.*examples/t5_wikihow, which is this script"
capture "$fsdp" launch -n 2 dir/run-glue.py
expect by_its_name 2 'train --task classification'
capture "$fsdp" launch -n 2 my_own.py
expect or_the_general_one 2 'fsdp launch -n N train --model DIR .*fsdp launch -n N python3 my_own.py'
printf '#!/bin/sh\necho ran $RANK\n' >program.py
chmod +x program.py
capture "$fsdp" launch -n 1 ./program.py
check a_program_of_that_name_runs [ "$(cat out)" = 'ran 0' ]

# --- the prefix of lines ---
capture "$fsdp" launch --nproc-per-node=2 --role=trainer '--log-line-prefix-template=[${role_name}:${rank}:${local_rank}]: ' \
    --log-dir logs -t 3 sh -c 'echo out $RANK'
check lines_begin_as_the_template_says [ "$(sort out)" = "[trainer:0:0]: out 0
[trainer:1:1]: out 1" ]

# --- training with a file ---
model=$golden/llama3/model
i=0
while [ $i -lt 16 ]; do echo "{\"input_ids\": [$((i + 3)), 8, 9, $((i + 1)), 5]}"; i=$((i + 1)); done >ids.jsonl
# train RANKS OUTPUT ARGUMENTS...: three steps with seed.yaml
train() {
    ranks=$1 output=$2
    shift 2
    capture "$fsdp" launch --config_file seed.yaml --num_processes "$ranks" train --model "$model" --data ids.jsonl \
        --output "$output" --batch-size 1 --max-steps 3 --metrics "$output.jsonl" "$@"
}
for ranks in 2 4; do
    train $ranks whole$ranks
    expect "training_takes_the_file_with_$ranks" 0
    train $ranks part$ranks --save-steps 2
    rm -rf part$ranks-checkpoints/checkpoint-3 part$ranks
    train $ranks part$ranks --save-steps 2 --resume auto
    expect "and_resumes_with_$ranks" 0 'part[24]-checkpoints/checkpoint-2' out
    check "to_the_same_model_with_$ranks" cmp -s whole$ranks/model.safetensors part$ranks/model.safetensors
done
capture "$fsdp" launch --config_file none -n 2 train --model "$model" --data ids.jsonl --output flags --batch-size 1 \
    --max-steps 3 --bf16 --transformer-layer-cls-to-wrap LlamaDecoderLayer
check flags_give_the_same_model cmp -s whole2/model.safetensors flags/model.safetensors
capture "$fsdp" launch --config_file none -n 2 train --model "$model" --data ids.jsonl --output full --batch-size 1 --max-steps 3
differ() { [ -s "$2" ] && ! cmp -s "$1" "$2"; }
check and_float32_another differ whole2/model.safetensors full/model.safetensors
capture "$fsdp" launch --config_file seed.yaml train --model "$model" --data ids.jsonl --output x --print-config
expect values_show_their_origin 0 '^mixed-precision: bf16 +# environment ACCELERATE_MIXED_PRECISION$' out
capture "$fsdp" launch --config_file seed.yaml train --model "$model" --data ids.jsonl --output x --print-config --mixed-precision no
expect a_flag_of_train_wins 0 '^mixed-precision: no +# flag --mixed-precision$' out
sed 's/LlamaDecoderLayer/BertLayer/' seed.yaml >bert.yaml
capture "$fsdp" launch --config_file bert.yaml train --model "$model" --data ids.jsonl --output x --max-steps 1
expect a_class_of_another_model_is_named 1 'BertLayer'

# --- a strategy by its number ---
capture env FSDP_VERSION=1 FSDP_RESHARD_AFTER_FORWARD=2 "$fsdp" train --model "$model" --data ids.jsonl --output n \
    --max-steps 1
expect a_number_of_the_menu_is_a_strategy 0 '^ranks: .*SHARD_GRAD_OP' out
printf 'fsdp_version: 1\nfsdp_reshard_after_forward: 3\n' >number.yaml
capture "$fsdp" train --config number.yaml --model "$model" --data ids.jsonl --output n2 --max-steps 1
expect also_in_a_file_of_train 0 '^ranks: .*NO_SHARD' out
capture env FSDP_VERSION=1 "$fsdp" launch --config_file none -n 2 train --reshard-after-forward 2 --model "$model" \
    --data ids.jsonl --output n3 --max-steps 1
expect a_flag_is_a_number_of_ranks 0 '^ranks: .*FULL_SHARD' out

# --- train --devices is several ranks of train, not of a file ---
mkdir -p "$HF_HOME/accelerate"
echo 'mixed_precision: bf16' >"$HF_HOME/accelerate/default_config.yaml"
capture "$fsdp" train --devices 2 --model "$model" --data ids.jsonl --output d --max-steps 1
expect devices_read_no_default_file 0 '^ranks: 2 .*float32 compute' out
capture "$fsdp" launch -n 2 train --model "$model" --data ids.jsonl --output d2 --max-steps 1
expect launch_reads_it 0 '^ranks: 2 .*bfloat16 compute' out
rm "$HF_HOME/accelerate/default_config.yaml"
tally
