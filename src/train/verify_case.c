/* What the parts of verify share: reports, tolerances, inputs. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/train/verify_case.h"

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
    bool ok = difference <= tolerance; /* false for NaN */
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

fsdp_status fsdp_verify_ids(const fsdp_checkpoint_reader *inputs, const char *name, int leading,
                            const int64_t *index, int64_t **ids, int64_t *rows, int64_t *width)
{
    const fsdp_checkpoint_entry *entry;
    FSDP_TRY(fsdp_checkpoint_get(inputs, name, &entry));
    if (strcmp(entry->dtype_name, "I64") != 0 || entry->ndim != leading + 2)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is not int64 of %d dimensions",
                          entry->path, name, leading + 2);
    int64_t at = 0;
    for (int d = 0; d < leading; d++) {
        if (index[d] >= entry->shape[d])
            return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has no entry %lld of dimension %d",
                              entry->path, name, (long long)index[d], d);
        at = at * entry->shape[d] + index[d];
    }
    *rows = entry->shape[leading];
    *width = entry->shape[leading + 1];
    size_t bytes = (size_t)(*rows * *width) * sizeof **ids;
    int64_t *copy = fsdp_calloc(bytes, 1);
    if (!copy)
        return FSDP_ERR_NOMEM;
    if (bytes)
        memcpy(copy, (const char *)entry->data + (size_t)at * bytes, bytes);
    *ids = copy;
    return FSDP_OK;
}

fsdp_status fsdp_verify_batch(const fsdp_checkpoint_reader *inputs, const fsdp_t5_config *config,
                              int leading, const int64_t *index, fsdp_batch **batch)
{
    int64_t *ids = NULL, *mask = NULL, *labels = NULL, rows, width, mask_rows = 0, mask_width = 0;
    fsdp_padded p = {.vocab_size = config->vocab_size};
    fsdp_status status = fsdp_verify_ids(inputs, "input_ids", leading, index, &ids, &rows, &width);
    if (status == FSDP_OK)
        status = fsdp_verify_ids(inputs, "attention_mask", leading, index, &mask, &mask_rows,
                                 &mask_width);
    if (status == FSDP_OK)
        status =
            fsdp_verify_ids(inputs, "labels", leading, index, &labels, &p.rows, &p.target_width);
    if (status == FSDP_OK && (mask_rows != rows || mask_width != width || p.rows != rows))
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: input_ids, attention_mask and labels disagree",
                            fsdp_checkpoint_path(inputs));
    if (status == FSDP_OK) {
        p.input_ids = ids;
        p.attention_mask = mask;
        p.labels = labels;
        p.source_width = width;
        status = fsdp_batch_from_padded(&p, (int32_t)config->decoder_start_token_id,
                                        (int32_t)config->pad_token_id, batch);
        fsdp_error_context(status, "%s", fsdp_checkpoint_path(inputs));
    }
    fsdp_free(ids);
    fsdp_free(mask);
    fsdp_free(labels);
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

fsdp_status fsdp_verify_open_model(const fsdp_verify_case *c,
                                   const fsdp_fully_shard_options *options, fsdp_model **model)
{
    char *dir = fsdp_verify_path(c, "model");
    if (!dir)
        return FSDP_ERR_NOMEM;
    fsdp_model_options o = {.name = dir};
    if (options)
        o.shard = *options;
    fsdp_status status = fsdp_model_open(&o, c->group, c->device, model);
    fsdp_free(dir);
    return status;
}
