#!/bin/sh
# usage: tools/demo_bert.sh [BUILD]: does this synopsis belong to this description? With the programs
# in BUILD ("build"), a small BERT learns it from random weights, on pairs made of data/debian, with
# its own WordPiece vocabulary, sharded over two ranks. Shows accuracy and F1 on held-back packages,
# next to those of always giving the answer that most rows have. Everything is written to
# BUILD/demo-bert. Needs only the programs, a POSIX shell and awk.
build=${1:-build}
fsdp=$build/fsdp
out=$build/demo-bert
ranks=2
started=$(date +%s)

fail() {
    echo "demo-bert: $*" >&2
    exit 1
}
heading() { printf '\n== %s\n' "$*"; }
# run WHAT COMMAND...: shows the command and runs it; WHAT names it in the message if it fails
run() {
    what=$1
    shift
    printf '$ %s\n' "$*"
    "$@" || fail "$what failed with exit code $?"
}
# pairs SET COPIES: makes $out/SET.csv of data/debian/SET.csv
pairs() {
    awk -v copies="$2" -f tools/demo_bert_pairs.awk "data/debian/$1.csv" >"$out/$1.csv" ||
        fail "the pairs of data/debian/$1.csv could not be made"
    echo "  $out/$1.csv: $(($(wc -l <"$out/$1.csv") - 1)) pairs"
}
# measure KEY: from the last JSON of `fsdp evaluate --json`
measure() { sed -n "s/.*\"$1\": \([0-9.e-]*\).*/\1/p" "$out/evaluation.json" | tail -n 1; }

cd "$(dirname "$0")/.." || fail "no folder above $0"
[ -x "$fsdp" ] || fail "$fsdp is missing: run 'make' first, or 'make demo-bert'"
rm -rf "$out"
mkdir -p "$out/start" || fail "cannot make $out/start"

heading "1. Pairs of a synopsis and a description; half of them are of two different packages"
pairs train 12
pairs validation 1
pairs test 1

heading "2. A BERT without weights, with a WordPiece vocabulary of the training texts"
awk -v size=4000 -f tools/demo_bert_vocab.awk data/debian/train.csv >"$out/start/vocab.txt" ||
    fail "the vocabulary could not be made"
cat >"$out/start/config.json" <<END
{
  "architectures": ["BertForSequenceClassification"],
  "model_type": "bert",
  "vocab_size": $(wc -l <"$out/start/vocab.txt" | tr -d ' '),
  "hidden_size": 64,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "intermediate_size": 128,
  "max_position_embeddings": 64,
  "type_vocab_size": 2,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.0,
  "attention_probs_dropout_prob": 0.0,
  "initializer_range": 0.1,
  "pad_token_id": 0
}
END
echo '{"tokenizer_class": "BertTokenizer", "do_lower_case": true, "model_max_length": 64}' \
    >"$out/start/tokenizer_config.json"
echo "  $out/start: config.json, vocab.txt of $(wc -l <"$out/start/vocab.txt" | tr -d ' ') pieces"

heading "3. Training, sharded over $ranks ranks"
run "training" "$fsdp" launch -n $ranks train --model "$out/start" --from-config --data "$out/train.csv" \
    --validation-data "$out/validation.csv" --epochs 2 --batch-size 32 --lr 0.002 --lr-schedule linear \
    --warmup-steps 100 --max-seq-length 40 --output "$out/model" --metrics "$out/train.jsonl" --logging-steps 200

heading "4. Held-back packages"
printf '$ %s\n' "$fsdp evaluate --model $out/model --data $out/test.csv --max-seq-length 40 --json"
"$fsdp" evaluate --model "$out/model" --data "$out/test.csv" --max-seq-length 40 --json \
    >"$out/evaluation.json" || fail "the evaluation failed with exit code $?"
# The majority class: its share of the rows is its accuracy. F1 is that of "yes", class 1.
awk -F, -v accuracy="$(measure accuracy)" -v f1="$(measure f1)" '
    NR > 1 { rows++; yes += $NF == "yes" }
    END {
        majority = yes * 2 >= rows ? yes / rows : 1 - yes / rows
        of_yes = yes * 2 >= rows ? 2 * yes / (rows + yes) : 0
        printf "%-28s %8s %8s\n", "", "accuracy", "F1"
        printf "%-28s %8.4f %8.4f\n", "the majority class", majority, of_yes
        printf "%-28s %8.4f %8.4f\n", "the trained BERT", accuracy, f1
        exit !(accuracy > majority && f1 > of_yes)
    }' "$out/test.csv" || fail "the model is no better than the majority class (see $out/evaluation.json)"

heading "Done in $(($(date +%s) - started)) s. What is where:"
cat <<END
  $out/model/           the trained model: a folder that transformers loads, too, with the names
                        of the classes (id2label) in config.json
  $out/train.jsonl      loss, learning rate, time and memory of every step
  $out/train.csv        the pairs; validation.csv, test.csv
  $out/evaluation.json  loss, accuracy and F1
MRPC and other pairs: build/examples/nlp_example, or '$fsdp train --help'.
END
