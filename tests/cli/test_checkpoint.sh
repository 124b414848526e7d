#!/bin/sh
# `fsdp checkpoint` as a user runs it, on files that PyTorch, transformers and safetensors wrote:
# listing, comparing, converting, and damage.
# usage: FSDP_BUILD=build tests/cli/test_checkpoint.sh
. "$(dirname "$0")/lib.sh"
LC_ALL=C # tables in ASCII
export LC_ALL

run() { capture "$fsdp" checkpoint "$@"; }
change() { # FILE OFFSET: inverts bits of that byte
    byte=$(od -An -tu1 -j"$2" -N1 "$1")
    printf "$(printf '\\%03o' $((byte ^ 85)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# --- inspect ---

run inspect "$golden/gpt2_tiny/dcp_step2"
check a_dcp_directory_is_listed shows '^.*dcp_step2: torch\.distributed\.checkpoint by PyTorch, 65 tensors of 4885 elements, 19\.08 KiB; 12 plain values$'
check with_its_tensors shows '^\| model\.transformer\.h\.0\.attn\.c_attn\.weight +\| float32 +\| \[9, 27\] +\| +972 \| Shard\(0\) in 2 chunks, from __0_0\.distcp on \|$'
check with_its_optimizer shows '^\| optim\.state\.transformer\.wte\.weight\.step +\| float32 +\| \[\] +\| +4 \| __1_0\.distcp +\|$'
check with_its_values shows '^\| optim\.param_groups\.0\.betas +\| \(0\.9, 0\.999\) +\|$'
run inspect "$fixtures/torch/checkpoint.pt"
check a_nested_file_of_torch_save_is_listed shows '^\| optimizer_state_dict\.state\.1\.exp_avg +\| float32 +\| \[2\] +\| +8 \|'
check with_its_plain_values shows '^\| epoch +\| 3 +\|$'
run inspect "$fixtures/hf/llama_sharded"
check a_sharded_folder_is_listed shows '^\| lm_head\.weight +\| float32 +\| \[12, 8\] +\| +384 \| model-00004-of-00004\.safetensors \|$'
run inspect "$fixtures/torch/bin_sharded/pytorch_model.bin.index.json"
check an_index_of_bin_files_is_listed shows '^\| d +\| float32 +\| \[2, 2\] +\| +16 \| pytorch_model-00001-of-00002\.bin \|$'
run inspect "$fixtures/safetensors/hand.safetensors" --json
check json_is_one_object test "$(wc -l <out)" -eq 1
run inspect "$fixtures/torch/values_2.pt" --json
check json_has_tensors shows '"tensors": \[\{"name": "tensor", "dtype": "float32", "shape": \[2\], "bytes": 8, "file": "values_2\.pt", "chunks": 1\}\]'
check json_has_values shows '\{"name": "none", "value": null\}, \{"name": "true", "value": true\}.*\{"name": "float", "value": 0\.1\}'
check and_others_as_python_shows_them shows '\{"name": "tuple", "value": "\(1, 2, 3, 4\)"\}'

for file in hole overlap size trailing header_length; do
    run inspect "$fixtures/safetensors/bad_$file.safetensors"
    check "bad_${file}_is_refused" test $rc -eq 1
    check "bad_${file}_is_named" says "^fsdp checkpoint inspect: .*bad_$file\.safetensors: "
done
run inspect "$fixtures/torch/legacy.pt"
check the_legacy_format_is_refused_by_name says 'legacy torch\.save format'
run inspect "$fixtures/torch/odd_keys.pt"
check a_key_that_is_no_name_is_refused test $rc -eq 1
check and_named says 'odd_keys\.pt: key \(1, 2\) of its dict is neither a text without NUL nor an int$'
cp -r "$fixtures/dcp/hand" incomplete
rm incomplete/.metadata
run inspect incomplete
check a_dcp_directory_that_was_never_completed_is_named says 'incomplete: no \.metadata there'
run inspect nowhere
check what_is_not_there_is_named says 'nowhere'
check with_code_1 test $rc -eq 1
run inspect
check a_path_is_required test $rc -eq 2

run inspect "$fixtures/dcp/boxes"
check cuts_in_two_dimensions_are_boxes shows '^\| model\.boxes +\|.*\| boxes in 4 chunks'
check cuts_of_columns_are_reported shows 'Shard\(1\) in [0-9] chunks'
run inspect "$fixtures/dcp/written" --json
check json_has_who_wrote_it shows '"writer": "fsdp\.c"'
check and_placements shows '"placement": "Shard\(0\)"'

# --- diff ---

run diff "$golden/gpt2_tiny/dcp_step2" "$golden/gpt2_tiny/dcp_step2"
check a_checkpoint_is_itself shows '^77 tensors and values of both compared, all the same in every bit$'
check with_code_0 test $rc -eq 0
run diff "$golden/gpt2_tiny/model" "$golden/gpt2_tiny/dcp_step2"
check models_of_two_formats_are_compared shows '^16 tensors of both models compared, 17 differences$'
check what_one_lacks_is_named shows '^lm_head\.weight: only in B$'
check elements_are_counted shows '^transformer\.h\.0\.attn\.c_attn\.bias: 27 of 27 elements differ, largest difference 0\.0039996$'
check differences_are_code_1 test $rc -eq 1
run diff "$golden/gpt2_tiny/model" "$golden/gpt2_tiny/dcp_step2" --tolerance 0.00402
check a_tolerance_counts_elements shows '^transformer\.h\.0\.mlp\.c_fc\.weight: [1-9][0-9]? of 324 elements differ, largest difference 0\.00402397$'
check and_passes_over_the_rest test "$(grep -c attn out)" -eq 0
for protocol in 3 4 5; do
    run diff "$fixtures/torch/values_2.pt" "$fixtures/torch/values_$protocol.pt"
    check "protocol_${protocol}_says_the_same_as_protocol_2" test $rc -eq 0
done
run diff "$fixtures/torch/dtypes.pt" "$fixtures/torch/dtypes.pt"
check every_dtype_is_compared shows '^16 tensors and values .* the same in every bit$'
run diff "$fixtures/dcp/hand" "$fixtures/dcp/written"
check other_values_are_shown shows '^optim\.param_groups\.0\.lr: 0\.01 in A, .* in B$'
run diff "$fixtures/torch/pair.pt" "$fixtures/torch/pair.pt"
check tensors_within_values_are_the_same shows '^2 tensors and values of both compared, all the same in every bit$'
run diff "$fixtures/torch/pair.pt" "$fixtures/torch/other_pair.pt"
check or_not shows '^pair: \(torch\._utils\._rebuild_tensor_v2.* in both, different further on$'
check which_is_one_difference shows '^2 tensors and values of both compared, 1 difference$'
run diff "$fixtures/dcp/hand" nowhere
check what_is_not_there_is_an_error says '^fsdp checkpoint diff: .*nowhere'

# --- convert ---

same() { # A B: bit for bit
    "$fsdp" checkpoint diff "$1" "$2" >out 2>err
    rc=$?
    [ $rc -eq 0 ]
}
dcp=$golden/gpt2_tiny/dcp_step2

run convert "$dcp" all.pt
check dcp_becomes_a_file_of_torch_save shows '^all\.pt: torch\.save, 65 tensors, 19\.08 KiB; 12 plain values$'
check with_all_tensors_and_values same "$dcp" all.pt
run convert all.pt back
check which_becomes_dcp_again same "$dcp" back
run convert back model.safetensors
check safetensors_have_the_model_alone shows '^model\.safetensors: safetensors, 17 tensors, '
check which_is_the_same same "$dcp" model.safetensors
run convert back model.pt --model-only
check the_model_alone_has_its_names_at_the_top test "$("$fsdp" checkpoint inspect model.pt | grep -c '^| transformer\.wte\.weight ')" -eq 1
check which_is_the_same_too same model.pt model.safetensors
run merge-weights back hf --max-shard-size 3KB --model "$golden/gpt2_tiny/model"
check a_folder_is_cut_into_files test "$(echo hf/model-*-of-00003.safetensors | wc -w)" -eq 3
check with_its_configuration cmp -s "$golden/gpt2_tiny/model/config.json" hf/config.json
check and_the_same_weights same hf model.safetensors
check nothing_else_is_left test "$(echo ./*tmp-* hf/*tmp-*)" = './*tmp-* hf/*tmp-*'
run convert "$fixtures/torch/sets.pt" sets
run convert sets sets.pt
check sets_stay_sets same "$fixtures/torch/sets.pt" sets.pt
run inspect sets.pt
check as_python_shows_them shows "^\\| set +\\| \\{(1, 'a'|'a', 1)\\} +\\|\$"
check without_items_too shows '^\| no +\| set\(\) +\|$'
run convert "$fixtures/torch/counters.pt" counters
run convert counters counters.pt
check counters_stay_counters same "$fixtures/torch/counters.pt" counters.pt
run inspect counters.pt
check as_python_shows_these shows "^\\| counter +\\| Counter\\(\\{30: 1, 'a': 2\\}\\) +\\|\$"
check without_any_items shows '^\| no +\| Counter\(\{\}\) +\|$'
check within_others shows '^\| in +\| \(Counter\(\{7: 1\}\),\) +\|$'
check ints_of_any_size_are_shown shows '^\| big +\| -36893488147419103232 +\|$'
run merge-weights model.pt llama-3.1-8b
check a_dot_in_a_name_is_no_format test -f llama-3.1-8b/model.safetensors
mkdir one.old-20251123 one.tmp-20251123 one.old-1234567
touch one.old-20251123/kept one.tmp-20251123/kept one.old-1234567/kept
run convert hf/model.safetensors.index.json one --format hf
check folders_that_users_named_so_are_kept test "$(echo one.*/kept)" = 'one.old-1234567/kept one.old-20251123/kept one.tmp-20251123/kept'
check one_file_has_no_index test ! -e one/model.safetensors.index.json
check what_was_cut_is_one_again same one hf
check and_takes_its_configuration_along cmp -s hf/config.json one/config.json
run convert one again --max-shard-size 3KB
check a_folder_becomes_one_of_its_kind test -e again/model-00003-of-00003.safetensors -a -e again/config.json
check with_the_same_weights same one again
run convert one again --overwrite
check and_may_be_replaced_by_one test -e again/model.safetensors -a ! -e again/model.safetensors.index.json
run convert one again --overwrite --format dcp
check of_another_kind_if_asked_for test -e again/.metadata -a ! -e again/model.safetensors
check of_the_same_weights same one again
run convert model.safetensors again --overwrite
check what_was_there_does_not_count test -e again/model.safetensors -a ! -e again/.metadata
rm -r again
run convert all.pt again --max-shard-size 3KB
expect what_only_folders_of_that_kind_have_is_refused 2 'max-shard-size: only for a folder of Hugging Face \(--format hf\); again would be of format torch'
run convert all.pt again.safetensors --model "$golden/gpt2_tiny/model"
expect so_is_a_model_for_a_file 2 'model: only for a folder'
check and_nothing_is_written test ! -e again -a ! -e again.safetensors
run convert "$fixtures/torch/bin_sharded" bin
check bin_files_become_safetensors same "$fixtures/torch/bin_sharded" bin
check in_a_folder_of_their_kind test -e bin/model.safetensors
run convert "$fixtures/torch/bin_sharded" bin_dcp --format dcp
check or_dcp same "$fixtures/torch/bin_sharded" bin_dcp

# --model: must have the type and shape of the weights.
model_of() { # FROM MODEL
    rm -rf of_model
    run convert "$1" of_model --format hf --model "$2"
}
for type in gpt2 gpt2_tiny bert bert_tiny llama2 llama3 llama_bias mistral qwen2 t5_v1_0 t5_v1_1; do
    model_of "$golden/$type/model" "$golden/$type/model"
    check "weights_of_${type}_fit" cmp -s "$golden/$type/model/config.json" of_model/config.json
done
model_of "$golden/t5_v1_1/model" "$golden/gpt2_tiny/model"
expect weights_of_another_type_are_refused 1 "t5_v1_1/model: there is no tensor 'transformer\.wpe\.weight', which a GPT2LMHeadModel of the config\.json of .*gpt2_tiny/model has: weights of another model"
check and_nothing_is_written_of_them test ! -e of_model
# Tensors that the model has no parameter for are left out and named; so is an optimizer whose
# keys are next to the model's.
layers() { find "$1" -maxdepth 1 -name 'model*.safetensors' -exec grep -ao 'transformer\.h\.[0-9]*' {} + | sort -u | wc -l; }
mkdir fewer
sed 's/"n_layer": [0-9]*/"n_layer": 1/' "$golden/gpt2/model/config.json" >fewer/config.json
model_of "$golden/gpt2/model" fewer
expect layers_beyond_the_model_are_named 0 "note: 12 tensors are left out, 'transformer\.h\.1\.[^']*' the first of them: the model of --model has no use for them"
check and_left_out test "$(layers of_model)" -eq 1
rm -rf of_model
run convert "$golden/gpt2/model" of_model --format hf --model fewer --dtype bf16
expect a_dtype_may_be_given_with_a_model 0
run inspect of_model
check and_changes_the_tensors_after_those_left_out test "$(grep -c '| bfloat16' out)" -eq 16 -a "$(grep -c float32 out)" -eq 0
run convert "$golden/gpt2/model" all_layers --format hf
check without_a_model_all_are_written test "$(layers all_layers)" -eq 2 -a ! -s err
row='"dtype":"U8","shape":[1],"data_offsets":'
header="{\"w.b\":{$row[0,1]},\"state.w.b.exp_avg\":{$row[1,2]},\"state.other.step\":{$row[2,3]},\"state.w.b.step\":{$row[3,4]}}"
{ printf "$(printf '\\%03o\\000\\000\\000\\000\\000\\000\\000' ${#header})%s" "$header"; printf '1234'; } >flat.safetensors
for to in flat_hf flat_model.pt; do
    run convert flat.safetensors $to --model-only
    expect "the_state_of_an_optimizer_is_no_weight_of_$to" 0 "note: 2 tensors are left out, 'state\.w\.b\.[a-z_]*' the first of them: the state of an optimizer"
    run inspect $to
    check "but_a_weight_that_is_called_so_is_one_of_$to" test "$(grep -Ec '^\| (w\.b|state\.other\.step) ' out)" -eq 2 -a "$(grep -c '^| state' out)" -eq 1
done
run convert flat.safetensors flat.pt
run diff flat.safetensors flat_hf --model-only
expect nor_does_it_make_models_differ 0 '^2 tensors of both models compared, all the same' out
check all_is_written_where_all_is_asked_for same flat.safetensors flat.pt
mkdir wider unknown
sed 's/"vocab_size": 37/"vocab_size": 38/' "$golden/gpt2_tiny/model/config.json" >wider/config.json
model_of "$dcp" wider
expect so_are_those_of_another_shape 1 "dcp_step2: tensor 'model\.transformer\.wte\.weight' has shape \[37, 9\]; a GPT2LMHeadModel of the config\.json of wider has \[38, 9\] there"
echo '{"model_type": "mixtral"}' >unknown/config.json
model_of "$golden/llama3/model" unknown
expect what_is_not_known_is_not_compared 0
cp "$golden/t5_v1_1/model/config.json" unknown/config.json
sed -i 's/"model_type": "t5"/"model_type": 5/' unknown/config.json
model_of "$golden/t5_v1_1/model" unknown
expect a_damaged_configuration_is_named 1 "unknown/config\.json: model_type"

run convert all.pt bf16.pt --dtype bf16
run diff all.pt bf16.pt
check another_dtype_changes_the_model shows '^model\.transformer\.wte\.weight: F32 in A, BF16 in B; '
check but_not_the_optimizer test "$(grep -c '^optim' out)" -eq 0
run convert bf16.pt wide.safetensors --dtype float32
run diff bf16.pt wide.safetensors --ignore-dtype
check wider_values_are_the_same test $rc -eq 0
run convert one narrow --format hf --dtype bf16
check a_configuration_says_the_dtype grep -q 'dtype": "bfloat16"' narrow/config.json
run convert narrow narrow.safetensors
run convert narrow.safetensors narrow_too --format hf --model one
check a_copied_configuration_says_the_dtype_of_the_weights grep -q 'dtype": "bfloat16"' narrow_too/config.json
run convert all.pt i64.pt --dtype int64
check a_dtype_is_floating says '^fsdp checkpoint convert: --dtype int64: a floating-point type is needed'

run convert "$fixtures/torch/strides.pt" strides.pt
check strided_tensors_are_written_in_order same "$fixtures/torch/strides.pt" strides.pt
check tied_ones_once test "$(grep -ao 'data/[0-9][0-9]*' strides.pt | sort -u | wc -l)" -eq 11
run convert "$fixtures/torch/checkpoint.pt" nested.pt
check keys_keep_their_kind same "$fixtures/torch/checkpoint.pt" nested.pt
run convert "$fixtures/torch/dtypes.pt" dtypes
check every_dtype_becomes_dcp same "$fixtures/torch/dtypes.pt" dtypes
for case in boxes hand empty; do
    run convert "$fixtures/dcp/$case" "$case.pt"
    check "${case}_becomes_one_file" same "$fixtures/dcp/$case" "$case.pt"
done

odd=$(printf 'odd\377.pt')
cp model.pt "$odd"
run inspect "$odd" --json
check names_that_are_no_text_are_shown_in_json shows '^\{"path": "odd\\\\xff\.pt", .*"file": "odd\\\\xff\.pt", '
run diff "$fixtures/torch/list.pt" "$fixtures/torch/list.pt"
check one_is_one shows '^1 tensor or value of both compared, all the same in every bit$'

# A sparse file is converted to sparse files, whatever size they would have.
header='{"a":{"dtype":"BF16","shape":[33554432],"data_offsets":[0,67108864]},"b":{"dtype":"BF16","shape":[2,33554432],"data_offsets":[67108864,201326592]}}'
printf "$(printf '\\%03o\\000\\000\\000\\000\\000\\000\\000' ${#header})%s" "$header" >holes.safetensors
printf 'data' | dd of=holes.safetensors bs=1 seek=100000000 conv=notrunc 2>/dev/null
truncate -s $((8 + ${#header} + 201326592)) holes.safetensors
small() { [ "$(du -sk "$1" | cut -f 1)" -lt 8192 ]; }
for to in holes.pt holes_dcp holes_hf; do
    case $to in
    *.pt) format= ;;
    *_dcp) format='--format dcp' ;;
    *) format='--max-shard-size 100MB' ;;
    esac
    # shellcheck disable=SC2086
    run convert holes.safetensors $to $format
    check "holes_become_${to}_with_holes" small $to
    check "${to}_is_the_same" same holes.safetensors $to
done
check holes_are_cut_into_files test -e holes_hf/model-00002-of-00002.safetensors
run convert holes_dcp holes_16.safetensors --dtype fp16
check and_have_another_dtype shows '^holes_16\.safetensors: safetensors, 2 tensors, 192\.0 MiB$'
check and_are_holes_still small holes_16.safetensors
run convert "$fixtures/torch/list.pt" list_dcp
check a_list_is_no_dcp says 'list\.pt: a list; torch\.distributed\.checkpoint holds dicts'

# Existing files are not overwritten unless asked for; the source never is.
run convert model.pt all.pt
check a_file_is_not_overwritten says 'all\.pt: it exists'
check and_stays_as_it_was same "$dcp" all.pt
run convert model.pt back
check nor_is_a_directory says 'back: the directory exists and is not empty'
run convert model.pt all.pt --overwrite
check unless_asked_to same model.pt all.pt
run convert model.pt back --overwrite
check a_directory_too same model.pt back
run convert back back --overwrite
check the_source_is_not_overwritten says 'back: it is, or holds, what is converted'
run convert back . --overwrite
check nor_is_the_folder_around_it says '\.: it is, or holds, what is converted: back'
cp -r hf hf_apart
for source in hf hf/model.safetensors.index.json; do
    run convert $source hf/model-00002-of-00003.safetensors --overwrite
    check "a_file_of_${source##*/}_is_not_overwritten" says 'model-00002-of-00003\.safetensors: it is a part of what is converted: hf'
done
check and_stays_as_it_was diff -r hf hf_apart
# A directory of DCP whose second file is elsewhere. No item begins in that file.
cp -r "$fixtures/dcp/written" behind
mv behind/__1_0.distcp elsewhere.pt
ln -s ../elsewhere.pt behind/__1_0.distcp
cksum <elsewhere.pt >elsewhere.sum
run convert behind elsewhere.pt --overwrite
check nor_is_a_file_behind_a_link says 'elsewhere\.pt: it is a part of what is converted: behind'
check which_stays_as_it_was test "$(cksum <elsewhere.pt)" = "$(cat elsewhere.sum)"
run convert hf hf/new.pt
check a_new_file_there_is_no_part_of_it test $rc -eq 0
rm hf/new.pt
# A folder that has more than a model: the model's files are replaced and nothing else. A symbolic
# link to the folder remains one.
mkdir -p work/.git work/runs work/checkpoint-1 && chmod 750 work
for file in README.md .git/HEAD runs/events checkpoint-1/model.safetensors model.fp16.safetensors optimizer.pt; do
    echo "$file" >work/$file
done
list_of() { (cd "$1" && find . -type f ! -name 'model*' ! -name '*config.json' ! -name .metadata ! -name '__*' -exec cksum {} + | sort); }
before=$(list_of work)
cp model.safetensors work/model-00001-of-00002.safetensors
cp model.safetensors work/pytorch_model.bin
ln -s work linked
for format in hf dcp hf; do
    run convert one linked --overwrite --format $format
    check "with_${format}_all_other_files_stay" test $rc -eq 0 -a "$(list_of work)" = "$before"
    check "in_a_folder_of_the_same_permissions_$format" test -L linked -a "$(stat -c %a work)" = 750
    check "which_is_the_new_model_$format" same one linked
done
check a_shard_of_the_model_before_goes test ! -e work/model-00001-of-00002.safetensors -a ! -e work/pytorch_model.bin
cp model.safetensors work/model-00004-of-00009.safetensors
run convert one work --overwrite
expect and_is_named 0 "note: removed with the model that was in work: 'model-00004-of-00009\.safetensors'$"
check like_names_are_no_shards test -e work/model.fp16.safetensors -a -e work/checkpoint-1/model.safetensors
echo '{"format": 1}' >work/trainer_state.json
run convert one work --overwrite
expect a_checkpoint_of_training_is_not_replaced 1 "work: a checkpoint of 'fsdp train' is there"
rm work/trainer_state.json
HOME=$dir/work run convert one work --overwrite
expect nor_is_a_home_directory 1 'work: cannot replace the home directory'
mkdir file_there && cp model.safetensors file_there && mkdir file_there/config.json && echo kept >file_there/config.json/letter
run convert one file_there --overwrite
expect nor_a_directory_by_a_file 1 'file_there/config\.json: a directory is there, and a file is to be written'
check all_of_which_stays test -e file_there/config.json/letter -a -z "$(ls -d file_there.* 2>/dev/null)"
# Killed at any instant, the folder has the old model or the new one, and all other files. Each
# attempt sleeps a little longer.
for ms in 0 1 2 3 5 8 12; do
    "$fsdp" checkpoint convert one work --overwrite >/dev/null 2>&1 &
    sleep 0.0$(printf %02d $ms)
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    same one work && [ "$(list_of work)" = "$before" ] || bad killed_after_${ms}_ms "something is lost"
done
run convert one work --overwrite
check what_killed_ones_left_goes test $rc -eq 0 -a "$(echo work.*)" = 'work.*' -a "$(list_of work)" = "$before"
run convert model.pt model.gguf
check another_format_is_not_written_under_its_name test $rc -eq 2 -a ! -e model.gguf
check and_says_which_are says 'model\.gguf: files of this kind are not written; \.pt, \.pth and \.bin'
run convert model.pt model.gguf --format dcp
check unless_the_format_is_given test -f model.gguf/.metadata
rm -r model.gguf
mkdir precious && echo text >precious/letter
run convert model.pt precious --overwrite
check what_is_no_checkpoint_is_not_overwritten says 'precious: a directory that holds no checkpoint is not replaced'
check and_is_still_there test -e precious/letter
run convert "$fixtures/torch/optimizer.pt" none.safetensors
check an_optimizer_is_no_model says 'optimizer\.pt: no model in it'
run convert "$fixtures/torch/one_name.pt" top.safetensors
expect what_is_below_another_key_is_noted 0 "note: the model is what is at the top; 1 tensor below another key is left out, 'a\.b'$"
run convert "$dcp" quiet.safetensors
check but_not_an_optimizer_beside_a_model test $rc -eq 0 -a ! -s err
run convert "$fixtures/torch/values_2.pt" none
check a_value_that_cannot_be_written_is_named says "'device': torch\.device\(\.\.\.\) cannot be written"
check nothing_is_left_of_it test ! -e none
for to in pair.pt pair_dcp; do
    run convert "$fixtures/torch/pair.pt" $to
    expect "a_tensor_in_a_tuple_is_named_for_$to" 1 "torch/pair\.pt: 'pair': torch\._utils\._rebuild_tensor_v2\(\.\.\.\) cannot be written$"
done

# Change one byte of a tensor: convert compares checksums. Data begin at a multiple of 64.
data_at() { # FILE: offset of its first tensor
    name_at=$(grep -abo 'data/0' "$1" | head -n 1 | cut -d: -f1)
    echo $(((name_at + 10 + 63) / 64 * 64))
}
run convert model.pt damaged
change damaged/__0_0.distcp "$(data_at damaged/__0_0.distcp)"
for to in damaged.pt damaged.safetensors damaged_hf; do
    run convert damaged $to
    check "damage_ends_conversion_to_$to" says "__0_0\.distcp: record 'data/0' is damaged: its checksum"
    check "which_leaves_nothing_of_$to" test ! -e $to
done

# --- verify ---

for path in "$dcp" "$fixtures/dcp/empty" "$fixtures/torch/values_4.pt" "$fixtures/hf/llama_sharded" \
    "$fixtures/torch/bin_sharded" "$fixtures/safetensors/hand.safetensors" hf model.pt strides.pt \
    "$fixtures/torch/dtypes.pt"; do
    run verify "$path"
    check "${path##*/}_is_whole" shows ': whole: [0-9]+ tensors?, '
done
check whole_is_code_0 test $rc -eq 0
run verify "$dcp"
check what_was_read_is_reported shows '^.*dcp_step2: whole: 65 tensors, 12 plain values, 19\.08 KiB$'

damaged() { # NAME PATTERN: the damage is named, with exit code 1
    check "$1_is_named" shows "$2"
    check "$1_is_code_1" test $rc -eq 1
}
run verify damaged
damaged a_changed_byte_of_a_chunk "__0_0\\.distcp: record 'data/0' is damaged: its checksum"
check one_damage_is_counted shows '^damaged: damaged, in 1 place$'
# Change the name in the second chunk's archive. Each archive has it twice.
change damaged/__0_0.distcp "$(grep -abo 'archive/data\.pkl' damaged/__0_0.distcp | sed -n '3s/:.*//p')"
run verify damaged
check one_damage_does_not_hide_another shows '^damaged: damaged, in 2 places$'
cp model.pt changed.pt
change changed.pt "$(data_at changed.pt)"
run verify changed.pt
damaged a_changed_byte_of_a_file "tensor '.*': changed\\.pt: record 'data/0' is damaged"
cp "$fixtures/torch/pair.pt" pair.pt
run verify pair.pt
check tensors_within_values_are_whole test $rc -eq 0
change pair.pt 1088 # the last storage
run verify pair.pt
damaged a_changed_byte_of_a_tensor_within_a_value "pair\.pt: record 'data/2' is damaged"
cp -r "$fixtures/torch/bin_sharded" bin_changed
change bin_changed/pytorch_model-00002-of-00002.bin "$(data_at bin_changed/pytorch_model-00002-of-00002.bin)"
run verify bin_changed
damaged a_changed_byte_of_a_sharded_model "pytorch_model-00002-of-00002\\.bin: record 'data/0' is damaged"
run convert model.pt between
run verify between
check what_convert_wrote_is_whole test $rc -eq 0
change between/__0_0.distcp $(($(data_at between/__0_0.distcp) - 1))
run verify between
damaged a_byte_between_tensors 'between/__0_0\.distcp is damaged: checksum of bytes \[0, '
cp -r "$dcp" lacking
rm lacking/__1_0.distcp
run verify lacking
damaged a_missing_file 'lacking/__1_0\.distcp'
cp -r "$dcp" short
head -c 3000 "$dcp/__1_0.distcp" >short/__1_0.distcp
run verify short
damaged a_truncated_file 'short/__1_0\.distcp: truncated'
cp -r "$dcp" renamed
sed 's/\x16transformer\.wte\.weight/\x16transformer.wte.Weight/' "$dcp/.metadata" >renamed/.metadata
check paths_of_items_were_changed test "$(cmp -l "$dcp/.metadata" renamed/.metadata | wc -l)" -gt 0
run verify renamed
damaged a_path_that_is_not_its_name "renamed: \.metadata: the path of '.*transformer\.wte\.weight.*' is that of '.*transformer\.wte\.Weight"
# Change the method of an uncompressed record: at byte 10 of its entry in the central directory,
# and at byte 8 of its local header. A change of both cannot be distinguished from an archive of
# another kind.
local=$(printf 'PK\003\004') entry=$(printf 'PK\001\002')
change_in() { # FILE STRUCTURE N OFFSET: changes the n-th of these structures
    change "$1" $(($(grep -abo "$2" "$1" | sed -n "$3s/:.*//p") + $4))
}
cp model.pt method.pt
change_in method.pt "$entry" 1 10
run verify method.pt
damaged a_changed_method "method\.pt: record 'model/data\.pkl' is compressed or encrypted by one of its two headers alone"
cp -r "$dcp" method
change_in method/__0_0.distcp "$local" 1 8
change_in method/__1_0.distcp "$local" 9 8 # of another tensor
run verify method
damaged a_changed_method_of_a_chunk 'method/__0_0\.distcp: record .* by one of its two headers alone'
check and_what_comes_after_it shows '^method: damaged, in 2 places$'
change_in method/__0_0.distcp "$entry" 1 10
run verify method
damaged what_is_not_read "method/__0_0\.distcp: record '.*' is compressed or encrypted, which"
check and_counted shows '^method: 1 part was not read$'
check with_what_comes_after_it shows '^method: damaged, in 1 place$'
run convert model.pt pathless
cp -r pathless misnamed
sed -i 's/planner_data/planner_dxta/' pathless/.metadata
run verify pathless
damaged an_own_checkpoint_without_paths "pathless/\.metadata: '.*': planner_data has no path of it"
change misnamed/.metadata "$(grep -abo 'transformer\.wte\.weight' misnamed/.metadata | sed -n '2s/:.*//p')"
run verify misnamed
damaged another_name_of_a_path "misnamed/\.metadata: 'transformer\.wte\.weight': planner_data has no path of it"
cp -r hf index
rm index/model-00002-of-00003.safetensors
run verify index
damaged a_missing_file_of_an_index 'model-00002-of-00003\.safetensors'
echo '{"weight_map": {}}' >index/model.safetensors.index.json
run verify index
damaged an_index_of_nothing 'index/model\.safetensors\.index\.json: weight_map: it names no tensor'
for file in hole overlap size trailing; do
    run verify "$fixtures/safetensors/bad_$file.safetensors"
    damaged "bad_$file" "bad_$file\\.safetensors: damaged, in 1 place"
done
run verify "$fixtures/dcp/written"
damaged infinity "tensor 'model\\.f16': 1 of 4 elements are not finite"
two_elements() { # DTYPE BYTES DATA: writes a tensor of two elements, with its bytes as octal escapes
    header=$(printf '{"w":{"dtype":"%s","shape":[2],"data_offsets":[0,%d]}}' "$1" "$2")
    printf "\\$(printf '%03o' ${#header})\\0\\0\\0\\0\\0\\0\\0%s$3" "$header" >"two_$1.safetensors"
}
two_elements F8_E4M3 2 '\176\177'
two_elements F8_E5M2 2 '\173\374'
two_elements F8_E4M3FNUZ 2 '\177\200'
two_elements F8_E5M2FNUZ 2 '\177\200'
two_elements F8_E8M0 2 '\376\377'
two_elements C64 16 '\377\377\177\177\0\0\0\0\0\0\0\0\0\0\300\177'
two_elements F4 1 '\0'
for to in F4.pt F4_dcp; do
    run convert two_F4.safetensors $to --format "$(case $to in *.pt) echo torch ;; *) echo dcp ;; esac)"
    expect "a_type_that_torch_lacks_is_named_for_$to" 1 "^fsdp checkpoint convert: two_F4\.safetensors: 'w': .*torch has no dtype F4$"
done
run convert two_F8_E4M3.safetensors F8.safetensors --dtype bf16
expect what_keeps_its_dtype_is_noted 0 "note: 1 tensor stays as it is, 'w' of F8_E4M3: types of 8 bits and fewer are not converted"
two_elements F32 8 '\000\044\164\111\000\000\200\377' # 1e6, and an infinity
run convert two_F32.safetensors F16.safetensors --dtype fp16
expect what_becomes_infinite_is_noted 0 "note: 1 element is too large for float16 and became infinite, of 'w'$"
run convert two_F32.safetensors BF16.safetensors --dtype bf16
check but_not_what_does_not test $rc -eq 0 -a ! -s err
for dtype in F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ F8_E8M0 C64; do
    run verify two_$dtype.safetensors
    damaged "what_is_not_finite_in_$dtype" "tensor 'w': 1 of 2 elements are not finite"
done
# A folder passes if all known files in it are undamaged. Unknown files are listed and do not
# count as damage.
shorten() { dd if="$1" of="$2" bs=1 count=$(($(wc -c <"$1") - $3)) 2>/dev/null; }
mkdir output && cp "$golden/gpt2_tiny/model/"* output
cp "$fixtures/torch/optimizer.pt" output/optimizer.pt
cp "$fixtures/torch/legacy.pt" output/training_args.bin
cp -r output seven && mv seven output/checkpoint-7
mkdir output/runs && echo events >output/runs/events.out.tfevents.1.host.2
echo notes >output/README.md && echo 'no zip' >output/spiece.bin
run verify output
expect a_folder_around_a_model_is_whole 0
check with_all_files_next_to_it test "$(grep -Ec '^output/?(optimizer\.pt|checkpoint-7|checkpoint-7/optimizer\.pt)?: whole: ' out)" -eq 4
check a_form_that_is_not_read_is_not_checked shows '^output/training_args\.bin: not checked: .*legacy torch\.save format'
for name in runs/ README.md spiece.bin config.json; do
    check "nor_is_$name" shows "^output/$name: not checked\$"
done
for damage in optimizer.pt checkpoint-7/optimizer.pt checkpoint-7/model.safetensors; do
    mv "output/$damage" good
    shorten good "output/$damage" 9
    run verify output
    expect "a_damaged_${damage}_is_found" 1
    check "and_named_$damage" shows "output/$damage: "
    mv good "output/$damage"
done
cp -r "$dcp" output_dcp
shorten "$fixtures/torch/optimizer.pt" output_dcp/random_states_0.pkl 40
run verify output_dcp
expect beside_a_checkpoint_of_torch_too 1 'output_dcp/random_states_0\.pkl: damaged' out
: >output_dcp/random_states_0.pkl
run verify output_dcp
expect an_empty_file_is_damaged 1 'output_dcp/random_states_0\.pkl: ' out
run verify "$fixtures/torch/legacy.pt"
check what_cannot_be_read_is_an_error says '^fsdp checkpoint verify: .*legacy torch\.save format'
run verify nowhere
check what_is_not_there_is_no_damage says '^fsdp checkpoint verify: nowhere: no such file or directory$'
mkfifo pipe pipe.pt pipe.safetensors
ln -s loop loop
for way in inspect verify; do
    for path in pipe pipe.pt pipe.safetensors /dev/null; do
        run $way $path
        expect "${way}_refuses_$path" 1 "$path: neither a regular file nor a directory"
    done
    run $way loop
    expect "${way}_refuses_links_that_go_nowhere" 1 'loop: .*symbolic links'
done
run convert pipe pipe.out
expect convert_refuses_a_pipe 1 'pipe: neither a regular file'

run inspct x
check the_nearest_command_is_named says "unknown command 'inspct'; did you mean 'inspect'\?"
check an_unknown_command_is_misuse test $rc -eq 2

# --- progress ---

# A terminal of 60 columns; its output is in out.
on_terminal() { # ARGUMENTS
    TERM=xterm NO_COLOR=1 capture script -qec "stty cols 60; '$fsdp' checkpoint $*" /dev/null
}
bar_of() { # NAME WORD TOTAL: checks the first and the last state of the bar
    check "$1_shows_a_bar" shows "$2:   0%\\| +\\| 0/$3 \\["
    check "$1_ends_with_a_full_bar" shows "$2: 100%\\|#+\\| $3/$3 \\["
}
items_of() { "$fsdp" checkpoint inspect "$1" --json | grep -o '"name"' | wc -l; }
if script -qec true /dev/null >/dev/null 2>&1; then
    on_terminal convert "$dcp" bar.pt
    bar_of convert converting 77
    on_terminal convert "$dcp" bar.safetensors
    bar_of a_conversion_of_the_model_alone converting 17
    on_terminal verify "$dcp"
    bar_of verify verifying 77
    on_terminal verify "$fixtures/torch/bin_sharded"
    bar_of verify_of_several_files verifying "$(items_of "$fixtures/torch/bin_sharded")"
    on_terminal verify damaged
    bar_of verify_of_damage verifying "$(items_of damaged)"
    line=$(printf '\r +\r') # the bar is erased from its line
    check a_damage_has_a_line_of_its_own shows "$line[^|]*__0_0\\.distcp: record 'data/0' is damaged"
    on_terminal diff "$golden/gpt2_tiny/model" "$dcp"
    bar_of diff comparing 17
    check a_difference_has_a_line_of_its_own shows "${line}lm_head\\.weight: only in B"
    TERM=dumb capture script -qec "'$fsdp' checkpoint verify '$dcp'" /dev/null
    check a_dumb_terminal_has_no_bar test "$(grep -c verifying out)" -eq 0
else
    skip bars "no script(1) here to make a terminal"
fi
for command in "verify $dcp" "diff $dcp $dcp"; do
    # shellcheck disable=SC2086
    run $command
    check "no_bar_of_${command%% *}_without_a_terminal" test $rc -eq 0 -a ! -s err
done

# --- a folder that holds checkpoints ---

mkdir out-checkpoints
for step in 9 10; do cp -r "$golden/gpt2_tiny/dcp_step2" out-checkpoints/checkpoint-$step; done
mkdir out-checkpoints/checkpoint-11 out-checkpoints/checkpoint-12.fsdp-tmp-1-01234567-0123456789abcdef
cp "$fixtures/torch/state_dict.pt" out-checkpoints/checkpoint-11/model_state_dict.pt
cp -r "$golden/gpt2_tiny/dcp_step2/." out-checkpoints/checkpoint-12.fsdp-tmp-1-01234567-0123456789abcdef
run inspect out-checkpoints
check checkpoints_of_a_folder_are_listed shows '^\| checkpoint-9 +\| torch\.distributed\.checkpoint +\| +65 \| +4885 \| 19\.08 KiB \|$'
check with_files_in_them shows '^\| checkpoint-11/model_state_dict\.pt +\| torch\.save +\| +4 \|'
check in_the_order_of_their_steps test "$(grep -o 'checkpoint-[0-9]*' out | tr '\n' ' ')" = "checkpoint-9 checkpoint-10 checkpoint-11 "
run inspect out-checkpoints/ --json
check in_json_too shows '"checkpoints": \[\{"path": "out-checkpoints/checkpoint-9", "format": "torch\.distributed\.checkpoint", "tensors": 65, "values": 12, "numel": 4885, "bytes": 19540\}, '
run inspect "$fixtures/accelerate/sharded"
check folders_of_accelerate_are_listed shows '^\| pytorch_model_fsdp_0 +\| torch\.distributed\.checkpoint +\| +4 \| +19 \|'
run verify out-checkpoints
check all_of_them_are_verified test "$rc" -eq 0 -a "$(grep -c ': whole: ' out)" -eq 3
mkdir out-checkpoints/checkpoint-13
change out-checkpoints/checkpoint-9/__0_0.distcp 200
run verify out-checkpoints
check each_damage_is_named test "$rc" -eq 1 -a "$(grep -c ': whole: ' out)" -eq 2
check by_its_folder shows 'out-checkpoints/checkpoint-9: damaged'
check an_empty_one_is_damage shows 'out-checkpoints/checkpoint-13: damaged'
run inspect out-checkpoints
check and_has_a_line_of_its_own test "$rc" -eq 1 -a "$(grep -c '^| checkpoint-13 .*cannot be read' out)" -eq 1
check with_a_reason says 'out-checkpoints/checkpoint-13: no checkpoint there: neither \.metadata'

# --- files and folders that are similar to checkpoints ---
for command in "convert out-checkpoints x" "diff $dcp out-checkpoints"; do
    # shellcheck disable=SC2086
    run $command
    expect "${command%% *}_wants_one_of_a_folder" 1 'out-checkpoints: no checkpoint, but a folder around 4; take one: out-checkpoints/checkpoint-9, out-checkpoints/checkpoint-10, .*, \.\.\.$'
done
run convert "$fixtures/accelerate/sharded" x
expect one_of_accelerates_too 1 'a folder around 3; take one: .*/optimizer_0, .*/pytorch_model_fsdp_0, .*/scheduler\.bin$'
for file in .metadata __0_0.distcp; do
    for command in inspect verify; do
        run $command "$dcp/$file"
        check "${command}_of_${file}_names_its_folder" grep -Eq "$file: one file of a checkpoint of torch\.distributed\.checkpoint, which is the folder: .*/dcp_step2$" out err
    done
done
(cd "$dcp" && "$fsdp" checkpoint inspect __1_0.distcp) >out 2>err
check be_it_this_one says 'which is the folder: \.$'
(cd "$dcp" && "$fsdp" checkpoint inspect .) >out 2>err
check this_folder_is_read_as_any_other shows '^\.: torch\.distributed\.checkpoint by PyTorch, 65 tensors'
(cd "$fixtures/accelerate/sharded" && "$fsdp" checkpoint inspect .) >out 2>err
check this_folder_of_accelerates_too shows '^\| pytorch_model_fsdp_0 '
mkdir -p begun/pytorch_model_fsdp_0
run inspect begun
expect what_accelerate_only_began_is_named 1 'begun/pytorch_model_fsdp_0: no \.metadata there: a checkpoint that was never completed'
mkdir nothing
run inspect nothing
expect an_empty_folder_names_what_was_looked_for 1 'nothing: no checkpoint there: neither \.metadata of torch\.distributed\.checkpoint, pytorch_model_fsdp_0 .* nor model\.safetensors'

# A name of a foreign file may have escape sequences of terminals.
for value in 1 2; do
    header='{"a\u001b[2Jb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    { printf '\077\000\000\000\000\000\000\000%s' "$header"; printf "\\00$value"; } >escape$value.safetensors
done
run diff escape1.safetensors escape2.safetensors
expect names_have_no_control_characters 1 '^a.x1b.2Jb: 1 of 1 elements differ' out
tally
