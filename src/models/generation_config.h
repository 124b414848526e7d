/* generation_config.json: the settings for generation that the authors of a model recommend. The
 * file is in the same directory as config.json. Directories that were written before transformers
 * 4.25 do not have the file; there, config.json has the same keys. */
#pragma once
#include <fsdp/base.h>
#include <fsdp/models.h>
#include <fsdp/options.h>

#include "src/base/json.h"
#include "src/models/token_rules.h"

enum {
    FSDP_MAX_EOS = 16
};

/* The rule by which the beam search for a prompt ends. One condition is the same for all values:
 * num_beams beams of the prompt have finished. FSDP_EARLY_STOPPING_FALSE and
 * FSDP_EARLY_STOPPING_NEVER have a second condition, and the search ends when both conditions are
 * true. */
typedef enum fsdp_early_stopping {
    FSDP_EARLY_STOPPING_FALSE, /* second condition: no running beam, at its current length, has a
                                  better score than the worst finished beam */
    FSDP_EARLY_STOPPING_TRUE,  /* only the first condition */
    FSDP_EARLY_STOPPING_NEVER  /* second condition: no running beam can still get a better score
                                  than the worst finished beam */
} fsdp_early_stopping;

/* The fields have the names and meanings of transformers' GenerationConfig. max_length and
 * min_length limit the sum of new tokens and prompt tokens. For T5, the decoder's start token is
 * the prompt, and the ids of the source are not counted. */
typedef struct fsdp_generation_config {
    bool from_config_json; /* true if the settings were read from config.json, because there is no
                            * generation_config.json */
    int64_t decoder_start_token_id; /* -1: not given */
    int64_t pad_token_id;           /* -1: not given */
    int64_t eos_token_ids[FSDP_MAX_EOS];
    int n_eos;              /* 0: not given */
    int64_t max_length;     /* 0: not given; the limit is then 20 new tokens, as in transformers */
    int64_t max_new_tokens; /* overrides max_length; 0: not given */
    int64_t min_length;     /* 0: no minimum */
    int64_t min_new_tokens; /* overrides min_length; 0: not given */
    int64_t num_beams;      /* 1: no beam search */
    int64_t num_return_sequences; /* number of texts that are returned for each prompt */
    double length_penalty;        /* beam scores are divided by length ^ length_penalty */
    fsdp_early_stopping early_stopping;
    bool do_sample; /* false: take the most likely id, or search with beams */
    double temperature;
    int64_t top_k;                       /* 0: all ids */
    double top_p, min_p, top_h;          /* top_p 1, min_p 0, top_h 0: all ids */
    double repetition_penalty;           /* 1: no penalty */
    int64_t no_repeat_ngram_size;        /* 0: n-grams may repeat */
    double typical_p;                    /* 1: all ids */
    double epsilon_cutoff, eta_cutoff;   /* 0: all ids */
    fsdp_rule_words bad_words_ids;       /* sequences that are never generated */
    fsdp_rule_ids suppress_tokens;       /* ids that are never generated */
    fsdp_rule_ids begin_suppress_tokens; /* ids that are never generated as the first new id */
    /* at most one id, which is generated directly after the start token */
    fsdp_rule_ids forced_bos_token_id;
    /* if the length limit is reached, the last id is one of these */
    fsdp_rule_ids forced_eos_token_id;
    fsdp_length_decay exponential_decay_length_penalty;
    fsdp_rule_biases sequence_bias; /* numbers that are added to scores */
    /* Some ids get a repetition penalty of 1 / encoder_repetition_penalty: those in the source of a
     * seq2seq model, or those in the prompt of any other model. So with a value above 1, these ids
     * become likelier. 1 or 0: no change. */
    double encoder_repetition_penalty;
    /* an n-gram of the prompt or of the source is not generated again; 0: n-grams may repeat */
    int64_t encoder_no_repeat_ngram_size;
    /* classifier-free guidance (src/generate/guidance.h); 1: off */
    double guidance_scale;
    /* the prompt from which guidance_scale leads the result away; empty: only the last id of the
     * actual prompt. This is not a key of transformers' file, but an argument of its generate() */
    fsdp_rule_ids negative_prompt_ids;
    /* If generation of a batch has taken more than this number of seconds, each sequence ends with
     * its next id. 0: no limit. */
    double max_time;
    bool remove_invalid_values; /* use 0 for a NaN, and the largest float for an infinity */
    /* Only for beam search: normalize the scores again after they were changed, so that they are
     * log-probabilities. */
    bool renormalize_logits;
    /* a sequence ends with the id that completes one of these texts */
    fsdp_rule_texts stop_strings;
    /* Names of keys of the file that are unknown, or that are not supported and would change the
     * result. "": none. */
    char unsupported[512];
} fsdp_generation_config;

/* The settings that a caller may override. Code that does the same for every setting passes a macro
 * as X. */
#define FSDP_GENERATION_SETTINGS(X)                                                                \
    X(max_length)                                                                                  \
    X(max_new_tokens)                                                                              \
    X(min_length)                                                                                  \
    X(min_new_tokens)                                                                              \
    X(num_beams)                                                                                   \
    X(length_penalty)                                                                              \
    X(early_stopping)                                                                              \
    X(do_sample)                                                                                   \
    X(temperature)                                                                                 \
    X(top_k)                                                                                       \
    X(top_p)                                                                                       \
    X(min_p)                                                                                       \
    X(top_h)                                                                                       \
    X(repetition_penalty)                                                                          \
    X(no_repeat_ngram_size)                                                                        \
    X(typical_p)                                                                                   \
    X(epsilon_cutoff)                                                                              \
    X(eta_cutoff)                                                                                  \
    X(bad_words_ids)                                                                               \
    X(suppress_tokens)                                                                             \
    X(begin_suppress_tokens)                                                                       \
    X(forced_bos_token_id)                                                                         \
    X(forced_eos_token_id)                                                                         \
    X(exponential_decay_length_penalty)                                                            \
    X(renormalize_logits)                                                                          \
    X(sequence_bias)                                                                               \
    X(encoder_repetition_penalty)                                                                  \
    X(encoder_no_repeat_ngram_size)                                                                \
    X(guidance_scale)                                                                              \
    X(negative_prompt_ids)                                                                         \
    X(max_time)                                                                                    \
    X(remove_invalid_values)                                                                       \
    X(stop_strings)

/* The settings, other than stop_strings, whose values are lists. A caller gives the value of each
 * as JSON text, or NULL if it is not given. */
#define FSDP_GENERATION_LISTS(X)                                                                   \
    X(bad_words_ids)                                                                               \
    X(suppress_tokens)                                                                             \
    X(begin_suppress_tokens)                                                                       \
    X(forced_bos_token_id)                                                                         \
    X(forced_eos_token_id)                                                                         \
    X(exponential_decay_length_penalty)                                                            \
    X(sequence_bias)                                                                               \
    X(negative_prompt_ids)

/* Settings that override those of a model. {0} overrides no settings. */
typedef struct fsdp_generation_settings {
    fsdp_generation_config values;
    /* The texts that the command line gives for settings whose values are lists. NULL: not given.
     * fsdp_generation_settings_parse() parses these texts and stores the results in `values`. */
    struct {
#define FSDP_TEXT(name) const char *name;
        FSDP_GENERATION_LISTS(FSDP_TEXT)
#undef FSDP_TEXT
        fsdp_option_list stop_strings;
    } texts;
    struct {
#define FSDP_FIELD(name) bool name;
        FSDP_GENERATION_SETTINGS(FSDP_FIELD)
#undef FSDP_FIELD
        /* given: true for the settings that override those of the model. asked_for: true for the
         * settings that the user asked for (fsdp_options_asked_for()); used for errors about
         * settings without effect. */
    } given, asked_for;
} fsdp_generation_settings;

/* Parse settings->texts and store the results in settings->values. Error messages contain flag and
 * value. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_settings_parse(fsdp_generation_settings *settings);

/* Return transformers' defaults, with the token ids of `info`. */
fsdp_generation_config fsdp_generation_config_of(const fsdp_model_info *info);

/* Read `dir`/generation_config.json or, if that file does not exist, the same keys of
 * `dir`/config.json. Absent keys get transformers' defaults. Error messages contain file, key and
 * value. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_read(const char *dir,
                                                        fsdp_generation_config *config);
/* Set *config from an open document, as fsdp_generation_config_read() does from a file. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_parse(fsdp_json *doc,
                                                         fsdp_generation_config *config);
/* Override `config` with the keys that `root` has. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_update(fsdp_json_node root,
                                                          fsdp_generation_config *config);
/* Override `config` with the given settings. Some given settings also remove other settings from
 * `config`:
 * - max_length removes max_new_tokens, unless max_new_tokens is also given;
 * - min_length removes min_new_tokens, unless min_new_tokens is also given;
 * - min_new_tokens, even if it is 0, removes min_length. */
void fsdp_generation_config_set(fsdp_generation_config *config,
                                const fsdp_generation_settings *settings);
/* Check that the settings do not contradict each other. Return FSDP_ERR_UNSUPPORTED for beam search
 * with sampling, and FSDP_ERR_INVALID for other contradictions and for numbers out of range. The
 * message contains the values. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_check(const fsdp_generation_config *config);

/* Return the maximum number of new tokens for a prompt of prompt_length ids. */
int64_t fsdp_generation_config_max_new(const fsdp_generation_config *config, int64_t prompt_length);
/* Return the minimum number of new tokens for a prompt of prompt_length ids. It may be negative. */
int64_t fsdp_generation_config_min_new(const fsdp_generation_config *config, int64_t prompt_length);

/* Write the generation_config.json of a model to `path`. If the model was made from another model,
 * `dir` is the directory of that other model, otherwise NULL.
 *
 * If `dir` has a generation_config.json, the new file is a copy of that file, to which missing
 * token ids are added. It is copied even if its settings would make generation fail. If `dir` has
 * no generation_config.json, the new file contains only token ids. Token ids are taken from `info`,
 * with one exception: if eos_token_id is a list in the config.json of `dir`, that list is written.
 * If a file in `dir` cannot be read or is not a JSON object, a warning is reported, and the file is
 * ignored. On failure nothing is written. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_write(const fsdp_model_info *info,
                                                         const char *dir, const char *path);
