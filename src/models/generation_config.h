/* How a model's makers want it to generate: generation_config.json beside config.json. Directories
 * from before transformers 4.25 have none; their config.json holds the same keys. */
#pragma once
#include <fsdp/base.h>
#include <fsdp/models.h>

#include "src/base/json.h"

enum {
    FSDP_MAX_EOS = 16
};

/* When the beams of a prompt have been searched enough, once num_beams of them have ended. */
typedef enum fsdp_early_stopping {
    FSDP_EARLY_STOPPING_FALSE, /* when those under way are worse at their present length */
    FSDP_EARLY_STOPPING_TRUE,  /* at once */
    FSDP_EARLY_STOPPING_NEVER  /* when those under way can no longer become better */
} fsdp_early_stopping;

/* Fields are named and mean what they do in transformers. Lengths count the prompt: of a causal
 * model its ids, of T5 the start token. */
typedef struct fsdp_generation_config {
    bool from_config_json;          /* read of it, without a generation_config.json */
    int64_t decoder_start_token_id; /* -1: not given */
    int64_t pad_token_id;           /* -1: not given */
    int64_t eos_token_ids[FSDP_MAX_EOS];
    int n_eos;                    /* 0: not given */
    int64_t max_length;           /* 0: not given, 20 new tokens as in transformers */
    int64_t max_new_tokens;       /* 0: not given, max_length counts; else it wins */
    int64_t min_length;           /* 0: none */
    int64_t min_new_tokens;       /* 0: not given, min_length counts; else it wins */
    int64_t num_beams;            /* 1: no beam search */
    int64_t num_return_sequences; /* for each prompt */
    double length_penalty;        /* scores are divided by length ^ length_penalty */
    fsdp_early_stopping early_stopping;
    bool do_sample; /* false: the most likely id, or beams */
    double temperature;
    int64_t top_k;                /* 0: all ids */
    double top_p, min_p;          /* 1, 0: all ids */
    double repetition_penalty;    /* 1: none */
    int64_t no_repeat_ngram_size; /* 0: none */
    char unsupported[512];        /* keys that would change the result and are not handled; or "" */
} fsdp_generation_config;

/* The settings that a caller may want otherwise than the model's makers: one list for the places
 * that go through all of them. */
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
    X(repetition_penalty)                                                                          \
    X(no_repeat_ngram_size)

/* Settings over those of a model; {0}: none. */
typedef struct fsdp_generation_settings {
    fsdp_generation_config values;
    struct {
#define FSDP_FIELD(name) bool name;
        FSDP_GENERATION_SETTINGS(FSDP_FIELD)
#undef FSDP_FIELD
    } given, asked_for; /* asked_for: see fsdp_options_says() */
} fsdp_generation_settings;

/* What the model itself says; transformers' defaults. */
fsdp_generation_config fsdp_generation_config_of(const fsdp_model_info *info);

/* Read `dir`/generation_config.json or, without one, those keys of `dir`/config.json; absent keys
 * get transformers' defaults. Errors name file, key and value. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_read(const char *dir,
                                                        fsdp_generation_config *config);
/* The same for a document. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_parse(fsdp_json *doc,
                                                         fsdp_generation_config *config);
/* Put the keys that `root` has in place of what config says. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_update(fsdp_json_node root,
                                                          fsdp_generation_config *config);
/* Put the given settings in place of what config says. A given max_length alone also takes the
 * place of the model's max_new_tokens, and likewise for the least lengths; a given min_new_tokens,
 * even 0, that of every min_length. */
void fsdp_generation_config_set(fsdp_generation_config *config,
                                const fsdp_generation_settings *settings);
/* Values that do not go together. FSDP_ERR_INVALID naming them; FSDP_ERR_UNSUPPORTED. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_check(const fsdp_generation_config *config);

/* New tokens at most, and at least, for a prompt of so many ids. */
int64_t fsdp_generation_config_max_new(const fsdp_generation_config *config, int64_t prompt_length);
int64_t fsdp_generation_config_min_new(const fsdp_generation_config *config, int64_t prompt_length);

/* Write the generation_config.json of a model that descends from the one in `dir`, may be NULL: its
 * file as it is, with the model's token ids where it names none. Values that could not be generated
 * with are no error here, and a file that is no JSON is warned of and replaced by a new one. Whole
 * or not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_write(const fsdp_model_info *info,
                                                         const char *dir, const char *path);
