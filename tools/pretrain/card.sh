#!/bin/sh
# The card of the model that tools/pretrain.sh has made, on stdout: what it is, with the figures of the
# run's own files. Called by it, with RESULT, DIR, TEXT, PAIRS, RESTORE, TEST, VALIDATION, ROWS and FSDP.
: "${RESULT:?}" "${DIR:?}" "${TEXT:?}" "${PAIRS:?}" "${RESTORE:?}" "${TEST:?}" "${VALIDATION:?}" "${ROWS:?}" "${FSDP:?}"

# knob NAME: what the run was begun with
knob() { sed -n "s/^$1=//p" "$DIR/knobs"; }
# shape KEY: of config.json
shape() { sed -n "s/^ *\"$1\": \"*\([^\",]*\)\"*,*\$/\1/p" "$DIR/$RESULT/config.json"; }
# score KEY N [FORMAT]: the n-th value of that key in the evaluation: the model's, the constant sentence's
score() {
    value=$(tr , '\n' <"$DIR/evaluation.json" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" | sed -n "${2}p")
    # shellcheck disable=SC2059
    printf "${3:-%.3f}" "$value"
}
constant() { sed -n 's/.*"best_constant": {"text": "\(\([^"\\]\|\\.\)*\)".*/\1/p' "$DIR/evaluation.json"; }
parameters() {
    "$FSDP" checkpoint inspect "$DIR/$RESULT" --json | sed -n 's/.*"numel": \([0-9]*\), "bytes".*/\1/p'
}
# A table of what the metrics say. The last hundred steps' loss is the mean of theirs.
run_figures() {
    awk '
        function value(key,    at, rest) {
            at = index($0, "\"" key "\": ")
            if (!at) return 0
            rest = substr($0, at + length(key) + 4)
            sub(/[,}].*/, "", rest)
            return rest + 0
        }
        /"kind": "step"/ {
            steps = value("step"); tokens += value("tokens"); seconds += value("seconds")
            loss[steps] = value("loss")
            if (value("lr") > rate) rate = value("lr")
        }
        /"kind": "validation"/ {
            last = value("loss"); at = value("step")
            if (!n++ || last < best) { best = last; best_at = at }
        }
        END {
            for (i = steps > 100 ? steps - 99 : 1; i <= steps; i++) { sum += loss[i]; counted++ }
            print "| | |\n|---|---|"
            printf "| steps | %d |\n", steps
            printf "| tokens of inputs and targets | %.2f million |\n", tokens / 1e6
            printf "| time of the steps | %.2f hours, %.0f tokens/s |\n", seconds / 3600, seconds ? tokens / seconds : 0
            printf "| highest learning rate | %g |\n", rate
            if (counted) printf "| training loss, mean of the last %d steps | %.4f |\n", counted, sum / counted
            if (n) printf "| validation loss (span corruption) | %.4f at step %d; the best, of this model: %.4f at step %d |\n", last, at, best, best_at
        }' "$DIR/metrics.jsonl"
}
# What became of the corpus, if it was made here.
corpus_figures() {
    [ -e "$DIR/corpus/counts.txt" ] || return 0
    awk -F'\t' '
        $2 == "documents in text.txt" { documents = $1 }
        $2 == "characters in text.txt" { characters = $1 }
        $2 == "pairs in pairs.csv" { pairs = $1 }
        $2 ~ /^left out by the SHA-1/ { out = $1 }
        $2 == "packages" { packages = $1 }
        END {
            printf "The English descriptions of %d packages of Debian main: %d documents with %d characters\n", packages, documents, characters
            printf "for span corruption, and %d pairs of description and synopsis. %d packages, whose names have an\n", pairs, out
            print "SHA-1 that begins with a byte below 0x20, were left out, and so were texts that other descriptions\nshare with theirs."
        }' "$DIR/corpus/counts.txt"
    case $VALIDATION:$TEST in
    data/debian/*:data/debian/*) echo "The rows of \`data/debian\`, on which the model is evaluated below, are among them." ;;
    esac
}
mixture() {
    echo "Span corruption, the objective of T5's pretraining: 15 % of the tokens, in spans of 3 on average, inputs of"
    echo "$(knob LENGTH) tokens, from \`$(basename "$TEXT")\`."
    [ "$PAIRS" = none ] || {
        echo "With a share of $(knob PAIRS_SHARE) of the rows, pairs of text and summary with the prefix \`summarize: \`, from"
        echo "\`$(basename "$PAIRS")\`."
    }
    [ "$RESTORE" = none ] ||
        echo "With a share of $(knob RESTORE_SHARE) texts to restore, in which a fifth of the words is missing, with the prefix \`summarize: restore: \`."
}

cat <<END
---
language: en
library_name: transformers
pipeline_tag: summarization
license: other
license_name: debian-package-descriptions
tags:
- t5
- span-corruption
---

# $RESULT

A small T5, pretrained from random weights by \`tools/pretrain.sh\` of fsdp.c, to be fine-tuned on short
English texts about software. $(parameters) parameters in bf16: d_model $(shape d_model), d_ff $(shape d_ff)
($(shape feed_forward_proj)), $(shape num_heads) heads of $(shape d_kv), $(shape num_layers) + $(shape num_decoder_layers) layers, $(shape vocab_size) ids, input and output embedding tied.

    fsdp generate --model $RESULT 'summarize: TEXT'

    # pip install torch "transformers[sentencepiece]"
    from transformers import AutoTokenizer, T5ForConditionalGeneration
    tokenizer = AutoTokenizer.from_pretrained("$RESULT")
    model = T5ForConditionalGeneration.from_pretrained("$RESULT")

## Data

$(corpus_figures)

$(mixture)

Licenses: all of Debian main is free under the Debian Free Software Guidelines. A description is part of its
source package and under that package's license; copyright belongs to the packages' authors and
maintainers: https://metadata.ftp-master.debian.org/changelogs/main/ has each package's \`copyright\` file.

## Training

$(knob OPTIMIZER), schedule $(knob SCHEDULE) with $(knob WARMUP) steps of warmup, weight decay $(knob WEIGHT_DECAY), gradients clipped at $(knob CLIP),
dropout $(knob DROPOUT), $ROWS rows per step, computed in $(knob DTYPE) with float32 master weights, seed $(knob SEED).

![loss](loss.png)

## Figures

$(run_figures)

On the $(score rows 1 %d) rows of \`$(basename "$TEST")\`, before any fine-tuning (prefix \`summarize: \`, greedy texts):

| | ROUGE-1 | ROUGE-2 | ROUGE-L | loss |
|---|---|---|---|---|
| $RESULT | $(score rouge1 1) | $(score rouge2 1) | $(score rougeL 1) | $(score loss 1) |
| the best constant sentence, "$(constant)" | $(score rouge1 2) | $(score rouge2 2) | $(score rougeL 2) | |

## Limits

The model was trained only on English descriptions of software packages and knows little else. It is small: its
texts can be wrong, or name something that does not exist. They are not statements about a package. Inputs longer than $(knob LENGTH) tokens were not trained.
END
