#!/bin/sh
# Files and folders that are not weights, or are weights of another program: every command that
# opens them reports what they are and what to do.
# usage: FSDP_BUILD=build tests/cli/test_foreign_files.sh
. "$(dirname "$0")/lib.sh"
LC_ALL=C # tables in ASCII
export LC_ALL

# folder NAME: a model's folder without weights
folder() {
    mkdir -p "$1"
    cp "$golden/gpt2_tiny/model/config.json" "$1"
}
printf '{"input_ids": [3, 1, 4], "labels": [3, 1, 4]}\n' >rows.jsonl
# every_command NAME PATH FILE TEXT: all commands that read the weights FILE of the folder PATH
every_command() {
    run evaluate --model "$2" --data rows.jsonl
    expect "evaluate_says_of_$1" 1 "$4"
    run train --model "$2" --data rows.jsonl --max-steps 1 --no-save-model
    expect "train_says_of_$1" 1 "$4"
    run checkpoint inspect "$2/$3"
    expect "inspect_says_of_$1" 1 "$4"
    run checkpoint convert "$2" converted
    expect "convert_says_of_$1" 1 "$4"
    run checkpoint verify "$2"
    expect "verify_says_of_$1" 1 "$4" out
    check "nothing_is_left_of_$1" test ! -e converted
}

# --- files of another kind ---

pointer='version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n'
folder lfs
printf "$pointer" >lfs/model.safetensors
every_command a_git_lfs_pointer lfs model.safetensors "lfs/model\.safetensors: not a safetensors file, but a Git LFS pointer .*run 'git lfs pull'"
folder lfsbin
printf "$pointer" >lfsbin/pytorch_model.bin
every_command a_pointer_for_a_bin lfsbin pytorch_model.bin "not a file of torch\.save, but a Git LFS pointer"
folder page
printf '<!DOCTYPE html>\n<html><body>Log in</body></html>\n' >page/model.safetensors
every_command a_web_page page model.safetensors 'but a web page \(HTML\)'
folder empty
: >empty/pytorch_model.bin
every_command an_empty_file empty pytorch_model.bin 'pytorch_model\.bin: not a file of torch\.save, but an empty file'
folder packed
gzip -c "$golden/gpt2_tiny/model/model.safetensors" >packed/model.safetensors
every_command a_compressed_file packed model.safetensors 'but gzip-compressed data: decompress it first'
folder swapped
cp "$golden/gpt2_tiny/model/model.safetensors" swapped/pytorch_model.bin
every_command a_safetensors_named_bin swapped pytorch_model.bin 'but a safetensors file: give it a name that ends in \.safetensors'
folder dangling
ln -s ../blobs/0123 dangling/model.safetensors
every_command a_dangling_link dangling model.safetensors 'model\.safetensors: cannot open: a symbolic link to \.\./blobs/0123, which does not exist'
folder within
mkdir within/model.safetensors
every_command a_folder_in_place_of_a_file within model.safetensors 'model\.safetensors'

# A checkpoint of torch.distributed.checkpoint.
cp -r "$fixtures/dcp/hand" dcp
printf "$pointer" >dcp/__1_0.distcp
run checkpoint inspect dcp
expect a_pointer_in_place_of_a_distcp 1 'dcp/__1_0\.distcp: not a file of torch\.distributed\.checkpoint, but a Git LFS pointer'
printf "$pointer" >dcp/.metadata
run checkpoint inspect dcp
expect a_pointer_in_place_of_metadata 1 'dcp/\.metadata: not metadata of torch\.distributed\.checkpoint, but a Git LFS pointer'

# --- files next to the weights ---

cp -r "$golden/gpt2_tiny/model" config
printf "$pointer" >config/config.json
run evaluate --model config --data rows.jsonl
expect a_pointer_in_place_of_the_configuration 1 'config/config\.json: not JSON, but a Git LFS pointer'
ln -sf nowhere config/config.json
run evaluate --model config --data rows.jsonl
expect a_dangling_configuration 1 'config/config\.json: cannot open: a symbolic link to nowhere, which does not exist'
if lacks utf8proc || lacks libcsv; then
    skip a_tokenizer_of_another_kind "built without utf8proc or libcsv"
else
    cp -r "$root/models/t5-debian-mini" tokenizer
    printf 'text,summary\na,b\n' >texts.csv
    printf "$pointer" >tokenizer/spiece.model
    run evaluate --model tokenizer --data texts.csv
    expect a_pointer_in_place_of_the_tokenizer 1 'spiece\.model: not a SentencePiece model, but a Git LFS pointer'
    ln -sf nowhere tokenizer/spiece.model
    run evaluate --model tokenizer --data texts.csv
    expect a_dangling_tokenizer 1 'spiece\.model: cannot open: a symbolic link to nowhere, which does not exist'
fi
cp -r "$fixtures/hf/llama_sharded" shards
rm shards/model-00002-of-00004.safetensors shards/model-00004-of-00004.safetensors
run checkpoint inspect shards
expect missing_shards_are_all_named 1 'index\.json: it names 4 files of weights, of which 2 are missing in its folder: model-00002-of-00004\.safetensors, model-00004-of-00004\.safetensors; get the missing ones'

# --- objects of classes in the same file as the tensors ---

run checkpoint inspect "$fixtures/torch/objects.pt"
check objects_are_listed_by_their_class shows '^\| args +\| <an object of argparse\.Namespace, not read> +\|$'
check with_what_is_beside_them shows '^\| state_dict\.w +\| float32 +\| \[2, 3\] '
check and_within_lists shows '^\| nested\.rates +\| \[<an object of numpy\..*scalar, not read>\]'
run checkpoint verify "$fixtures/torch/objects.pt"
expect a_file_with_objects_is_whole 0 'whole: 1 tensor, 10 plain values, 24 B$' out
run checkpoint convert "$fixtures/torch/objects.pt" objects.pt
expect what_is_left_out_is_noted 0 "note: 8 values are left out because objects of classes are not read: 'args', an object of argparse\.Namespace, and others$"
run checkpoint inspect objects.pt
check the_others_are_there shows '^\| nested\.steps +\| 4 '
run checkpoint convert "$fixtures/torch/objects.pt" objects.safetensors
check what_a_model_lacks_is_not_noted test $rc -eq 0 -a ! -s err
run checkpoint diff "$fixtures/torch/objects.pt" "$fixtures/torch/objects.pt"
check objects_are_not_compared shows '^8 values not compared: objects of classes are not read$'
run checkpoint inspect "$fixtures/dcp/objects"
check a_dcp_directory_with_an_object_is_listed shows '^\| args +\| <an object of argparse\.Namespace, not read> '
run checkpoint verify "$fixtures/dcp/objects"
expect and_is_whole 0 'whole: 1 tensor, 2 plain values, 24 B$' out
run checkpoint convert "$fixtures/dcp/objects" objects-dcp --format dcp
expect and_converted_without_it 0 "note: 1 value is left out .*: 'args', an object of argparse\.Namespace$"
run checkpoint inspect "$fixtures/torch/object.pt"
expect a_file_that_is_an_object_is_refused 1 'object\.pt: the whole file is an object of argparse\.Namespace, which is not read: no code is run'

# --- folders without a model ---

# no_model NAME DIR TEXT: checks the error for --model DIR
no_model() {
    run evaluate --model "$2" --data rows.jsonl
    expect "$1" 1 "$3"
}
tiny_t5 t5 12 4 3 20 1 67
run train --model t5 --from-config --data rows.jsonl --max-steps 1 --checkpoint-dir run --save-steps 1 --output trained
expect a_run_is_saved 0
own=run/checkpoint-1
no_model a_checkpoint_of_fsdp_train_is_no_model $own "$own: a checkpoint of 'fsdp train', not the folder of a model\. Make one of it: fsdp checkpoint convert $own NEW_DIR --format hf --model t5$"
no_model nor_is_the_folder_around_it run 'run: a folder around checkpoints \(checkpoint-1\).* fsdp checkpoint convert run/checkpoint-1 NEW_DIR'
run checkpoint convert $own made
expect the_model_of_the_run_is_taken 0 'note: config\.json and tokenizer are those of t5, as trainer_state\.json says'
run evaluate --model made --data rows.jsonl
expect and_the_result_is_a_model 0
cp $own/trainer_state.json state.json
sed 's/"model": "t5"/"model": "gone"/' state.json >$own/trainer_state.json
run checkpoint convert $own bare
expect a_folder_without_configuration_is_noted 0 'note: bare has no config\.json and no tokenizer: give --model'
no_model weights_alone_are_no_model bare 'bare: weights without config\.json, which says what model they are of'
run train --model t5 --from-config --data rows.jsonl --max-steps 1 --checkpoint-dir full --save-steps 1 --no-save-model --state-dict-type full_state_dict
expect a_run_is_saved_in_full 0
no_model a_full_checkpoint full/checkpoint-1 'fsdp checkpoint convert full/checkpoint-1/model_state_dict\.pt NEW_DIR'
no_model one_of_accelerate "$fixtures/accelerate/sharded" 'a checkpoint of Accelerate, not the folder of a model.* convert .*/sharded/pytorch_model_fsdp_0 NEW_DIR'
no_model one_of_pytorch "$fixtures/dcp/hand" 'a checkpoint of torch\.distributed\.checkpoint, not the folder of a model.* convert .*/dcp/hand NEW_DIR'
mkdir trainers
echo '{"global_step": 4, "log_history": []}' >trainers/trainer_state.json
no_model one_of_trainer_without_weights trainers "trainers: a checkpoint of transformers' Trainer, .* without weights"
mkdir saved
cp "$fixtures/torch/checkpoint.pt" saved/epoch3.pt
no_model a_folder_of_torch_save saved 'saved: a folder with files of weights, .* convert saved/epoch3\.pt NEW_DIR'
no_model a_file saved/epoch3.pt "model 'saved/epoch3\.pt' is a file; .* convert saved/epoch3\.pt NEW_DIR"
mkdir adapter
echo '{"peft_type": "LORA", "base_model_name_or_path": "t5-base"}' >adapter/adapter_config.json
cp "$golden/gpt2_tiny/model/model.safetensors" adapter/adapter_model.safetensors
no_model an_adapter adapter "adapter: an adapter, whose base model is needed .*'t5-base' is neither a directory nor"
run checkpoint convert adapter x
expect an_adapter_is_not_converted 1 'adapter: an adapter of PEFT for t5-base'
folder tf
: >tf/tf_model.h5
no_model weights_of_tensorflow tf 'tf: it has weights of TensorFlow \(tf_model\.h5\), .*from_tf=True'
folder flax
: >flax/flax_model.msgpack
no_model weights_of_flax flax 'from_flax=True'
run checkpoint inspect flax
expect inspect_says_so_too 1 'flax: it has weights of Flax'
folder shard
cp "$fixtures/hf/llama_sharded/model-00001-of-00004.safetensors" shard
no_model a_missing_index shard 'shard: no weights there but model-00001-of-00004\.safetensors, one of several files, whose index \(model\.safetensors\.index\.json\) is missing'

folder sparse
cp "$fixtures/torch/sparse.pt" sparse/pytorch_model.bin
run evaluate --model sparse --data rows.jsonl
expect a_tensor_that_is_not_plain_is_named 1 "pytorch_model\\.bin: 'q' is an object of torch\\._utils\\._rebuild_sparse_tensor, not a plain tensor"

# --- one file per rank ---

ranks=$fixtures/torch/ranks rank=model_world_size_4_rank_
for r in 0 3; do
    run checkpoint inspect "$ranks/$rank$r.pt"
    check "parts_of_all_ranks_are_joined_from_rank_$r" shows "^\\| model\\.boxes +\\| float32 +\\| \\[5, 3\\] +\\| +60 \\| boxes in 4 chunks, from ${rank}0\\.pt on"
    check "replicas_are_one_from_rank_$r" shows '^\| model\.replicas .*\| Shard\(0\) in 2 chunks'
    run checkpoint diff "$ranks/$rank$r.pt" "$ranks/whole.pt"
    expect "their_elements_are_those_of_the_whole_from_rank_$r" 0 '^9 tensors of both models compared, all the same in every bit$' out
done
run checkpoint verify "$ranks/${rank}1.pt"
expect and_verified 0 'whole: 9 tensors, 1 plain value' out
run checkpoint convert "$ranks/${rank}2.pt" joined.pt
run checkpoint diff joined.pt "$ranks/whole.pt"
expect and_converted 0
mkdir all && cp "$ranks/$rank"[0-3].pt all
run checkpoint convert "all/${rank}0.pt" "all/${rank}2.pt" --overwrite
expect a_part_is_not_overwritten_by_the_whole 1 "all/${rank}2\\.pt: it is a part of what is converted: all/${rank}0\\.pt"
check and_is_as_it_was cmp "$ranks/${rank}2.pt" "all/${rank}2.pt"
for r in 03 10; do
    run checkpoint diff "$ranks/padded/rank_$r.pt" "$ranks/padded/whole.pt"
    expect "ranks_of_two_digits_are_found_from_rank_$r" 0 'all the same in every bit$' out
done
cp "$ranks/${rank}1.pt" alone_rank_1.pt
cp "$ranks/${rank}0.pt" unnamed.pt
for file in alone_rank_1.pt unnamed.pt; do
    run checkpoint inspect $file
    expect "of_${file%.pt}_the_others_are_missed" 1 "$file: '.*' is a DTensor, one rank's part of an FSDP2 model; .*get_model_state_dict\\(.*torch\\.distributed\\.checkpoint\\.save\\(\\)"
done
folder dtensors
cp "$ranks/${rank}0.pt" dtensors/pytorch_model.bin
run evaluate --model dtensors --data rows.jsonl
expect a_model_of_dtensors_is_refused 1 "pytorch_model\\.bin: 'rows' is a DTensor, one rank's part of an FSDP2 model\\. In PyTorch"
run checkpoint inspect "$ranks/sharded_tensor.pt"
expect a_part_of_fsdp1_is_refused 1 "sharded_tensor\\.pt: 'w' is a ShardedTensor, one rank's part of an FSDP1 model.*FULL_STATE_DICT"
run checkpoint diff "$ranks/shards" "$ranks/whole.pt"
expect shards_of_safetensors_are_joined 0 '^9 tensors and values of both compared, all the same in every bit$' out
run checkpoint verify "$ranks/shards"
expect shards_are_verified 0 'whole: 9 tensors' out
run checkpoint convert "$ranks/shards" joined
run checkpoint diff joined "$ranks/whole.pt"
expect shards_are_converted 0
run checkpoint verify "$ranks/shards/shard-00001-model-00001-of-00001.safetensors"
check one_shard_is_not_a_model test $rc -eq 1
check but_the_folder_is grep -Eq "one rank's part of a model, .* convert .*/shards NEW_DIR" out err
no_model a_folder_of_shards_is_no_model "$ranks/shards" 'a file of each rank, .*convert .*/shards NEW_DIR'
cp -r "$ranks/shards" gap
rm gap/shard-00002*
run checkpoint inspect gap
expect a_missing_shard_is_named 1 'gap: it has shard-00003-.*, but no file shard-00002-'

# --- Lit-LLaMA and LitGPT ---

# Each case has the logits of the program that saved the weights.
for case in lit_llama litgpt litgpt_old; do
    lit=$golden/$case/model/lit_model.pth
    run checkpoint convert "$lit" $case/model --format hf --model "$golden/$case/model"
    expect "${case}_becomes_a_model" 0 'note: weights of Lit.*: written as the 2[0-9] tensors of Hugging Face'
    cp "$golden/$case"/*.* $case
    run verify $case
    expect "${case}_has_the_logits_of_its_program" 0 '2 compared, 0 failed' out
    run verify "$golden/$case"
    expect "${case}_is_read_as_a_model_too" 0 '2 compared, 0 failed' out
done
run launch -n 2 verify "$golden/litgpt_old"
expect and_by_two_ranks 0 '2 compared, 0 failed' out
run checkpoint convert "$golden/litgpt_old/model/lit_model.pth" lit_dcp --format dcp
expect names_are_kept_without_a_model 0 'the names are those of LitGPT; --format hf --model DIR'
run checkpoint convert lit_dcp lit_from_dcp --format hf --model "$golden/litgpt_old/model"
run checkpoint diff lit_from_dcp litgpt_old/model
expect rows_of_a_dcp_folder_are_the_same 0 '^27 tensors and values of both compared, all the same' out
run checkpoint convert "$golden/litgpt/model" lit_own --dtype bf16
run checkpoint inspect lit_own
check a_folder_needs_no_other_model grep -q 'layers\.1\.self_attn\.k_proj\.weight *| bfloat16' out
lit=$golden/lit_llama/model/lit_model.pth
run checkpoint convert "$lit" no_lit --format hf
expect a_model_is_asked_for 1 'lit_model\.pth: weights of Lit-LLaMA: give --model DIR'
run checkpoint convert "$lit" no_lit --format hf --model "$golden/litgpt/model"
expect another_number_of_heads_is_named 1 "lit_model\.pth: 'transformer\.h\.0\.attn\.c_attn\.weight' has 72 rows, but .* config\.json of .*litgpt/model have 48"
run checkpoint convert "$lit" no_lit --format hf --model "$golden/gpt2_tiny/model"
expect another_type_is_named 1 'weights of Lit-LLaMA, but the config\.json of .* describes a GPT2LMHeadModel'
check nothing_is_written_of_them test ! -e no_lit
run train --model lit_llama/model --data rows.jsonl --no-save-model --resume true --checkpoint "$lit"
expect a_run_is_not_continued_from_them 1 'lit_model\.pth: weights of Lit-LLaMA, whose optimizer.s state cannot be read\. .* fsdp checkpoint convert'

tally
