/* Functions that all parts of `fsdp verify` share: they report results, read files and tolerances,
 * make batches and open models. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/verify/verify_case.h"

/* --- reporting --- */

static void report(fsdp_verify_case *c, fsdp_verify_line *line, const char *quantity)
{
    line->folder = c->name;
    line->quantity = quantity;
    if (c->rank == 0 && c->report)
        c->report(line, c->report_arg);
}

void fsdp_verify_compared(fsdp_verify_case *c, double difference, double tolerance,
                          const char *measure, const char *quantity, ...)
{
    char text[256];
    va_list args;
    va_start(args, quantity);
    vsnprintf(text, sizeof text, quantity, args);
    va_end(args);
    bool ok = difference <= tolerance; /* false if `difference` is NaN */
    c->counts.compared++;
    c->counts.failed += !ok;
    report(c,
           &(fsdp_verify_line){.outcome = ok ? FSDP_VERIFY_OK : FSDP_VERIFY_FAILED,
                               .difference = difference,
                               .tolerance = tolerance,
                               .measure = measure},
           text);
}

void fsdp_verify_skipped(fsdp_verify_case *c, const char *quantity, const char *reason, ...)
{
    char text[400];
    va_list args;
    va_start(args, reason);
    vsnprintf(text, sizeof text, reason, args);
    va_end(args);
    c->counts.not_compared++;
    report(c,
           &(fsdp_verify_line){.outcome = FSDP_VERIFY_NOT_COMPARED,
                               .difference = (double)NAN,
                               .tolerance = (double)NAN,
                               .measure = "",
                               .reason = text},
           quantity);
}

/* --- reading --- */

char *fsdp_verify_path(const fsdp_verify_case *c, const char *name)
{
    return fsdp_path_join(c->path, name);
}

bool fsdp_verify_has_file(const fsdp_verify_case *c, const char *name)
{
    char *path = fsdp_verify_path(c, name);
    bool found = path && fsdp_path_is_file(path);
    fsdp_free(path);
    return found;
}

fsdp_status fsdp_verify_read_json(const fsdp_verify_case *c, const char *name, fsdp_json **doc)
{
    char *path = fsdp_verify_path(c, name);
    fsdp_status status = path ? fsdp_json_read(path, doc) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_verify_open_tensors(const fsdp_verify_case *c, const char *name,
                                     fsdp_checkpoint_reader **reader)
{
    char *path = fsdp_verify_path(c, name);
    fsdp_status status = path ? fsdp_checkpoint_open(path, reader) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_verify_tolerance(const fsdp_verify_case *c, const char *group, const char *key,
                                  double *tolerance, const char **measure)
{
    fsdp_json_node suggested, entry;
    if (!c->tolerance)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no tolerance.json", c->path);
    FSDP_TRY(fsdp_json_get_object(fsdp_json_root(c->tolerance), "suggested", &suggested));
    FSDP_TRY(fsdp_json_get_object(suggested, group, &entry));
    if (!key) {
        fsdp_json_node first = fsdp_json_first(entry);
        if (!first.value)
            return fsdp_json_mismatch(suggested, group, "a tolerance");
        key = first.key;
    }
    FSDP_TRY(fsdp_json_get_f64(entry, key, tolerance));
    if (measure)
        *measure = strcmp(key, "relative_to_tensor_max") == 0 ? "of the largest"
                   : strstr(key, "relative")                  ? "relative"
                                                              : "absolute";
    return FSDP_OK;
}

/* The ids that one batch takes from an int64 array of the file. `ids` is NULL if the file does not
 * have the array. */
typedef struct id_array {
    int64_t *ids; /* [rows, width], owned */
    int64_t rows, width;
} id_array;

static fsdp_status read_ids(const fsdp_checkpoint_entry *entry, int leading, const int64_t *index,
                            id_array *out)
{
    /* if the array has only the dimension [rows], it is read as [rows, 1] */
    const int dims = entry->ndim - leading;
    if (strcmp(entry->dtype_name, "I64") != 0 || dims < 1 || dims > 2)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is not int64 of %d dimensions",
                          entry->path, entry->name, leading + 2);
    int64_t at = 0;
    for (int d = 0; d < leading; d++) {
        if (index[d] >= entry->shape[d])
            return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has no entry %lld of dimension %d",
                              entry->path, entry->name, (long long)index[d], d);
        at = at * entry->shape[d] + index[d];
    }
    out->rows = entry->shape[leading];
    out->width = dims == 2 ? entry->shape[leading + 1] : 1;
    size_t bytes = (size_t)(out->rows * out->width) * sizeof *out->ids;
    out->ids = fsdp_calloc(bytes, 1);
    if (!out->ids)
        return FSDP_ERR_NOMEM;
    if (bytes)
        memcpy(out->ids, (const char *)entry->data + (size_t)at * bytes, bytes);
    return FSDP_OK;
}

enum {
    INPUT_IDS,
    ATTENTION_MASK,
    LABELS,
    POSITION_IDS,
    TOKEN_TYPE_IDS,
    DOCUMENT_IDS,
    N_ARRAYS
};

static const char *const array_names[N_ARRAYS] = {[INPUT_IDS] = "input_ids",
                                                  [ATTENTION_MASK] = "attention_mask",
                                                  [LABELS] = "labels",
                                                  [POSITION_IDS] = "position_ids",
                                                  [TOKEN_TYPE_IDS] = "token_type_ids",
                                                  [DOCUMENT_IDS] = "document_ids"};

/* If the batch has document_ids, check where they change. They must change exactly where
 * position_ids are 0, which is where documents begin. */
static fsdp_status check_documents(const id_array *documents, const id_array *positions)
{
    for (int64_t row = 0; documents->ids && row < documents->rows; row++)
        for (int64_t i = 1; i < documents->width; i++) {
            int64_t at = row * documents->width + i;
            bool begins = positions->ids && positions->ids[at] == 0;
            if (begins != (documents->ids[at] != documents->ids[at - 1]))
                return fsdp_error(FSDP_ERR_FORMAT,
                                  "document_ids and position_ids disagree in row %lld, column %lld",
                                  (long long)row, (long long)i);
        }
    return FSDP_OK;
}

/* Check that all arrays have the same number of rows, and that all except labels have the same
 * width. Also check that document_ids and position_ids agree. */
static fsdp_status check_widths(const id_array *arrays)
{
    for (int i = 0; i < N_ARRAYS; i++)
        if (arrays[i].ids && (arrays[i].rows != arrays[INPUT_IDS].rows ||
                              (i != LABELS && arrays[i].width != arrays[INPUT_IDS].width)))
            return fsdp_error(FSDP_ERR_FORMAT, "input_ids and %s disagree", array_names[i]);
    return check_documents(&arrays[DOCUMENT_IDS], &arrays[POSITION_IDS]);
}

static fsdp_status read_arrays(const fsdp_checkpoint_reader *inputs, int leading,
                               const int64_t *index, id_array *arrays)
{
    const fsdp_checkpoint_entry *entry;
    FSDP_TRY(fsdp_checkpoint_get(inputs, "input_ids", &entry));
    for (size_t i = 0; i < fsdp_checkpoint_count(inputs); i++) {
        entry = fsdp_checkpoint_at(inputs, i);
        int k = 0;
        while (k < N_ARRAYS && strcmp(array_names[k], entry->name) != 0)
            k++;
        if (k == N_ARRAYS)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "this version does not know the input '%s'",
                              entry->name);
        FSDP_TRY(read_ids(entry, leading, index, &arrays[k]));
    }
    return check_widths(arrays);
}

fsdp_status fsdp_verify_batch(const fsdp_checkpoint_reader *inputs, const fsdp_model_info *info,
                              int leading, const int64_t *index, fsdp_batch **batch)
{
    id_array arrays[N_ARRAYS] = {0};
    fsdp_status status = read_arrays(inputs, leading, index, arrays);
    if (status == FSDP_OK)
        status = fsdp_batch_from_padded(&(fsdp_padded){.input_ids = arrays[INPUT_IDS].ids,
                                                       .attention_mask = arrays[ATTENTION_MASK].ids,
                                                       .labels = arrays[LABELS].ids,
                                                       .position_ids = arrays[POSITION_IDS].ids,
                                                       .token_type_ids = arrays[TOKEN_TYPE_IDS].ids,
                                                       .rows = arrays[INPUT_IDS].rows,
                                                       .source_width = arrays[INPUT_IDS].width,
                                                       .target_width = arrays[LABELS].width,
                                                       .vocab_size = info->vocab_size,
                                                       .n_classes = info->num_labels},
                                        &info->format, batch);
    fsdp_error_context(status, "%s", fsdp_checkpoint_path(inputs));
    for (int i = 0; i < N_ARRAYS; i++)
        fsdp_free(arrays[i].ids);
    return status;
}

fsdp_status fsdp_verify_floats(const fsdp_checkpoint_entry *entry, float **values)
{
    if (strcmp(entry->dtype_name, "F32") != 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is %s, not F32", entry->path,
                          entry->name, entry->dtype_name);
    float *copy = fsdp_calloc((size_t)entry->numel, sizeof *copy);
    if (!copy)
        return FSDP_ERR_NOMEM;
    if (entry->bytes)
        memcpy(copy, entry->data, entry->bytes);
    *values = copy;
    return FSDP_OK;
}

fsdp_status fsdp_verify_full(fsdp_tensor *local, float **values)
{
    fsdp_tensor *full;
    FSDP_TRY(fsdp_full_tensor(local, &full));
    float *copy = fsdp_calloc((size_t)fsdp_tensor_numel(full), sizeof *copy);
    fsdp_status status = copy ? fsdp_tensor_to_floats(full, copy) : FSDP_ERR_NOMEM;
    fsdp_tensor_release(full);
    if (status == FSDP_OK)
        *values = copy;
    else
        fsdp_free(copy);
    return status;
}

void fsdp_verify_max(double *largest, double difference)
{
    if (!isnan(*largest) && !(difference <= *largest))
        *largest = difference;
}

double fsdp_verify_relative(double got, double want)
{
    return want == 0.0 ? fabs(got) : fabs(got / want - 1.0);
}

double fsdp_verify_largest(const float *got, const float *want, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        fsdp_verify_max(&largest, fabs((double)got[i] - (double)want[i]));
    return largest;
}

/* --- models --- */

bool fsdp_verify_has_model(fsdp_verify_case *c, const char *dir, const char *quantity)
{
    char *path = fsdp_verify_path(c, dir), *config = NULL;
    if (path)
        config = fsdp_path_join(path, "config.json");
    bool found = config && fsdp_path_is_file(config);
    fsdp_free(config);
    fsdp_free(path);
    if (!found)
        fsdp_verify_skipped(c, quantity, "the folder has no %s/config.json", dir);
    return found;
}

fsdp_status fsdp_verify_open_model(const fsdp_verify_case *c, const char *dir, const char *adapter,
                                   const fsdp_fully_shard_options *options, fsdp_model **model)
{
    char *path = fsdp_verify_path(c, dir);
    char *adapter_path = path && adapter ? fsdp_verify_path(c, adapter) : NULL;
    fsdp_status status = path && (adapter_path || !adapter) ? FSDP_OK : FSDP_ERR_NOMEM;
    fsdp_model_options o = {.name = path, .adapter = adapter_path, .keep_lm_head = true};
    if (options)
        o.shard = *options;
    if (status == FSDP_OK)
        status = fsdp_model_open(&o, c->group, c->device, model);
    fsdp_free(adapter_path);
    fsdp_free(path);
    return status;
}

const char *fsdp_verify_parameter_name(const char *name)
{
    static const char prefix[] = "base_model.model.";
    return strncmp(name, prefix, strlen(prefix)) == 0 ? name + strlen(prefix) : name;
}

static fsdp_status find_base_of(fsdp_verify_case *c, const fsdp_lora_file *file)
{
    const char *base = fsdp_lora_file_base_model(file);
    if (!base)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s/adapter/adapter_config.json: base_model_name_or_path is missing",
                          c->path);
    c->base_model = fsdp_path_join("adapter", base);
    c->base_inputs = c->base_model ? fsdp_path_join(c->base_model, "../inputs.safetensors") : NULL;
    return c->base_inputs ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_verify_find_base(fsdp_verify_case *c)
{
    char *dir = fsdp_verify_path(c, "adapter");
    fsdp_lora_file *file = NULL;
    fsdp_status status = dir ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && fsdp_path_is_directory(dir)) {
        status = fsdp_lora_file_read(dir, &file);
        if (status == FSDP_OK)
            status = find_base_of(c, file);
    }
    fsdp_lora_file_destroy(file);
    fsdp_free(dir);
    return status;
}
