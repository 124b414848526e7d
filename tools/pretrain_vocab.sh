#!/bin/sh
# usage: tools/pretrain_vocab.sh [-n IDS] [CORPUS [OUT]]
# Trains a vocabulary for a T5 on CORPUS/text.txt (build/pretrain-corpus) and writes the folder
# OUT (build/pretrain-start), which fsdp and transformers load as a T5 without weights:
# spiece.model, tokenizer_config.json, special_tokens_map.json, config.json.
#   -n IDS    size of the vocabulary (8192), including T5's 100 sentinels, which are last
# A SentencePiece unigram model like T5's: <pad> 0, </s> 1, <unk> 2, normalizer nmt_nfkc. Needs
# spm_train (`make deps-pretrain`). Nothing is random and only one thread sums, so the same corpus
# gives the same bytes.
fail() { echo "pretrain_vocab: $*" >&2; exit 1; }
usage() { fail "usage: tools/pretrain_vocab.sh [-n IDS] [CORPUS [OUT]]"; }
sentinels=100

# "<extra_id_0>", "<extra_id_1>", ...
sentinel_names() {
    awk -v n=$sentinels 'BEGIN { for (i = 0; i < n; i++) printf "%s\"<extra_id_%d>\"", i ? ", " : "", i }'
}
# The names of the input and the model are part of the model's bytes, so they have no folders.
train() {
    spm_train --input=text.txt --model_prefix=spiece --model_type=unigram --vocab_size=$((ids - sentinels)) \
        --normalization_rule_name=nmt_nfkc --character_coverage=0.9999 \
        --pad_id=0 --pad_piece='<pad>' --eos_id=1 --eos_piece='</s>' --unk_id=2 --unk_piece='<unk>' --bos_id=-1 \
        --max_sentence_length=1048576 --input_sentence_size=0 --shuffle_input_sentence=false --num_threads=1 \
        >log 2>&1 || {
        tail -n 3 log >&2
        fail "spm_train made no $((ids - sentinels)) pieces of $corpus/text.txt"
    }
}
tokenizer_files() {
    cat >tokenizer_config.json <<END
{
  "additional_special_tokens": [$(sentinel_names)],
  "clean_up_tokenization_spaces": false,
  "eos_token": "</s>",
  "extra_ids": $sentinels,
  "model_max_length": 512,
  "pad_token": "<pad>",
  "tokenizer_class": "T5Tokenizer",
  "unk_token": "<unk>"
}
END
    cat >special_tokens_map.json <<END
{
  "additional_special_tokens": [$(sentinel_names)],
  "eos_token": "</s>",
  "pad_token": "<pad>",
  "unk_token": "<unk>"
}
END
}
# docs/pretraining.md explains how the shape follows from the vocabulary and 16 MB.
config_file() {
    cat >config.json <<END
{
  "architectures": [
    "T5ForConditionalGeneration"
  ],
  "d_ff": 1024,
  "d_kv": 64,
  "d_model": 256,
  "decoder_start_token_id": 0,
  "dropout_rate": 0.1,
  "dtype": "float32",
  "eos_token_id": 1,
  "feed_forward_proj": "relu",
  "initializer_factor": 1.0,
  "is_encoder_decoder": true,
  "layer_norm_epsilon": 1e-06,
  "model_type": "t5",
  "num_decoder_layers": 3,
  "num_heads": 4,
  "num_layers": 3,
  "pad_token_id": 0,
  "relative_attention_max_distance": 128,
  "relative_attention_num_buckets": 32,
  "tie_word_embeddings": true,
  "vocab_size": $ids
}
END
}

ids=8192
while getopts n: option; do
    case $option in
    n) ids=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -le 2 ] || usage
case $ids in
*[!0-9]* | '' | ????????*) fail "-n $ids: not a number of ids" ;;
esac
[ "$ids" -gt $sentinels ] || fail "-n $ids: no more than the $sentinels sentinels"
corpus=${1:-build/pretrain-corpus}
out=${2:-build/pretrain-start}
command -v spm_train >/dev/null || fail "no spm_train here: 'make deps-pretrain' installs it"
[ -s "$corpus/text.txt" ] || fail "$corpus/text.txt is missing or empty: tools/pretrain_corpus.sh writes it"
mkdir -p "$out" || fail "cannot make $out"
work=$(mktemp -d "$out/new.XXXXXX") || fail "cannot write to $out"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
work=$(cd "$work" && pwd)
cp "$corpus/text.txt" "$work" || fail "cannot copy $corpus/text.txt to $out"
cd "$work" || exit 1
train
tokenizer_files
config_file
mv spiece.model tokenizer_config.json special_tokens_map.json config.json .. || fail "cannot write to $out"
echo "$out: $((ids - sentinels)) pieces and $sentinels sentinels, spiece.model of $(wc -c <../spiece.model | tr -d ' ') bytes"
