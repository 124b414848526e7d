/* Prints the rows of Arrow files, one JSON object a line, as the data sets of `fsdp train` see
 * them, or copies them to a new folder; for tools/check_arrow.py.
 *
 *     arrow_rows PATH
 *     arrow_rows --copy PATH NEW_FOLDER BATCH_ROWS SHARD_BYTES
 *
 * A copy has the columns input_ids, attention_mask, text, label (a class) and score, as far as PATH
 * has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/data/arrow/table.h"
#include "src/data/arrow/write.h"

static const char *const classes[] = {"bad", "good"};
static const fsdp_arrow_column known[] = {
    {.name = "input_ids", .type = FSDP_ARROW_COLUMN_I32_LIST},
    {.name = "attention_mask", .type = FSDP_ARROW_COLUMN_I8_LIST},
    {.name = "text", .type = FSDP_ARROW_COLUMN_TEXT},
    {.name = "label", .type = FSDP_ARROW_COLUMN_I64, .class_names = classes, .n_classes = 2},
    {.name = "score", .type = FSDP_ARROW_COLUMN_F64},
};

static fsdp_status print_rows(const fsdp_arrow_table *table)
{
    for (int64_t i = 0; i < fsdp_arrow_table_len(table); i++) {
        fsdp_json *doc;
        char *text;
        FSDP_TRY(fsdp_arrow_table_row(table, i, &doc));
        const fsdp_status status = fsdp_json_print(doc, FSDP_JSON_COMPACT, &text, NULL);
        fsdp_json_destroy(doc);
        FSDP_TRY(status);
        puts(text);
        fsdp_free(text);
    }
    return FSDP_OK;
}

static fsdp_status copy_list(fsdp_arrow_writer *writer, size_t column, fsdp_json_node value,
                             bool is_mask)
{
    int64_t *items;
    size_t n;
    FSDP_TRY(fsdp_json_get_i64s(value, NULL, INT32_MIN, INT32_MAX, &items, &n));
    int32_t *ids = fsdp_calloc(n, sizeof *ids);
    int8_t *mask = fsdp_calloc(n, sizeof *mask);
    fsdp_status status = ids && mask ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; status == FSDP_OK && i < n; i++) {
        ids[i] = (int32_t)items[i];
        mask[i] = (int8_t)items[i];
    }
    if (status == FSDP_OK)
        status = is_mask ? fsdp_arrow_writer_set_mask(writer, column, mask, n)
                         : fsdp_arrow_writer_set_ids(writer, column, ids, n);
    fsdp_free(items);
    fsdp_free(ids);
    fsdp_free(mask);
    return status;
}

static fsdp_status copy_value(fsdp_arrow_writer *writer, size_t column, fsdp_json_node value,
                              fsdp_arrow_column_type type)
{
    const char *text;
    int64_t number;
    double real;
    if (fsdp_json_kind_of(value) == FSDP_JSON_NULL)
        return FSDP_OK;
    switch (type) {
    case FSDP_ARROW_COLUMN_I32_LIST:
    case FSDP_ARROW_COLUMN_I8_LIST:
        return copy_list(writer, column, value, type == FSDP_ARROW_COLUMN_I8_LIST);
    case FSDP_ARROW_COLUMN_TEXT:
        FSDP_TRY(fsdp_json_get_str(value, NULL, &text));
        return fsdp_arrow_writer_set_text(writer, column, text, strlen(text));
    case FSDP_ARROW_COLUMN_I64:
        FSDP_TRY(fsdp_json_get_i64(value, NULL, INT64_MIN, INT64_MAX, &number));
        return fsdp_arrow_writer_set_i64(writer, column, number);
    case FSDP_ARROW_COLUMN_I64_LIST: /* no known column has these types */
    case FSDP_ARROW_COLUMN_F32_LIST:
    case FSDP_ARROW_COLUMN_F32:
    case FSDP_ARROW_COLUMN_F64:
        break;
    }
    FSDP_TRY(fsdp_json_get_f64(value, NULL, &real));
    return fsdp_arrow_writer_set_f64(writer, column, real);
}

static fsdp_status copy_rows(const fsdp_arrow_table *table, fsdp_arrow_writer *writer)
{
    fsdp_arrow_column columns[FSDP_LENGTH(known)];
    size_t n = 0;
    for (size_t i = 0; i < FSDP_LENGTH(known); i++)
        if (fsdp_arrow_table_has(table, known[i].name))
            columns[n++] = known[i];
    FSDP_TRY(fsdp_arrow_writer_begin_split(writer, NULL, columns, n));
    for (int64_t i = 0; i < fsdp_arrow_table_len(table); i++) {
        fsdp_json *doc;
        FSDP_TRY(fsdp_arrow_table_row(table, i, &doc));
        fsdp_status status = FSDP_OK;
        for (size_t k = 0; k < n && status == FSDP_OK; k++)
            status = copy_value(writer, k, fsdp_json_find(fsdp_json_root(doc), columns[k].name),
                                columns[k].type);
        fsdp_json_destroy(doc);
        FSDP_TRY(status);
        FSDP_TRY(fsdp_arrow_writer_end_row(writer));
    }
    return FSDP_OK;
}

static fsdp_status copy_table(const fsdp_arrow_table *table, char **arguments)
{
    const fsdp_arrow_write_options options = {.batch_rows = atoll(arguments[1]),
                                              .shard_bytes = strtoull(arguments[2], NULL, 10)};
    fsdp_arrow_writer *writer;
    FSDP_TRY(fsdp_arrow_writer_begin(arguments[0], FSDP_EXISTING_UPDATE, &options, &writer));
    const fsdp_status status = copy_rows(table, writer);
    if (status == FSDP_OK)
        return fsdp_arrow_writer_commit(writer);
    fsdp_arrow_writer_discard(writer);
    return status;
}

int main(int argc, char **argv)
{
    const bool copies = argc == 6 && strcmp(argv[1], "--copy") == 0;
    fsdp_arrow_table *table;
    if (argc != 2 && !copies) {
        fputs("usage: arrow_rows PATH | --copy PATH NEW_FOLDER BATCH_ROWS SHARD_BYTES\n", stderr);
        return 2;
    }
    fsdp_status status =
        fsdp_arrow_table_open(argv[copies ? 2 : 1], FSDP_ARROW_SPLIT_TRAIN, &table);
    if (status == FSDP_OK) {
        status = copies ? copy_table(table, argv + 3) : print_rows(table);
        fsdp_arrow_table_close(table);
    }
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", fsdp_last_error());
    return status != FSDP_OK;
}
