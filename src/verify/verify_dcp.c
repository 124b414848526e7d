/* The part of `fsdp verify` that compares checkpoints of torch.distributed.checkpoint. It compares
 * the content of a checkpoint, and training that resumes from the checkpoint. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/state_dict.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/dcp/dcp_reader.h"
#include "src/verify/verify_training.h"

/* --- comparing the loaded items --- */

typedef struct compared {
    fsdp_json_node want;     /* the content of dcp_step<N>.json */
    fsdp_dcp_reader *reader; /* reads whole tensors from the checkpoint's files */
    /* For each tensor, dcp_step<N>.json has the sum of the elements and the sum of their
     * magnitudes. Both sums are also computed from the loaded tensor. The difference between each
     * computed sum and the sum in the file is divided by the sum of the magnitudes in the file.
     * `largest` is the largest of these quotients so far. */
    double largest;
    /* bits: number of tensors that differ in any bit. values: number of plain values that differ.
     * found: number of items that were compared. */
    int64_t bits, values, found;
} compared;

static fsdp_status compare_sums(compared *c, fsdp_json_node want, const float *got, int64_t numel)
{
    double sum = 0.0, magnitudes = 0.0, want_sum, want_magnitudes;
    FSDP_TRY(fsdp_json_get_f64(want, "sum", &want_sum));
    FSDP_TRY(fsdp_json_get_f64(want, "abs_sum", &want_magnitudes));
    for (int64_t i = 0; i < numel; i++) {
        sum += (double)got[i];
        magnitudes += fabs((double)got[i]);
    }
    double scale = want_magnitudes > 0.0 ? want_magnitudes : 1.0;
    fsdp_verify_max(&c->largest, fabs(sum - want_sum) / scale);
    fsdp_verify_max(&c->largest, fabs(magnitudes - want_magnitudes) / scale);
    return FSDP_OK;
}

/* Compare `got`, all elements of the loaded tensor, with the tensor in the checkpoint's files, bit
 * by bit. */
static fsdp_status compare_bits(compared *c, const fsdp_dcp_item *item, const float *got)
{
    size_t bytes = (size_t)item->numel * sizeof *got;
    float *want = fsdp_calloc((size_t)item->numel, sizeof *want);
    if (!want)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_dcp_reader_rows(c->reader, item, 0, item->ndim ? item->shape[0] : 1, want);
    c->bits += memcmp(want, got, bytes) != 0;
    fsdp_free(want);
    return status;
}

static fsdp_status compare_tensor(compared *c, const fsdp_state_entry *entry, fsdp_json_node want)
{
    const fsdp_dcp_item *item =
        fsdp_dcp_metadata_find(fsdp_dcp_reader_metadata(c->reader), entry->fqn);
    float *got = NULL;
    fsdp_status status = fsdp_verify_full(entry->tensor, &got);
    if (status != FSDP_OK || !item || strcmp(item->dtype_name, "F32") != 0) {
        c->bits += status == FSDP_OK;
        fsdp_free(got);
        return status;
    }
    status = compare_sums(c, want, got, item->numel);
    if (status == FSDP_OK)
        status = compare_bits(c, item, got);
    fsdp_free(got);
    return status;
}

static bool is_number(const fsdp_plain *value, fsdp_json_node want)
{
    double number;
    if (value->kind != FSDP_PLAIN_FLOAT && value->kind != FSDP_PLAIN_INT)
        return false;
    return fsdp_json_get_f64(want, NULL, &number) == FSDP_OK &&
           number == (value->kind == FSDP_PLAIN_INT ? (double)value->as.integer : value->as.number);
}

static bool same_value(const fsdp_plain *value, fsdp_json_node want)
{
    const char *text;
    bool flag;
    switch (value->kind) {
    case FSDP_PLAIN_NONE:
        return fsdp_json_kind_of(want) == FSDP_JSON_NULL;
    case FSDP_PLAIN_BOOL:
        return fsdp_json_get_bool(want, NULL, &flag) == FSDP_OK && flag == value->as.boolean;
    case FSDP_PLAIN_STR:
        return fsdp_json_get_str(want, NULL, &text) == FSDP_OK && strcmp(text, value->as.text) == 0;
    case FSDP_PLAIN_TUPLE:
    case FSDP_PLAIN_LIST:
        if (fsdp_json_len(want) != value->as.list.n)
            return false;
        for (size_t i = 0; i < value->as.list.n; i++)
            if (!same_value(&value->as.list.items[i], fsdp_json_at(want, i)))
                return false;
        return true;
    default:
        return is_number(value, want);
    }
}

static fsdp_status compare_entry(compared *c, const fsdp_state_entry *entry)
{
    fsdp_json_node want = fsdp_json_find(c->want, entry->fqn);
    if (!want.value)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "'%s' is not in the file", entry->fqn);
    c->found++;
    if (entry->tensor)
        return compare_tensor(c, entry, want);
    c->values += !same_value(entry->value, fsdp_json_find(want, "value"));
    return FSDP_OK;
}

static fsdp_status compare_all(fsdp_verify_case *c, const char *name, fsdp_json *doc,
                               fsdp_dcp_reader *reader, const fsdp_state_dict *all)
{
    compared result = {.want = fsdp_json_root(doc), .reader = reader};
    for (size_t i = 0; i < fsdp_state_dict_count(all); i++)
        FSDP_TRY(compare_entry(&result, fsdp_state_dict_at(all, i)));
    int64_t missing = (int64_t)fsdp_json_len(result.want) - result.found;
    fsdp_verify_compared(c, (double)missing, 0, "missing", "%s: items", name);
    fsdp_verify_compared(c, (double)result.bits, 0, "differing", "%s: tensors", name);
    fsdp_verify_compared(c, (double)result.values, 0, "differing", "%s: plain values", name);
    fsdp_verify_compared(c, result.largest, 1e-12, "relative", "%s: sums", name);
    return FSDP_OK;
}

/* --- the checkpoint folder --- */

static fsdp_status open_files(fsdp_verify_case *c, const char *name, fsdp_json **doc,
                              fsdp_dcp_reader **reader)
{
    char file[128];
    snprintf(file, sizeof file, "%s.json", name);
    FSDP_TRY(fsdp_verify_read_json(c, file, doc));
    char *path = fsdp_verify_path(c, name);
    fsdp_status status = path ? fsdp_dcp_reader_open(path, reader) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

/* Load the checkpoint into a model and a new optimizer, and compare the loaded items. */
static fsdp_status verify_items(fsdp_verify_case *c, const char *name, fsdp_json *doc,
                                fsdp_dcp_reader *reader)
{
    const fsdp_verify_recipe recipe = {
        .model = "model",
        .inputs = "inputs.safetensors",
        .accumulation = 1,
        .optimizer = {.kind = FSDP_VERIFY_ADAMW, .adamw = fsdp_adamw_defaults()}};
    fsdp_verify_training t = {.c = c};
    fsdp_state_dict *all = NULL;
    fsdp_status status = fsdp_verify_training_open(&t, &recipe, NULL);
    if (status == FSDP_OK)
        status = fsdp_verify_load(&t, name, &all);
    if (status == FSDP_OK)
        status = compare_all(c, name, doc, reader, all);
    fsdp_state_dict_destroy(all);
    fsdp_verify_training_close(&t);
    return status;
}

fsdp_status fsdp_verify_dcp(fsdp_verify_case *c, const char *name)
{
    fsdp_json *doc = NULL;
    fsdp_dcp_reader *reader = NULL;
    char *end;
    const char *digits = name + strlen("dcp_step");
    long step = strtol(digits, &end, 10);
    if (end == digits || *end || step < 0) {
        fsdp_verify_skipped(c, name, "its name is not dcp_step<number>");
        return FSDP_OK;
    }
    fsdp_status status = fsdp_agree(c->group, open_files(c, name, &doc, &reader));
    if (status == FSDP_OK)
        status = verify_items(c, name, doc, reader);
    if (status == FSDP_OK)
        status = fsdp_verify_resumed(c, name, step);
    fsdp_error_context(status, "%s", name);
    fsdp_dcp_reader_close(reader);
    fsdp_json_destroy(doc);
    return status;
}
