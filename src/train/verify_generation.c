/* verify: generated ids, greedy. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/train/generate.h"
#include "src/train/verify_case.h"

/* Rows of ids, from JSON. */
typedef struct id_rows {
    int32_t **ids; /* [n] owned */
    size_t *len, n;
} id_rows;

static void id_rows_free(id_rows *rows)
{
    for (size_t i = 0; rows->ids && i < rows->n; i++)
        fsdp_free(rows->ids[i]);
    fsdp_free(rows->ids);
    fsdp_free(rows->len);
    *rows = (id_rows){0};
}

static fsdp_status read_row(fsdp_json_node node, int64_t vocab, int32_t **ids, size_t *len)
{
    int64_t *wide;
    FSDP_TRY(fsdp_json_get_i64s(node, NULL, 0, vocab - 1, &wide, len));
    *ids = fsdp_calloc(*len, sizeof **ids);
    for (size_t i = 0; *ids && i < *len; i++)
        (*ids)[i] = (int32_t)wide[i];
    fsdp_free(wide);
    return *ids ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_rows(fsdp_json_node root, const char *key, int64_t vocab, id_rows *rows)
{
    fsdp_json_node list;
    FSDP_TRY(fsdp_json_get_array(root, key, &list));
    rows->n = fsdp_json_len(list);
    rows->ids = fsdp_calloc(rows->n, sizeof *rows->ids);
    rows->len = fsdp_calloc(rows->n, sizeof *rows->len);
    if (!rows->ids || !rows->len)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < rows->n; i++)
        FSDP_TRY(read_row(fsdp_json_at(list, i), vocab, &rows->ids[i], &rows->len[i]));
    return FSDP_OK;
}

static fsdp_status make_batch(const id_rows *prompts, const fsdp_t5_config *config,
                              fsdp_batch **batch)
{
    fsdp_batch_row *rows = fsdp_calloc(prompts->n, sizeof *rows);
    if (!rows)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < prompts->n; i++)
        rows[i] =
            (fsdp_batch_row){.source = prompts->ids[i], .source_len = (int32_t)prompts->len[i]};
    fsdp_status status =
        fsdp_batch_create(rows, (int32_t)prompts->n, (int32_t)config->decoder_start_token_id,
                          (int32_t)config->pad_token_id, batch);
    fsdp_free(rows);
    return status;
}

/* Every rank generates all of them: what differs on rank 0 is counted. */
static fsdp_status compare(fsdp_verify_case *c, const char *file, const fsdp_model *model,
                           const id_rows *prompts, const id_rows *want, int64_t max_new_tokens)
{
    fsdp_batch *batch;
    fsdp_generation_config config;
    FSDP_TRY(fsdp_model_generation_config(model, &config));
    FSDP_TRY(make_batch(prompts, &model->config, &batch));
    fsdp_token_list *got = fsdp_calloc(prompts->n, sizeof *got);
    fsdp_generate_options options = {.max_new_tokens = max_new_tokens, .config = &config};
    fsdp_status status =
        got ? fsdp_generate_greedy(model, c->device, batch, &options, got) : FSDP_ERR_NOMEM;
    int64_t differing = 0;
    for (size_t i = 0; i < prompts->n && status == FSDP_OK; i++)
        differing += got[i].len != want->len[i] ||
                     memcmp(got[i].ids, want->ids[i], want->len[i] * sizeof(int32_t)) != 0;
    if (status == FSDP_OK)
        fsdp_verify_compared(c, (double)differing, 0, "differing", "%s: sequences", file);
    for (size_t i = 0; got && i < prompts->n; i++)
        fsdp_token_list_fini(&got[i]);
    fsdp_free(got);
    fsdp_batch_release(batch);
    return status;
}

static fsdp_status verify_greedy(fsdp_verify_case *c, const char *file, fsdp_json_node root,
                                 const char *model_dir)
{
    fsdp_model *model;
    int64_t max_new_tokens;
    id_rows prompts = {0}, want = {0};
    FSDP_TRY(fsdp_json_opt_i64(root, "max_new_tokens", 0, INT32_MAX, 0, &max_new_tokens));
    fsdp_model_options options = {.name = model_dir};
    FSDP_TRY(fsdp_model_open(&options, c->group, c->device, &model));
    fsdp_status status = read_rows(root, "prompts", model->config.vocab_size, &prompts);
    if (status == FSDP_OK)
        status = read_rows(root, "sequences", model->config.vocab_size, &want);
    if (status == FSDP_OK && prompts.n != want.n)
        status = fsdp_json_mismatch(root, "sequences", "as many as prompts");
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK)
        status = compare(c, file, model, &prompts, &want, max_new_tokens);
    id_rows_free(&prompts);
    id_rows_free(&want);
    fsdp_model_close(model);
    return status;
}

/* Why this version cannot run it; NULL if it can. */
static const char *why_not(fsdp_json_node root, const char *model_dir, const char **why)
{
    int64_t beams = 1;
    bool sample = false;
    fsdp_t5_config config;
    *why = NULL;
    if (fsdp_json_opt_i64(root, "num_beams", 1, INT32_MAX, 1, &beams) != FSDP_OK ||
        fsdp_json_opt_bool(root, "do_sample", false, &sample) != FSDP_OK)
        *why = fsdp_last_error();
    else if (beams > 1)
        *why = "beam search comes with a later version";
    else if (sample)
        *why = "sampling comes with a later version";
    else if (fsdp_t5_config_read(model_dir, &config) == FSDP_ERR_UNSUPPORTED)
        *why = "its model comes with a later version";
    return *why;
}

fsdp_status fsdp_verify_generation(fsdp_verify_case *c, const char *file)
{
    char *path = fsdp_verify_path(c, file), *dir = NULL;
    fsdp_json *doc = NULL;
    const char *name, *why;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_json_get_str(fsdp_json_root(doc), "model", &name);
    if (status == FSDP_OK) {
        dir = fsdp_verify_path(c, name);
        status = dir ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK) {
        if (why_not(fsdp_json_root(doc), dir, &why))
            fsdp_verify_skipped(c, file, "%s", why);
        else
            status = verify_greedy(c, file, fsdp_json_root(doc), dir);
    }
    fsdp_error_context(status, "%s", file);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    fsdp_free(dir);
    return status;
}
