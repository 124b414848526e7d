/* Labels that are numbers, for regression and for several classes a row. See class_text.h. */
#include "src/data/labels/class_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"

size_t fsdp_label_numbers_listed(const char *label)
{
    size_t n = 0;
    for (const char *at = label;; at++) {
        at += strspn(at, " ");
        const size_t digits = strspn(at, "0123456789");
        if (!digits || digits > 9 || (digits > 1 && *at == '0'))
            return 0;
        n++;
        at += digits;
        at += strspn(at, " ");
        if (*at != ',')
            return *at ? 0 : n;
    }
}

/* Return the error for a wrong label. The message says what the label must be, and contains
 * `found`. */
static fsdp_status refuse(const fsdp_dataset_options *o, const char *found)
{
    const int64_t n = o->num_classes;
    const char *hint = o->class_hint ? o->class_hint : "";
    const char *before = *hint ? "; " : "";
    const bool indices = o->label_lists == FSDP_LABEL_LISTS_INDICES;
    if (o->problem_type == FSDP_PROBLEM_REGRESSION && n == 1)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "label: expected a number: the problem type is regression%s%s, found "
                          "%.80s",
                          before, hint, found);
    if (o->problem_type == FSDP_PROBLEM_REGRESSION)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "label: expected a list of %" PRId64 " numbers: the problem type is "
                          "regression%s%s, found %.80s",
                          n, before, hint, found);
    return fsdp_error(FSDP_ERR_FORMAT,
                      "label: expected a list of %s%" PRId64 "%s%s: the problem type is "
                      "multi_label_classification%s%s, found %.80s",
                      indices ? "classes from 0 to " : "", indices ? n - 1 : n,
                      indices ? "" : " numbers from 0 to 1, one for each class",
                      o->class_names ? ", or a list of names of classes" : "", before, hint, found);
}

static fsdp_status set_number(const fsdp_dataset_options *o, double value, float *target)
{
    char text[40];
    *target = (float)value;
    if (isfinite(*target) &&
        (o->problem_type == FSDP_PROBLEM_REGRESSION || (value >= 0 && value <= 1)))
        return FSDP_OK;
    snprintf(text, sizeof text, "%g", value);
    return refuse(o, text);
}

/* Set the target of the class with this name to 1. */
static fsdp_status set_name(const fsdp_dataset_options *o, const char *name, float *targets)
{
    int32_t class;
    if (o->problem_type == FSDP_PROBLEM_MULTI_LABEL && o->class_names)
        for (class = 0; class < o->num_classes; class ++)
            if (o->class_names[class] && strcmp(o->class_names[class], name) == 0) {
                targets[class] = 1;
                return FSDP_OK;
            }
    return refuse(o, name);
}

/* Read entry `i` of a list. If the list has numbers, set targets[i] to the entry. If it has names,
 * set the target of the class with this name to 1. */
static fsdp_status set_entry(const fsdp_dataset_options *o, fsdp_json_node entry, size_t i,
                             bool numbers, float *targets)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(entry);
    const char *name;
    double value;
    bool on;
    if (!numbers && kind == FSDP_JSON_STRING) {
        FSDP_TRY(fsdp_json_get_str(entry, NULL, &name));
        return set_name(o, name, targets);
    }
    if (numbers && kind == FSDP_JSON_BOOL) {
        FSDP_TRY(fsdp_json_get_bool(entry, NULL, &on));
        return set_number(o, on ? 1 : 0, &targets[i]);
    }
    if (numbers && (kind == FSDP_JSON_INT || kind == FSDP_JSON_REAL)) {
        FSDP_TRY(fsdp_json_get_f64(entry, NULL, &value));
        return set_number(o, value, &targets[i]);
    }
    return refuse(o, numbers ? "a list with something other than numbers"
                             : "a list with something other than names");
}

/* Set targets[i] to 1 for each index i in `list`. */
static fsdp_status set_indices(const fsdp_dataset_options *o, fsdp_json_node list, float *targets)
{
    char text[40];
    int64_t class;
    for (size_t i = 0; i < fsdp_json_len(list); i++) {
        const fsdp_json_node entry = fsdp_json_at(list, i);
        if (fsdp_json_kind_of(entry) != FSDP_JSON_INT)
            return refuse(o, "a list with something other than classes");
        if (fsdp_json_get_i64(entry, NULL, INT64_MIN, INT64_MAX, &class) != FSDP_OK)
            return refuse(o, "a larger number");
        snprintf(text, sizeof text, "%" PRId64, class);
        if (class < 0 || class >= o->num_classes)
            return refuse(o, text);
        targets[class] = 1;
    }
    return FSDP_OK;
}

static bool has_indices(const fsdp_dataset_options *o)
{
    return o->problem_type == FSDP_PROBLEM_MULTI_LABEL &&
           o->label_lists == FSDP_LABEL_LISTS_INDICES;
}

static fsdp_status set_list(const fsdp_dataset_options *o, fsdp_json_node list, float *targets)
{
    const size_t n = fsdp_json_len(list);
    const bool numbers = fsdp_json_kind_of(fsdp_json_at(list, 0)) != FSDP_JSON_STRING;
    char text[60];
    if (n == 0 && o->problem_type == FSDP_PROBLEM_MULTI_LABEL)
        return FSDP_OK; /* the row belongs to no class */
    if (numbers && has_indices(o))
        return set_indices(o, list, targets);
    snprintf(text, sizeof text, "a list of %zu", n);
    if (numbers && n != (size_t)o->num_classes)
        return refuse(o, text);
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(set_entry(o, fsdp_json_at(list, i), i, numbers, targets));
    return FSDP_OK;
}

/* Set the targets from a label of several numbers separated by commas, without brackets. */
static fsdp_status set_listed(const fsdp_dataset_options *o, const char *label, float *targets)
{
    fsdp_json *doc;
    char *list = fsdp_strdup_printf("[%s]", label);
    if (!list)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_json_parse("label", 1, list, strlen(list), &doc);
    fsdp_free(list);
    FSDP_TRY(status);
    status = set_list(o, fsdp_json_root(doc), targets);
    fsdp_json_destroy(doc);
    return status;
}

/* Set the targets from a label that is the text of a list, such as "[0, 1]". */
static fsdp_status set_list_text(const fsdp_dataset_options *o, const char *label, float *targets)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_parse("label", 1, label, strlen(label), &doc));
    fsdp_status status = set_list(o, fsdp_json_root(doc), targets);
    fsdp_json_destroy(doc);
    return status;
}

static fsdp_status set_text(const fsdp_dataset_options *o, const char *label, float *targets)
{
    double value;
    char quoted[90];
    if (label[strspn(label, " \t")] == '[')
        return set_list_text(o, label, targets);
    const size_t listed = fsdp_label_numbers_listed(label);
    if (o->problem_type == FSDP_PROBLEM_MULTI_LABEL && listed > (has_indices(o) ? 0 : 1))
        return set_listed(o, label, targets);
    if (o->num_classes == 1 && fsdp_label_is_number(label, &value))
        return set_number(o, value, &targets[0]);
    if (o->problem_type == FSDP_PROBLEM_MULTI_LABEL && o->class_names)
        return set_name(o, label, targets);
    snprintf(quoted, sizeof quoted, "\"%.80s\"", label);
    return refuse(o, quoted);
}

/* Give the example num_classes targets, all 0. */
static fsdp_status begin(const fsdp_dataset_options *o, fsdp_example *example)
{
    const size_t n = (size_t)o->num_classes;
    if (!FSDP_GROW(example->targets, example->targets_cap, n))
        return FSDP_ERR_NOMEM;
    memset(example->targets, 0, n * sizeof *example->targets);
    example->num_targets = n;
    return FSDP_OK;
}

fsdp_status fsdp_label_numbers(const fsdp_dataset_options *o, const char *label,
                               fsdp_example *example)
{
    FSDP_TRY(begin(o, example));
    return set_text(o, label, example->targets);
}

fsdp_status fsdp_label_numbers_of_json(const fsdp_dataset_options *o, fsdp_json_node label,
                                       fsdp_example *example)
{
    const char *text;
    int64_t class;
    FSDP_TRY(begin(o, example));
    switch (fsdp_json_kind_of(label)) {
    case FSDP_JSON_ARRAY:
        return set_list(o, label, example->targets);
    case FSDP_JSON_STRING:
        FSDP_TRY(fsdp_json_get_str(label, NULL, &text));
        return set_text(o, text, example->targets);
    case FSDP_JSON_INT:
    case FSDP_JSON_REAL:
    case FSDP_JSON_BOOL:
        if (fsdp_json_kind_of(label) == FSDP_JSON_INT && has_indices(o)) {
            if (fsdp_json_get_i64(label, NULL, 0, o->num_classes - 1, &class) != FSDP_OK)
                return refuse(o, "another number");
            example->targets[class] = 1;
            return FSDP_OK;
        }
        if (o->num_classes == 1)
            return set_entry(o, label, 0, true, example->targets);
        return refuse(o, "a single number");
    default:
        return refuse(o, fsdp_json_kind_of(label) == FSDP_JSON_NONE ? "no label" : "null");
    }
}
