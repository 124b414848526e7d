/* Options of text generation that several commands share. Their names are those that transformers
 * uses. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/options.h>

#include "src/models/generation_config.h"

/* The choices of --early-stopping, in the order of the enum fsdp_early_stopping. */
extern const char *const fsdp_early_stopping_choices[];

/* Rows for a command's option table, one for each generation option. The options are parsed into
 * a member of the command's struct that has the type fsdp_generation_settings. `at` is the offset
 * of this member in the struct. `longest` is the text that --help shows as the default of
 * --max-new-tokens. After parsing, the command must call fsdp_generation_options_given(),
 * and fsdp_generation_settings_parse(). */
/* clang-format off */
#define FSDP_GENERATION_OPTIONS(at, longest)                                                       \
    {.name = "max-new-tokens", FSDP_SETTING_INT(at, max_new_tokens), .shown_default = longest,     \
     .bounds = FSDP_BETWEEN(1, 1000000), .group = "generation", .help = "most tokens to generate"}, \
    {.name = "max-length", FSDP_SETTING_INT(at, max_length), .shown_default = "none",              \
     .bounds = FSDP_BETWEEN(1, 1000000),                                                           \
     .help = "most tokens, including the prompt or T5's start token"},                             \
    {.name = "min-new-tokens", FSDP_SETTING_INT(at, min_new_tokens), FSDP_FILE_OR("0"),            \
     .bounds = FSDP_BETWEEN(0, 1000000), .help = "fewest tokens to generate"},                     \
    {.name = "min-length", FSDP_SETTING_INT(at, min_length), FSDP_FILE_OR("0"),                    \
     .bounds = FSDP_BETWEEN(0, 1000000),                                                           \
     .help = "fewest tokens, including the prompt or T5's start token"},                           \
    {.name = "num-beams", FSDP_SETTING_INT(at, num_beams), FSDP_FILE_OR("1"),                      \
     .bounds = FSDP_BETWEEN(1, 10000), .help = "number of beams of beam search; 1: no beam "       \
                                               "search"},                                          \
    {.name = "length-penalty", FSDP_SETTING_X(at, length_penalty), FSDP_FILE_OR("1"),              \
     .help = "beams are ranked by log-probability / length^X: above 0 favors long texts"},        \
    {.name = "early-stopping", FSDP_SETTING(at, early_stopping), .type = FSDP_OPTION_CHOICE,       \
     .choices = fsdp_early_stopping_choices, FSDP_FILE_OR("false"),                                \
     .help = "when a search ends. true: when num-beams beams have ended. false: when, in "         \
             "addition, no unfinished beam has a better score now. never: when, in addition, "     \
             "none can still get a better score"},                                                 \
    {.name = "do-sample", FSDP_SETTING(at, do_sample), .type = FSDP_OPTION_BOOL,                   \
     .takes_word = true, FSDP_FILE_OR("false"),                                                    \
     .help = "draw tokens by their probability; else the most likely one is taken"},               \
    {.name = "temperature", FSDP_SETTING_X(at, temperature), FSDP_FILE_OR("1"),                    \
     .bounds = FSDP_ABOVE(0), .help = "of --do-sample: logits are divided by it"},                 \
    {.name = "top-k", FSDP_SETTING_INT(at, top_k), FSDP_FILE_OR("50"),                             \
     .bounds = FSDP_BETWEEN(0, INT32_MAX),                                                         \
     .help = "of --do-sample: draw from the N most likely tokens; 0: from all"},                   \
    {.name = "top-p", FSDP_SETTING_X(at, top_p), FSDP_FILE_OR("1"),                                \
     .bounds = FSDP_ABOVE_UP_TO(0, 1),                                                             \
     .help = "of --do-sample: draw from the fewest tokens whose probabilities reach X"},           \
    {.name = "min-p", FSDP_SETTING_X(at, min_p), FSDP_FILE_OR("0"), .bounds = FSDP_BETWEEN(0, 1),  \
     .help = "of --do-sample: draw from tokens at least X times as likely as the likeliest"},      \
    {.name = "top-h", FSDP_SETTING_X(at, top_h), FSDP_FILE_OR("0"), .bounds = FSDP_BETWEEN(0, 1),  \
     .help = "of --do-sample: draw from the most likely tokens that have X of the entropy of the " \
             "100 most likely ones; 0: off"},                                                      \
    {.name = "repetition-penalty", FSDP_SETTING_X(at, repetition_penalty), FSDP_FILE_OR("1"),      \
     .bounds = FSDP_ABOVE(0), .help = "above 1 makes tokens that the text already has less "       \
                                      "likely"},                                                   \
    {.name = "no-repeat-ngram-size", FSDP_SETTING_INT(at, no_repeat_ngram_size),                   \
     FSDP_FILE_OR("0"), .bounds = FSDP_BETWEEN(0, INT32_MAX),                                      \
     .help = "never generate the same N tokens in a row twice; 0: off"},                           \
    {.name = "typical-p", FSDP_SETTING_X(at, typical_p), FSDP_FILE_OR("1"),                        \
     .bounds = FSDP_ABOVE_UP_TO(0, 1),                                                             \
     .help = "of --do-sample: draw from the tokens that are about as surprising as expected"},     \
    {.name = "epsilon-cutoff", FSDP_SETTING_X(at, epsilon_cutoff), FSDP_FILE_OR("0"),              \
     .bounds = FSDP_FROM_TO_BELOW(0, 1),                                                           \
     .help = "of --do-sample: draw from tokens whose probability is at least X"},                  \
    {.name = "eta-cutoff", FSDP_SETTING_X(at, eta_cutoff), FSDP_FILE_OR("0"),                      \
     .bounds = FSDP_FROM_TO_BELOW(0, 1),                                                           \
     .help = "of --do-sample: as --epsilon-cutoff, but with a smaller bound if many tokens are "   \
             "likely"},                                                                            \
    {.name = "stop-strings", .aliases = "stop", .type = FSDP_OPTION_LIST, .repeats = true,         \
     .offset = (at) + offsetof(fsdp_generation_settings, texts.stop_strings), .optional = true,    \
     .metavar = "TEXT", FSDP_FILE_OR("none"),                                                      \
     .help = "a text ends with the token that completes TEXT, which stays in it as in "            \
             "transformers; may be given several times"},                                          \
    {.name = "bad-words-ids", FSDP_SETTING_LIST(at, bad_words_ids), .metavar = "[[ID,...],...]",   \
     .help = "sequences of token ids that are never generated"},                                   \
    {.name = "suppress-tokens", FSDP_SETTING_LIST(at, suppress_tokens), .metavar = "ID,...",       \
     .help = "tokens that are never generated"},                                                   \
    {.name = "begin-suppress-tokens", FSDP_SETTING_LIST(at, begin_suppress_tokens),                \
     .metavar = "ID,...", .help = "tokens that are not generated as the first one"},               \
    {.name = "forced-bos-token-id", FSDP_SETTING_LIST(at, forced_bos_token_id), .metavar = "ID",   \
     .help = "the token after the decoder's start token, such as a language's"},                   \
    {.name = "forced-eos-token-id", FSDP_SETTING_LIST(at, forced_eos_token_id),                    \
     .metavar = "ID,...", .help = "the last token of a text that reaches its maximum length"},     \
    {.name = "exponential-decay-length-penalty",                                                   \
     FSDP_SETTING_LIST(at, exponential_decay_length_penalty), .metavar = "N,X",                    \
     .help = "after N tokens, the end becomes likelier by the factor X per token"},                \
    {.name = "sequence-bias", FSDP_SETTING_LIST(at, sequence_bias),                                \
     .metavar = "[[[ID,...],X],...]",                                                              \
     .help = "add X to the score of the token that completes a sequence of token ids"},            \
    {.name = "encoder-repetition-penalty", FSDP_SETTING_X(at, encoder_repetition_penalty),         \
     FSDP_FILE_OR("1"), .bounds = FSDP_ABOVE(0),                                                   \
     .help = "above 1 makes tokens of the source or the prompt likelier, below 1 less likely"},    \
    {.name = "encoder-no-repeat-ngram-size", FSDP_SETTING_INT(at, encoder_no_repeat_ngram_size),   \
     FSDP_FILE_OR("0"), .bounds = FSDP_BETWEEN(0, INT32_MAX),                                      \
     .help = "never generate N tokens that are in a row in the source or the prompt; 0: off"},     \
    {.name = "guidance-scale", FSDP_SETTING_X(at, guidance_scale), FSDP_FILE_OR("1"),              \
     .bounds = FSDP_BETWEEN(-1e6, 1e6),                                                            \
     .help = "causal models: classifier-free guidance; above 1, texts depend more on the prompt "  \
             "(a second sequence without the prompt is computed); 1: off"},                        \
    {.name = "negative-prompt-ids", FSDP_SETTING_LIST(at, negative_prompt_ids),                    \
     .metavar = "ID,...",                                                                          \
     .help = "of --guidance-scale: token ids of a prompt that texts should not follow"},           \
    {.name = "max-time", FSDP_SETTING_X(at, max_time), FSDP_FILE_OR("none"),                       \
     .bounds = FSDP_ABOVE(0), .help = "seconds after which all texts of a batch end, even if "     \
                                      "they are not complete"},                                    \
    {.name = "remove-invalid-values", FSDP_SETTING(at, remove_invalid_values),                     \
     .type = FSDP_OPTION_BOOL, .takes_word = true, FSDP_FILE_OR("false"),                          \
     .help = "replace a score that is NaN by 0 and an infinite one by the largest number, "        \
             "instead of failing"},                                                                \
    {.name = "renormalize-logits", FSDP_SETTING(at, renormalize_logits),                           \
     .type = FSDP_OPTION_BOOL, .takes_word = true, FSDP_FILE_OR("false"),                          \
     .help = "beam search: normalize the scores after the options above have changed them, so "    \
             "that they are log-probabilities again"},                                             \
    FSDP_NOT_A_SETTING("num-beam-groups", "1", FSDP_NO_DIVERSE_BEAMS),                             \
    FSDP_NOT_A_SETTING("diversity-penalty", "0|0.0", FSDP_NO_DIVERSE_BEAMS),                       \
    FSDP_NOT_A_SETTING("penalty-alpha", "0|0.0", FSDP_NO_CONTRAST),                                \
    FSDP_NOT_A_SETTING("dola-layers", NULL, FSDP_NO_DOLA),                                         \
    FSDP_NOT_A_SETTING("force-words-ids", NULL, FSDP_NO_CONSTRAINTS),                              \
    FSDP_NOT_A_SETTING("constraints", NULL, FSDP_NO_CONSTRAINTS),                                  \
    FSDP_NOT_A_SETTING("watermarking-config", NULL, FSDP_NO_WATERMARK),                            \
    FSDP_NOT_A_SWITCH("token-healing", "false", FSDP_NO_HEALING),                                  \
    FSDP_NOT_A_SETTING("prompt-lookup-num-tokens", NULL, FSDP_NO_SPECULATION),                     \
    FSDP_NOT_A_SETTING("max-matching-ngram-size", NULL, FSDP_NO_SPECULATION),                      \
    FSDP_NOT_A_SETTING("assistant-model", NULL, FSDP_NO_SPECULATION),                              \
    FSDP_NOT_A_SETTING("num-assistant-tokens", NULL, FSDP_NO_SPECULATION),                         \
    FSDP_NOT_A_SETTING("num-assistant-tokens-schedule", NULL, FSDP_NO_SPECULATION),                \
    FSDP_NOT_A_SETTING("assistant-confidence-threshold", NULL, FSDP_NO_SPECULATION),               \
    FSDP_NOT_A_SETTING("assistant-early-exit", NULL, FSDP_NO_SPECULATION),                         \
    FSDP_NOT_A_SETTING("assistant-lookbehind", NULL, FSDP_NO_SPECULATION),                         \
    FSDP_NOT_A_SETTING("target-lookbehind", NULL, FSDP_NO_SPECULATION),                            \
    FSDP_NOT_A_SETTING("assistant-ensemble-weight", NULL, FSDP_NO_SPECULATION),                    \
    FSDP_NOT_A_SETTING("speculation-type", NULL, FSDP_NO_SPECULATION),                             \
    FSDP_NOT_A_SWITCH("use-mtp", "false", FSDP_NO_SPECULATION),                                    \
    FSDP_NOT_A_SWITCH("is-assistant", "false", FSDP_NO_SPECULATION),                               \
    FSDP_NOT_A_SWITCH("use-cache", "true", FSDP_NO_CACHE),                                         \
    FSDP_NOT_A_SETTING("cache-implementation", "dynamic", FSDP_NO_CACHE),                          \
    FSDP_NOT_A_SETTING("cache-config", NULL, FSDP_NO_CACHE),                                       \
    FSDP_NOT_A_SETTING("max-cache-len", NULL, FSDP_NO_CACHE),                                      \
    FSDP_NOT_A_SETTING("prefill-chunk-size", NULL, FSDP_NO_CACHE),                                 \
    FSDP_NOT_A_SWITCH("low-memory", "false", FSDP_NO_MEMORY),                                      \
    FSDP_NOT_A_SETTING("compile-config", NULL, FSDP_NO_COMPILING),                                 \
    FSDP_NOT_A_SWITCH("disable-compile", "true", FSDP_NO_COMPILING),                               \
    FSDP_NOT_A_SETTING("continuous-batching-config", NULL, FSDP_NO_BATCHING),                      \
    FSDP_NOT_A_SWITCH("output-scores", "false", FSDP_NO_TENSORS),                                  \
    FSDP_NOT_A_SWITCH("output-logits", "false", FSDP_NO_TENSORS),                                  \
    FSDP_NOT_A_SWITCH("output-attentions", "false", FSDP_NO_TENSORS),                              \
    FSDP_NOT_A_SWITCH("output-hidden-states", "false", FSDP_NO_TENSORS),                           \
    FSDP_NOT_A_SWITCH("return-dict-in-generate", "false", FSDP_NO_TENSORS),                        \
    FSDP_NOT_A_SETTING("eos-token-id", NULL, FSDP_NO_TOKENS),                                      \
    FSDP_NOT_A_SETTING("pad-token-id", NULL, FSDP_NO_TOKENS),                                      \
    FSDP_NOT_A_SETTING("bos-token-id", NULL, FSDP_NO_TOKENS),                                      \
    FSDP_NOT_A_SETTING("decoder-start-token-id", NULL, FSDP_NO_TOKENS)

#define FSDP_SETTING(at, name)                                                                     \
    .offset = (at) + offsetof(fsdp_generation_settings, values.name), .optional = true
#define FSDP_SETTING_LIST(at, name)                                                                \
    .type = FSDP_OPTION_STRING,                                                                    \
    .offset = (at) + offsetof(fsdp_generation_settings, texts.name), .optional = true,             \
    FSDP_FILE_OR("none")
/* A setting of transformers that this program does not have. Any value but `neutral` is an error
 * with `reason`, which says what to use instead. */
#define FSDP_NOT_A_SETTING(flag, neutral, reason)                                                  \
    {.name = flag, .type = FSDP_OPTION_STRING, .offset = FSDP_OPTION_NOWHERE, .value = neutral,    \
     .metavar = "VALUE", .instead = reason, .no_effect = "this is always so here",                 \
     .hidden = true}
/* The same for a setting that is true or false. */
#define FSDP_NOT_A_SWITCH(flag, neutral, reason)                                                   \
    {.name = flag, .type = FSDP_OPTION_BOOL, .offset = FSDP_OPTION_NOWHERE, .takes_word = true, .value = neutral, \
     .instead = reason, .no_effect = "this is always so here", .hidden = true}
#define FSDP_NO_DIVERSE_BEAMS                                                                      \
    "there is no diverse beam search, which transformers 5 does not have either; --do-sample "     \
    "with --num-return-sequences gives different texts"
#define FSDP_NO_CONTRAST                                                                           \
    "there is no contrastive search, which transformers 5 does not have either; "                  \
    "--repetition-penalty and --no-repeat-ngram-size avoid repetitions"
#define FSDP_NO_DOLA                                                                               \
    "there is no DoLa decoding, which transformers 5 does not have either; --guidance-scale "      \
    "also contrasts two predictions"
#define FSDP_NO_CONSTRAINTS                                                                        \
    "there is no constrained beam search, which transformers 5 does not have either; "             \
    "--sequence-bias with a large number makes a sequence likely"
#define FSDP_NO_WATERMARK                                                                          \
    "texts are not watermarked; --sequence-bias makes given tokens likelier"
#define FSDP_NO_HEALING                                                                            \
    "prompts are encoded as they are; a prompt that ends at the end of a word, without a "         \
    "space, needs no healing"
#define FSDP_NO_SPECULATION                                                                        \
    "there is no speculative decoding, which would give the same texts; leave it out"
#define FSDP_NO_CACHE                                                                              \
    "there is one kind of cache, which grows as needed and changes no text; leave it out"
#define FSDP_NO_COMPILING                                                                          \
    "nothing is compiled while the program runs; leave it out"
#define FSDP_NO_TENSORS                                                                            \
    "--json prints ids, texts and the scores of beams"
#define FSDP_NO_TOKENS                                                                             \
    "write it into the model's generation_config.json; --stop ends texts at other places"
#define FSDP_NO_BATCHING                                                                           \
    "--batch-size says how many prompts are generated together"
#define FSDP_NO_MEMORY                                                                             \
    "--batch-size 1 needs the least memory"
#define FSDP_SETTING_INT(at, name)                                                                 \
    FSDP_SETTING(at, name), .type = FSDP_OPTION_INT64, .metavar = "N"
#define FSDP_SETTING_X(at, name)                                                                   \
    FSDP_SETTING(at, name), .type = FSDP_OPTION_DOUBLE, .metavar = "X"
#define FSDP_FILE_OR(text) .shown_default = "generation_config.json's, else " text
/* clang-format on */

/* Record in *settings, for each generation option, the results of fsdp_options_given() and
 * fsdp_options_asked_for(). */
void fsdp_generation_options_given(const fsdp_options *options, fsdp_generation_settings *settings);
