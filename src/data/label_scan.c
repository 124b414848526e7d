/* Finds the classes of a file. See fsdp_labels_find(). */
#include "src/data/class_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/data/arrow/table.h"
#include "src/data/data_paths.h"
#include "src/data/dataset.h"
#include "src/data/json_rows.h"
#include "src/data/text_columns.h"
#include "src/data/text_rows.h"

enum {
    MAX_NAMES = 20000,
    MAX_CLASSES = 1 << 24
};

typedef struct scan {
    const fsdp_dataset_options *options;
    char **names; /* [len] different labels, sorted; at most MAX_NAMES */
    size_t len, cap;
    bool more; /* there are more than MAX_NAMES */
    bool all_integers, all_numbers;
    bool lists;                /* labels are lists */
    int64_t list_numbers;      /* numbers in a list; 0: none was found */
    int64_t smallest, largest; /* the smallest and the largest integer */
    int64_t rows;
    char **class_names; /* [n_class_names] of a ClassLabel column */
    size_t n_class_names;
} scan;

/* ---- a set of labels ---- */

/* Return the index at which `label` is, or at which it must be inserted. */
static size_t find_place(const scan *s, const char *label, bool *is_there)
{
    size_t low = 0, high = s->len;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(s->names[middle], label);
        if (order == 0) {
            *is_there = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *is_there = false;
    return low;
}

static fsdp_status add_name(scan *s, const char *label)
{
    bool is_there;
    const size_t at = find_place(s, label, &is_there);
    if (is_there)
        return FSDP_OK;
    s->more |= s->len == MAX_NAMES;
    if (s->more)
        return FSDP_OK;
    char *copy = fsdp_strdup(label);
    if (!copy || !FSDP_GROW(s->names, s->cap, s->len + 1)) {
        fsdp_free(copy);
        return FSDP_ERR_NOMEM;
    }
    memmove(s->names + at + 1, s->names + at, (s->len - at) * sizeof(char *));
    s->names[at] = copy;
    s->len++;
    return FSDP_OK;
}

/* Add the names in a list, or note how many numbers it has. A list of another form is left to the
 * reader of the rows, which has a better message. */
static fsdp_status add_list(scan *s, fsdp_json_node list)
{
    const size_t n = fsdp_json_len(list);
    const char *name;
    s->lists = true;
    s->rows++;
    for (size_t i = 0; i < n; i++) {
        const fsdp_json_node entry = fsdp_json_at(list, i);
        if (fsdp_json_kind_of(entry) != FSDP_JSON_STRING)
            continue;
        s->all_numbers = s->all_integers = false;
        FSDP_TRY(fsdp_json_get_str(entry, NULL, &name));
        FSDP_TRY(add_name(s, name));
    }
    if (n && fsdp_json_kind_of(fsdp_json_at(list, 0)) != FSDP_JSON_STRING && !s->list_numbers)
        s->list_numbers = (int64_t)n;
    return FSDP_OK;
}

/* Add a list in brackets. A text that only looks like one is a name. */
static fsdp_status add_list_text(scan *s, const char *label, bool *is_list)
{
    fsdp_json *doc;
    fsdp_status status = fsdp_json_parse("label", 1, label, strlen(label), &doc);
    *is_list = status == FSDP_OK;
    if (status != FSDP_OK)
        return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
    status = add_list(s, fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    return status;
}

static fsdp_status add_label(scan *s, const char *label)
{
    int64_t number;
    double real;
    bool is_list = false;
    if (*label == '[')
        FSDP_TRY(add_list_text(s, label, &is_list));
    if (is_list)
        return FSDP_OK;
    if (!*label || strcasecmp(label, "nan") == 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "label: %s; expected a class or a number: leave out rows without a label",
                          *label ? "is not a number" : "is empty");
    s->rows++;
    s->all_numbers = s->all_numbers && fsdp_label_is_number(label, &real);
    if (!fsdp_label_is_integer(label, &number)) {
        s->all_integers = false;
    } else {
        s->largest = number > s->largest ? number : s->largest;
        s->smallest = number < s->smallest ? number : s->smallest;
    }
    return add_name(s, label);
}

/* ---- rows ---- */

static fsdp_status take_class_names(scan *s, fsdp_json_node names)
{
    const size_t n = fsdp_json_len(names);
    if (n == 0 || s->class_names)
        return FSDP_OK;
    if (!(s->class_names = fsdp_calloc(n, sizeof *s->class_names)))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *name;
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(names, i), NULL, &name));
        if (!(s->class_names[i] = fsdp_strdup(name)))
            return FSDP_ERR_NOMEM;
        s->n_class_names++;
    }
    return FSDP_OK;
}

static fsdp_status scan_texts(scan *s, const char *path, fsdp_rows_form form)
{
    fsdp_text_rows *rows;
    fsdp_csv_row row = {0};
    FSDP_TRY(fsdp_text_rows_open(path, form, false, s->options, &rows));
    fsdp_status status = take_class_names(s, fsdp_text_rows_class_names(rows));
    while (status == FSDP_OK && s->rows < s->options->max_samples) {
        status = fsdp_text_rows_next(rows, &row);
        if (status != FSDP_OK || row.line == 0)
            break;
        status = add_label(s, fsdp_text_rows_label(rows, &row));
        fsdp_text_row_context(rows, status, &row);
    }
    fsdp_csv_row_fini(&row);
    fsdp_text_rows_close(rows);
    return status;
}

/* Add the label of a row of ids. Labels that are no class are left to the reader of the rows, which
 * has a better message. */
static fsdp_status add_json_label(scan *s, fsdp_json_node row)
{
    const char *key = fsdp_json_has(row, "labels") ? "labels" : "label", *text;
    const fsdp_json_node label = fsdp_json_find(row, key);
    int64_t number;
    char digits[32];
    if (fsdp_json_kind_of(label) == FSDP_JSON_STRING) {
        FSDP_TRY(fsdp_json_get_str(label, NULL, &text));
        return add_label(s, text);
    }
    if (fsdp_json_kind_of(label) == FSDP_JSON_ARRAY)
        return add_list(s, label);
    if (fsdp_json_kind_of(label) == FSDP_JSON_REAL) {
        double real;
        FSDP_TRY(fsdp_json_get_f64(label, NULL, &real));
        snprintf(digits, sizeof digits, "%.17g", real);
        return add_label(s, digits);
    }
    if (fsdp_json_kind_of(label) != FSDP_JSON_INT ||
        fsdp_json_get_i64(label, NULL, 0, MAX_CLASSES, &number) != FSDP_OK)
        return FSDP_OK;
    snprintf(digits, sizeof digits, "%" PRId64, number);
    return add_label(s, digits);
}

static fsdp_status scan_rows(scan *s, fsdp_json_rows *rows, const char *path)
{
    fsdp_status status = FSDP_OK;
    while (status == FSDP_OK && s->rows < s->options->max_samples) {
        fsdp_json_row row;
        fsdp_json *doc;
        status = fsdp_json_rows_next(rows, &row);
        if (status != FSDP_OK || !row.text)
            break;
        status = fsdp_json_row_parse(path, &row, &doc);
        if (status != FSDP_OK)
            break;
        status = add_json_label(s, fsdp_json_root(doc));
        fsdp_json_destroy(doc);
        fsdp_json_row_context(status, path, &row);
    }
    return status;
}

static fsdp_status scan_ids(scan *s, const char *path)
{
    fsdp_input *input;
    fsdp_json_rows *rows;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_json_rows_open(input, path, s->options->json_field, &rows);
    if (status == FSDP_OK) {
        status = scan_rows(s, rows, path);
        fsdp_json_rows_close(rows);
    }
    fsdp_input_close(input);
    return status;
}

static fsdp_status scan_arrow(scan *s, const char *path)
{
    fsdp_arrow_table *table;
    FSDP_TRY(fsdp_arrow_table_open(
        path, s->options->validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN,
        &table));
    const int64_t len = fsdp_arrow_table_len(table);
    fsdp_status status =
        take_class_names(s, fsdp_arrow_table_class_names(
                                table, fsdp_arrow_table_has(table, "labels") ? "labels" : "label"));
    for (int64_t i = 0; status == FSDP_OK && i < len && s->rows < s->options->max_samples; i++) {
        fsdp_json *doc;
        status = fsdp_arrow_table_row(table, i, &doc);
        if (status == FSDP_OK) {
            status = add_json_label(s, fsdp_json_root(doc));
            fsdp_json_destroy(doc);
        }
        fsdp_arrow_table_add_context(table, i, status);
    }
    fsdp_arrow_table_close(table);
    return status;
}

static fsdp_status scan_file(scan *s, const char *path)
{
    bool ids, texts;
    fsdp_rows_form form;
    FSDP_TRY(fsdp_rows_form_of(path, &form));
    FSDP_TRY(fsdp_first_row_kind(path, s->options->json_field, &ids, &texts));
    if (!ids)
        return scan_texts(s, path, form);
    return form == FSDP_ROWS_ARROW ? scan_arrow(s, path) : scan_ids(s, path);
}

static fsdp_status scan_files(scan *s, const char *path)
{
    char *folder;
    fsdp_path_list files = {0};
    if (fsdp_is_arrow_path(path))
        return scan_file(s, path);
    FSDP_TRY(fsdp_split_folder(path, s->options->validation, &folder));
    fsdp_status status = fsdp_text_paths(folder, s->options->validation, &files);
    fsdp_free(folder);
    for (size_t i = 0; status == FSDP_OK && i < files.len; i++)
        status = scan_file(s, files.items[i]);
    fsdp_path_list_fini(&files);
    return status;
}

/* ---- whether there are labels ---- */

/* Return true if a row of ids has the label of a class. Labels of a masked language model are a
 * list that is as long as that of the ids. */
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
    FSDP_TRY(fsdp_first_row_kind(path, options->json_field, &ids, &texts));
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

/* ---- the result ---- */

/* Return what the labels are: what the options say, unless that is the default. */
static fsdp_problem_type problem_of(const scan *s)
{
    if (s->options->problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        return s->options->problem_type;
    if (s->lists)
        return FSDP_PROBLEM_MULTI_LABEL;
    const bool fractions = s->all_numbers && !s->all_integers && !s->class_names;
    return fractions ? FSDP_PROBLEM_REGRESSION : FSDP_PROBLEM_SINGLE_LABEL;
}

static fsdp_status check_classes(const scan *s, const char *path)
{
    if (problem_of(s) != FSDP_PROBLEM_SINGLE_LABEL)
        return FSDP_OK;
    if (s->all_integers && (s->smallest < 0 || s->largest >= MAX_CLASSES))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: label: expected classes from 0 to %d, or names, found %" PRId64 "%s",
                          path, MAX_CLASSES - 1, s->smallest < 0 ? s->smallest : s->largest,
                          s->smallest == -1
                              ? ", which rows without a label have in GLUE: leave them "
                                "out"
                              : "");
    if (!s->all_numbers && s->more)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: label: more than %d different names; are they classes?", path,
                          MAX_NAMES);
    return FSDP_OK;
}

static void free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fsdp_free(names[i]);
    fsdp_free(names);
}

/* Set *labels for labels that are numbers, and free the names that are not needed. */
static void take_numbers(const scan *s, fsdp_found_labels *labels)
{
    const bool named = problem_of(s) == FSDP_PROBLEM_MULTI_LABEL && !s->all_numbers;
    *labels = (fsdp_found_labels){.rows = s->rows, .problem_type = problem_of(s)};
    if (named && s->class_names) {
        labels->names = s->class_names;
        labels->classes = (int64_t)s->n_class_names;
    } else if (named) {
        labels->names = s->names;
        labels->classes = (int64_t)s->len;
    } else {
        labels->classes = s->list_numbers ? s->list_numbers : s->rows > 0;
    }
    if (labels->names != s->names)
        free_names(s->names, s->len);
    if (labels->names != s->class_names)
        free_names(s->class_names, s->n_class_names);
}

fsdp_status fsdp_labels_find(const char *path, const fsdp_dataset_options *options,
                             fsdp_found_labels *labels)
{
    fsdp_dataset_options full;
    fsdp_dataset_options given = *options;
    /* The number of labels is what is looked for, so it cannot be required here. */
    given.problem_type = FSDP_PROBLEM_SINGLE_LABEL;
    FSDP_TRY(fsdp_dataset_complete_options(&given, &full));
    full.problem_type = options->problem_type;
    scan s = {.options = &full, .all_integers = true, .all_numbers = true, .largest = -1};
    fsdp_status status = scan_files(&s, path);
    if (status == FSDP_OK)
        status = check_classes(&s, path);
    if (status != FSDP_OK) {
        free_names(s.class_names, s.n_class_names);
        free_names(s.names, s.len);
        return status;
    }
    if (problem_of(&s) != FSDP_PROBLEM_SINGLE_LABEL) {
        take_numbers(&s, labels);
        return FSDP_OK;
    }
    if (s.class_names) {
        free_names(s.names, s.len);
        *labels = (fsdp_found_labels){
            .classes = (int64_t)s.n_class_names, .names = s.class_names, .rows = s.rows};
        return FSDP_OK;
    }
    *labels = (fsdp_found_labels){.rows = s.rows};
    if (s.all_integers)
        labels->classes = s.largest + 1;
    else if (!s.all_numbers) {
        labels->classes = (int64_t)s.len;
        labels->names = s.names;
        return FSDP_OK;
    }
    free_names(s.names, s.len);
    return FSDP_OK;
}

void fsdp_found_labels_fini(fsdp_found_labels *labels)
{
    free_names(labels->names, labels->names ? (size_t)labels->classes : 0);
    *labels = (fsdp_found_labels){0};
}
