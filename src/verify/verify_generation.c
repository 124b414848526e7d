/* The part of `fsdp verify` that compares generated ids and, for beam search, their scores. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/generate/generate.h"
#include "src/verify/verify_case.h"

/* Rows of ids, read from JSON. */
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

static fsdp_status read_rows(fsdp_json_node list, int64_t vocab, id_rows *rows)
{
    rows->n = fsdp_json_len(list);
    rows->ids = fsdp_calloc(rows->n, sizeof *rows->ids);
    rows->len = fsdp_calloc(rows->n, sizeof *rows->len);
    if (!rows->ids || !rows->len)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < rows->n; i++)
        FSDP_TRY(read_row(fsdp_json_at(list, i), vocab, &rows->ids[i], &rows->len[i]));
    return FSDP_OK;
}

static fsdp_status make_batch(const id_rows *prompts, const fsdp_batch_format *format,
                              fsdp_batch **batch)
{
    fsdp_batch_row *rows = fsdp_calloc(prompts->n, sizeof *rows);
    if (!rows)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < prompts->n; i++)
        rows[i] =
            (fsdp_batch_row){.source = prompts->ids[i], .source_len = (int32_t)prompts->len[i]};
    fsdp_status status = fsdp_batch_create(rows, (int32_t)prompts->n, format, batch);
    fsdp_free(rows);
    return status;
}

/* A file with prompts and expected sequences, and the sequences that this library generates for the
 * prompts. */
typedef struct generation_case {
    fsdp_verify_case *c;
    const char *file;
    fsdp_json_node root;
    fsdp_model *model;
    fsdp_generation_config config;
    id_rows prompts;
    fsdp_generated *got; /* [number of prompts * per_prompt], grouped by prompt */
    size_t per_prompt;
} generation_case;

/* --- comparing --- */

static bool same_ids(const fsdp_generated *got, const id_rows *want, size_t i)
{
    return got->ids.len == want->len[i] &&
           memcmp(got->ids.ids, want->ids[i], want->len[i] * sizeof(int32_t)) == 0;
}

/* Compare the rows of `list` with the sequences that were generated for prompt `i`. Row k of `list`
 * belongs to sequence k * stride of the prompt. Add the number of rows that differ to
 * *differing. */
static fsdp_status compare_rows(const generation_case *g, fsdp_json_node list, size_t i,
                                size_t stride, int64_t *differing)
{
    id_rows want = {0};
    fsdp_status status = read_rows(list, g->model->info.vocab_size, &want);
    for (size_t k = 0; status == FSDP_OK && k < want.n; k++)
        *differing += !same_ids(&g->got[i * g->per_prompt + k * stride], &want, k);
    id_rows_free(&want);
    return status;
}

static fsdp_status compare_scores(const generation_case *g, fsdp_json_node list, size_t i,
                                  size_t stride, double *largest)
{
    for (size_t k = 0; k < fsdp_json_len(list); k++) {
        double want;
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(list, k), NULL, &want));
        fsdp_verify_max(largest, fabs(g->got[i * g->per_prompt + k * stride].score - want));
    }
    return FSDP_OK;
}

/* Compare the best sequence of each prompt with the file's "sequences". */
static fsdp_status compare_best(const generation_case *g)
{
    fsdp_json_node list;
    int64_t differing = 0;
    FSDP_TRY(fsdp_json_get_array(g->root, "sequences", &list));
    if (fsdp_json_len(list) != g->prompts.n)
        return fsdp_json_mismatch(g->root, "sequences", "as many as prompts");
    FSDP_TRY(compare_rows(g, list, 0, g->per_prompt, &differing));
    fsdp_verify_compared(g->c, (double)differing, 0, "differing", "%s: sequences", g->file);
    return FSDP_OK;
}

/* Set *tolerance to half of the file's smallest_score_gap. smallest_score_gap is the smallest
 * difference between the scores of two sequences of a prompt. If the error of every score is below
 * half of it, the scores are still in the same order. */
static fsdp_status score_tolerance(const generation_case *g, double *tolerance)
{
    FSDP_TRY(fsdp_json_get_f64(g->root, "smallest_score_gap", tolerance));
    *tolerance /= 2;
    return FSDP_OK;
}

/* In the JSON file, the array `key` has one list for each prompt. Set *list to the list of prompt
 * `i`. Check that it has per_prompt elements, one for each sequence of the prompt. */
static fsdp_status nested(const generation_case *g, const char *key, size_t i, fsdp_json_node *list)
{
    fsdp_json_node all;
    FSDP_TRY(fsdp_json_get_array(g->root, key, &all));
    FSDP_TRY(fsdp_json_get_array(fsdp_json_at(all, i), NULL, list));
    return fsdp_json_len(*list) == g->per_prompt
               ? FSDP_OK
               : fsdp_json_mismatch(*list, NULL, "%zu entries", g->per_prompt);
}

static fsdp_status compare_all(const generation_case *g)
{
    int64_t differing = 0;
    double largest = 0, tolerance;
    for (size_t i = 0; i < g->prompts.n; i++) {
        fsdp_json_node rows, scores;
        FSDP_TRY(nested(g, "all_sequences", i, &rows));
        FSDP_TRY(compare_rows(g, rows, i, 1, &differing));
        FSDP_TRY(nested(g, "all_scores", i, &scores));
        FSDP_TRY(compare_scores(g, scores, i, 1, &largest));
    }
    FSDP_TRY(score_tolerance(g, &tolerance));
    fsdp_verify_compared(g->c, (double)differing, 0, "differing", "%s: all_sequences", g->file);
    fsdp_verify_compared(g->c, largest, tolerance, "absolute", "%s: all_scores", g->file);
    return FSDP_OK;
}

/* --- generating --- */

/* Generate the sequences of all prompts, and compare them with the file. Every rank does this for
 * all prompts. */
static fsdp_status generate_and_compare(generation_case *g)
{
    fsdp_batch *batch;
    fsdp_status status = make_batch(&g->prompts, &g->model->info.format, &batch);
    FSDP_TRY(fsdp_agree(g->c->group, status));
    const fsdp_generate_options options = {.config = &g->config};
    status = fsdp_generate(g->model, g->c->device, batch, &options, &g->got);
    fsdp_batch_release(batch);
    FSDP_TRY(status);
    status = compare_best(g);
    if (status == FSDP_OK && fsdp_json_has(g->root, "all_sequences"))
        status = compare_all(g);
    return fsdp_agree(g->c->group, status);
}

static fsdp_status read_case(generation_case *g)
{
    fsdp_json_node list;
    FSDP_TRY(fsdp_model_generation_config(g->model, &g->config));
    FSDP_TRY(fsdp_generation_config_update(g->root, &g->config));
    if (fsdp_json_has(g->root, "all_sequences"))
        g->config.num_return_sequences = g->config.num_beams;
    g->per_prompt = (size_t)g->config.num_return_sequences;
    FSDP_TRY(fsdp_json_get_array(g->root, "prompts", &list));
    return read_rows(list, g->model->info.vocab_size, &g->prompts);
}

static fsdp_status verify_model(generation_case *g, const char *model_dir)
{
    fsdp_model_options options = {.name = model_dir};
    FSDP_TRY(fsdp_model_open(&options, g->c->group, g->c->device, &g->model));
    fsdp_status status = fsdp_agree(g->c->group, read_case(g));
    if (status == FSDP_OK)
        status = generate_and_compare(g);
    fsdp_generated_free(g->got, g->prompts.n * g->per_prompt);
    id_rows_free(&g->prompts);
    fsdp_model_close(g->model);
    return status;
}

/* Return the reason why `fsdp verify` does not support a comparison with this file. Return NULL
 * if the comparison is supported, or if the file cannot be read; the caller's next call then
 * returns the error. */
static const char *why_not(fsdp_json *doc, const char *model_dir)
{
    fsdp_model_config model;
    fsdp_generation_config config;
    if (fsdp_model_config_read(model_dir, &model) == FSDP_ERR_UNSUPPORTED)
        return fsdp_last_error();
    if (fsdp_generation_config_parse(doc, &config) != FSDP_OK)
        return NULL; /* read_case() will return the error */
    if (fsdp_generation_config_check(&config) == FSDP_ERR_UNSUPPORTED)
        return fsdp_last_error();
    return config.do_sample && config.top_k != 1 ? "its random numbers are PyTorch's" : NULL;
}

fsdp_status fsdp_verify_generation(fsdp_verify_case *c, const char *file)
{
    char *path = fsdp_verify_path(c, file), *dir = NULL;
    fsdp_json *doc = NULL;
    const char *name;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_json_get_str(fsdp_json_root(doc), "model", &name);
    if (status == FSDP_OK) {
        dir = fsdp_verify_path(c, name);
        status = dir ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK) {
        generation_case g = {.c = c, .file = file, .root = fsdp_json_root(doc)};
        const char *why = why_not(doc, dir);
        if (why)
            fsdp_verify_skipped(c, file, "%s", why);
        else
            status = verify_model(&g, dir);
    }
    fsdp_error_context(status, "%s", file);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    fsdp_free(dir);
    return status;
}
