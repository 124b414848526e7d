#!/bin/sh
# Arrow folders as a user gives them: training has the losses of JSON lines with the same rows, on two
# ranks as well; which split is read by which command; what is refused.
# usage: FSDP_BUILD=build tests/cli/test_arrow.sh
. "$(dirname "$0")/lib.sh"
needs flatbuffers
arrow=$fixtures/arrow
model=$golden/t5_v1_1/model

# The rows of the folders "splits" and "shards".
cat >"$dir/train.jsonl" <<'ROWS'
{"input_ids": [5, 6, 7, 1], "labels": [5, 1]}
{"input_ids": [8, 9, 1], "labels": [6, 1]}
{"input_ids": [3, 1], "labels": [7, -100, 1]}
{"input_ids": [4, 4, 4, 1], "labels": [8, 1]}
{"input_ids": [2, 1], "labels": [9, 1]}
ROWS
{ sed -n 4p "$dir/train.jsonl"; sed -n 2p "$dir/train.jsonl"; } >"$dir/validation.jsonl"

train() { # METRICS OPTIONS...
    metrics=$1
    shift
    run train --model "$model" --epochs 2 --batch-size 2 --lr 0.01 --no-save-model --metrics "$dir/$metrics" "$@"
}
losses() { sed -nE 's/.*"kind": "(step|validation)", "step": ([0-9]+).*"loss": ([^,]*),.*/\1 \2 \3/p' "$dir/$1"; }
train jsonl --data "$dir/train.jsonl" --validation-data "$dir/validation.jsonl"
check json_lines_are_trained_on test $rc -eq 0
losses jsonl >"$dir/expected"
check there_are_losses test "$(wc -l <"$dir/expected")" -ge 4
train splits --dataset "$arrow/splits"
expect a_dict_is_trained_on 0 'splits/train: not used: .idx.'
losses splits >"$dir/found"
check its_own_split_is_for_validation cmp -s "$dir/expected" "$dir/found"
train shards --data "$arrow/shards" --validation-data "$arrow/splits" --num-workers 2
losses shards >"$dir/found"
check a_split_and_a_dict_give_the_same_losses cmp -s "$dir/expected" "$dir/found"
train pattern --data "$arrow/shards/*.arrow" --validation-data "$arrow/splits"
losses pattern >"$dir/found"
check so_do_the_files_of_a_pattern cmp -s "$dir/expected" "$dir/found"
train nothing --data "$arrow/shards/[x].arrow"
expect a_pattern_without_files_is_named 1 'shards/.x..arrow: no file matches'
train none --data "$arrow/splits" --no-run-validation
check validation_can_be_turned_off test "$rc $(grep -c '"kind": "validation"' "$dir/none")" = "0 0"
on_two_ranks() {
    metrics=$1
    shift
    run launch -n 2 train --model "$model" --epochs 1 --batch-size 1 --lr 0.01 --no-save-model \
        --metrics "$dir/$metrics" "$@"
}
on_two_ranks two_jsonl --data "$dir/train.jsonl" --validation-data "$dir/validation.jsonl"
losses two_jsonl >"$dir/expected"
on_two_ranks two_splits --data "$arrow/splits"
losses two_splits >"$dir/found"
check two_ranks_train_on_a_dict test "$rc" -eq 0
check two_ranks_have_the_same_losses cmp -s "$dir/expected" "$dir/found"

run evaluate --model "$model" --data "$dir/validation.jsonl" --no-generate --json
loss=$(number loss)
run evaluate --model "$model" --data "$arrow/splits" --no-generate --json
check evaluate_reads_the_split_for_validation test "$rc $(number loss)" = "0 $loss"

sed 's/, "labels".*/}/' "$dir/validation.jsonl" >"$dir/prompts.jsonl"
run generate --model "$model" --input-ids "$dir/prompts.jsonl" --max-new-tokens 4
cp "$dir/out" "$dir/expected"
run generate --model "$model" --input-ids "$arrow/splits" --max-new-tokens 4
check generate_takes_the_ids test "$rc" -eq 0
check generate_writes_the_same_ids cmp -s "$dir/expected" "$dir/out"
check columns_that_are_not_used_are_named says "not used: 'labels', 'idx'"

run plan --model "$model" --data "$dir/train.jsonl" --no-save-model
sed 's/train.jsonl/DATA/' "$dir/out" >"$dir/expected"
run plan --model "$model" --data "$arrow/splits" --no-save-model
check plan_sees_the_same_rows cmp -s "$dir/expected" "$dir/out"

# --- errors ---
run train --model "$model" --data "$arrow/pairs/test" --no-save-model
expect rows_of_another_task_are_refused 1 'pairs/test/data-00000-of-00001.arrow: row 0: row: labels: missing'
printf 'PAR1xxxx' >"$dir/rows.parquet"
run train --model "$model" --data "$dir/rows.parquet" --no-save-model
expect parquet_is_refused_with_the_conversion 1 'a Parquet file: in Python, datasets.Dataset.from_parquet'
cp -r "$arrow/splits" "$dir/dict"
printf '{"splits": ["a", "b"]}' >"$dir/dict/dataset_dict.json"
run train --model "$model" --data "$dir/dict" --no-save-model
expect a_missing_split_is_named 1 "without a split 'train'; its splits are: a, b"
run train --model "$model" --data "$arrow/splits" --no-save-model --wikihow-cleaning
expect cleaning_is_refused 1 'wikihow-cleaning is for rows that are pairs of texts'
tally
