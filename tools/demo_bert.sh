#!/bin/sh
# usage: tools/demo_bert.sh [BUILD]: does this synopsis belong to this description? With the programs
# in BUILD ("build"), a small BERT learns it from random weights, on pairs made of data/debian, with
# its own vocabulary, sharded over two ranks: first to find words in a text, then synopses. Shows
# accuracy and F1 on held-back packages, next to those of always giving the same answer. 2,700
# packages are few for a model that has read nothing else, so many answers stay wrong. Everything is
# written to BUILD/demo-bert. Needs only the programs, a POSIX shell and awk.
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
# pairs NAME SET COPIES EASY: makes $out/NAME.csv of data/debian/SET.csv
pairs() {
    awk -v copies="$3" -v easy="$4" -f tools/demo_bert_pairs.awk "$out/start/vocab.txt" "data/debian/$2.csv" \
        >"$out/$1.csv" || fail "the pairs of data/debian/$2.csv could not be made"
    echo "  $out/$1.csv: $(($(wc -l <"$out/$1.csv") - 1)) pairs"
}
# measure KEY: from the last JSON of `fsdp evaluate --json`
measure() { sed -n "s/.*\"$1\": \([0-9.e-]*\).*/\1/p" "$out/evaluation.json" | tail -n 1; }

cd "$(dirname "$0")/.." || fail "no folder above $0"
[ -x "$fsdp" ] || fail "$fsdp is missing: run 'make' first, or 'make demo-bert'"
rm -rf "$out"
mkdir -p "$out/start" || fail "cannot make $out/start"

heading "1. A BERT without weights, whose vocabulary are the most frequent words of the training texts"
{
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]'
    awk '{
        text = tolower($0)
        gsub(/[^a-z0-9]+/, " ", text)
        n = split(text, words, " ")
        for (i = 1; i <= n; i++)
            count[words[i]]++
    }
    END {
        for (word in count)
            if (length(word) > 1)
                print count[word], word
    }' data/debian/train.csv | LC_ALL=C sort -k1,1nr -k2 | awk 'NR <= 595 { print $2 }'
} >"$out/start/vocab.txt"
cat >"$out/start/config.json" <<END
{
  "architectures": ["BertForSequenceClassification"],
  "model_type": "bert",
  "vocab_size": $(wc -l <"$out/start/vocab.txt" | tr -d ' '),
  "hidden_size": 128,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
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
echo "  $out/start: config.json, vocab.txt"

heading "2. Pairs of words or a synopsis, and a text; half of them do not belong together"
pairs words train 24 1
pairs synopses train 6 0
pairs validation validation 0 0
pairs test test 0 0

heading "3. Training, sharded over $ranks ranks"
# train NAME OPTIONS...: trains on $out/NAME.csv
train() {
    name=$1
    shift
    run "training" "$fsdp" launch -n $ranks train --data "$out/$name.csv" --batch-size 32 --lr-schedule linear \
        --max-seq-length 48 --output "$out/$name" --metrics "$out/$name.jsonl" --logging-steps 500 "$@"
}
train words --model "$out/start" --from-config --epochs 2 --lr 0.001 --warmup-steps 100
train synopses --model "$out/words" --epochs 4 --lr 0.001 --warmup-steps 30 --seed 7 \
    --validation-data "$out/validation.csv" --validation-batch-size 32

heading "4. Held-back packages"
printf '$ %s\n' "$fsdp evaluate --model $out/synopses --data $out/test.csv --max-seq-length 48 --json"
"$fsdp" evaluate --model "$out/synopses" --data "$out/test.csv" --max-seq-length 48 --json \
    >"$out/evaluation.json" || fail "the evaluation failed with exit code $?"
# The share of the majority class is its accuracy. F1 is that of "yes", class 1.
awk -F, -v accuracy="$(measure accuracy)" -v f1="$(measure f1)" '
    NR > 1 { rows++; yes += $NF == "yes" }
    END {
        majority = yes * 2 >= rows ? yes / rows : 1 - yes / rows
        printf "%-28s %8s %8s\n", "", "accuracy", "F1"
        printf "%-28s %8.4f %8.4f\n", "always \"yes\"", yes / rows, 2 * yes / (rows + yes)
        printf "%-28s %8.4f %8.4f\n", "always \"no\"", 1 - yes / rows, 0
        printf "%-28s %8.4f %8.4f\n", "the trained BERT", accuracy, f1
        exit !(accuracy > majority)
    }' "$out/test.csv" || fail "the model is no better than the majority class (see $out/evaluation.json)"

heading "Done in $(($(date +%s) - started)) s. What is where:"
cat <<END
  $out/synopses/        the trained model: a folder that transformers loads, too, with the names
                        of the classes (id2label) in config.json
  $out/synopses.jsonl   loss, learning rate, time and memory of every step; words.jsonl before
  $out/test.csv         the held-back pairs; words.csv, synopses.csv, validation.csv
  $out/evaluation.json  loss, accuracy and F1
MRPC and other pairs: build/examples/nlp_example, or '$fsdp train --help'.
END
