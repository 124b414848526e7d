/* Verifies a checkpoint. Every item is read twice: once to verify its checksums, and once to check
 * that its elements are finite. */
#include <math.h>
#include <string.h>

#include <fsdp/hf.h>
#include <fsdp/tensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/checkpoint_tools/verify.h"
#include "src/tensor/device.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    PIECE_ELEMENTS = 1 << 18,
    MAX_ELEMENT_BYTES = 8
};

typedef struct verifying {
    const fsdp_verify_options *options;
    fsdp_verify_result *result;
    /* `done` is the number of items checked so far. `total` is the number of items in all files of
     * the checkpoint; 0: not known yet. */
    size_t done, total;
    fsdp_device *device; /* the CPU device; its kernels convert elements to double */
    unsigned char *raw;  /* [PIECE_ELEMENTS * MAX_ELEMENT_BYTES] a piece of a tensor, in its
                            dtype */
    double *numbers;     /* [PIECE_ELEMENTS] the same piece, as doubles */
} verifying;

static void report(verifying *v, const char *damage)
{
    v->result->damages++;
    v->options->found(damage, v->options->context);
}

static void report_progress(const verifying *v)
{
    if (v->options->progress)
        v->options->progress(v->options->context, v->done, v->total);
}

/* Handle the result of a check. If `status` is an error that means damage, report the damage and
 * return FSDP_OK. Otherwise return `status`. */
static fsdp_status take_failure(verifying *v, fsdp_status status)
{
    if (status != FSDP_ERR_FORMAT && status != FSDP_ERR_NUMERIC && status != FSDP_ERR_NOT_FOUND &&
        status != FSDP_ERR_IO)
        return status;
    report(v, fsdp_last_error());
    return FSDP_OK;
}

/* Handle the result of checking one part of the checkpoint. FSDP_ERR_UNSUPPORTED means that this
 * library cannot read the form of the part. In this case, report the error and return FSDP_OK, so
 * that the other parts are still checked. Handle any other result as take_failure() does. */
static fsdp_status take_failure_of_part(verifying *v, fsdp_status status)
{
    if (status != FSDP_ERR_UNSUPPORTED)
        return take_failure(v, status);
    v->result->unread++;
    v->options->found(fsdp_last_error(), v->options->context);
    return FSDP_OK;
}

/* ---- elements -------------------------------------------------------------------------------- */

static int64_t count_not_finite(const double *numbers, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += !isfinite(numbers[i]);
    return count;
}

/* How to recognize elements that are not finite, for a type that no kernel converts. An element
 * consists of one or two little-endian parts. A part is not finite if (part & mask) == bits. Types
 * of 4 and 6 bits are not listed, because all their values are finite. */
typedef struct not_finite {
    const char *dtype;
    unsigned mask, bits;
    int64_t bytes; /* size of a part */
} not_finite;

static const not_finite *not_finite_of(const fsdp_safetensors_dtype *dtype)
{
    static const not_finite types[] = {
        {"C64", 0x7f800000, 0x7f800000, 4}, /* the two parts are the real and the imaginary part */
        {"F8_E4M3", 0x7f, 0x7f, 1},         /* has a NaN, but no infinity */
        {"F8_E5M2", 0x7c, 0x7c, 1},         /* infinity and NaN have the same exponent bits as in
                                               float16 */
        {"F8_E4M3FNUZ", 0xff, 0x80, 1},     /* the only NaN has the bits of negative zero */
        {"F8_E5M2FNUZ", 0xff, 0x80, 1},     {"F8_E8M0", 0xff, 0xff, 1},
    };
    for (size_t i = 0; i < FSDP_LENGTH(types); i++)
        if (strcmp(types[i].dtype, dtype->name) == 0)
            return &types[i];
    return NULL;
}

static bool is_part_finite(const not_finite *type, const unsigned char *part)
{
    uint32_t bits = 0;
    memcpy(&bits, part, (size_t)type->bytes);
    return (bits & type->mask) != type->bits;
}

/* Return the number of elements in `raw` that are not finite. `raw` has n elements of `width`
 * bytes. */
static int64_t count_by_bits(const not_finite *type, const unsigned char *raw, int64_t n,
                             int64_t width)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        bool finite = true;
        for (int64_t at = 0; at < width; at += type->bytes)
            finite = finite && is_part_finite(type, raw + i * width + at);
        count += !finite;
    }
    return count;
}

/* Read a whole tensor, of any dtype, and add the number of its elements that are not finite to
 * *count. */
static fsdp_status scan(verifying *v, fsdp_source *source, const fsdp_source_item *item,
                        int64_t *count)
{
    const fsdp_safetensors_dtype *dtype = fsdp_safetensors_dtype_by_name(item->dtype_name);
    const bool is_float =
        dtype->fsdp_dtype >= 0 && fsdp_dtype_is_floating((fsdp_dtype)dtype->fsdp_dtype);
    const not_finite *by_bits = not_finite_of(dtype);
    const int64_t width = dtype->bits < 8 ? 1 : dtype->bits / 8, units = item->bytes / width;
    for (int64_t i = 0, n; i < units; i += n) {
        n = units - i < PIECE_ELEMENTS ? units - i : PIECE_ELEMENTS;
        FSDP_TRY(
            fsdp_source_read(source, item, (uint64_t)(i * width), v->raw, (size_t)(n * width)));
        if (by_bits)
            *count += count_by_bits(by_bits, v->raw, n, width);
        if (!is_float)
            continue;
        v->device->kernels->cast(v->device->context, v->numbers, FSDP_DTYPE_F64, v->raw,
                                 (fsdp_dtype)dtype->fsdp_dtype, n);
        *count += count_not_finite(v->numbers, n);
    }
    return FSDP_OK;
}

static fsdp_status check_finite(verifying *v, fsdp_source *source, const fsdp_source_item *item)
{
    int64_t count = 0;
    FSDP_TRY(scan(v, source, item, &count));
    if (count == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NUMERIC, "%s: tensor '%s': %lld of %lld elements are not finite",
                      fsdp_source_path(source), item->fqn, (long long)count,
                      (long long)item->numel);
}

/* ---- items ----------------------------------------------------------------------------------- */

static fsdp_status check_item(verifying *v, fsdp_source *source, const fsdp_source_item *item)
{
    FSDP_TRY(fsdp_source_check(source, item));
    return item->dtype_name ? check_finite(v, source, item) : FSDP_OK;
}

static fsdp_status check_items(verifying *v, fsdp_source *source)
{
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        v->result->tensors += item->dtype_name != NULL;
        v->result->values += item->dtype_name == NULL;
        v->result->bytes += item->bytes;
        FSDP_TRY(take_failure_of_part(v, check_item(v, source, item)));
        v->done++;
        report_progress(v);
    }
    return FSDP_OK;
}

/* Verify the checksums of whole files. They also cover the bytes between items, which check_items()
 * does not read. Damage to these bytes matters, because readers refuse the whole file. Do nothing
 * if check_items() has found damage: the checksum of the file would be wrong for the same reason,
 * and the damage would be reported twice. */
static fsdp_status check_between(verifying *v, const fsdp_source *source)
{
    return v->result->damages ? FSDP_OK : take_failure(v, fsdp_source_check_files(source));
}

static bool is_listed_before(const fsdp_source *source, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(fsdp_source_at(source, k)->file, fsdp_source_at(source, i)->file) == 0)
            return true;
    return false;
}

/* ---- files ----------------------------------------------------------------------------------- */

static fsdp_status verify(verifying *v, const char *path);

/* Check each file of a Hugging Face folder as if it were a checkpoint of its own, because some
 * files of a folder may have checksums while others have none. */
static fsdp_status check_files(verifying *v, const fsdp_source *source)
{
    for (size_t i = 0; i < fsdp_source_count(source); i++)
        if (!is_listed_before(source, i))
            FSDP_TRY(take_failure_of_part(v, verify(v, fsdp_source_at(source, i)->file)));
    return FSDP_OK;
}

static fsdp_status check_source(verifying *v, fsdp_source *source)
{
    switch (fsdp_source_format_of(source)) {
    case FSDP_SOURCE_HF:
        return check_files(v, source);
    case FSDP_SOURCE_DCP:
        v->result->has_checksums = true;
        FSDP_TRY(check_items(v, source));
        FSDP_TRY(check_between(v, source));
        return take_failure(v, fsdp_source_check_companion(source));
    case FSDP_SOURCE_TORCH:
        v->result->has_checksums = true;
        FSDP_TRY(check_items(v, source));
        return take_failure(v, fsdp_source_check_files(source)); /* verifies the records that
                                                                    check_items() did not read */
    case FSDP_SOURCE_SAFETENSORS:
        break;
    }
    return check_items(v, source);
}

static fsdp_status verify(verifying *v, const char *path)
{
    fsdp_source *source;
    fsdp_status status = fsdp_source_open(path, &source);
    if (status != FSDP_OK)
        return take_failure(v, status);
    if (!v->total) {
        v->total = fsdp_source_count(source);
        report_progress(v);
    }
    status = check_source(v, source);
    fsdp_source_close(source);
    return status;
}

static fsdp_status begin_verify(verifying *v)
{
    v->raw = fsdp_calloc(PIECE_ELEMENTS, MAX_ELEMENT_BYTES);
    v->numbers = fsdp_calloc(PIECE_ELEMENTS, sizeof *v->numbers);
    return v->raw && v->numbers
               ? fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &v->device)
               : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_verify_checkpoint(const char *path, const fsdp_verify_options *options,
                                   fsdp_verify_result *result)
{
    verifying v = {.options = options, .result = result};
    *result = (fsdp_verify_result){0};
    FSDP_TRY(fsdp_path_check(path));
    if (!fsdp_path_exists(path))
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no such file or directory", path);
    fsdp_status status = begin_verify(&v);
    if (status == FSDP_OK)
        status = verify(&v, path);
    fsdp_device_destroy(v.device);
    fsdp_free(v.raw);
    fsdp_free(v.numbers);
    return status;
}
