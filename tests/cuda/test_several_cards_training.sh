#!/bin/sh
# Ranks that are processes, with an emulated card each: training has the bits of one rank, checkpoints are
# saved and resumed, and a layout of ranks on cards that is not supported is refused. Bytes are copied from
# card to card, since the emulated NCCL connects threads only (tests/cuda/test_several_cards.c).
# usage: FSDP_BUILD=build tests/cuda/test_several_cards_training.sh
FSDP_DEVICE=cuda EMU_DEVICES=4 EMU_LATE_MS=1 EMU_PROTECT=0
export FSDP_DEVICE EMU_DEVICES EMU_LATE_MS EMU_PROTECT
. "$(dirname "$0")/../cli/lib.sh"
case $("$fsdp" --version) in
*cuda:0*) ;;
*) skip several_cards_training "this build has no device cuda"; tally; exit ;;
esac
model=$golden/llama2/model
awk 'BEGIN { srand(5); for (i = 0; i < 12; i++) { line = ""; for (k = 0; k < 9; k++)
    line = line (k ? ", " : "") int(3 + rand() * 80); printf "{\"input_ids\": [%s]}\n", line } }' >rows.jsonl

# trained RUN DEVICE RANKS FLAGS: trains two steps of eight rows
trained() {
    to=$1 device=$2 ranks=$3
    shift 3
    run launch -n "$ranks" train --model "$model" --data rows.jsonl --batch-size 2 --lr 0.003 \
        --gradient-accumulation-steps $((4 / ranks)) --max-steps 2 --device "$device" \
        --output "$to" --overwrite-output "$@"
}
# same NAME FILE
same() { check "$1" cmp "one/$2" "many/$2"; }

trained one cuda:0 1 --bf16
expect one_rank_trains_on_a_card 0
trained many cuda 4 --bf16 --sharding-strategy HYBRID_SHARD --shard-size 2
expect replicas_of_shards_train_on_four_cards 0 'a card for each rank, bytes between cards by copy' out
same four_cards_give_the_bits_of_one_rank model.safetensors
if shows "^memory of each rank's card:" && [ "$(grep -c '^│ rank' out)" -eq 4 ]; then
    ok the_memory_of_each_card_is_reported
else bad the_memory_of_each_card_is_reported "$(cat out)"; fi

trained one cuda:0 1 --save-steps 1
expect one_rank_trains_in_float32 0
trained many cuda 2 --save-steps 1
expect two_cards_train_and_save_checkpoints 0
same two_cards_give_the_bits_of_one_rank model.safetensors
mkdir first
cp many/model.safetensors first
trained many cuda 2 --save-steps 1 --resume many-checkpoints/checkpoint-1
expect two_cards_resume 0
check a_resumed_run_has_the_same_bits cmp first/model.safetensors many/model.safetensors
run launch -n 2 evaluate --model many --data rows.jsonl --device cuda
expect two_cards_evaluate 0 loss out
grep -i loss out >two.loss
run launch -n 1 evaluate --model one --data rows.jsonl --device cuda:0
grep -i loss out >one.loss
check evaluation_has_the_loss_of_one_rank cmp one.loss two.loss
printf '{"input_ids": [5, 6, 7, 8]}\n{"input_ids": [9, 10, 11]}\n' >prompts.jsonl
run launch -n 2 generate --model many --input-ids prompts.jsonl --max-new-tokens 4 --device cuda
expect two_cards_generate 0
cp out two.ids
run generate --model many --input-ids prompts.jsonl --max-new-tokens 4 --device cuda:0
check generation_has_the_tokens_of_one_rank cmp out two.ids

trained one cuda:0 1 --load-in-4bit --lora-r 4 --lora-target-modules all-linear --use-dora
trained many cuda 2 --load-in-4bit --lora-r 4 --lora-target-modules all-linear --use-dora
expect nf4_and_dora_train_on_two_cards 0
same nf4_and_dora_give_the_bits_of_one_rank adapter_model.safetensors
trained one cuda:0 1 --bf16 --float8-recipe tensorwise --float8-enable-fsdp-all-gather --optimizer muon
trained many cuda 2 --bf16 --float8-recipe tensorwise --float8-enable-fsdp-all-gather --optimizer muon
expect float8_and_muon_train_on_two_cards 0
same float8_and_muon_give_the_bits_of_one_rank model.safetensors

EMU_DEVICES=2 trained many cuda 4
expect ranks_that_share_some_cards_are_refused 1 'ranks 0 and 2 use one card, and rank 1 uses another card'
FSDP_CARD_EXCHANGE=nccl trained many cuda 2
expect a_missing_library_is_named 1 'nvidia-nccl-cu13'
# The rows have 9 tokens, so the plan is for rows of 9 tokens.
trained many cuda 4 --no-save-model
expect four_cards_train 0
memory=$(sed -n 's/^│ rank 3 .*│ *\([0-9.]* [KM]iB\) │ *\([0-9.]* [KM]iB\) │$/\1 \2/p' out)
run plan --world-size 4 --model "$model" --data rows.jsonl --batch-size 2 --lr 0.003 --max-steps 2 --device cuda \
    --max-length 9
expect four_cards_are_planned 0 '^card: 1 rank,' out
planned=$(sed -n -e 's/^peak: .*, //p' -e 's/^held by the allocator: //p' out | tr '\n' ' ')
check the_plan_has_the_bytes_of_the_run [ "$memory " = "$planned" ]
tally
