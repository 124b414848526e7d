/* See arrow_output.h. */
#include "src/tokenize/arrow_output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/data/arrow/write.h"

enum {
    MOST_COLUMNS = 5,
    /* The longest list that is accepted in a spooled file. fsdp tokenize reads at most 64 MiB of
     * text for a record, so the lists of a record are shorter. If the file has a larger length, the
     * file is damaged. */
    LIST_LENGTH_MAX = 1 << 28
};

/* A row that was read from a spooled file; see Note [Spooled rows] in encode.h. */
typedef struct row {
    int32_t *lists[FSDP_SPOOLED_LISTS]; /* [lengths[i]] */
    uint32_t lengths[FSDP_SPOOLED_LISTS];
    size_t caps[FSDP_SPOOLED_LISTS];
} row;

typedef struct arrow_output {
    const fsdp_arrow_output_options *options;
    const fsdp_tokenize_state *state;
    fsdp_arrow_writer *writer;
    fsdp_arrow_column columns[MOST_COLUMNS];
    size_t n_columns;
    /* index of each column in `columns`; -1: there is no such column */
    int input_ids, types, mask, labels, positions;
    /* [ones_cap]: an array of ones, which is the attention_mask of every row */
    int8_t *ones;
    size_t ones_cap;
    int8_t *bytes; /* [bytes_cap], token_type_ids */
    size_t bytes_cap;
    float *numbers;   /* [options->num_labels]: the labels of a row that are numbers */
    int64_t *classes; /* [options->num_labels]: the classes of a row that has several */
    int32_t *block, *block_labels; /* [block_size] */
    int64_t in_block;              /* number of tokens in `block`, the block that is being filled */
    int64_t rows;                  /* number of rows of the current split that were written */
} arrow_output;

/* ---- reading spooled rows ---- */

static fsdp_status read_list(FILE *file, const char *path, int32_t *ids, size_t count)
{
    if (fread(ids, sizeof *ids, count, file) == count)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_IO, "%s: %s", path,
                      ferror(file) ? strerror(errno) : "ends in the middle of a row");
}

static fsdp_status read_row(FILE *file, const char *path, row *r)
{
    int32_t lengths[FSDP_SPOOLED_LISTS];
    FSDP_TRY(read_list(file, path, lengths, FSDP_SPOOLED_LISTS));
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++) {
        if (lengths[i] < 0 || lengths[i] > LIST_LENGTH_MAX)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: damaged: a list of %" PRId32 " tokens", path,
                              lengths[i]);
        r->lengths[i] = (uint32_t)lengths[i];
        if (!FSDP_GROW(r->lists[i], r->caps[i], r->lengths[i]))
            return FSDP_ERR_NOMEM;
        FSDP_TRY(read_list(file, path, r->lists[i], r->lengths[i]));
    }
    return FSDP_OK;
}

/* ---- columns ---- */

static int add_column(arrow_output *o, const char *name, fsdp_arrow_column_type type)
{
    o->columns[o->n_columns] = (fsdp_arrow_column){.name = name, .type = type};
    return (int)o->n_columns++;
}

/* Return the type of the labels of a classifier. Labels with several classes are a list of these
 * classes if the classes have names, because a list of ClassLabels is the form in which the library
 * datasets keeps names. Otherwise they are a list with a number for each class, which models of
 * transformers take as labels. */
static fsdp_arrow_column_type class_column(const fsdp_arrow_output_options *options)
{
    switch (options->problem_type) {
    case FSDP_PROBLEM_REGRESSION:
        return options->num_labels == 1 ? FSDP_ARROW_COLUMN_F32 : FSDP_ARROW_COLUMN_F32_LIST;
    case FSDP_PROBLEM_MULTI_LABEL:
        return options->class_names ? FSDP_ARROW_COLUMN_I64_LIST : FSDP_ARROW_COLUMN_F32_LIST;
    case FSDP_PROBLEM_SINGLE_LABEL:
        break;
    }
    return FSDP_ARROW_COLUMN_I64;
}

/* Choose the columns. Blocks (--block-size) of a causal language model always have labels, as in
 * run_clm. Rows and blocks of a masked language model have labels only if input rows have labels,
 * which means that these rows have been masked already. Without labels, `fsdp train` masks them
 * when it reads them, as in run_mlm. */
static void choose_columns(arrow_output *o)
{
    const bool *lists = o->state->lists;
    const bool is_block = o->options->block_size > 0;
    const bool is_class = o->options->task == FSDP_TASK_CLASSIFICATION;
    const bool is_masked = o->options->task == FSDP_TASK_MASKED_LM;
    o->types = o->labels = o->positions = -1;
    o->input_ids = add_column(o, "input_ids", FSDP_ARROW_COLUMN_I32_LIST);
    if (lists[2] && !is_block)
        o->types = add_column(o, "token_type_ids", FSDP_ARROW_COLUMN_I8_LIST);
    o->mask = add_column(o, "attention_mask", FSDP_ARROW_COLUMN_I8_LIST);
    if (is_class) {
        o->labels = add_column(o, "labels", class_column(o->options));
        o->columns[o->labels].class_names = o->options->class_names;
        o->columns[o->labels].n_classes = o->options->n_classes;
    } else if (lists[1] || (is_block && !is_masked)) {
        o->labels = add_column(o, "labels", FSDP_ARROW_COLUMN_I32_LIST);
    }
    if (lists[3] && !is_block)
        o->positions = add_column(o, "position_ids", FSDP_ARROW_COLUMN_I32_LIST);
}

static fsdp_status set_ones(arrow_output *o, size_t count)
{
    const size_t before = o->ones_cap;
    if (!FSDP_GROW(o->ones, o->ones_cap, count))
        return FSDP_ERR_NOMEM;
    if (o->ones_cap > before)
        memset(o->ones + before, 1, o->ones_cap - before);
    return fsdp_arrow_writer_set_mask(o->writer, (size_t)o->mask, o->ones, count);
}

static fsdp_status set_types(arrow_output *o, const row *r)
{
    const size_t n = r->lengths[0];
    if (!FSDP_GROW(o->bytes, o->bytes_cap, n))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const int32_t type = i < r->lengths[2] ? r->lists[2][i] : 0;
        if (type < INT8_MIN || type > INT8_MAX)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "row %" PRId64 ": token_type_ids[%zu]: %" PRId32
                              ": an Arrow folder stores them as int8, so they are at most %d",
                              o->rows + 1, i, type, INT8_MAX);
        o->bytes[i] = (int8_t)type;
    }
    return fsdp_arrow_writer_set_mask(o->writer, (size_t)o->types, o->bytes, n);
}

/* Set the label of a row that is one or several numbers, in the form that class_column() chose. */
static fsdp_status set_numbers(arrow_output *o, const row *r)
{
    const size_t n = (size_t)o->options->num_labels, column = (size_t)o->labels;
    size_t n_classes = 0;
    if (r->lengths[1] != n)
        return fsdp_error(FSDP_ERR_FORMAT, "row %" PRId64 ": %" PRIu32 " labels, not %zu",
                          o->rows + 1, r->lengths[1], n);
    memcpy(o->numbers, r->lists[1], n * sizeof *o->numbers);
    switch (o->columns[column].type) {
    case FSDP_ARROW_COLUMN_F32:
        return fsdp_arrow_writer_set_f32(o->writer, column, o->numbers[0]);
    case FSDP_ARROW_COLUMN_F32_LIST:
        return fsdp_arrow_writer_set_f32s(o->writer, column, o->numbers, n);
    default:
        break;
    }
    for (size_t i = 0; i < n; i++)
        if (o->numbers[i] > 0)
            o->classes[n_classes++] = (int64_t)i;
    return fsdp_arrow_writer_set_i64s(o->writer, column, o->classes, n_classes);
}

/* Set the labels of a row. If a row for a causal language model has no labels, its ids become its
 * labels. A row for a masked language model stays without labels, because `fsdp train` masks the
 * row when it reads it. */
static fsdp_status set_labels(arrow_output *o, const row *r)
{
    if (o->options->task == FSDP_TASK_CLASSIFICATION) {
        if (o->options->problem_type != FSDP_PROBLEM_SINGLE_LABEL)
            return set_numbers(o, r);
        if (r->lengths[1] != 1)
            return fsdp_error(FSDP_ERR_FORMAT, "row %" PRId64 ": %" PRIu32 " labels, not one",
                              o->rows + 1, r->lengths[1]);
        return fsdp_arrow_writer_set_i64(o->writer, (size_t)o->labels, r->lists[1][0]);
    }
    if (r->lengths[1] == 0 && o->options->task == FSDP_TASK_MASKED_LM)
        return FSDP_OK;
    const bool own = r->lengths[1] == 0 && o->options->task != FSDP_TASK_SEQ2SEQ;
    return fsdp_arrow_writer_set_ids(o->writer, (size_t)o->labels, r->lists[own ? 0 : 1],
                                     r->lengths[own ? 0 : 1]);
}

/* Set the position_ids of a row. If the row has none, its positions are 0, 1, 2 and so on. */
static fsdp_status set_positions(arrow_output *o, row *r)
{
    if (r->lengths[3] == 0) {
        if (!FSDP_GROW(r->lists[3], r->caps[3], r->lengths[0]))
            return FSDP_ERR_NOMEM;
        for (uint32_t i = 0; i < r->lengths[0]; i++)
            r->lists[3][i] = (int32_t)i;
        r->lengths[3] = r->lengths[0];
    }
    return fsdp_arrow_writer_set_ids(o->writer, (size_t)o->positions, r->lists[3], r->lengths[3]);
}

static fsdp_status write_row(arrow_output *o, row *r)
{
    FSDP_TRY(
        fsdp_arrow_writer_set_ids(o->writer, (size_t)o->input_ids, r->lists[0], r->lengths[0]));
    FSDP_TRY(set_ones(o, r->lengths[0]));
    if (o->types >= 0)
        FSDP_TRY(set_types(o, r));
    if (o->labels >= 0)
        FSDP_TRY(set_labels(o, r));
    if (o->positions >= 0)
        FSDP_TRY(set_positions(o, r));
    o->rows++;
    return fsdp_arrow_writer_end_row(o->writer);
}

/* ---- blocks ---- */

static fsdp_status write_block(arrow_output *o)
{
    row block = {.lists = {o->block, o->block_labels}};
    block.lengths[0] = block.lengths[1] = (uint32_t)o->options->block_size;
    o->in_block = 0;
    return write_row(o, &block);
}

/* Return an error if a row has no labels, but other rows have labels. Rows with labels have been
 * masked already, rows without labels have not, and one block cannot contain both. */
static fsdp_status check_masked_alike(const arrow_output *o, const row *r, int64_t number)
{
    if (o->options->task != FSDP_TASK_MASKED_LM || o->labels < 0 || r->lengths[0] == 0 ||
        r->lengths[1])
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "row %" PRId64 " has no labels, but other rows do: --block-size joins rows "
                      "that are to be masked, or rows that have been masked, not both; without it, "
                      "'fsdp train' masks each row that has no labels",
                      number);
}

/* Append a row to o->block. Each time the block is full, write it and begin a new one. */
static fsdp_status add_to_block(arrow_output *o, const row *r)
{
    const int32_t *labels = r->lengths[1] ? r->lists[1] : r->lists[0];
    const int64_t n = r->lengths[0];
    for (int64_t at = 0; at < n;) {
        const int64_t room = o->options->block_size - o->in_block;
        const int64_t count = n - at < room ? n - at : room;
        memcpy(o->block + o->in_block, r->lists[0] + at, (size_t)count * sizeof *labels);
        memcpy(o->block_labels + o->in_block, labels + at, (size_t)count * sizeof *labels);
        o->in_block += count;
        at += count;
        if (o->in_block == o->options->block_size)
            FSDP_TRY(write_block(o));
    }
    return FSDP_OK;
}

/* ---- splits ---- */

static fsdp_status write_rows(arrow_output *o, FILE *file, const char *path, int64_t rows)
{
    row r = {0};
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; i < rows && status == FSDP_OK; i++) {
        status = read_row(file, path, &r);
        if (status == FSDP_OK && o->options->block_size)
            status = check_masked_alike(o, &r, i + 1);
        if (status == FSDP_OK)
            status = o->options->block_size ? add_to_block(o, &r) : write_row(o, &r);
    }
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++)
        fsdp_free(r.lists[i]);
    return status;
}

static fsdp_status write_split(arrow_output *o, const char *name, const char *path, int64_t rows)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    o->rows = o->in_block = 0;
    fsdp_status status = fsdp_arrow_writer_begin_split(o->writer, name, o->columns, o->n_columns);
    if (status == FSDP_OK)
        status = write_rows(o, file, path, rows);
    if (name)
        fsdp_error_context(status, "split %s", name);
    fclose(file);
    return status;
}

static fsdp_status write_splits(arrow_output *o, const fsdp_token_output *spool,
                                fsdp_arrow_output_counts *counts)
{
    static const char *const names[] = {"train", "validation"};
    const int n = o->options->has_validation ? 2 : 1;
    for (int i = 0; i < n; i++) {
        FSDP_TRY(write_split(o, n == 1 ? NULL : names[i], fsdp_output_spool(spool, i),
                             o->state->parts[i].rows));
        counts->rows[i] = o->rows;
        counts->unused_tokens += o->in_block;
        if (o->rows == 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: no block of %" PRId64 " tokens: the %s data have only %" PRId64,
                              o->options->path, o->options->block_size,
                              i ? "validation" : "training", o->in_block);
    }
    return FSDP_OK;
}

static fsdp_status make_arrays(arrow_output *o)
{
    const size_t n = (size_t)o->options->block_size, labels = (size_t)o->options->num_labels;
    o->block = fsdp_calloc(n, sizeof *o->block);
    o->block_labels = fsdp_calloc(n, sizeof *o->block_labels);
    o->numbers = fsdp_calloc(labels, sizeof *o->numbers);
    o->classes = fsdp_calloc(labels, sizeof *o->classes);
    return o->block && o->block_labels && o->numbers && o->classes ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Write one row, to find out whether the folder can be written. The caller discards the row. */
static fsdp_status try_row(fsdp_arrow_writer *writer)
{
    static const fsdp_arrow_column column = {.name = "input_ids",
                                             .type = FSDP_ARROW_COLUMN_I32_LIST};
    FSDP_TRY(fsdp_arrow_writer_begin_split(writer, NULL, &column, 1));
    return fsdp_arrow_writer_end_row(writer);
}

fsdp_status fsdp_arrow_output_check(const char *path)
{
    const fsdp_arrow_write_options options = {.batch_rows = 1};
    fsdp_arrow_writer *writer;
    FSDP_TRY(fsdp_arrow_writer_begin(path, FSDP_EXISTING_REFUSE, &options, &writer));
    const fsdp_status status = try_row(writer);
    fsdp_arrow_writer_discard(writer);
    return status;
}

fsdp_status fsdp_arrow_output_write(const fsdp_arrow_output_options *options,
                                    const fsdp_token_output *spool,
                                    const fsdp_tokenize_state *state,
                                    fsdp_arrow_output_counts *counts)
{
    arrow_output o = {.options = options, .state = state};
    *counts = (fsdp_arrow_output_counts){0};
    choose_columns(&o);
    FSDP_ASSERT(o.n_columns <= MOST_COLUMNS);
    FSDP_TRY(fsdp_arrow_writer_begin(options->path, FSDP_EXISTING_REFUSE, NULL, &o.writer));
    fsdp_status status = make_arrays(&o);
    if (status == FSDP_OK)
        status = write_splits(&o, spool, counts);
    if (status == FSDP_OK)
        status = fsdp_arrow_writer_commit(o.writer);
    else
        fsdp_arrow_writer_discard(o.writer);
    fsdp_free(o.block);
    fsdp_free(o.block_labels);
    fsdp_free(o.numbers);
    fsdp_free(o.classes);
    fsdp_free(o.ones);
    fsdp_free(o.bytes);
    return status;
}
