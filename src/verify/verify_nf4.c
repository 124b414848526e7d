/* The part of `fsdp verify` that compares NF4 with the values in nf4.safetensors. Each tensor of
 * the file is an input or an expected result. All quantities must be equal in every bit, except the
 * mean of the scales, which depends on the order in which they are added. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/float8.h"
#include "src/comm/agree.h"
#include "src/kernels/nf4.h"
#include "src/tensor/device.h"
#include "src/tensor/host_copy.h"
#include "src/tensor/tensor.h"
#include "src/verify/verify_case.h"

static const char FILE_NAME[] = "nf4.safetensors";

typedef struct nf4_case {
    fsdp_verify_case *c;
    const fsdp_checkpoint_reader *file;
    float *x;          /* [n] the values that are quantized */
    int64_t n, blocks; /* n: number of elements; blocks: number of blocks of FSDP_NF4_BLOCK
                          elements */
    uint8_t *packed;   /* [(n + 1) / 2] */
    float *absmax;     /* [blocks] */
    float *values;     /* [n] buffer for results */
} nf4_case;

/* --- comparing --- */

/* Compare `got` [bytes] with the tensor `name`, whose dtype must be `dtype_name`. */
static fsdp_status compare_bytes(const nf4_case *q, const char *name, const char *dtype_name,
                                 const void *got, size_t bytes)
{
    const fsdp_checkpoint_entry *entry;
    FSDP_TRY(fsdp_checkpoint_get(q->file, name, &entry));
    if (strcmp(entry->dtype_name, dtype_name) != 0 || entry->bytes != bytes)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: tensor '%s' has %zu bytes of %s; the tensor 'x' needs %zu bytes of "
                          "%s there",
                          entry->path, name, entry->bytes, entry->dtype_name, bytes, dtype_name);
    size_t differing = 0;
    for (size_t i = 0; i < bytes; i++)
        differing += ((const uint8_t *)got)[i] != ((const uint8_t *)entry->data)[i];
    fsdp_verify_compared(q->c, (double)differing, 0.0, "differing", "nf4: %s", name);
    return FSDP_OK;
}

static fsdp_status compare_floats(const nf4_case *q, const char *name, const float *got, int64_t n)
{
    return compare_bytes(q, name, "F32", got, (size_t)n * sizeof *got);
}

/* Set *values to the n numbers of the tensor `name`. The caller owns *values. */
static fsdp_status read_floats(const nf4_case *q, const char *name, int64_t n, float **values)
{
    const fsdp_checkpoint_entry *entry;
    FSDP_TRY(fsdp_checkpoint_get(q->file, name, &entry));
    if (entry->numel != n)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has %lld elements, not %lld",
                          entry->path, name, (long long)entry->numel, (long long)n);
    return fsdp_verify_floats(entry, values);
}

/* Set *t to a tensor on the device with the n elements `data`. */
static fsdp_status send(const nf4_case *q, fsdp_dtype dtype, int64_t n, const void *data,
                        fsdp_tensor **t)
{
    return fsdp_tensor_from_data(q->c->device, dtype, 1, &n, data, FSDP_TAG_ACTIVATION, t);
}

/* The arrays of fsdp_nf4_args on the device. */
typedef struct on_device {
    fsdp_tensor *packed, *absmax, *values;
} on_device;

/* Compute q->values with the kernel of the device. */
static fsdp_status dequantize(const nf4_case *q, const float *absmax, on_device *d)
{
    FSDP_TRY(send(q, FSDP_DTYPE_U8, (q->n + 1) / 2, q->packed, &d->packed));
    FSDP_TRY(send(q, FSDP_DTYPE_F32, q->blocks, absmax, &d->absmax));
    FSDP_TRY(send(q, FSDP_DTYPE_F32, q->n, q->values, &d->values));
    const fsdp_nf4_args args = {.out = fsdp_tensor_ptr(d->values),
                                .dtype = FSDP_DTYPE_F32,
                                .n = q->n,
                                .packed = fsdp_tensor_ptr(d->packed),
                                .block = FSDP_NF4_BLOCK,
                                .absmax = fsdp_tensor_ptr(d->absmax)};
    q->c->device->kernels->nf4_dequantize(q->c->device->context, &args);
    fsdp_host_copy copy;
    FSDP_TRY(fsdp_host_copy_of(&copy, d->values));
    memcpy(q->values, copy.data, (size_t)q->n * sizeof *q->values);
    fsdp_host_copy_destroy(&copy);
    return FSDP_OK;
}

/* Read the quantized weights back with the scales `absmax`, and compare them with the tensor
 * `name`. */
static fsdp_status compare_dequantized(const nf4_case *q, const char *name, const float *absmax)
{
    on_device d = {0};
    if (!q->c->device->kernels->nf4_dequantize)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "the device '%s' does not have NF4: use the cpu",
                          q->c->device->kernels->name);
    const fsdp_status status = dequantize(q, absmax, &d);
    fsdp_tensor_release(d.packed);
    fsdp_tensor_release(d.absmax);
    fsdp_tensor_release(d.values);
    return status == FSDP_OK ? compare_floats(q, name, q->values, q->n) : status;
}

/* --- one quantization --- */

static fsdp_status compare_indices(const nf4_case *q)
{
    uint8_t *index = fsdp_calloc((size_t)q->n + 1, 1);
    if (!index)
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < q->n; i++)
        index[i] = i % 2 ? q->packed[i / 2] & 0xf : q->packed[i / 2] >> 4;
    const fsdp_status status = compare_bytes(q, "index", "U8", index, (size_t)q->n);
    fsdp_free(index);
    return status;
}

static fsdp_status compare_single(nf4_case *q)
{
    const int64_t done = fsdp_nf4_quantize(q->x, q->n, FSDP_NF4_BLOCK, q->packed, q->absmax);
    if (done < q->n)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s: element %lld of tensor 'x' is infinite or NaN, which NF4 cannot store",
            fsdp_checkpoint_path(q->file), (long long)done);
    FSDP_TRY(compare_floats(q, "levels", fsdp_nf4_levels, FSDP_NF4_LEVELS));
    FSDP_TRY(compare_floats(q, "absmax", q->absmax, q->blocks));
    FSDP_TRY(compare_bytes(q, "packed", "U8", q->packed, (size_t)(q->n + 1) / 2));
    FSDP_TRY(compare_indices(q));
    return compare_dequantized(q, "dequantized", q->absmax);
}

/* --- the scales in float8 --- */

/* Subtract `mean` from the scales, and quantize them to float8. `bits` [q->blocks] gets the codes,
 * `back` [q->blocks] gets the scales that are read back from the codes, and `scale` gets one factor
 * for each block of FSDP_NF4_NESTED_BLOCK scales. */
static void quantize_scales(const nf4_case *q, float mean, uint8_t *bits, float *scale, float *back)
{
    static const float largest = 448.0f;
    for (int64_t at = 0; at < q->blocks; at += FSDP_NF4_NESTED_BLOCK) {
        float *s = &scale[at / FSDP_NF4_NESTED_BLOCK], most = 1e-12f;
        for (int64_t i = at; i < q->blocks && i < at + FSDP_NF4_NESTED_BLOCK; i++)
            most = fmaxf(most, fabsf(q->absmax[i] - mean));
        *s = most / largest;
        for (int64_t i = at; i < q->blocks && i < at + FSDP_NF4_NESTED_BLOCK; i++) {
            bits[i] = fsdp_e4m3_from_f32((q->absmax[i] - mean) / *s);
            back[i] = fsdp_f32_from_e4m3(bits[i]) * *s + mean;
        }
    }
}

static fsdp_status compare_scales(const nf4_case *q, float mean, uint8_t *bits, float *scale,
                                  float *back)
{
    const int64_t nested = (q->blocks + FSDP_NF4_NESTED_BLOCK - 1) / FSDP_NF4_NESTED_BLOCK;
    double sum = 0.0;
    for (int64_t i = 0; i < q->blocks; i++)
        sum += (double)q->absmax[i];
    const double exact = sum / (double)q->blocks;
    fsdp_verify_compared(q->c, fsdp_verify_relative((double)mean, exact), 4.0 * (double)FLT_EPSILON,
                         "relative", "nf4: double.mean");
    quantize_scales(q, mean, bits, scale, back);
    FSDP_TRY(compare_floats(q, "double.scale", scale, nested));
    FSDP_TRY(compare_bytes(q, "double.bits", "U8", bits, (size_t)q->blocks));
    FSDP_TRY(compare_floats(q, "double.absmax", back, q->blocks));
    return compare_dequantized(q, "double.dequantized", back);
}

static fsdp_status compare_double(const nf4_case *q)
{
    float *mean;
    FSDP_TRY(read_floats(q, "double.mean", 1, &mean));
    uint8_t *bits = fsdp_calloc((size_t)q->blocks, 1);
    float *scale = fsdp_calloc((size_t)q->blocks, sizeof *scale);
    float *back = fsdp_calloc((size_t)q->blocks, sizeof *back);
    const fsdp_status status =
        bits && scale && back ? compare_scales(q, *mean, bits, scale, back) : FSDP_ERR_NOMEM;
    fsdp_free(mean);
    fsdp_free(bits);
    fsdp_free(scale);
    fsdp_free(back);
    return status;
}

/* --- the file --- */

/* Report the tensors of the file that this version does not know. */
static void report_unknown(const nf4_case *q)
{
    static const char *const known[] = {"x",
                                        "levels",
                                        "absmax",
                                        "packed",
                                        "index",
                                        "dequantized",
                                        "double.mean",
                                        "double.bits",
                                        "double.scale",
                                        "double.absmax",
                                        "double.dequantized"};
    for (size_t i = 0; i < fsdp_checkpoint_count(q->file); i++) {
        const char *name = fsdp_checkpoint_at(q->file, i)->name;
        size_t k = 0;
        while (k < FSDP_LENGTH(known) && strcmp(name, known[k]) != 0)
            k++;
        if (k == FSDP_LENGTH(known))
            fsdp_verify_skipped(q->c, name, "this version does not know this tensor of %s",
                                FILE_NAME);
    }
}

static fsdp_status compare_file(nf4_case *q)
{
    const fsdp_checkpoint_entry *x;
    FSDP_TRY(fsdp_checkpoint_get(q->file, "x", &x));
    q->n = x->numel;
    q->blocks = (q->n + FSDP_NF4_BLOCK - 1) / FSDP_NF4_BLOCK;
    if (!q->n)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor 'x' is empty", x->path);
    FSDP_TRY(fsdp_verify_floats(x, &q->x));
    q->packed = fsdp_calloc((size_t)(q->n + 1) / 2, 1);
    q->absmax = fsdp_calloc((size_t)q->blocks, sizeof *q->absmax);
    q->values = fsdp_calloc((size_t)q->n, sizeof *q->values);
    if (!q->packed || !q->absmax || !q->values)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(compare_single(q));
    if (fsdp_checkpoint_find(q->file, "double.mean"))
        FSDP_TRY(compare_double(q));
    report_unknown(q);
    return FSDP_OK;
}

fsdp_status fsdp_verify_nf4(fsdp_verify_case *c)
{
    fsdp_checkpoint_reader *file;
    FSDP_TRY(fsdp_agree(c->group, fsdp_verify_open_tensors(c, FILE_NAME, &file)));
    nf4_case q = {.c = c, .file = file};
    const fsdp_status status = fsdp_agree(c->group, compare_file(&q));
    fsdp_free(q.x);
    fsdp_free(q.packed);
    fsdp_free(q.absmax);
    fsdp_free(q.values);
    fsdp_checkpoint_close(file);
    return status;
}
