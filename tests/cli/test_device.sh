#!/bin/sh
# --device and $FSDP_DEVICE of all commands, `fsdp env`, and `fsdp launch` with cards. The testing
# program has the emulator of CUDA, which has $EMU_DEVICES cards.
# usage: FSDP_BUILD=build tests/cli/test_device.sh
. "$(dirname "$0")/lib.sh"
unset FSDP_DEVICE CUDA_VISIBLE_DEVICES
[ ! -e "$build/fsdp-testing" ] || fsdp=$build/fsdp-testing

tiny_t5 tiny 16 4 3 24 2 67
id_rows 12 >ids.jsonl
train="train --model tiny --from-config --data ids.jsonl --output o --overwrite-output --batch-size 3 --max-steps 1"
# A case of `fsdp verify` without products: only the header counts here.
mkdir nothing

# --- names ---
for command in "$train" "verify nothing" "generate --model tiny x" \
    "evaluate --model tiny --data ids.jsonl" "bench train --ranks 1" "plan --model tiny"; do
    # shellcheck disable=SC2086
    run $command --device gpu
    expect "${command%% *}_refuses_an_unknown_device" 2 "--device: unknown device 'gpu' \\(known: cpu, meta, cuda, cuda:N, .*auto\\)"
    # shellcheck disable=SC2086
    run $command --device cuda:one
    expect "${command%% *}_refuses_an_unknown_card" 2 'the number of a card, as in cuda:1'
    [ "${command%% *}" != plan ] || continue
    # shellcheck disable=SC2086
    FSDP_DEVICE=meta run $command
    expect "${command%% *}_refuses_meta" 2 "FSDP_DEVICE: device meta computes nothing: 'fsdp plan'"
done

# --- the CPU, by all its names ---
for flags in '--device cpu' --use-cpu --no-cuda '--device-id 0 --device cpu' ''; do
    # shellcheck disable=SC2086
    CUDA_VISIBLE_DEVICES='' run $train $flags
    expect "train${flags:+ $flags} computes on the CPU" 0 '^device: cpu$' out
done
printf 'use_cpu: true\n' >cpu.yaml
if ! lacks libyaml; then
    # shellcheck disable=SC2086
    FSDP_DEVICE=cuda run $train --config cpu.yaml
    expect a_file_s_use_cpu_overrules_the_environment 0 '^device: cpu$' out
fi
run verify nothing --device cpu
check verify_says_its_device shows '^device: cpu$'
run bench train --ranks 1 --steps 2 --batch 1 --seq 8 --shape tiny --device cpu --json
expect bench_says_its_device 0 '"device": "cpu"' out

# --- auto ---
run verify nothing
if "$fsdp" --version | grep -q 'cuda:0 .*emulated\|^devices:.*no cuda'; then
    check auto_takes_no_emulator shows '^device: cpu$'
fi

# --- env ---
run env
expect env_shows_version_machine_and_settings 0 '^fsdp [0-9]' out
check env_shows_the_machine shows '^  processors +[0-9]+ '
FSDP_DEVICE=cpu run env
check env_shows_settings shows '^  FSDP_DEVICE=cpu$'

# --- cards ---
if ! "$fsdp" --version | grep -q 'cuda:0 .*emulated'; then
    skip cards "this program has no emulator of CUDA"
    run verify nothing --device cuda
    "$fsdp" --version | grep -q '^devices:.*no cuda' &&
        expect a_build_without_cuda_says_so 2 'device cuda: this build has none'
    tally
    exit
fi
EMU_DEVICES=3 run env
expect env_lists_cards 0 '^  cuda:2 +emulated, 4.000 GiB, compute capability 9.0' out
check env_lists_no_other_cards test "$(grep -c '^  cuda:[0-9]' out)" -eq 3
check env_says_whether_cards_reach_each_other shows '^  copies +each card can write to the others$'
EMU_DEVICES=3 run launch -n gpu sh -c 'echo rank'
check gpu_starts_a_rank_for_each_card test "$rc" -eq 0 -a "$(grep -c rank out)" -eq 3
EMU_DEVICES=3 run verify nothing --device cuda:2
check a_card_is_named shows '^device: cuda:2 \(emulated, 4\.0 GiB\)$'
EMU_DEVICES=3 run verify nothing --device cuda:3
expect a_card_that_is_not_there_is_refused 1 "device cuda:3: this machine has 3 cards, cuda:0 and so on; 'fsdp env' lists them"
FSDP_DEVICE=cuda run verify nothing
check the_environment_names_a_card shows '^device: cuda:0 '
# The release was built without CUDA, or has no card here.
if [ "$fsdp" != "$build/fsdp" ] && ! "$build/fsdp" --version | grep -q '^  cuda:0'; then
    capture "$build/fsdp" verify nothing --device cuda
    if [ "$rc" -ne 0 ] && says 'device cuda: (no card|this build has none)'; then ok cuda_without_a_card_is_an_error
    else bad cuda_without_a_card_is_an_error "exit code $rc"; fi
fi

# --- plan ---
run plan --model tiny --device cuda --world-size 2 --json
expect a_plan_for_cards_is_made_anywhere 0 '"device": "cuda", "ranks_per_card": 1, "card_bytes": [0-9]+' out
check its_memory_grows_by_2_mib test "$(($(number reserved) % 2097152))" -eq 0
run plan --model tiny --device cuda:1 --world-size 2 --json
check ranks_of_one_card_are_counted_together test "$(number card_bytes)" -eq "$((2 * $(number reserved)))"
run plan --model tiny --device cuda --device-id 1 --world-size 2
check a_card_of_fsdp1_is_one_card shows '^card: 2 ranks, '
run plan --model tiny --device cuda --memory-limit 3MiB --batch-size 64 --max-source-length 512
expect a_limit_is_that_of_a_card 1 '--memory-limit 3.000 MiB: the 1 rank of a card would hold .*between tensors'

tally
