/* generation_config.json. */
#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/models/generation_config.h"

static fsdp_status read_eos(fsdp_json_node root, fsdp_generation_config *c)
{
    if (!fsdp_json_has(root, "eos_token_id"))
        return FSDP_OK;
    fsdp_json_node eos = fsdp_json_find(root, "eos_token_id");
    if (fsdp_json_kind_of(eos) != FSDP_JSON_ARRAY) {
        FSDP_TRY(fsdp_json_get_i64(eos, NULL, 0, INT32_MAX, &c->eos_token_ids[0]));
        c->n_eos = 1;
        return FSDP_OK;
    }
    if (fsdp_json_len(eos) > FSDP_MAX_EOS)
        return fsdp_json_mismatch(eos, NULL, "at most %d token ids", FSDP_MAX_EOS);
    for (size_t i = 0; i < fsdp_json_len(eos); i++)
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(eos, i), NULL, 0, INT32_MAX, &c->eos_token_ids[i]));
    c->n_eos = (int)fsdp_json_len(eos);
    return FSDP_OK;
}

static fsdp_status read_positive(fsdp_json_node root, const char *key, double *out)
{
    FSDP_TRY(fsdp_json_opt_f64(root, key, 1.0, out));
    return *out > 0 ? FSDP_OK : fsdp_json_mismatch(root, key, "a positive number");
}

static fsdp_status read_sampling(fsdp_json_node root, fsdp_generation_config *c)
{
    FSDP_TRY(fsdp_json_opt_bool(root, "do_sample", false, &c->do_sample));
    FSDP_TRY(fsdp_json_opt_i64(root, "num_beams", 1, INT32_MAX, 1, &c->num_beams));
    FSDP_TRY(fsdp_json_opt_i64(root, "top_k", 0, INT32_MAX, 50, &c->top_k));
    FSDP_TRY(
        fsdp_json_opt_i64(root, "no_repeat_ngram_size", 0, INT32_MAX, 0, &c->no_repeat_ngram_size));
    FSDP_TRY(fsdp_json_opt_f64(root, "length_penalty", 1.0, &c->length_penalty));
    FSDP_TRY(read_positive(root, "temperature", &c->temperature));
    FSDP_TRY(read_positive(root, "repetition_penalty", &c->repetition_penalty));
    FSDP_TRY(read_positive(root, "top_p", &c->top_p));
    return c->top_p <= 1 ? FSDP_OK : fsdp_json_mismatch(root, "top_p", "a number up to 1");
}

fsdp_status fsdp_generation_config_parse(fsdp_json *doc, fsdp_generation_config *config)
{
    fsdp_json_node root = fsdp_json_root(doc);
    fsdp_generation_config c = {0};
    FSDP_TRY(fsdp_json_opt_i64(root, "decoder_start_token_id", 0, INT32_MAX, -1,
                               &c.decoder_start_token_id));
    FSDP_TRY(fsdp_json_opt_i64(root, "pad_token_id", 0, INT32_MAX, -1, &c.pad_token_id));
    FSDP_TRY(read_eos(root, &c));
    FSDP_TRY(fsdp_json_opt_i64(root, "max_length", 1, INT32_MAX, 20, &c.max_length));
    FSDP_TRY(fsdp_json_opt_i64(root, "max_new_tokens", 1, INT32_MAX, 0, &c.max_new_tokens));
    FSDP_TRY(fsdp_json_opt_i64(root, "min_length", 0, INT32_MAX, 0, &c.min_length));
    FSDP_TRY(read_sampling(root, &c));
    *config = c;
    return FSDP_OK;
}

fsdp_status fsdp_generation_config_read(const char *dir, fsdp_generation_config *config)
{
    fsdp_json *doc = NULL;
    char *path = fsdp_path_join(dir, "generation_config.json");
    if (path && !fsdp_path_is_file(path)) {
        fsdp_free(path);
        path = fsdp_path_join(dir, "config.json");
    }
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_generation_config_parse(doc, config);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}

static void set_eos(fsdp_json_node root, const fsdp_generation_config *c)
{
    if (c->n_eos == 1) {
        fsdp_json_set_i64(root, "eos_token_id", c->eos_token_ids[0]);
    } else if (c->n_eos > 1) {
        fsdp_json_node list = fsdp_json_set_array(root, "eos_token_id");
        for (int i = 0; i < c->n_eos; i++)
            fsdp_json_append_i64(list, c->eos_token_ids[i]);
    }
}

fsdp_status fsdp_generation_config_write(const fsdp_generation_config *config, const char *source,
                                         const char *path)
{
    fsdp_json *doc;
    FSDP_TRY(source ? fsdp_json_read(source, &doc) : fsdp_json_create(path, &doc));
    fsdp_json_node root = fsdp_json_root(doc);
    if (!source)
        fsdp_json_set_bool(root, "_from_model_config", true);
    if (config->decoder_start_token_id >= 0)
        fsdp_json_set_i64(root, "decoder_start_token_id", config->decoder_start_token_id);
    if (config->pad_token_id >= 0)
        fsdp_json_set_i64(root, "pad_token_id", config->pad_token_id);
    set_eos(root, config);
    fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}
