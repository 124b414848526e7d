/* See nf4_entry.h. */
#include "src/pretrained/nf4_entry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/base/str.h"

enum {
    MOST_BLOCK = 1 << 16
};

static const char NF4_STATE[] = ".quant_state.bitsandbytes__nf4",
                  FP4_STATE[] = ".quant_state.bitsandbytes__fp4";

/* --- names --- */

/* Find the tensor whose name is the name of `entry` followed by `suffix`. Set *found to NULL if
 * there is none. */
static fsdp_status find_beside(const fsdp_checkpoint_reader *reader,
                               const fsdp_checkpoint_entry *entry, const char *suffix,
                               const fsdp_checkpoint_entry **found)
{
    char *name = fsdp_strdup_printf("%s%s", entry->name, suffix);
    if (!name)
        return FSDP_ERR_NOMEM;
    *found = fsdp_checkpoint_find(reader, name);
    fsdp_free(name);
    return FSDP_OK;
}

static fsdp_status get_beside(const fsdp_checkpoint_reader *reader,
                              const fsdp_checkpoint_entry *entry, const char *suffix,
                              const fsdp_checkpoint_entry **found)
{
    FSDP_TRY(find_beside(reader, entry, suffix, found));
    if (*found)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_FORMAT,
        "%s: there is no tensor '%s%s', which bitsandbytes saves beside a weight in NF4",
        entry->path, entry->name, suffix);
}

size_t fsdp_nf4_weight_name(const char *name)
{
    static const char *const suffixes[] = {".absmax", ".quant_map", ".nested_absmax",
                                           ".nested_quant_map", NF4_STATE};
    const size_t length = strlen(name);
    for (size_t i = 0; i < FSDP_LENGTH(suffixes); i++) {
        const size_t n = strlen(suffixes[i]);
        if (length > n && strcmp(name + length - n, suffixes[i]) == 0)
            return length - n;
    }
    return 0;
}

/* --- checking --- */

static fsdp_status check_bytes(const fsdp_checkpoint_entry *entry, const char *dtype_name,
                               int64_t numel, size_t size)
{
    if ((!dtype_name || strcmp(entry->dtype_name, dtype_name) == 0) &&
        entry->bytes == (size_t)numel * size)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_FORMAT,
        "%s: tensor '%s' has %zu bytes of %s; the shape of its weight in NF4 needs %zu "
        "bytes of %s",
        entry->path, entry->name, entry->bytes, entry->dtype_name, (size_t)numel * size,
        dtype_name ? dtype_name : entry->dtype_name);
}

/* Check that the levels are those of NF4. */
static fsdp_status check_levels(const fsdp_checkpoint_entry *entry)
{
    FSDP_TRY(check_bytes(entry, "F32", FSDP_NF4_LEVELS, sizeof(float)));
    if (memcmp(entry->data, fsdp_nf4_levels, sizeof fsdp_nf4_levels) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s' does not have the 16 levels of NF4",
                      entry->path, entry->name);
}

static fsdp_status read_shape(fsdp_json_node state, fsdp_nf4_entry *nf4)
{
    int64_t *shape;
    size_t ndim;
    FSDP_TRY(fsdp_json_get_i64s(state, "shape", 1, INT32_MAX, &shape, &ndim));
    fsdp_status status = FSDP_OK;
    nf4->ndim = (int)ndim;
    nf4->numel = 1;
    if (ndim < 1 || ndim > FSDP_MAX_DIMS)
        status = fsdp_json_mismatch(state, "shape", "1 to %d dimensions", FSDP_MAX_DIMS);
    for (size_t i = 0; i < ndim && status == FSDP_OK; i++) {
        nf4->shape[i] = shape[i];
        if (nf4->numel > INT64_MAX / 8 / shape[i])
            status = fsdp_json_mismatch(state, "shape", "fewer elements");
        else
            nf4->numel *= shape[i];
    }
    fsdp_free(shape);
    return status;
}

static fsdp_status read_block(fsdp_json_node state, const char *key, int64_t least, int64_t *block)
{
    FSDP_TRY(fsdp_json_get_i64(state, key, least, MOST_BLOCK, block));
    return *block % least ? fsdp_json_mismatch(state, key, "a multiple of %d", (int)least)
                          : FSDP_OK;
}

static fsdp_status read_dtype(fsdp_json_node state, fsdp_dtype *dtype)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    const char *name;
    FSDP_TRY(fsdp_json_get_str(state, "dtype", &name));
    for (size_t i = 0; i < FSDP_LENGTH(dtypes); i++)
        if (strcmp(name, fsdp_dtype_name(dtypes[i])) == 0) {
            *dtype = dtypes[i];
            return FSDP_OK;
        }
    return fsdp_json_mismatch(state, "dtype", "float32, bfloat16 or float16");
}

static fsdp_status read_state(fsdp_json_node state, bool is_double, fsdp_nf4_entry *nf4)
{
    const char *type;
    double offset = 0.0;
    FSDP_TRY(fsdp_json_get_str(state, "quant_type", &type));
    if (strcmp(type, "nf4") != 0)
        return fsdp_json_mismatch(state, "quant_type", "\"nf4\"");
    nf4->how.is_double = is_double;
    FSDP_TRY(read_block(state, "blocksize", 2, &nf4->how.block));
    FSDP_TRY(read_dtype(state, &nf4->dtype));
    FSDP_TRY(read_shape(state, nf4));
    if (!is_double)
        return FSDP_OK;
    FSDP_TRY(read_block(state, "nested_blocksize", 1, &nf4->how.nested_block));
    FSDP_TRY(fsdp_json_get_f64(state, "nested_offset", &offset));
    nf4->offset = (float)offset;
    return FSDP_OK;
}

static fsdp_status parse_state(const fsdp_checkpoint_entry *state, bool is_double,
                               fsdp_nf4_entry *nf4)
{
    fsdp_json *doc = NULL;
    char *name = fsdp_strdup_printf("%s: tensor '%s'", state->path, state->name);
    fsdp_status status = name ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_json_parse(name, 1, state->data, state->bytes, &doc);
    if (status == FSDP_OK)
        status = read_state(fsdp_json_root(doc), is_double, nf4);
    fsdp_json_destroy(doc);
    fsdp_free(name);
    return status;
}

static int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Return the index of the first element of a float32 tensor that is infinite or NaN; -1 if there is
 * none. */
static int64_t find_not_finite(const fsdp_checkpoint_entry *entry)
{
    for (int64_t i = 0; i < entry->numel; i++) {
        float x;
        memcpy(&x, (const char *)entry->data + (size_t)i * sizeof x, sizeof x);
        if (!isfinite(x))
            return i;
    }
    return -1;
}

static fsdp_status check_finite(const fsdp_checkpoint_entry *entry)
{
    const int64_t bad = strcmp(entry->dtype_name, "F32") == 0 ? find_not_finite(entry) : -1;
    if (bad < 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "%s: element %lld of tensor '%s' is infinite or NaN",
                      entry->path, (long long)bad, entry->name);
}

static fsdp_status check_parts(const fsdp_checkpoint_reader *reader,
                               const fsdp_checkpoint_entry *entry, fsdp_nf4_entry *nf4)
{
    const int64_t blocks = ceil_div(nf4->numel, nf4->how.block);
    const fsdp_checkpoint_entry *levels;
    nf4->packed = entry;
    FSDP_TRY(check_bytes(entry, NULL, (nf4->numel + 1) / 2, 1));
    FSDP_TRY(get_beside(reader, entry, ".quant_map", &levels));
    FSDP_TRY(check_levels(levels));
    FSDP_TRY(get_beside(reader, entry, ".absmax", &nf4->absmax));
    FSDP_TRY(check_bytes(nf4->absmax, nf4->how.is_double ? "U8" : "F32", blocks,
                         fsdp_quantized_scale_bytes(&nf4->how)));
    FSDP_TRY(check_finite(nf4->absmax));
    if (!nf4->how.is_double)
        return FSDP_OK;
    FSDP_TRY(get_beside(reader, entry, ".nested_quant_map", &nf4->map));
    FSDP_TRY(check_bytes(nf4->map, "F32", FSDP_NF4_MAP, sizeof(float)));
    FSDP_TRY(check_finite(nf4->map));
    FSDP_TRY(
        check_bytes(nf4->nested, "F32", ceil_div(blocks, nf4->how.nested_block), sizeof(float)));
    return check_finite(nf4->nested);
}

fsdp_status fsdp_nf4_entry_find(const fsdp_checkpoint_reader *reader,
                                const fsdp_checkpoint_entry *entry, fsdp_nf4_entry *nf4,
                                bool *found)
{
    const fsdp_checkpoint_entry *state, *fp4;
    *found = false;
    FSDP_TRY(find_beside(reader, entry, NF4_STATE, &state));
    FSDP_TRY(find_beside(reader, entry, FP4_STATE, &fp4));
    if (fp4)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: tensor '%s' is in FP4 (bnb_4bit_quant_type \"fp4\"); of "
                          "bitsandbytes' types of 4 bits, NF4 is supported",
                          entry->path, entry->name);
    if (!state)
        return FSDP_OK;
    *nf4 = (fsdp_nf4_entry){0};
    FSDP_TRY(find_beside(reader, entry, ".nested_absmax", &nf4->nested));
    FSDP_TRY(parse_state(state, nf4->nested != NULL, nf4));
    FSDP_TRY(check_parts(reader, entry, nf4));
    *found = true;
    return FSDP_OK;
}

/* --- reading --- */

void fsdp_nf4_entry_take_nested(const fsdp_nf4_entry *nf4, fsdp_quantized *q)
{
    if (!q->how.is_double)
        return;
    q->offset = nf4->offset;
    memcpy(q->map, nf4->map->data, sizeof q->map);
    memcpy(q->nested, nf4->nested->data, nf4->nested->bytes);
}

void fsdp_nf4_entry_take_part(const fsdp_nf4_entry *nf4, const fsdp_quantized_part *part,
                              void *stored)
{
    const size_t scale = fsdp_quantized_scale_bytes(&nf4->how);
    if (!part->n)
        return;
    memcpy(stored, (const char *)nf4->packed->data + part->first / 2, (size_t)(part->n + 1) / 2);
    memcpy((char *)stored + part->scales,
           (const char *)nf4->absmax->data + (size_t)part->first_block * scale,
           (size_t)part->blocks * scale);
}

/* --- pieces --- */

/* Return the size of a buffer, in elements, into which any range of n elements can be read. Only
 * whole steps (fsdp_quantized_step()) can be read, so the buffer needs room for more elements at
 * both ends. */
static int64_t room_for(const fsdp_nf4_values *v, int64_t n)
{
    return n + 2 * fsdp_quantized_step(&v->nf4->how);
}

fsdp_status fsdp_nf4_values_init(fsdp_nf4_values *v, const fsdp_nf4_entry *nf4,
                                 const fsdp_device *device, int64_t most)
{
    *v = (fsdp_nf4_values){.nf4 = nf4, .device = device, .most = most};
    FSDP_TRY(fsdp_quantized_create(&nf4->how, nf4->numel, &v->q));
    fsdp_nf4_entry_take_nested(nf4, v->q);
    const size_t bytes = fsdp_quantized_part_at(v->q, 0, room_for(v, most)).bytes;
    v->stored = fsdp_realloc(NULL, bytes, 1);
    v->values = fsdp_calloc((size_t)room_for(v, most), sizeof *v->values);
    return v->stored && v->values ? FSDP_OK : FSDP_ERR_NOMEM;
}

const float *fsdp_nf4_values_read(fsdp_nf4_values *v, int64_t first, int64_t n)
{
    const int64_t step = fsdp_quantized_step(&v->nf4->how);
    const int64_t begin = first / step * step, last = ceil_div(first + n, step) * step;
    const int64_t end = last < v->nf4->numel ? last : v->nf4->numel;
    FSDP_ASSERT(n <= v->most);
    const fsdp_quantized_part part = fsdp_quantized_part_at(v->q, begin, end - begin);
    fsdp_nf4_entry_take_part(v->nf4, &part, v->stored);
    fsdp_quantized_read(v->q, &part, v->device, v->stored, v->values, FSDP_DTYPE_F32);
    return v->values + (first - begin);
}

void fsdp_nf4_values_fini(fsdp_nf4_values *v)
{
    fsdp_quantized_free(v->q);
    fsdp_free(v->stored);
    fsdp_free(v->values);
    *v = (fsdp_nf4_values){0};
}
