/* See class_output.h. The result for a text is added to the text's row, under the keys "label" and
 * "score", or under "predictions" if several labels per text are shown. A row may already have one
 * of these keys, for example the true label as "label". In that case, all results use the keys
 * "predicted_label" and so on, so that no value of the input is overwritten. In CSV, several labels
 * are in the columns label_1, score_1, label_2, ... */
#include "src/classify/class_output.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/csv_field.h"
#include "src/base/str.h"
#include "src/data/files/file_names.h"

static const char prefixes[][16] = {"", "predicted_"};

struct fsdp_class_output {
    const fsdp_classify_config *config;
    const fsdp_class_items *items;
    char *const *labels;
    size_t n_labels, n_shown;
    size_t next;        /* index of the item that is written next */
    const char *prefix; /* what the keys of the results begin with: "" or "predicted_" */
    bool csv;
    FILE *out;              /* used if `file` is NULL */
    fsdp_atomic_file *file; /* NULL: print to `out` */
    size_t *order;          /* [n_labels] the classes in descending order of score */
    char **columns;         /* CSV: [n_columns] the keys that occur in the rows */
    size_t n_columns, columns_cap;
};

static bool is_list(const fsdp_class_output *o)
{
    return o->config->top_k != FSDP_CLASSIFY_BEST;
}

/* Return the key for `name`, which is "label", "score" or "predictions". In CSV with several
 * labels, `number` is the number of the label, from 1, and is appended to the key. In other
 * outputs, `number` is 0. */
static char *key_of(const fsdp_class_output *o, const char *name, size_t number)
{
    return number ? fsdp_strdup_printf("%s%s_%zu", o->prefix, name, number)
                  : fsdp_strdup_printf("%s%s", o->prefix, name);
}

/* ---- choosing keys ---- */

/* Return true if `text` is a number of a column of results, from 1 to n_shown. */
static bool is_column_number(const fsdp_class_output *o, const char *text)
{
    size_t number = 0;
    if (*text < '1' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9' && number <= o->n_shown; text++)
        number = 10 * number + (size_t)(*text - '0');
    return !*text && number <= o->n_shown;
}

/* Return true if results get the key `key`. */
static bool is_result_key(const fsdp_class_output *o, const char *key)
{
    const size_t n = strlen(o->prefix);
    if (strncmp(key, o->prefix, n) != 0)
        return false;
    key += n;
    if (!is_list(o))
        return strcmp(key, "label") == 0 || strcmp(key, "score") == 0;
    if (!o->csv)
        return strcmp(key, "predictions") == 0;
    return (strncmp(key, "label_", 6) == 0 || strncmp(key, "score_", 6) == 0) &&
           is_column_number(o, key + 6);
}

/* Return true if a row has one of the keys of results. */
static bool are_keys_taken(const fsdp_class_output *o)
{
    for (size_t i = 0; i < o->items->n; i++)
        for (fsdp_json_node v = fsdp_json_first(fsdp_json_root(o->items->items[i].row)); v.value;
             v = fsdp_json_next(v))
            if (is_result_key(o, v.key))
                return true;
    return false;
}

static fsdp_status choose_keys(fsdp_class_output *o)
{
    bool taken = true;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && taken; i++) {
        o->prefix = prefixes[i];
        taken = are_keys_taken(o);
    }
    if (!taken)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: rows have the keys that results get, %s and %s%s: rename those of the "
                      "rows",
                      o->config->input, is_list(o) ? "predictions" : "label", o->prefix,
                      is_list(o) ? "predictions" : "label");
}

const char *fsdp_class_output_renamed(const fsdp_class_output *o)
{
    if (!*o->prefix)
        return NULL;
    if (!is_list(o))
        return "'predicted_label' and 'predicted_score'";
    return o->csv ? "'predicted_label_1', 'predicted_score_1', ..." : "'predicted_predictions'";
}

/* ---- CSV ---- */

/* Append a value of a row as a CSV field: a string as it is, null or a missing value as an empty
 * field, any other value as JSON. */
static fsdp_status add_value(fsdp_str *line, fsdp_json_node value, bool first)
{
    static const char before[] = "{\"v\":";
    const fsdp_json_kind kind = fsdp_json_kind_of(value);
    const char *text;
    fsdp_json *doc;
    char *json;
    size_t bytes;
    if (kind == FSDP_JSON_NONE || kind == FSDP_JSON_NULL) {
        fsdp_str_add_csv_field(line, "", first);
        return FSDP_OK;
    }
    if (kind == FSDP_JSON_STRING) {
        FSDP_TRY(fsdp_json_get_str(value, NULL, &text));
        fsdp_str_add_csv_field(line, text, first);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_json_create("value", &doc));
    fsdp_json_set_shared(fsdp_json_root(doc), "v", value);
    const fsdp_status status = fsdp_json_print(doc, FSDP_JSON_COMPACT, &json, &bytes);
    fsdp_json_destroy(doc);
    FSDP_TRY(status);
    json[bytes - 1] = 0; /* remove the brace that closes {"v":...} */
    fsdp_str_add_csv_field(line, json + sizeof before - 1, first);
    fsdp_free(json);
    return FSDP_OK;
}

/* Return true if the columns include `name`. Begin the search at index *at, and set *at to the
 * index after the column that was found. Most rows have the same keys in the same order, so the
 * search mostly succeeds at once. */
static bool has_column(const fsdp_class_output *o, const char *name, size_t *at)
{
    for (size_t i = 0; i < o->n_columns; i++) {
        const size_t column = (*at + i) % o->n_columns;
        if (strcmp(o->columns[column], name) != 0)
            continue;
        *at = column + 1;
        return true;
    }
    return false;
}

/* Return an error if the value contains a NUL character, which a field of CSV cannot contain. */
static fsdp_status check_field(const fsdp_class_output *o, const fsdp_class_item *item,
                               fsdp_json_node value)
{
    const char *text;
    size_t length;
    if (fsdp_json_kind_of(value) != FSDP_JSON_STRING)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_strn(value, NULL, &text, &length));
    if (strlen(text) == length)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: line %lld: '%s' contains a NUL character, which CSV cannot: write JSON "
                      "lines (--output results.jsonl)",
                      o->config->input, (long long)item->line, value.key);
}

/* Collect the keys of all rows, in the order in which they first appear, and check that all values
 * can be written. */
static fsdp_status collect_columns(fsdp_class_output *o)
{
    for (size_t i = 0; i < o->items->n; i++) {
        size_t at = 0;
        for (fsdp_json_node v = fsdp_json_first(fsdp_json_root(o->items->items[i].row)); v.value;
             v = fsdp_json_next(v)) {
            FSDP_TRY(check_field(o, &o->items->items[i], v));
            if (!has_column(o, v.key, &at))
                FSDP_TRY(fsdp_names_add(&o->columns, &o->n_columns, &o->columns_cap, v.key));
        }
    }
    return FSDP_OK;
}

static fsdp_status add_header(const fsdp_class_output *o, fsdp_str *line)
{
    static const char *const names[] = {"label", "score"};
    for (size_t i = 0; i < o->n_columns; i++)
        fsdp_str_add_csv_field(line, o->columns[i], i == 0);
    for (size_t i = 0; i < 2 * o->n_shown; i++) {
        char *key = key_of(o, names[i % 2], is_list(o) ? i / 2 + 1 : 0);
        if (!key)
            return FSDP_ERR_NOMEM;
        fsdp_str_add_csv_field(line, key, false);
        fsdp_free(key);
    }
    fsdp_str_append(line, "\r\n", 2);
    return FSDP_OK;
}

static fsdp_status add_csv_row(const fsdp_class_output *o, fsdp_json_node row, const double *scores,
                               fsdp_str *line)
{
    for (size_t i = 0; i < o->n_columns; i++)
        FSDP_TRY(add_value(line, fsdp_json_find(row, o->columns[i]), i == 0));
    for (size_t i = 0; i < o->n_shown; i++) {
        fsdp_str_add_csv_field(line, o->labels[o->order[i]], false);
        fsdp_str_printf(line, ",%.9g", scores[o->order[i]]);
    }
    fsdp_str_append(line, "\r\n", 2);
    return FSDP_OK;
}

/* ---- JSON lines ---- */

static void add_prediction(const fsdp_class_output *o, fsdp_json_node object, const char *label_key,
                           const char *score_key, const double *scores, size_t i)
{
    fsdp_json_set_str(object, label_key, o->labels[o->order[i]]);
    fsdp_json_set_f64(object, score_key, scores[o->order[i]]);
}

static fsdp_status add_predictions(const fsdp_class_output *o, fsdp_json_node row,
                                   const double *scores)
{
    char *label = key_of(o, "label", 0), *score = key_of(o, "score", 0);
    char *list = key_of(o, "predictions", 0);
    const fsdp_status status = label && score && list ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && !is_list(o)) {
        add_prediction(o, row, label, score, scores, 0);
    } else if (status == FSDP_OK) {
        const fsdp_json_node array = fsdp_json_set_array(row, list);
        for (size_t i = 0; i < o->n_shown; i++)
            add_prediction(o, fsdp_json_append_object(array), "label", "score", scores, i);
    }
    fsdp_free(label);
    fsdp_free(score);
    fsdp_free(list);
    return status;
}

static fsdp_status add_json_row(const fsdp_class_output *o, fsdp_json_node row,
                                const double *scores, fsdp_str *line)
{
    fsdp_json *doc;
    char *text;
    size_t bytes;
    FSDP_TRY(fsdp_json_create("result", &doc));
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v))
        fsdp_json_set_shared(fsdp_json_root(doc), v.key, v);
    fsdp_status status = add_predictions(o, fsdp_json_root(doc), scores);
    if (status == FSDP_OK)
        status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, &bytes);
    fsdp_json_destroy(doc);
    FSDP_TRY(status);
    fsdp_str_append(line, text, bytes);
    fsdp_str_append(line, "\n", 1);
    fsdp_free(text);
    return FSDP_OK;
}

/* ---- writing ---- */

/* Append a line to the output file, or print it to o->out if there is no file. Then free the line.
 * If `status` is an error, only free the line, and return `status`. */
static fsdp_status print_line(const fsdp_class_output *o, fsdp_status status, fsdp_str *line)
{
    const size_t bytes = line->len;
    char *text = status == FSDP_OK ? fsdp_str_take(line) : NULL;
    if (status == FSDP_OK && !text)
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK && o->file)
        status = fsdp_atomic_file_append(o->file, text, bytes);
    else if (status == FSDP_OK)
        /* a failure is found later: main() checks stdout with ferror() */
        fwrite(text, 1, bytes, o->out);
    fsdp_str_fini(line);
    fsdp_free(text);
    return status;
}

/* Set o->order to the classes in descending order of score. Classes with equal scores stay in
 * ascending order, as in Python's sort. */
static void sort_classes(fsdp_class_output *o, const double *scores)
{
    for (size_t i = 0; i < o->n_labels; i++) {
        size_t at = i;
        for (; at > 0 && scores[o->order[at - 1]] < scores[i]; at--)
            o->order[at] = o->order[at - 1];
        o->order[at] = i;
    }
}

fsdp_status fsdp_class_output_write(fsdp_class_output *o, const double *scores)
{
    const fsdp_json_node row = fsdp_json_root(o->items->items[o->next++].row);
    fsdp_str line = {0};
    sort_classes(o, scores);
    const fsdp_status status =
        o->csv ? add_csv_row(o, row, scores, &line) : add_json_row(o, row, scores, &line);
    return print_line(o, status, &line);
}

static fsdp_status open_output(fsdp_class_output *o)
{
    if (!(o->order = fsdp_calloc(o->n_labels, sizeof *o->order)))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(choose_keys(o));
    if (o->csv)
        FSDP_TRY(collect_columns(o));
    if (o->config->output)
        FSDP_TRY(fsdp_atomic_file_begin(o->config->output, 0, &o->file));
    if (!o->csv)
        return FSDP_OK;
    fsdp_str line = {0};
    return print_line(o, add_header(o, &line), &line);
}

static void free_output(fsdp_class_output *o)
{
    fsdp_names_free(o->columns, o->n_columns);
    fsdp_free(o->order);
    fsdp_free(o);
}

fsdp_status fsdp_class_output_open(const fsdp_classify_config *config,
                                   const fsdp_class_items *items, char *const *labels,
                                   size_t n_labels, FILE *out, fsdp_class_output **output)
{
    const size_t wanted = config->top_k == FSDP_CLASSIFY_BEST  ? 1
                          : config->top_k == FSDP_CLASSIFY_ALL ? n_labels
                                                               : (size_t)config->top_k;
    fsdp_class_output *o = fsdp_calloc(1, sizeof *o);
    if (!o)
        return FSDP_ERR_NOMEM;
    o->config = config;
    o->items = items;
    o->labels = labels;
    o->n_labels = n_labels;
    o->n_shown = wanted < n_labels ? wanted : n_labels;
    o->csv = config->output && fsdp_name_ends_with(config->output, ".csv");
    o->out = out;
    const fsdp_status status = open_output(o);
    if (status == FSDP_OK) {
        *output = o;
        return FSDP_OK;
    }
    fsdp_atomic_file_discard(o->file);
    free_output(o);
    return status;
}

fsdp_status fsdp_class_output_close(fsdp_class_output *o, fsdp_status status)
{
    if (!o)
        return status;
    if (o->file && status == FSDP_OK)
        status = fsdp_atomic_file_commit(o->file);
    else
        fsdp_atomic_file_discard(o->file);
    free_output(o);
    return status;
}
