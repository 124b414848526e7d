/* Finds the classes of a file. See fsdp_labels_find(). */
#include "src/data/labels/class_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/data/arrow/table.h"
#include "src/data/files/data_paths.h"
#include "src/data/json/json_rows.h"
#include "src/data/labels/label_lists.h"
#include "src/data/rows/dataset_options.h"
#include "src/data/rows/rows_form.h"
#include "src/data/rows/text_columns.h"
#include "src/data/rows/text_rows.h"

enum {
    MAX_NAMES = 20000,
    MAX_CLASSES = 1 << 24
};

typedef struct scan {
    const fsdp_dataset_options *options;
    char **names; /* [len] different labels, sorted; at most MAX_NAMES */
    size_t len, cap;
    bool more; /* there are more than MAX_NAMES different labels */
    bool all_integers, all_numbers;
    bool singles;               /* some labels are not lists */
    bool lists;                 /* some labels are lists */
    fsdp_list_evidence numbers; /* what the lists of numbers that were scanned show */
    int64_t row;        /* the current row: its line, or its number if the file is an Arrow file */
    int64_t listed_row; /* the first row whose label is several numbers with commas, such as "3,14";
                           0: none */
    char listed[60];    /* the label of that row */
    int64_t smallest_row;      /* the first row with `smallest`, if that is negative */
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

/* Add the names in a list, or record what its numbers show. A malformed list is not an error here:
 * the error is reported when the row is read, with a message that says more. */
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
    if (n && fsdp_json_kind_of(fsdp_json_at(list, 0)) != FSDP_JSON_STRING)
        fsdp_list_evidence_add(&s->numbers, list, s->row, s->options->num_classes);
    return FSDP_OK;
}

/* If `label`, which begins with a bracket, is a list in JSON, add it and set *is_list to true.
 * Otherwise set *is_list to false, because the label is a name. */
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

/* If the label consists of numbers with commas between them, such as "3,14", it may be a list.
 * Record the first such label. If the problem type is MULTI_LABEL, add the label as a list, and set
 * *is_list to true. */
static fsdp_status add_listed(scan *s, const char *label, bool *is_list)
{
    const size_t n = fsdp_label_numbers_listed(label);
    if (n > 1 && !s->listed_row) {
        s->listed_row = s->row;
        snprintf(s->listed, sizeof s->listed, "%s", label);
    }
    if (!n || s->options->problem_type != FSDP_PROBLEM_MULTI_LABEL)
        return FSDP_OK;
    char *list = fsdp_strdup_printf("[%s]", label);
    if (!list)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = add_list_text(s, list, is_list);
    fsdp_free(list);
    return status;
}

static fsdp_status add_label(scan *s, const char *label)
{
    int64_t number;
    double real;
    bool is_list = false;
    if (*label == '[')
        FSDP_TRY(add_list_text(s, label, &is_list));
    else
        FSDP_TRY(add_listed(s, label, &is_list));
    if (is_list)
        return FSDP_OK;
    if (!*label || strcasecmp(label, "nan") == 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "label: %s; expected a class or a number: leave out rows without a label",
                          *label ? "is not a number" : "is empty");
    s->singles = true;
    s->rows++;
    s->all_numbers = s->all_numbers && fsdp_label_is_number(label, &real);
    if (!fsdp_label_is_integer(label, &number)) {
        s->all_integers = false;
    } else {
        s->largest = number > s->largest ? number : s->largest;
        if (number < s->smallest) {
            s->smallest = number;
            s->smallest_row = s->row;
        }
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
        s->row = row.line;
        status = add_label(s, fsdp_text_rows_label(rows, &row));
        fsdp_text_row_context(rows, status, &row);
    }
    fsdp_csv_row_fini(&row);
    fsdp_text_rows_close(rows);
    return status;
}

/* Add the label of a row of ids. A label that cannot be a class is not an error here: the error is
 * reported when the row is read, with a message that says more. */
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
        s->row = row.line;
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
        s->row = i + 1;
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
    FSDP_TRY(
        fsdp_first_row_kind(path, s->options->json_field, s->options->validation, &ids, &texts));
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

/* ---- the result ---- */

/* Return the problem type of the options or, if that is the default, the type that the labels
 * suggest. */
static fsdp_problem_type problem_of(const scan *s)
{
    if (s->options->problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        return s->options->problem_type;
    if (s->lists)
        return FSDP_PROBLEM_MULTI_LABEL;
    const bool fractions = s->all_numbers && !s->all_integers && !s->class_names;
    return fractions ? FSDP_PROBLEM_REGRESSION : FSDP_PROBLEM_SINGLE_LABEL;
}

/* Return an error if all labels are numbers with commas between them, such as "3,14", and a problem
 * type for lists was not given. Such labels are probably not names of classes: they may be lists,
 * or numbers with a decimal comma. */
static fsdp_status check_listed(const scan *s, const char *path)
{
    for (size_t i = 0; i < s->len; i++)
        if (!fsdp_label_numbers_listed(s->names[i]))
            return FSDP_OK;
    return s->listed_row
               ? fsdp_error(FSDP_ERR_FORMAT,
                            "%s: line %" PRId64 ": label: expected one class, found \"%.60s\": "
                            "--problem-type multi_label_classification takes it as several classes",
                            path, s->listed_row, s->listed)
               : FSDP_OK;
}

static fsdp_status check_classes(const scan *s, const char *path)
{
    if (problem_of(s) != FSDP_PROBLEM_SINGLE_LABEL)
        return FSDP_OK;
    FSDP_TRY(check_listed(s, path));
    if (s->all_integers && s->smallest < 0)
        return fsdp_error(
            FSDP_ERR_FORMAT,
            "%s: %s %" PRId64 ": label: expected a class, 0 or more, or a name, found "
            "%" PRId64 "%s",
            path, fsdp_is_arrow_path(path) ? "row" : "line", s->smallest_row, s->smallest,
            s->smallest == -1 ? ", which rows without a label have in GLUE: leave them out" : "");
    if (s->all_integers && s->largest >= MAX_CLASSES)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: label: expected classes from 0 to %d, or names, found %" PRId64,
                          path, MAX_CLASSES - 1, s->largest);
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

/* If the lists have indices of classes, return an error if the largest of these numbers is too
 * large for an index. */
static fsdp_status check_indices(const scan *s, const char *path, fsdp_label_lists lists)
{
    if (lists == FSDP_LABEL_LISTS_INDICES && s->all_numbers && s->numbers.largest >= MAX_CLASSES)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: label: expected lists of classes from 0 to %d, or of names, found "
                          "%" PRId64,
                          path, MAX_CLASSES - 1, s->numbers.largest);
    return FSDP_OK;
}

/* Set *lists to what the lists of numbers are: indices or multi-hot. */
static fsdp_status decide_lists(const scan *s, const char *path, fsdp_label_lists *lists)
{
    *lists = s->options->label_lists;
    if (*lists != FSDP_LABEL_LISTS_AUTO)
        return FSDP_OK;
    *lists = FSDP_LABEL_LISTS_INDICES;
    /* The labels are lists of a ClassLabel of Arrow, which contain indices of classes. */
    if (s->class_names)
        return FSDP_OK;
    return fsdp_list_evidence_decide(&s->numbers, path, fsdp_is_arrow_path(path) ? "row" : "line",
                                     lists);
}

/* Set *labels to the result of a scan that found only numbers as labels, and free the names that
 * are not needed. */
static void take_numbers(const scan *s, fsdp_label_lists lists, fsdp_found_labels *labels)
{
    const bool multi = problem_of(s) == FSDP_PROBLEM_MULTI_LABEL;
    const bool indices = multi && lists == FSDP_LABEL_LISTS_INDICES;
    const bool named = multi && !s->all_numbers;
    *labels = (fsdp_found_labels){.rows = s->rows,
                                  .problem_type = problem_of(s),
                                  .lists = multi ? lists : FSDP_LABEL_LISTS_AUTO};
    if ((named || indices) && s->class_names) {
        labels->names = s->class_names;
        labels->classes = (int64_t)s->n_class_names;
    } else if (named) {
        labels->names = s->names;
        labels->classes = (int64_t)s->len;
    } else if (indices) {
        labels->classes = s->numbers.largest + 1;
    } else {
        labels->classes = s->numbers.length ? s->numbers.length : s->rows > 0;
    }
    if (labels->names != s->names)
        free_names(s->names, s->len);
    if (labels->names != s->class_names)
        free_names(s->class_names, s->n_class_names);
}

static void scan_fini(scan *s)
{
    free_names(s->names, s->len);
    free_names(s->class_names, s->n_class_names);
}

/* Scan all labels. If some labels are lists and others are not, scan again with the problem type
 * MULTI_LABEL, so that all labels are read as lists: then "3" and "3,14" are lists, too. */
static fsdp_status scan_all(scan *s, const char *path, fsdp_dataset_options *options)
{
    const scan empty = {
        .options = options, .all_integers = true, .all_numbers = true, .largest = -1};
    *s = empty;
    FSDP_TRY(scan_files(s, path));
    if (!s->lists || !s->singles || options->problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        return FSDP_OK;
    options->problem_type = FSDP_PROBLEM_MULTI_LABEL;
    scan_fini(s);
    *s = empty;
    return scan_files(s, path);
}

/* Set *labels to the result of a scan whose labels are classes, and free the names that are not
 * needed. */
static void take_classes(const scan *s, fsdp_found_labels *labels)
{
    *labels = (fsdp_found_labels){.rows = s->rows};
    if (s->class_names) {
        labels->classes = (int64_t)s->n_class_names;
        labels->names = s->class_names;
    } else if (s->all_integers) {
        labels->classes = s->largest + 1;
    } else if (!s->all_numbers) {
        labels->classes = (int64_t)s->len;
        labels->names = s->names;
        return;
    }
    free_names(s->names, s->len);
}

fsdp_status fsdp_labels_find(const char *path, const fsdp_dataset_options *options,
                             fsdp_found_labels *labels)
{
    fsdp_dataset_options full;
    fsdp_dataset_options given = *options;
    /* Other problem types require num_classes, which this function has yet to find. */
    given.problem_type = FSDP_PROBLEM_SINGLE_LABEL;
    given.label_lists = FSDP_LABEL_LISTS_AUTO;
    FSDP_TRY(fsdp_dataset_complete_options(&given, &full));
    full.problem_type = options->problem_type;
    full.label_lists = options->label_lists;
    scan s;
    fsdp_label_lists lists = FSDP_LABEL_LISTS_MULTI_HOT;
    fsdp_status status = scan_all(&s, path, &full);
    if (status == FSDP_OK)
        status = check_classes(&s, path);
    if (status == FSDP_OK && problem_of(&s) == FSDP_PROBLEM_MULTI_LABEL)
        status = decide_lists(&s, path, &lists);
    if (status == FSDP_OK && problem_of(&s) == FSDP_PROBLEM_MULTI_LABEL)
        status = check_indices(&s, path, lists);
    if (status != FSDP_OK)
        scan_fini(&s);
    else if (problem_of(&s) != FSDP_PROBLEM_SINGLE_LABEL)
        take_numbers(&s, lists, labels);
    else
        take_classes(&s, labels);
    return status;
}

fsdp_status fsdp_label_lists_find(const char *path, const fsdp_dataset_options *options,
                                  fsdp_label_lists *lists)
{
    scan s = {.options = options, .all_integers = true, .all_numbers = true, .largest = -1};
    *lists = options->label_lists;
    if (*lists != FSDP_LABEL_LISTS_AUTO)
        return FSDP_OK;
    fsdp_status status = scan_files(&s, path);
    if (status == FSDP_OK) {
        status = decide_lists(&s, path, lists);
    } else if (status != FSDP_ERR_NOMEM) {
        *lists = FSDP_LABEL_LISTS_MULTI_HOT;
        status = FSDP_OK;
    }
    scan_fini(&s);
    return status;
}

void fsdp_found_labels_fini(fsdp_found_labels *labels)
{
    free_names(labels->names, labels->names ? (size_t)labels->classes : 0);
    *labels = (fsdp_found_labels){0};
}
