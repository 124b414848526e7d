#!/bin/sh
# usage: tools/demo_llama.sh [BUILD]: a small Llama from nothing. With the programs in BUILD
# ("build"), a byte-level BPE vocabulary is made from the descriptions in data/debian, the texts
# become token files, and a Llama with random weights learns them, sharded over two ranks. Shows its
# perplexity on held-back descriptions, next to that of guessing by the frequency of tokens, and
# texts that it writes. Everything is written to BUILD/demo-llama. Needs only the programs, a POSIX
# shell, od and awk.
build=${1:-build}
fsdp=$build/fsdp
out=$build/demo-llama
ranks=2
vocabulary=2048
started=$(date +%s)

fail() {
    echo "demo-llama: $*" >&2
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

cd "$(dirname "$0")/.." || fail "no folder above $0"
[ -x "$fsdp" ] || fail "$fsdp is missing: run 'make' first, or 'make demo-llama'"
rm -rf "$out"
mkdir -p "$out" || fail "cannot make $out"

heading "1. A byte-level BPE vocabulary of $vocabulary tokens, from the training texts"
run "the vocabulary" "$fsdp" tokenize --train-vocab $vocabulary --data data/debian/train.csv --text-column text \
    --output "$out/start"

heading "2. Token files"
for set in train validation test; do
    run "tokenizing" "$fsdp" tokenize --tokenizer "$out/start" --data data/debian/$set.csv --text-column text \
        --output "$out/$set.bin"
done

heading "3. A Llama with random weights, trained on them and sharded over $ranks ranks"
cat >"$out/start/config.json" <<END
{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "vocab_size": $vocabulary,
  "hidden_size": 192,
  "intermediate_size": 512,
  "num_hidden_layers": 4,
  "num_attention_heads": 6,
  "num_key_value_heads": 2,
  "max_position_embeddings": 256,
  "rms_norm_eps": 1e-6,
  "hidden_act": "silu",
  "tie_word_embeddings": true,
  "bos_token_id": 0,
  "eos_token_id": 0
}
END
run "training" "$fsdp" launch -n $ranks train --model "$out/start" --from-config --data "$out/train.bin" \
    --validation-data "$out/validation.bin" --max-seq-length 128 --batch-size 8 --epochs 6 --lr 0.002 \
    --warmup-steps 20 --weight-decay 0.1 --max-grad-norm 1 --bf16 --output "$out/model" \
    --metrics "$out/model.jsonl" --plot "$out/loss.png" --logging-steps 500

heading "4. Held-back descriptions: perplexity"
printf '$ %s\n' "$fsdp evaluate --model $out/model --data $out/test.bin --max-seq-length 128 --json"
"$fsdp" evaluate --model "$out/model" --data "$out/test.bin" --max-seq-length 128 --json >"$out/evaluation.json" ||
    fail "the evaluation failed with exit code $?"
perplexity=$(sed -n 's/.*"perplexity": \([0-9.e+]*\).*/\1/p' "$out/evaluation.json")
# Guessing each token by its frequency in the training texts, with one more of each.
ids() { od -An -v -tu2 "$1"; }
{
    ids "$out/train.bin" && echo test && ids "$out/test.bin"
} | awk -v vocabulary=$vocabulary -v model="$perplexity" '
    /test/ { testing = 1; next }
    {
        for (i = 1; i <= NF; i++)
            if (testing) {
                sum -= log((count[$i] + 1) / (total + vocabulary))
                n++
            } else {
                count[$i]++
                total++
            }
    }
    END {
        printf "%-28s %10s\n", "", "perplexity"
        printf "%-28s %10d\n", "any token is as likely", vocabulary
        printf "%-28s %10.1f\n", "by the frequency of tokens", exp(sum / n)
        printf "%-28s %10.1f\n", "the trained Llama", model
        exit !(model < exp(sum / n))
    }' || fail "the model is no better than the frequency of tokens (see $out/evaluation.json)"

heading "5. What it writes"
for prompt in "This package contains" "A library for" "Simple tool to"; do
    text=$("$fsdp" generate --model "$out/model" --max-new-tokens 40 --do-sample --temperature 0.7 --top-p 0.9 \
        --repetition-penalty 1.1 --seed 3 "$prompt") || fail "generating failed with exit code $?"
    printf '%s\n' "  $prompt$(printf '%s' "$text" | tr '\n' ' ' | sed 's/   */ /g')"
done

heading "Done in $(($(date +%s) - started)) s. What is where:"
cat <<END
  $out/start/           tokenizer and config.json without weights
  $out/model/           the trained model: a folder that transformers loads, too
  $out/loss.png         its loss; $out/model.jsonl has loss, time and memory of every step
  $out/evaluation.json  loss and perplexity
More of it: $fsdp generate --model $out/model --do-sample 'A game'
END
