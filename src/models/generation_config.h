/* How a model's makers want it to generate: generation_config.json beside config.json. Directories
 * from before transformers 4.25 have none; their config.json holds the same keys. */
#pragma once
#include <fsdp/base.h>

#include "src/base/json.h"

enum {
    FSDP_MAX_EOS = 16
};

typedef struct fsdp_generation_config {
    int64_t decoder_start_token_id; /* -1: not given */
    int64_t pad_token_id;           /* -1: not given */
    int64_t eos_token_ids[FSDP_MAX_EOS];
    int n_eos;              /* 0: not given */
    int64_t max_length;     /* 20 if not given, as in transformers; counts the start token */
    int64_t max_new_tokens; /* 0: not given, max_length counts; else it wins */
    int64_t min_length;     /* 0: none */
    int64_t num_beams;      /* 1: no beam search */
    bool do_sample;         /* false: greedy or beams */
    double temperature, top_p;
    int64_t top_k;
    double repetition_penalty, length_penalty; /* 1: none */
    int64_t no_repeat_ngram_size;              /* 0: none */
} fsdp_generation_config;

/* Read `dir`/generation_config.json or, without one, those keys of `dir`/config.json; absent keys
 * get transformers' defaults. Errors name file, key and value. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_read(const char *dir,
                                                        fsdp_generation_config *config);
/* The same for a document. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_parse(fsdp_json *doc,
                                                         fsdp_generation_config *config);

/* Write a generation_config.json with the token ids of `config`. `source` is the file it descends
 * from, whose other keys are kept, or NULL. Whole or not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_config_write(const fsdp_generation_config *config,
                                                         const char *source, const char *path);
