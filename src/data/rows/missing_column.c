/* See missing_column.h. */
#include "src/data/rows/missing_column.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/nearest.h"
#include "src/base/str.h"

enum {
    N_NAMED = 4
};

/* A column that an option names. */
typedef struct named_column {
    const char *name; /* NULL: the option was not given */
    const char *flag;
} named_column;

static void named_columns(const fsdp_dataset_options *o, named_column named[N_NAMED])
{
    const bool classes = o->task == FSDP_TASK_CLASSIFICATION;
    named[0] = (named_column){o->source_column, "--text-column"};
    named[1] = (named_column){classes ? NULL : o->target_column, "--target-column"};
    named[2] = (named_column){classes ? o->text_pair_column : NULL, "--text-pair-column"};
    named[3] = (named_column){classes ? o->label_column : NULL, "--label-column"};
}

const char *fsdp_first_unknown_column(const fsdp_dataset_options *options,
                                      fsdp_finds_column_fn *has, const void *row)
{
    named_column named[N_NAMED];
    named_columns(options, named);
    for (size_t i = 0; i < N_NAMED; i++)
        if (named[i].name && !has(row, named[i].name))
            return named[i].name;
    return NULL;
}

/* Return the flag that names the column, or NULL. */
static const char *flag_of(const fsdp_dataset_options *o, const char *name)
{
    named_column named[N_NAMED];
    named_columns(o, named);
    for (size_t i = 0; i < N_NAMED; i++)
        if (named[i].name && strcmp(named[i].name, name) == 0)
            return named[i].flag;
    return NULL;
}

/* Return the end of the error message for a missing default column: which options name the
 * columns. */
static const char *advice(const fsdp_dataset_options *o)
{
    if (o->source_lang)
        return "--source-lang and --target-lang name the languages";
    switch (o->task) {
    case FSDP_TASK_SEQ2SEQ:
        return "--text-column and --target-column name the columns of source and target";
    case FSDP_TASK_CLASSIFICATION:
        return "--text-column and --label-column name the columns of text and label, "
               "--text-pair-column that of a second text";
    case FSDP_TASK_CAUSAL_LM:
        return "--text-column names the column of the text or the prompt, --target-column that of "
               "what follows the prompt";
    default:
        return "--text-column names the column of the text";
    }
}

fsdp_status fsdp_missing_column(const fsdp_dataset_options *options, const char *name,
                                bool with_advice, const fsdp_columns_found *found)
{
    fsdp_str text = {0};
    const char *flag = flag_of(options, name);
    fsdp_str_printf(&text, "no %s '%s'; %s has ", found->kind, name, found->where);
    for (size_t i = 0; i < found->n; i++)
        fsdp_str_printf(&text, "%s%.60s", i ? ", " : "", found->names[i]);
    const int near = flag ? fsdp_nearest_name(name, found->names, found->n) : -1;
    if (near >= 0)
        fsdp_str_printf(&text, "; %s %s: did you mean '%s'?", flag, name, found->names[near]);
    else if (flag)
        fsdp_str_printf(&text, "; %s names it", flag);
    else if (with_advice)
        fsdp_str_printf(&text, "; %s", advice(options));
    char *message = fsdp_str_take(&text);
    if (!message)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = fsdp_error(FSDP_ERR_FORMAT, "%s", message);
    fsdp_free(message);
    return status;
}

fsdp_status fsdp_missing_key(const fsdp_dataset_options *options, const char *name,
                             bool with_advice, fsdp_json_node row, bool arrow)
{
    const char **names = fsdp_calloc(fsdp_json_len(row) + 1, sizeof *names);
    size_t n = 0;
    if (!names)
        return FSDP_ERR_NOMEM;
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v))
        names[n++] = v.key;
    const fsdp_columns_found found = {names, n, arrow ? "column" : "key",
                                      arrow ? "the table" : "the row"};
    const fsdp_status status = fsdp_missing_column(options, name, with_advice, &found);
    fsdp_free(names);
    return status;
}
