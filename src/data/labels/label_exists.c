/* Finds out whether a file has labels of classes. See fsdp_labels_exist() in class_text.h. */
#include "src/base/alloc.h"
#include "src/data/arrow/table.h"
#include "src/data/files/data_paths.h"
#include "src/data/json/json_rows.h"
#include "src/data/labels/class_text.h"
#include "src/data/rows/dataset_options.h"
#include "src/data/rows/rows_form.h"
#include "src/data/rows/text_rows.h"

/* Return true if a row of ids has the label of a class. A list with one entry for each id is not
 * such a label: it has the labels of a masked language model. */
static bool has_class(fsdp_json_node row)
{
    const char *key = fsdp_json_has(row, "labels") ? "labels" : "label";
    const fsdp_json_node label = fsdp_json_find(row, key);
    if (fsdp_json_kind_of(label) == FSDP_JSON_ARRAY)
        return fsdp_json_len(label) != fsdp_json_len(fsdp_json_find(row, "input_ids"));
    return fsdp_json_has(row, key);
}

static fsdp_status find_class_of_json(const char *path, const fsdp_dataset_options *options,
                                      bool *any)
{
    fsdp_input *input;
    fsdp_json_rows *rows;
    fsdp_json_row row = {0};
    fsdp_json *doc;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_json_rows_open(input, path, options->json_field, &rows);
    if (status == FSDP_OK) {
        status = fsdp_json_rows_next(rows, &row);
        if (status == FSDP_OK && row.text)
            status = fsdp_json_row_parse(path, &row, &doc);
        if (status == FSDP_OK && row.text) {
            *any = has_class(fsdp_json_root(doc));
            fsdp_json_destroy(doc);
        }
        fsdp_json_rows_close(rows);
    }
    fsdp_input_close(input);
    return status;
}

static fsdp_status find_class_of_arrow(const char *path, const fsdp_dataset_options *options,
                                       bool *any)
{
    fsdp_arrow_table *table;
    fsdp_json *doc;
    FSDP_TRY(fsdp_arrow_table_open(
        path, options->validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN, &table));
    fsdp_status status = FSDP_OK;
    if (fsdp_arrow_table_len(table)) {
        status = fsdp_arrow_table_row(table, 0, &doc);
        if (status == FSDP_OK) {
            *any = has_class(fsdp_json_root(doc));
            fsdp_json_destroy(doc);
        }
    }
    fsdp_arrow_table_close(table);
    return status;
}

static fsdp_status find_class_of_texts(const char *path, fsdp_rows_form form,
                                       const fsdp_dataset_options *options, bool *any)
{
    fsdp_text_rows *rows;
    fsdp_csv_row row = {0};
    FSDP_TRY(fsdp_text_rows_open(path, form, false, options, &rows));
    const fsdp_status status = fsdp_text_rows_next(rows, &row);
    *any = status == FSDP_OK && row.line > 0;
    fsdp_csv_row_fini(&row);
    fsdp_text_rows_close(rows);
    return status;
}

static fsdp_status find_class(const char *path, const fsdp_dataset_options *options, bool *any)
{
    bool ids, texts;
    fsdp_rows_form form;
    if (fsdp_is_plain_text_name(path))
        return FSDP_OK;
    FSDP_TRY(fsdp_rows_form_of(path, &form));
    FSDP_TRY(fsdp_first_row_kind(path, options->json_field, options->validation, &ids, &texts));
    if (!ids)
        return find_class_of_texts(path, form, options, any);
    return form == FSDP_ROWS_ARROW ? find_class_of_arrow(path, options, any)
                                   : find_class_of_json(path, options, any);
}

static fsdp_status find_class_of_first(const char *path, const fsdp_dataset_options *options,
                                       bool *any)
{
    char *folder;
    fsdp_path_list files = {0};
    if (fsdp_is_arrow_path(path))
        return find_class(path, options, any);
    FSDP_TRY(fsdp_split_folder(path, options->validation, &folder));
    fsdp_status status = fsdp_text_paths(folder, options->validation, &files);
    fsdp_free(folder);
    if (status == FSDP_OK)
        status = find_class(files.items[0], options, any);
    fsdp_path_list_fini(&files);
    return status;
}

fsdp_status fsdp_labels_exist(const char *path, const fsdp_dataset_options *options, bool *any)
{
    fsdp_dataset_options full;
    *any = false;
    FSDP_TRY(fsdp_dataset_complete_options(options, &full));
    const fsdp_status status = find_class_of_first(path, &full, any);
    return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}
