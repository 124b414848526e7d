/* Reads and writes generation_config.json. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/log.h"
#include "src/models/generation_config.h"

enum {
    DEFAULT_NEW_TOKENS = 20 /* maximum number of new tokens if no length is given, as in
                             * transformers */
};

static const fsdp_generation_config defaults = {.decoder_start_token_id = -1,
                                                .pad_token_id = -1,
                                                .num_beams = 1,
                                                .num_return_sequences = 1,
                                                .length_penalty = 1.0,
                                                .temperature = 1.0,
                                                .top_k = 50,
                                                .top_p = 1.0,
                                                .typical_p = 1.0,
                                                .repetition_penalty = 1.0,
                                                .encoder_repetition_penalty = 1.0,
                                                .guidance_scale = 1.0};

fsdp_generation_config fsdp_generation_config_of(const fsdp_model_info *info)
{
    fsdp_generation_config c = defaults;
    if (info->format.task == FSDP_TASK_SEQ2SEQ)
        c.decoder_start_token_id = info->format.decoder_start_token_id;
    c.pad_token_id = info->pad_token_id;
    c.eos_token_ids[0] = info->eos_token_id;
    c.n_eos = info->eos_token_id >= 0;
    return c;
}

/* --- reading --- */

/* -1 is not the id of any token. Some files use it to mean "none". */
enum {
    NO_TOKEN = -1
};

static fsdp_status read_eos(fsdp_json_node root, fsdp_generation_config *c)
{
    if (!fsdp_json_has(root, "eos_token_id"))
        return FSDP_OK;
    fsdp_json_node eos = fsdp_json_find(root, "eos_token_id");
    if (fsdp_json_kind_of(eos) != FSDP_JSON_ARRAY) {
        FSDP_TRY(fsdp_json_get_i64(eos, NULL, NO_TOKEN, INT32_MAX, &c->eos_token_ids[0]));
        c->n_eos = 1;
        return FSDP_OK;
    }
    if (fsdp_json_len(eos) > FSDP_MAX_EOS)
        return fsdp_json_mismatch(eos, NULL, "at most %d token ids", FSDP_MAX_EOS);
    for (size_t i = 0; i < fsdp_json_len(eos); i++)
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(eos, i), NULL, NO_TOKEN, INT32_MAX,
                                   &c->eos_token_ids[i]));
    c->n_eos = (int)fsdp_json_len(eos);
    return FSDP_OK;
}

static fsdp_status read_count(fsdp_json_node root, const char *key, int64_t least, int64_t *value)
{
    return fsdp_json_opt_i64(root, key, least, INT32_MAX, *value, value);
}

static fsdp_status read_positive(fsdp_json_node root, const char *key, double *value)
{
    FSDP_TRY(fsdp_json_opt_f64(root, key, *value, value));
    return *value > 0 ? FSDP_OK : fsdp_json_mismatch(root, key, "a positive number");
}

static fsdp_status read_lengths(fsdp_json_node root, fsdp_generation_config *c)
{
    FSDP_TRY(read_count(root, "max_length", 1, &c->max_length));
    FSDP_TRY(read_count(root, "max_new_tokens", 1, &c->max_new_tokens));
    FSDP_TRY(read_count(root, "min_length", 0, &c->min_length));
    if (fsdp_json_has(root, "min_new_tokens"))
        c->min_length = 0;
    return read_count(root, "min_new_tokens", 0, &c->min_new_tokens);
}

static fsdp_status read_early_stopping(fsdp_json_node root, fsdp_early_stopping *value)
{
    const char *text;
    bool on = *value == FSDP_EARLY_STOPPING_TRUE;
    if (!fsdp_json_has(root, "early_stopping"))
        return FSDP_OK;
    if (fsdp_json_kind_of(fsdp_json_find(root, "early_stopping")) == FSDP_JSON_BOOL) {
        FSDP_TRY(fsdp_json_get_bool(root, "early_stopping", &on));
        *value = on ? FSDP_EARLY_STOPPING_TRUE : FSDP_EARLY_STOPPING_FALSE;
        return FSDP_OK;
    }
    if (fsdp_json_get_str(root, "early_stopping", &text) != FSDP_OK || strcmp(text, "never") != 0)
        return fsdp_json_mismatch(root, "early_stopping", "true, false or \"never\"");
    *value = FSDP_EARLY_STOPPING_NEVER;
    return FSDP_OK;
}

static fsdp_status read_beams(fsdp_json_node root, fsdp_generation_config *c)
{
    FSDP_TRY(read_count(root, "num_beams", 1, &c->num_beams));
    FSDP_TRY(read_count(root, "num_return_sequences", 1, &c->num_return_sequences));
    FSDP_TRY(fsdp_json_opt_f64(root, "length_penalty", c->length_penalty, &c->length_penalty));
    return read_early_stopping(root, &c->early_stopping);
}

static fsdp_status read_sampling(fsdp_json_node root, fsdp_generation_config *c)
{
    FSDP_TRY(fsdp_json_opt_bool(root, "do_sample", c->do_sample, &c->do_sample));
    FSDP_TRY(read_count(root, "top_k", 0, &c->top_k));
    FSDP_TRY(fsdp_json_opt_f64(root, "temperature", c->temperature, &c->temperature));
    FSDP_TRY(fsdp_json_opt_f64(root, "top_p", c->top_p, &c->top_p));
    FSDP_TRY(fsdp_json_opt_f64(root, "top_h", c->top_h, &c->top_h));
    FSDP_TRY(fsdp_json_opt_f64(root, "typical_p", c->typical_p, &c->typical_p));
    FSDP_TRY(fsdp_json_opt_f64(root, "epsilon_cutoff", c->epsilon_cutoff, &c->epsilon_cutoff));
    FSDP_TRY(fsdp_json_opt_f64(root, "eta_cutoff", c->eta_cutoff, &c->eta_cutoff));
    return fsdp_json_opt_f64(root, "min_p", c->min_p, &c->min_p);
}

static fsdp_status read_rules(fsdp_json_node root, fsdp_generation_config *c)
{
    FSDP_TRY(fsdp_rule_words_read(root, "bad_words_ids", &c->bad_words_ids));
    FSDP_TRY(fsdp_rule_ids_read(root, "suppress_tokens", &c->suppress_tokens));
    FSDP_TRY(fsdp_rule_ids_read(root, "begin_suppress_tokens", &c->begin_suppress_tokens));
    FSDP_TRY(fsdp_rule_ids_read(root, "forced_bos_token_id", &c->forced_bos_token_id));
    FSDP_TRY(fsdp_rule_ids_read(root, "forced_eos_token_id", &c->forced_eos_token_id));
    if (c->forced_bos_token_id.n > 1)
        return fsdp_json_mismatch(root, "forced_bos_token_id", "one token id");
    FSDP_TRY(fsdp_length_decay_read(root, "exponential_decay_length_penalty",
                                    &c->exponential_decay_length_penalty));
    FSDP_TRY(fsdp_rule_biases_read(root, "sequence_bias", &c->sequence_bias));
    FSDP_TRY(fsdp_rule_ids_read(root, "negative_prompt_ids", &c->negative_prompt_ids));
    FSDP_TRY(fsdp_json_opt_bool(root, "renormalize_logits", c->renormalize_logits,
                                &c->renormalize_logits));
    return fsdp_rule_texts_read(root, "stop_strings", &c->stop_strings);
}

/* Keys of generation_config.json that this program does not support, and that would change what is
 * generated. A file may have such a key only if its value has no effect: false, null, an empty
 * list, or the number `neutral`. */
static const struct {
    const char *key;
    double neutral; /* NAN: no number is neutral */
} unsupported[] = {
    {"num_beam_groups", 1},
    {"diversity_penalty", 0},
    {"penalty_alpha", 0},
    {"dola_layers", (double)NAN},
    {"force_words_ids", (double)NAN},
    {"constraints", (double)NAN},
    {"watermarking_config", (double)NAN},
    {"token_healing", (double)NAN},
};

static bool is_neutral(fsdp_json_node value, double neutral)
{
    double number;
    bool on;
    if (fsdp_json_kind_of(value) == FSDP_JSON_BOOL)
        return fsdp_json_get_bool(value, NULL, &on) == FSDP_OK && !on;
    if (fsdp_json_kind_of(value) == FSDP_JSON_ARRAY)
        return fsdp_json_len(value) == 0;
    return !isnan(neutral) && fsdp_json_get_f64(value, NULL, &number) == FSDP_OK &&
           number == neutral;
}

/* Set c->unsupported to the names of those unsupported keys of `root` that would change the result.
 * If c->unsupported is too small for all names, the last ones are left out. */
static void find_unsupported(fsdp_json_node root, fsdp_generation_config *c)
{
    size_t used = 0;
    *c->unsupported = 0;
    for (size_t i = 0; i < FSDP_LENGTH(unsupported); i++) {
        const char *key = unsupported[i].key;
        if (!fsdp_json_has(root, key) ||
            is_neutral(fsdp_json_find(root, key), unsupported[i].neutral))
            continue;
        const size_t room = sizeof c->unsupported - used;
        const int n = snprintf(c->unsupported + used, room, "%s%s", used ? ", " : "", key);
        if ((size_t)n >= room) {
            c->unsupported[used] = 0;
            return;
        }
        used += (size_t)n;
    }
}

/* Keys of generation_config.json that the functions above read, or that do not affect what this
 * program generates. */
static const char *const known[] = {"decoder_start_token_id",
                                    "pad_token_id",
                                    "eos_token_id",
                                    "max_length",
                                    "max_new_tokens",
                                    "min_length",
                                    "min_new_tokens",
                                    "early_stopping",
                                    "num_beams",
                                    "num_return_sequences",
                                    "length_penalty",
                                    "do_sample",
                                    "top_k",
                                    "temperature",
                                    "top_p",
                                    "typical_p",
                                    "epsilon_cutoff",
                                    "eta_cutoff",
                                    "min_p",
                                    "top_h",
                                    "bad_words_ids",
                                    "suppress_tokens",
                                    "begin_suppress_tokens",
                                    "forced_bos_token_id",
                                    "forced_eos_token_id",
                                    "exponential_decay_length_penalty",
                                    "renormalize_logits",
                                    "stop_strings",
                                    "repetition_penalty",
                                    "sequence_bias",
                                    "encoder_repetition_penalty",
                                    "encoder_no_repeat_ngram_size",
                                    "guidance_scale",
                                    "negative_prompt_ids",
                                    "max_time",
                                    "remove_invalid_values",
                                    "no_repeat_ngram_size",
                                    "_from_model_config",
                                    "transformers_version",
                                    "bos_token_id",
                                    "use_cache",
                                    "cache_implementation",
                                    "cache_config",
                                    "return_legacy_cache",
                                    "prefill_chunk_size",
                                    "return_dict_in_generate",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "output_scores",
                                    "output_logits",
                                    "low_memory",
                                    "is_assistant",
                                    "num_assistant_tokens",
                                    "num_assistant_tokens_schedule",
                                    "assistant_confidence_threshold",
                                    "max_matching_ngram_size",
                                    "assistant_early_exit",
                                    "assistant_lookbehind",
                                    "target_lookbehind",
                                    "assistant_ensemble_weight",
                                    "speculation_type",
                                    "prompt_lookup_num_tokens",
                                    "use_mtp",
                                    "max_cache_len",
                                    "continuous_batching_config",
                                    "compile_config",
                                    "disable_compile",
                                    "trust_remote_code",
                                    "_commit_hash",
                                    "generation_kwargs",
                                    "dtype",
                                    "torch_dtype"};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < FSDP_LENGTH(known); i++)
        if (strcmp(known[i], key) == 0)
            return true;
    for (size_t i = 0; i < FSDP_LENGTH(unsupported); i++)
        if (strcmp(unsupported[i].key, key) == 0)
            return true;
    return false;
}

/* Append to c->unsupported the names of those keys of a generation_config.json that this program
 * does not know. A name for which c->unsupported is too small is left out. */
static void find_unknown(fsdp_json_node root, fsdp_generation_config *c)
{
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v)) {
        const size_t used = strlen(c->unsupported), length = strlen(v.key);
        if (is_known(v.key) || fsdp_json_kind_of(v) == FSDP_JSON_NULL ||
            length + 3 > sizeof c->unsupported - used)
            continue;
        snprintf(c->unsupported + used, sizeof c->unsupported - used, "%s%s", used ? ", " : "",
                 v.key);
    }
}

fsdp_status fsdp_generation_config_update(fsdp_json_node root, fsdp_generation_config *config)
{
    fsdp_generation_config c = *config;
    FSDP_TRY(read_count(root, "decoder_start_token_id", NO_TOKEN, &c.decoder_start_token_id));
    FSDP_TRY(read_count(root, "pad_token_id", NO_TOKEN, &c.pad_token_id));
    FSDP_TRY(read_eos(root, &c));
    FSDP_TRY(read_lengths(root, &c));
    FSDP_TRY(read_beams(root, &c));
    FSDP_TRY(read_sampling(root, &c));
    FSDP_TRY(read_positive(root, "repetition_penalty", &c.repetition_penalty));
    FSDP_TRY(read_count(root, "no_repeat_ngram_size", 0, &c.no_repeat_ngram_size));
    FSDP_TRY(read_positive(root, "encoder_repetition_penalty", &c.encoder_repetition_penalty));
    FSDP_TRY(read_count(root, "encoder_no_repeat_ngram_size", 0, &c.encoder_no_repeat_ngram_size));
    FSDP_TRY(fsdp_json_opt_f64(root, "guidance_scale", c.guidance_scale, &c.guidance_scale));
    FSDP_TRY(fsdp_json_opt_bool(root, "remove_invalid_values", c.remove_invalid_values,
                                &c.remove_invalid_values));
    if (fsdp_json_has(root, "max_time"))
        FSDP_TRY(read_positive(root, "max_time", &c.max_time));
    FSDP_TRY(read_rules(root, &c));
    find_unsupported(root, &c);
    *config = c;
    return FSDP_OK;
}

fsdp_status fsdp_generation_config_parse(fsdp_json *doc, fsdp_generation_config *config)
{
    fsdp_generation_config c = defaults;
    FSDP_TRY(fsdp_generation_config_update(fsdp_json_root(doc), &c));
    *config = c;
    return FSDP_OK;
}

fsdp_status fsdp_generation_config_read(const char *dir, fsdp_generation_config *config)
{
    fsdp_json *doc = NULL;
    char *path = fsdp_path_join(dir, "generation_config.json");
    const bool from_config_json = path && !fsdp_path_exists(path);
    if (from_config_json) {
        fsdp_free(path);
        path = fsdp_path_join(dir, "config.json");
    }
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_generation_config_parse(doc, config);
    if (status == FSDP_OK)
        config->from_config_json = from_config_json;
    if (status == FSDP_OK && !from_config_json)
        find_unknown(fsdp_json_root(doc), config);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}

/* --- settings --- */

void fsdp_generation_config_set(fsdp_generation_config *config,
                                const fsdp_generation_settings *settings)
{
    if (settings->given.max_length)
        config->max_new_tokens = 0;
    if (settings->given.min_length)
        config->min_new_tokens = 0;
#define FSDP_SET(name)                                                                             \
    if (settings->given.name)                                                                      \
        config->name = settings->values.name;
    FSDP_GENERATION_SETTINGS(FSDP_SET)
#undef FSDP_SET
    if (settings->given.min_new_tokens)
        config->min_length = 0;
}

/* Set the setting of *config that has the name `key` to the value of `text`, which is JSON. */
static fsdp_status set_text(fsdp_generation_config *config, const char *key, const char *text)
{
    fsdp_json *doc;
    /* a list may be given without brackets, as "1,2" instead of "[1,2]" */
    const bool bare = *text != '[' && strchr(text, ',');
    char *whole =
        fsdp_strdup_printf("{\"%s\": %s%s%s}", key, bare ? "[" : "", text, bare ? "]" : "");
    if (!whole)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_json_parse("command line", 1, whole, strlen(whole), &doc);
    if (status == FSDP_OK) {
        status = read_rules(fsdp_json_root(doc), config);
        fsdp_json_destroy(doc);
    }
    fsdp_free(whole);
    return status;
}

fsdp_status fsdp_generation_settings_parse(fsdp_generation_settings *settings)
{
    fsdp_generation_config *values = &settings->values;
#define FSDP_PARSE(name)                                                                           \
    if (settings->texts.name)                                                                      \
        FSDP_TRY(set_text(values, #name, settings->texts.name));
    FSDP_GENERATION_LISTS(FSDP_PARSE)
#undef FSDP_PARSE
    values->stop_strings.n_bytes = 0;
    for (size_t i = 0; i < settings->texts.stop_strings.count; i++) {
        const char *text = settings->texts.stop_strings.items[i];
        const fsdp_status status = fsdp_rule_texts_add(&values->stop_strings, text, strlen(text));
        fsdp_error_context(status, "--stop-strings '%.100s'", text);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Check the settings for sampling. Call this only if do_sample is true, because files without
 * do_sample often have a temperature of 0. */
static fsdp_status check_sampling(const fsdp_generation_config *c)
{
    if (!(c->temperature > 0))
        return fsdp_error(FSDP_ERR_INVALID,
                          "do_sample with temperature %g: it takes a number above 0 (without "
                          "do_sample the likeliest id is taken)",
                          c->temperature);
    if (!(c->top_p > 0 && c->top_p <= 1))
        return fsdp_error(FSDP_ERR_INVALID,
                          "do_sample with top_p %g: it takes a number above 0 "
                          "up to 1",
                          c->top_p);
    if (!(c->min_p >= 0 && c->min_p <= 1))
        return fsdp_error(FSDP_ERR_INVALID,
                          "do_sample with min_p %g: it takes a number from 0 to "
                          "1",
                          c->min_p);
    if (!(c->top_h >= 0 && c->top_h <= 1))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "do_sample with top_h %g: it takes a number above 0 up to 1, or 0 for all "
            "ids",
            c->top_h);
    if (!(c->typical_p > 0 && c->typical_p <= 1))
        return fsdp_error(FSDP_ERR_INVALID,
                          "do_sample with typical_p %g: it takes a number above 0 up to 1",
                          c->typical_p);
    const double cutoff = c->epsilon_cutoff != 0 ? c->epsilon_cutoff : c->eta_cutoff;
    if (!(cutoff >= 0 && cutoff < 1 && c->eta_cutoff >= 0 && c->eta_cutoff < 1))
        return fsdp_error(FSDP_ERR_INVALID,
                          "do_sample with epsilon_cutoff %g and eta_cutoff %g: they take numbers "
                          "from 0 to below 1",
                          c->epsilon_cutoff, c->eta_cutoff);
    return FSDP_OK;
}

fsdp_status fsdp_generation_config_check(const fsdp_generation_config *c)
{
    if (c->num_beams > 1 && c->do_sample)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "do_sample with num_beams %lld: beams are not sampled here",
                          (long long)c->num_beams);
    if (!c->do_sample && c->num_return_sequences > c->num_beams)
        return fsdp_error(FSDP_ERR_INVALID,
                          "num_return_sequences %lld: without do_sample it is at most num_beams, "
                          "%lld",
                          (long long)c->num_return_sequences, (long long)c->num_beams);
    return c->do_sample ? check_sampling(c) : FSDP_OK;
}

int64_t fsdp_generation_config_max_new(const fsdp_generation_config *c, int64_t prompt_length)
{
    if (c->max_new_tokens > 0)
        return c->max_new_tokens;
    return c->max_length > 0 ? c->max_length - prompt_length : DEFAULT_NEW_TOKENS;
}

int64_t fsdp_generation_config_min_new(const fsdp_generation_config *c, int64_t prompt_length)
{
    return c->min_new_tokens > 0 ? c->min_new_tokens : c->min_length - prompt_length;
}

/* --- writing --- */

/* Open the file `dir`/`name`, which must contain a JSON object. If the file does not exist, *doc is
 * NULL. If it cannot be read, *doc is also NULL and a warning is reported, but no error is
 * returned: a bad file must not prevent a trained model from being saved. */
static fsdp_status open_source(const char *dir, const char *name, fsdp_json **doc)
{
    *doc = NULL;
    char *path = fsdp_path_join(dir, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_path_exists(path) ? fsdp_json_read(path, doc) : FSDP_OK;
    if (*doc && fsdp_json_kind_of(fsdp_json_root(*doc)) != FSDP_JSON_OBJECT) {
        status = fsdp_json_mismatch(fsdp_json_root(*doc), NULL, "an object");
        fsdp_json_destroy(*doc);
        *doc = NULL;
    }
    fsdp_free(path);
    if (status == FSDP_OK || status == FSDP_ERR_NOMEM)
        return status;
    fsdp_log("model", FSDP_LOG_WARN, -1, 1, "not saved: %s", fsdp_last_error());
    return FSDP_OK;
}

static bool lacks_key(fsdp_json_node object, const char *key)
{
    return fsdp_json_kind_of(fsdp_json_find(object, key)) == FSDP_JSON_NONE;
}

static void set_missing(fsdp_json_node root, const char *key, int64_t id)
{
    if (lacks_key(root, key) && id >= 0)
        fsdp_json_set_i64(root, key, id);
}

/* `model` is the root of a config.json. If `root` lacks eos_token_id, and eos_token_id is a list in
 * `model`, copy this list to `root`. The id in fsdp_model_info is not sufficient, because it is
 * only the first id of the list. */
static fsdp_status set_missing_eos(fsdp_json_node root, fsdp_json_node model)
{
    static const char key[] = "eos_token_id";
    int64_t *ids;
    size_t n;
    if (!lacks_key(root, key) || fsdp_json_kind_of(fsdp_json_find(model, key)) != FSDP_JSON_ARRAY)
        return FSDP_OK;
    fsdp_status status = fsdp_json_get_i64s(model, key, INT64_MIN, INT64_MAX, &ids, &n);
    if (status != FSDP_OK) /* if the list contains something other than integers, set_missing_ids()
                            * later adds the id from its argument `info` */
        return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
    fsdp_json_node list = fsdp_json_set_array(root, key);
    for (size_t i = 0; i < n; i++)
        fsdp_json_append_i64(list, ids[i]);
    fsdp_free(ids);
    return FSDP_OK;
}

static fsdp_status set_missing_ids(fsdp_json_node root, const fsdp_model_info *info,
                                   const char *dir)
{
    fsdp_json *model = NULL;
    if (dir)
        FSDP_TRY(open_source(dir, "config.json", &model));
    fsdp_status status = model ? set_missing_eos(root, fsdp_json_root(model)) : FSDP_OK;
    fsdp_json_destroy(model);
    const fsdp_generation_config own = fsdp_generation_config_of(info);
    set_missing(root, "decoder_start_token_id", own.decoder_start_token_id);
    set_missing(root, "bos_token_id", info->bos_token_id);
    set_missing(root, "eos_token_id", info->eos_token_id);
    set_missing(root, "pad_token_id", info->pad_token_id);
    return status;
}

fsdp_status fsdp_generation_config_write(const fsdp_model_info *info, const char *dir,
                                         const char *path)
{
    fsdp_json *doc = NULL;
    if (dir)
        FSDP_TRY(open_source(dir, "generation_config.json", &doc));
    if (!doc) {
        FSDP_TRY(fsdp_json_create(path, &doc));
        fsdp_json_set_bool(fsdp_json_root(doc), "_from_model_config", true);
    }
    fsdp_status status = set_missing_ids(fsdp_json_root(doc), info, dir);
    if (status == FSDP_OK)
        status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}
