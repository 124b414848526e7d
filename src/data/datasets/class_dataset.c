/* Opens a file of CSV, JSON or Arrow whose rows have a text, or a pair of texts, and a class. Only
 * the class of each row and its position in the file are kept in memory. The texts are read later,
 * as in pair_dataset.c. Labels of regression and multi-label rows are not kept, because a row may
 * have many of them. They are read again together with the row. */
#include "src/data/datasets/dataset.h"
#include "src/data/rows/rows_form.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/labels/class_text.h"
#include "src/data/rows/causal_text.h"
#include "src/data/rows/text_rows.h"

typedef struct place {
    uint64_t offset;
    uint32_t size; /* bytes; at most FSDP_LINE_BYTES_MAX */
    uint32_t line;
    int32_t class;
} place;

typedef struct class_dataset {
    fsdp_dataset_options options; /* the columns are valid only while the dataset is being opened */
    char *path;
    fsdp_text_rows *rows;
    place *places;
    size_t len, cap;
    bool pairs;
    fsdp_example checked; /* scratch: labels are written to its targets, to check them while the
                             file is opened */
    char **class_names;   /* [options.num_classes]; only if labels are read with each row */
    char *note;           /* the text that fsdp_dataset_note() returns, or NULL */
} class_dataset;

static int64_t class_len(void *self)
{
    return (int64_t)((const class_dataset *)self)->len;
}

/* Read and encode a row. Set *cut to the number of ids that were cut off, unless `cut` is NULL. */
static fsdp_status encode(const class_dataset *d, int64_t index, fsdp_example *example,
                          int64_t *cut)
{
    const place *at = &d->places[index];
    fsdp_csv_row row = {0};
    fsdp_data_text first, second, none = {0};
    fsdp_status status = fsdp_text_rows_read(d->rows, at->offset, at->size, &row);
    if (status == FSDP_OK) {
        first.bytes = fsdp_text_rows_source(d->rows, &row, &first.length);
        second.bytes = fsdp_text_rows_target(d->rows, &row, &second.length);
        status = fsdp_class_text_encode(&d->options, d->pairs ? first : second,
                                        d->pairs ? second : none, example, cut);
        if (status == FSDP_OK && d->options.problem_type != FSDP_PROBLEM_SINGLE_LABEL)
            status = fsdp_label_numbers(&d->options, fsdp_text_rows_label(d->rows, &row), example);
    }
    fsdp_csv_row_fini(&row);
    if (status != FSDP_ERR_IO) /* the message of FSDP_ERR_IO already contains the path */
        fsdp_text_place_context(d->rows, status, at->offset, at->line);
    return status;
}

static fsdp_status class_get_cut(void *self, int64_t index, fsdp_example *example, int64_t *cut)
{
    const class_dataset *d = self;
    FSDP_TRY(encode(d, index, example, cut));
    if (d->options.problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        return FSDP_OK; /* the example's targets are its labels */
    return fsdp_token_list_set(&example->labels, &d->places[index].class, 1);
}

static fsdp_status class_get(void *self, int64_t index, fsdp_example *example)
{
    return class_get_cut(self, index, example, NULL);
}

/* Copy the text of a row to *source, or a pair of texts to *source and *target. */
static fsdp_status copy_texts(const class_dataset *d, const fsdp_csv_row *row, char **source,
                              char **target)
{
    size_t length;
    const char *text = fsdp_text_rows_target(d->rows, row, &length);
    char *last = fsdp_text_row_copy(text, length), *first = NULL;
    if (last && d->pairs) {
        text = fsdp_text_rows_source(d->rows, row, &length);
        first = fsdp_text_row_copy(text, length);
    }
    if (!last || (d->pairs && !first)) {
        fsdp_free(last);
        return FSDP_ERR_NOMEM;
    }
    *source = d->pairs ? first : last;
    *target = d->pairs ? last : NULL;
    return FSDP_OK;
}

static fsdp_status class_texts(void *self, int64_t index, char **source, char **target)
{
    const class_dataset *d = self;
    const place *at = &d->places[index];
    fsdp_csv_row row = {0};
    fsdp_status status = fsdp_text_rows_read(d->rows, at->offset, at->size, &row);
    if (status == FSDP_OK)
        status = copy_texts(d, &row, source, target);
    fsdp_csv_row_fini(&row);
    if (status != FSDP_ERR_IO) /* the message of FSDP_ERR_IO already contains the path */
        fsdp_text_place_context(d->rows, status, at->offset, at->line);
    return status;
}

static void class_close(void *self)
{
    class_dataset *d = self;
    fsdp_text_rows_close(d->rows);
    for (int64_t i = 0; d->class_names && i < d->options.num_classes; i++)
        fsdp_free(d->class_names[i]);
    fsdp_free(d->class_names);
    fsdp_example_fini(&d->checked);
    fsdp_free(d->places);
    fsdp_free(d->path);
    fsdp_free(d->note);
    fsdp_free(d);
}

static const fsdp_dataset_ops class_ops = {
    .len = class_len,
    .get = class_get,
    .texts = class_texts,
    .close = class_close,
};

/* ---- opening ---- */

static fsdp_status add_row(class_dataset *d, const fsdp_csv_row *row)
{
    int32_t class = 0;
    const char *label = fsdp_text_rows_label(d->rows, row);
    fsdp_status status = d->options.problem_type == FSDP_PROBLEM_SINGLE_LABEL
                             ? fsdp_class_of_label(&d->options, label, &class)
                             : fsdp_label_numbers(&d->options, label, &d->checked);
    if (status != FSDP_OK) {
        fsdp_text_row_context(d->rows, status, row);
        return status;
    }
    if (row->line > UINT32_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: more than 2^32 lines", d->path);
    if (!FSDP_GROW(d->places, d->cap, d->len + 1))
        return FSDP_ERR_NOMEM;
    d->places[d->len++] = (place){row->offset, (uint32_t)row->size, (uint32_t)row->line, class};
    return FSDP_OK;
}

static fsdp_status index_rows(class_dataset *d)
{
    fsdp_csv_row row = {0};
    fsdp_status status = FSDP_OK;
    while (status == FSDP_OK && (int64_t)d->len < d->options.max_samples) {
        status = fsdp_text_rows_next(d->rows, &row);
        if (status != FSDP_OK || row.line == 0)
            break;
        status = add_row(d, &row);
    }
    fsdp_csv_row_fini(&row);
    if (status == FSDP_OK && d->len == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: no rows", d->path);
    return status == FSDP_OK ? fsdp_text_rows_end(d->rows, &d->options, &d->note) : status;
}

/* Copy the names of the classes, which belong to the caller, because reading a row needs them. */
static fsdp_status own_class_names(class_dataset *d)
{
    const char *const *names = d->options.class_names;
    if (!names)
        return FSDP_OK;
    d->options.class_names = NULL;
    if (!(d->class_names = fsdp_calloc((size_t)d->options.num_classes, sizeof *d->class_names)))
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < d->options.num_classes; i++)
        if (names[i] && !(d->class_names[i] = fsdp_strdup(names[i])))
            return FSDP_ERR_NOMEM;
    d->options.class_names = (const char *const *)d->class_names;
    return FSDP_OK;
}

static fsdp_status open_file(class_dataset *d, const char *path, fsdp_rows_form form)
{
    if (!(d->path = fsdp_strdup(path)))
        return FSDP_ERR_NOMEM;
    if (d->options.problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        FSDP_TRY(own_class_names(d));
    FSDP_TRY(fsdp_text_rows_open(path, form, false, &d->options, &d->rows));
    d->pairs = fsdp_text_rows_have_source(d->rows);
    return index_rows(d);
}

fsdp_status fsdp_class_dataset_open(const char *path, fsdp_rows_form form,
                                    const fsdp_dataset_options *options, fsdp_dataset **out)
{
    FSDP_TRY(fsdp_check_tokenizer(path, "a text", options));
    class_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->options = *options;
    fsdp_status status = open_file(d, path, form);
    d->options.class_hint = NULL; /* like the columns, it is valid only while the dataset is being
                                     opened */
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&class_ops, d, out);
    if (status != FSDP_OK) {
        class_close(d);
        return status;
    }
    fsdp_dataset_set_uses(*out,
                          FSDP_USES_SOURCE_COLUMN | FSDP_USES_CLASSES | fsdp_rows_form_uses(form));
    fsdp_dataset_set_note(*out, d->note);
    fsdp_dataset_set_get_cut(*out, class_get_cut);
    return FSDP_OK;
}
