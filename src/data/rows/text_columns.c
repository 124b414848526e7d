/* See text_columns.h. */
#include "src/data/rows/text_columns.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

/* Pairs of columns in public datasets for seq2seq models. The first pair is the default. */
static const struct {
    const char *source, *target;
} known[] = {
    {"text", "headline"},    {"text", "summary"},      {"article", "highlights"},
    {"document", "summary"}, {"dialogue", "summary"},  {"source", "target"},
    {"input", "output"},     {"prompt", "completion"}, {"question", "answer"},
};

/* Columns of texts in public datasets for classification. Each entry of this table is a pair of
 * columns. For a column of single texts, `source` is NULL. */
static const struct {
    const char *source, *target;
} known_classified[] = {
    {"sentence1", "sentence2"}, {"question1", "question2"}, {"premise", "hypothesis"},
    {"question", "sentence"},   {"question", "answer"},     {"text1", "text2"},
    {"text", "text_pair"},      {NULL, "sentence"},         {NULL, "text"},
};

/* Set c->source and c->target to copies of the names; `source` may be NULL. */
static fsdp_status set_names(fsdp_text_columns *c, const char *source, const char *target)
{
    c->source = source ? fsdp_strdup(source) : NULL;
    c->target = fsdp_strdup(target);
    return c->target && (c->source || !source) ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status choose_causal(const fsdp_dataset_options *o, fsdp_has_column_fn *has,
                                 const void *row, fsdp_text_columns *c)
{
    if (o->target_column)
        return set_names(c, o->source_column, o->target_column);
    if (o->source_column)
        return set_names(c, NULL, o->source_column);
    if (has(row, "prompt") && has(row, "completion"))
        return set_names(c, "prompt", "completion");
    return set_names(c, NULL, "text");
}

/* Set c->label to the column that the options name. If they name none, set it to "label", or to
 * "labels" if only that column exists. */
static fsdp_status choose_label(const fsdp_dataset_options *o, fsdp_has_column_fn *has,
                                const void *row, fsdp_text_columns *c)
{
    const char *name = o->label_column                            ? o->label_column
                       : !has(row, "label") && has(row, "labels") ? "labels"
                                                                  : "label";
    c->label = fsdp_strdup(name);
    return c->label ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status choose_classified(const fsdp_dataset_options *o, fsdp_has_column_fn *has,
                                     const void *row, fsdp_text_columns *c)
{
    FSDP_TRY(choose_label(o, has, row, c));
    if (o->source_column)
        return o->text_pair_column ? set_names(c, o->source_column, o->text_pair_column)
                                   : set_names(c, NULL, o->source_column);
    for (size_t i = 0; i < FSDP_LENGTH(known_classified); i++) {
        const char *source = known_classified[i].source, *target = known_classified[i].target;
        if (!has(row, target) || (source && !has(row, source)))
            continue;
        c->guessed = source != NULL;
        return set_names(c, source, target);
    }
    return set_names(c, NULL, "text");
}

static fsdp_status choose_languages(const fsdp_dataset_options *o, fsdp_has_column_fn *has,
                                    const void *row, fsdp_text_columns *c)
{
    c->source = fsdp_strdup_printf("translation.%s", o->source_lang);
    c->target = fsdp_strdup_printf("translation.%s", o->target_lang);
    if (!c->source || !c->target)
        return FSDP_ERR_NOMEM;
    if (has(row, c->source) || !has(row, o->source_lang))
        return FSDP_OK;
    fsdp_text_columns_fini(c);
    return set_names(c, o->source_lang, o->target_lang);
}

static fsdp_status choose_pair(const fsdp_dataset_options *o, fsdp_has_column_fn *has,
                               const void *row, fsdp_text_columns *c)
{
    if (o->source_lang)
        return choose_languages(o, has, row, c);
    const char *source = o->source_column, *target = o->target_column;
    for (size_t i = 0; !(source && target) && i < FSDP_LENGTH(known); i++) {
        if ((source && strcmp(source, known[i].source) != 0) ||
            (target && strcmp(target, known[i].target) != 0) || !has(row, known[i].source) ||
            !has(row, known[i].target))
            continue;
        c->guessed = i > 0;
        source = known[i].source;
        target = known[i].target;
    }
    return set_names(c, source ? source : known[0].source, target ? target : known[0].target);
}

fsdp_status fsdp_text_columns_choose(const fsdp_dataset_options *options, fsdp_has_column_fn *has,
                                     const void *row, fsdp_text_columns *columns)
{
    fsdp_text_columns c = {0};
    fsdp_status status = options->task == FSDP_TASK_SEQ2SEQ ? choose_pair(options, has, row, &c)
                         : options->task == FSDP_TASK_CLASSIFICATION
                             ? choose_classified(options, has, row, &c)
                             : choose_causal(options, has, row, &c);
    if (status == FSDP_OK)
        *columns = c;
    else
        fsdp_text_columns_fini(&c);
    return status;
}

void fsdp_text_columns_fini(fsdp_text_columns *columns)
{
    fsdp_free(columns->source);
    fsdp_free(columns->target);
    fsdp_free(columns->label);
    *columns = (fsdp_text_columns){0};
}

fsdp_json_node fsdp_text_find(fsdp_json_node row, const char *name)
{
    char part[256];
    fsdp_json_node found = fsdp_json_find(row, name);
    while (!found.value) {
        const char *dot = strchr(name, '.');
        if (!dot || (size_t)(dot - name) >= sizeof part)
            break;
        memcpy(part, name, (size_t)(dot - name));
        part[dot - name] = 0;
        row = fsdp_json_find(row, part);
        name = dot + 1;
        found = fsdp_json_find(row, name);
    }
    return found;
}

bool fsdp_header_has(const void *header, const char *name)
{
    return fsdp_csv_find(header, name) >= 0;
}

bool fsdp_row_has_key(const void *row, const char *name)
{
    const fsdp_json_node *object = row;
    return fsdp_text_find(*object, name).value != NULL;
}

fsdp_status fsdp_header_fits(const fsdp_csv_row *header, void *options, bool *fits)
{
    fsdp_text_columns columns;
    FSDP_TRY(fsdp_text_columns_choose(options, fsdp_header_has, header, &columns));
    *fits = fsdp_header_has(header, columns.target) &&
            (!columns.source || fsdp_header_has(header, columns.source));
    fsdp_text_columns_fini(&columns);
    return FSDP_OK;
}
