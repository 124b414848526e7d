/* `fsdp checkpoint inspect`: show the content of a checkpoint, as tables or as one JSON object. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/shown_text.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/common/cli.h"
#include "src/report/human.h"
#include "src/report/table.h"
#include "src/source/parts.h"
#include "src/source/source.h"
#include "src/text/chars/utf8.h"
#include "src/torchfile/entry.h"
#include "src/torchfile/torch_names.h"

enum {
    SHOWN_VALUE_BYTES = 60, /* values in a table are truncated to this length */
    JSON_VALUE_BYTES = 1 << 20
};

typedef struct inspect_config {
    bool json;
} inspect_config;

static const fsdp_option table[] = {
    {.name = "json",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(inspect_config, json),
     .help = "print one JSON object instead of tables"},
};

static const fsdp_options_spec spec = {
    .program = "fsdp checkpoint inspect",
    .usage = "PATH [--json]",
    .summary =
        "List the tensors of a checkpoint (name, dtype, shape, bytes, file, chunks) and its plain "
        "values. The data are not read. For a folder that holds checkpoints, print one line for "
        "each of them.",
    .epilogue = "example:\n  fsdp checkpoint inspect out-checkpoints/checkpoint-500\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "PATH",
    .min_positional = 1,
    .max_positional = 1,
};

/* --- helpers for tables and JSON --- */

typedef struct totals {
    size_t tensors, values;
    int64_t numel, bytes;
} totals;

static totals count_items(const fsdp_source *source)
{
    totals t = {0};
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        t.tensors += item->dtype_name != NULL;
        t.values += item->dtype_name == NULL;
        t.numel += item->numel;
        t.bytes += item->bytes;
    }
    return t;
}

/* Return torch's name of the dtype. If torch does not have the dtype, return its name in
 * safetensors. */
static const char *dtype_of(const fsdp_source_item *item)
{
    const fsdp_safetensors_dtype *dtype = fsdp_safetensors_dtype_by_name(item->dtype_name);
    const char *name = dtype ? fsdp_torch_names_of(dtype).dtype : NULL;
    return name ? name : item->dtype_name;
}

static fsdp_status value_text(fsdp_source *source, const fsdp_source_item *item, size_t max,
                              char **text)
{
    const fsdp_pickle_value *value;
    fsdp_str s = {0};
    FSDP_TRY(fsdp_source_value(source, item, &value));
    fsdp_source_repr(value, max, &s);
    *text = fsdp_str_take(&s);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* --- tables --- */

static void add_tensor(fsdp_table *t, const fsdp_source_item *item)
{
    char shape[256];
    fsdp_source_placement placement;
    fsdp_checkpoint_shape_text(item->shape, item->ndim, shape, sizeof shape);
    fsdp_table_row(t);
    fsdp_table_cell(t, "%s", item->fqn);
    fsdp_table_cell(t, "%s", dtype_of(item));
    fsdp_table_cell(t, "%s", shape);
    fsdp_table_cell(t, "%lld", (long long)item->bytes);
    if (item->n_chunks > 1)
        fsdp_table_cell(t, "%s in %zu chunks, from %s on",
                        fsdp_source_placement_of(item, &placement) ? placement.text : "",
                        item->n_chunks, fsdp_path_name(item->file));
    else
        fsdp_table_cell(t, "%s", fsdp_path_name(item->file));
}

static fsdp_status fill_tensors(fsdp_source *source, fsdp_table *t)
{
    fsdp_table_column(t, 0, "tensor", FSDP_TABLE_LEFT);
    fsdp_table_column(t, 1, "dtype", FSDP_TABLE_LEFT);
    fsdp_table_column(t, 2, "shape", FSDP_TABLE_LEFT);
    fsdp_table_column(t, 3, "bytes", FSDP_TABLE_RIGHT);
    fsdp_table_column(t, 4, "file", FSDP_TABLE_LEFT);
    for (size_t i = 0; i < fsdp_source_count(source); i++)
        if (fsdp_source_at(source, i)->dtype_name)
            add_tensor(t, fsdp_source_at(source, i));
    return FSDP_OK;
}

static fsdp_status fill_values(fsdp_source *source, fsdp_table *t)
{
    fsdp_table_column(t, 0, "value", FSDP_TABLE_LEFT);
    fsdp_table_column(t, 1, "is", FSDP_TABLE_LEFT);
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        char *text;
        if (item->dtype_name)
            continue;
        FSDP_TRY(value_text(source, item, SHOWN_VALUE_BYTES, &text));
        fsdp_table_row(t);
        fsdp_table_cell(t, "%s", item->fqn);
        fsdp_table_cell(t, "%s", text);
        fsdp_free(text);
    }
    return FSDP_OK;
}

static fsdp_status print_table(fsdp_source *source, size_t columns,
                               fsdp_status (*fill)(fsdp_source *source, fsdp_table *t))
{
    fsdp_table *t;
    FSDP_TRY(fsdp_table_create(columns, &t));
    fsdp_status status = fill(source, t);
    if (status == FSDP_OK)
        status = fsdp_table_print(t, stdout, FSDP_TABLE_AUTO);
    fsdp_table_destroy(t);
    return status;
}

static fsdp_status print_tables(fsdp_source *source)
{
    totals sum = count_items(source);
    const char *writer = fsdp_source_writer(source);
    printf("%s: %s%s%s, %zu tensor%s of %lld elements, %s", fsdp_source_path(source),
           fsdp_source_format_name(fsdp_source_format_of(source)), writer ? " by " : "",
           writer ? fsdp_show_text(writer).text : "", sum.tensors, sum.tensors == 1 ? "" : "s",
           (long long)sum.numel, fsdp_human_bytes(sum.bytes).text);
    printf(sum.values ? "; %zu plain value%s\n" : "\n", sum.values, sum.values == 1 ? "" : "s");
    if (sum.tensors)
        FSDP_TRY(print_table(source, 5, fill_tensors));
    return sum.values ? print_table(source, 2, fill_values) : FSDP_OK;
}

/* --- JSON --- */

/* Set the key `key` of the object `to` to `text`. Names of files and Python strings may contain
 * bytes that are not UTF-8. These bytes are written as \xNN, as Python's repr() does. */
static void set_text(fsdp_json_node to, const char *key, const char *text)
{
    fsdp_str shown = {0};
    const size_t bytes = strlen(text);
    for (size_t at = 0, n; at < bytes; at += n + 1) {
        n = fsdp_utf8_valid_length(text + at, bytes - at);
        fsdp_str_append(&shown, text + at, n);
        if (at + n < bytes)
            fsdp_str_printf(&shown, "\\x%02x", (unsigned char)text[at + n]);
    }
    fsdp_json_set_str(to, key, shown.data && !shown.failed ? shown.data : text);
    fsdp_str_fini(&shown);
}

static void describe_tensor(const fsdp_source_item *item, fsdp_json_node to)
{
    fsdp_source_placement placement;
    set_text(to, "name", item->fqn);
    fsdp_json_set_str(to, "dtype", dtype_of(item));
    fsdp_json_node shape = fsdp_json_set_array(to, "shape");
    for (int k = 0; k < item->ndim; k++)
        fsdp_json_append_i64(shape, item->shape[k]);
    fsdp_json_set_i64(to, "bytes", item->bytes);
    set_text(to, "file", fsdp_path_name(item->file));
    fsdp_json_set_i64(to, "chunks", (int64_t)item->n_chunks);
    if (fsdp_source_placement_of(item, &placement))
        fsdp_json_set_str(to, "placement", placement.text);
}

/* Describe a plain value in the object `to`. Numbers, strings, booleans and None become the same in
 * JSON. Any other value becomes a string in the form of Python's repr(). */
static fsdp_status describe_value(fsdp_source *source, const fsdp_source_item *item,
                                  fsdp_json_node to)
{
    const fsdp_pickle_value *value;
    FSDP_TRY(fsdp_source_value(source, item, &value));
    set_text(to, "name", item->fqn);
    if (value->kind == FSDP_PICKLE_NONE) {
        fsdp_json_set_str(to, "value", NULL);
    } else if (value->kind == FSDP_PICKLE_BOOL) {
        fsdp_json_set_bool(to, "value", value->boolean);
    } else if (value->kind == FSDP_PICKLE_INT) {
        fsdp_json_set_i64(to, "value", value->integer);
    } else if (value->kind == FSDP_PICKLE_FLOAT) {
        fsdp_json_set_f64(to, "value", value->number);
    } else if (fsdp_pickle_text(value)) {
        set_text(to, "value", fsdp_pickle_text(value));
    } else {
        char *text;
        FSDP_TRY(value_text(source, item, JSON_VALUE_BYTES, &text));
        set_text(to, "value", text);
        fsdp_free(text);
    }
    return FSDP_OK;
}

static fsdp_status describe(fsdp_source *source, fsdp_json *doc)
{
    fsdp_json_node root = fsdp_json_root(doc);
    totals sum = count_items(source);
    set_text(root, "path", fsdp_source_path(source));
    fsdp_json_set_str(root, "format", fsdp_source_format_name(fsdp_source_format_of(source)));
    if (fsdp_source_writer(source))
        fsdp_json_set_str(root, "writer", fsdp_source_writer(source));
    fsdp_json_set_i64(root, "numel", sum.numel);
    fsdp_json_set_i64(root, "bytes", sum.bytes);
    fsdp_json_node tensors = fsdp_json_set_array(root, "tensors");
    fsdp_json_node values = fsdp_json_set_array(root, "values");
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        if (item->dtype_name)
            describe_tensor(item, fsdp_json_append_object(tensors));
        else
            FSDP_TRY(describe_value(source, item, fsdp_json_append_object(values)));
    }
    return FSDP_OK;
}

static fsdp_status print_document(const fsdp_json *doc)
{
    char *text;
    FSDP_TRY(fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL));
    puts(text);
    fsdp_free(text);
    return FSDP_OK;
}

static fsdp_status print_json(fsdp_source *source)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create(fsdp_source_path(source), &doc));
    fsdp_status status = describe(source, doc);
    if (status == FSDP_OK)
        status = print_document(doc);
    fsdp_json_destroy(doc);
    return status;
}

static fsdp_status inspect_one(const char *path, const inspect_config *config)
{
    fsdp_source *source;
    FSDP_TRY(fsdp_source_open(path, &source));
    fsdp_status status = config->json ? print_json(source) : print_tables(source);
    fsdp_source_close(source);
    return status;
}

/* --- listing the checkpoints in a folder --- */

/* Return the part of `path` after `folder`. The path must begin with the folder. */
static const char *name_within(const char *folder, const char *path)
{
    path += strlen(folder);
    return path + strspn(path, "/");
}

static void list_source(fsdp_table *t, const fsdp_source *source)
{
    totals sum = count_items(source);
    fsdp_table_cell(t, "%s", fsdp_source_format_name(fsdp_source_format_of(source)));
    fsdp_table_cell(t, "%zu", sum.tensors);
    fsdp_table_cell(t, "%lld", (long long)sum.numel);
    fsdp_table_cell(t, "%s", fsdp_human_bytes(sum.bytes).text);
}

/* Add a row to the table for each checkpoint. If a checkpoint cannot be opened, its row says so.
 * Returns the error of the last such checkpoint, or FSDP_OK. */
static fsdp_status list_parts(const char *folder, const fsdp_parts *parts, fsdp_table *t)
{
    fsdp_status failed = FSDP_OK;
    for (size_t i = 0; i < parts->n; i++) {
        fsdp_source *source;
        fsdp_table_row(t);
        fsdp_table_cell(t, "%s", name_within(folder, parts->paths[i]));
        fsdp_status status = fsdp_source_open(parts->paths[i], &source);
        if (status == FSDP_OK) {
            list_source(t, source);
            fsdp_source_close(source);
        } else {
            fsdp_table_cell(t, "cannot be read");
            failed = status;
        }
    }
    return failed;
}

static fsdp_status print_parts(const char *folder, const fsdp_parts *parts)
{
    static const char *const headings[] = {"checkpoint", "format", "tensors", "elements", "size"};
    fsdp_table *t;
    FSDP_TRY(fsdp_table_create(FSDP_LENGTH(headings), &t));
    for (size_t i = 0; i < FSDP_LENGTH(headings); i++)
        fsdp_table_column(t, i, headings[i], i < 2 ? FSDP_TABLE_LEFT : FSDP_TABLE_RIGHT);
    fsdp_status status = list_parts(folder, parts, t);
    fsdp_status printed = fsdp_table_print(t, stdout, FSDP_TABLE_AUTO);
    fsdp_table_destroy(t);
    return printed == FSDP_OK ? status : printed;
}

static fsdp_status describe_part(const char *path, fsdp_json_node to)
{
    fsdp_source *source;
    set_text(to, "path", path);
    fsdp_status status = fsdp_source_open(path, &source);
    if (status != FSDP_OK) {
        set_text(to, "error", fsdp_last_error());
        return status;
    }
    totals sum = count_items(source);
    fsdp_json_set_str(to, "format", fsdp_source_format_name(fsdp_source_format_of(source)));
    fsdp_json_set_i64(to, "tensors", (int64_t)sum.tensors);
    fsdp_json_set_i64(to, "values", (int64_t)sum.values);
    fsdp_json_set_i64(to, "numel", sum.numel);
    fsdp_json_set_i64(to, "bytes", sum.bytes);
    fsdp_source_close(source);
    return FSDP_OK;
}

static fsdp_status print_parts_json(const char *folder, const fsdp_parts *parts)
{
    fsdp_json *doc;
    fsdp_status failed = FSDP_OK;
    FSDP_TRY(fsdp_json_create(folder, &doc));
    set_text(fsdp_json_root(doc), "path", folder);
    fsdp_json_node list = fsdp_json_set_array(fsdp_json_root(doc), "checkpoints");
    for (size_t i = 0; i < parts->n; i++) {
        fsdp_status status = describe_part(parts->paths[i], fsdp_json_append_object(list));
        failed = status == FSDP_OK ? failed : status;
    }
    fsdp_status printed = print_document(doc);
    fsdp_json_destroy(doc);
    return printed == FSDP_OK ? failed : printed;
}

static fsdp_status inspect(const char *path, const inspect_config *config)
{
    fsdp_parts parts;
    fsdp_status status = fsdp_parts_find(path, &parts);
    if (status == FSDP_OK && fsdp_parts_is_path_itself(&parts, path))
        status = inspect_one(path, config);
    else if (status == FSDP_OK)
        status = config->json ? print_parts_json(path, &parts) : print_parts(path, &parts);
    fsdp_parts_fini(&parts);
    return status;
}

int fsdp_checkpoint_inspect(int argc, char **argv)
{
    inspect_config config = {0};
    fsdp_options *options;
    int count, code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    const char *path = fsdp_options_positional(options, &count)[0];
    code = inspect(path, &config) == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
    fsdp_options_destroy(options);
    return code;
}
