/* Writes the output of `fsdp evaluate`: tables for people, or a line of JSON for programs, and
 * files of texts. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/evaluate/evaluate_internal.h"
#include "src/evaluate/rouge_report.h"
#include "src/report/human.h"
#include "src/report/metrics.h"
#include "src/report/table.h"

static const char *const *borrowed(const fsdp_text_rows *rows)
{
    return (const char *const *)rows->items;
}

/* --- tables --- */

/* Return the measures, such as accuracy, that the tables show for classifiers. Set *n to their
 * number, which is 0 if the models are not classifiers. */
static const fsdp_measure_field *measures_of(const fsdp_evaluations *e, size_t *n)
{
    const fsdp_measure_field *fields = fsdp_measure_fields(e->problem_type, n);
    if (e->task != FSDP_TASK_CLASSIFICATION)
        *n = 0;
    return fields;
}

static fsdp_status print_losses(const fsdp_evaluations *e, FILE *out)
{
    static const char *const before[] = {"model", "loss"}, *const of_tokens[] = {"perplexity",
                                                                                 "target tokens"};
    size_t n;
    const fsdp_measure_field *fields = measures_of(e, &n);
    const size_t columns = n ? n : 2;
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(4 + columns, &table));
    for (size_t i = 0; i < 2; i++)
        fsdp_table_column(table, i, before[i], i ? FSDP_TABLE_RIGHT : FSDP_TABLE_LEFT);
    for (size_t i = 0; i < columns; i++)
        fsdp_table_column(table, 2 + i, n ? fields[i].heading : of_tokens[i], FSDP_TABLE_RIGHT);
    fsdp_table_column(table, 2 + columns, "rows", FSDP_TABLE_RIGHT);
    fsdp_table_column(table, 3 + columns, "time", FSDP_TABLE_RIGHT);
    for (size_t i = 0; i < e->n; i++) {
        const fsdp_evaluation *m = &e->items[i];
        fsdp_table_row(table);
        fsdp_table_cell(table, "%s", m->name);
        fsdp_table_cell(table, "%.4f", m->loss);
        for (size_t k = 0; k < n; k++)
            fsdp_table_cell(table, "%.4f", fsdp_measure_get(&m->measures, &fields[k]));
        if (!n) {
            fsdp_table_cell(table, "%.5g", exp(m->loss));
            fsdp_table_cell(table, "%lld", (long long)m->labels);
        }
        fsdp_table_cell(table, "%lld", (long long)m->rows);
        fsdp_table_cell(table, "%s", fsdp_human_duration(m->loss_s + m->generate_s).text);
    }
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

static fsdp_status print_rouge(const fsdp_evaluations *e, FILE *out)
{
    fsdp_rouge_predictions *sets = fsdp_calloc(e->n, sizeof *sets);
    if (!sets)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < e->n; i++)
        sets[i] = (fsdp_rouge_predictions){.name = e->items[i].name,
                                           .predictions = borrowed(&e->items[i].texts)};
    fsdp_rouge_report_options options = {.candidates = borrowed(&e->candidates),
                                         .n_candidates = e->candidates.n,
                                         .examples = (size_t)e->config->examples};
    fsdp_status status = fsdp_rouge_report(out, borrowed(&e->references), e->references.n, sets,
                                           e->n, &options, NULL);
    fsdp_free(sets);
    return status;
}

/* --- JSON --- */

static void set_rouge(fsdp_json_node node, const fsdp_rouge *rouge)
{
    fsdp_metrics_set_number(node, "rouge1", rouge->rouge1.fmeasure);
    fsdp_metrics_set_number(node, "rouge2", rouge->rouge2.fmeasure);
    fsdp_metrics_set_number(node, "rougeL", rouge->rougeL.fmeasure);
}

static fsdp_status add_model(const fsdp_evaluations *e, const fsdp_evaluation *m,
                             fsdp_json_node models)
{
    size_t n;
    const fsdp_measure_field *fields = measures_of(e, &n);
    fsdp_json_node node = fsdp_json_append_object(models);
    fsdp_json_set_any_str(node, "model", m->name);
    fsdp_metrics_set_number(node, "loss", m->loss);
    for (size_t i = 0; i < n; i++)
        fsdp_metrics_set_number(node, fields[i].key, fsdp_measure_get(&m->measures, &fields[i]));
    if (!n)
        fsdp_metrics_set_number(node, "perplexity", exp(m->loss));
    fsdp_json_set_i64(node, "rows", m->rows);
    fsdp_json_set_i64(node, "label_tokens", m->labels);
    fsdp_metrics_set_number(node, "loss_s", m->loss_s);
    if (!m->texts.n)
        return FSDP_OK;
    fsdp_rouge rouge;
    FSDP_TRY(fsdp_rouge_mean(borrowed(&e->references), borrowed(&m->texts), m->texts.n, &rouge));
    set_rouge(node, &rouge);
    fsdp_metrics_set_number(node, "generate_s", m->generate_s);
    return FSDP_OK;
}

static fsdp_status fill_json(const fsdp_evaluations *e, fsdp_json_node root)
{
    fsdp_json_set_any_str(root, "data", e->config->data);
    fsdp_json_node models = fsdp_json_set_array(root, "models");
    for (size_t i = 0; i < e->n; i++)
        FSDP_TRY(add_model(e, &e->items[i], models));
    if (!e->candidates.n)
        return FSDP_OK;
    size_t best;
    fsdp_rouge rouge;
    FSDP_TRY(fsdp_rouge_best_constant(borrowed(&e->references), e->references.n,
                                      borrowed(&e->candidates), e->candidates.n, &best, &rouge));
    fsdp_json_node constant = fsdp_json_set_object(root, "best_constant");
    fsdp_json_set_str(constant, "text", e->candidates.items[best]);
    set_rouge(constant, &rouge);
    return FSDP_OK;
}

static fsdp_status print_json(const fsdp_evaluations *e, FILE *out)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("evaluation", &doc));
    fsdp_status status = fill_json(e, fsdp_json_root(doc));
    if (status == FSDP_OK)
        status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    fsdp_json_destroy(doc);
    if (status == FSDP_OK)
        fprintf(out, "%s\n", text);
    fsdp_free(text);
    return status;
}

/* --- files of texts --- */

/* Write the texts to a file. Line breaks in a text become spaces, so that the text of row i is on
 * line i. */
static fsdp_status write_lines(const fsdp_text_rows *texts, const char *path)
{
    fsdp_str s = {0};
    for (size_t i = 0; i < texts->n; i++) {
        const char *text = texts->items[i];
        for (size_t used; *text; text += used) {
            used = strcspn(text, "\r\n");
            fsdp_str_append(&s, text, used);
            if (text[used]) {
                fsdp_str_append(&s, " ", 1);
                used++;
            }
        }
        fsdp_str_append(&s, "\n", 1);
    }
    size_t bytes = s.len;
    char *all = fsdp_str_take(&s);
    fsdp_status status = all ? fsdp_file_write(path, all, bytes) : FSDP_ERR_NOMEM;
    fsdp_free(all);
    return status;
}

fsdp_status fsdp_evaluations_report(const fsdp_evaluations *e, FILE *out)
{
    const fsdp_evaluate_config *c = e->config;
    if (c->json) {
        FSDP_TRY(print_json(e, out));
    } else {
        FSDP_TRY(print_losses(e, out));
        if (e->have_texts)
            FSDP_TRY(print_rouge(e, out));
        else if (c->generate && e->task == FSDP_TASK_SEQ2SEQ)
            fprintf(out, "no texts to compare: %s\n", e->no_texts);
    }
    if (fflush(out) != 0)
        return fsdp_error(FSDP_ERR_IO, "printing the evaluation: %s", strerror(errno));
    if (!c->predictions && !c->prompts)
        return FSDP_OK;
    FSDP_ASSERT(e->have_texts); /* open_texts() has refused rows without texts */
    if (c->prompts)
        FSDP_TRY(write_lines(&e->prompts, c->prompts));
    return c->predictions ? write_lines(&e->items[e->n - 1].texts, c->predictions) : FSDP_OK;
}
