/* Implements gather, gather_for_metrics, reduce and pad_across_processes. The tensors are copied to
 * host memory, because the collectives of <fsdp/comm.h> need their data there. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/comm/agree.h"

/* ---- shapes ---- */

/* The dtype and shape of a rank's tensor, which the rank sends to all ranks. */
typedef struct form {
    int32_t dtype, ndim;
    int64_t shape[FSDP_MAX_DIMS];
} form;

static form form_of(const fsdp_tensor *tensor)
{
    form f = {.dtype = (int32_t)fsdp_tensor_dtype(tensor), .ndim = fsdp_tensor_ndim(tensor)};
    for (int i = 0; i < f.ndim; i++)
        f.shape[i] = fsdp_tensor_size(tensor, i);
    return f;
}

static size_t print_form(char *text, size_t bytes, const form *f)
{
    size_t n = (size_t)snprintf(text, bytes, "%s [", fsdp_dtype_name((fsdp_dtype)f->dtype));
    for (int i = 0; i < f->ndim && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%s%" PRId64, i ? ", " : "", f->shape[i]);
    if (n < bytes)
        n += (size_t)snprintf(text + n, bytes - n, "]");
    return n;
}

/* Exchange the forms (dtype and shape) of the ranks' tensors. Set *forms to an array [world_size]
 * with the form of each rank; the caller owns the array. Return an error on all ranks if the forms
 * differ in anything but the size of dimension `free_dim`; -1: all sizes must be equal.
 * Collective. */
static fsdp_status exchange(fsdp_accelerator *a, const char *call, const fsdp_tensor *tensor,
                            int free_dim, form **forms)
{
    enum {
        TEXT = 160
    };
    const int world_size = fsdp_group_world_size(a->group);
    const form mine = form_of(tensor);
    form *all = fsdp_calloc((size_t)world_size, sizeof *all);
    fsdp_status status =
        fsdp_agree_gather(a->group, all ? FSDP_OK : FSDP_ERR_NOMEM, &mine, sizeof mine, all);
    for (int r = 1; status == FSDP_OK && r < world_size; r++) {
        bool same = all[r].dtype == all[0].dtype && all[r].ndim == all[0].ndim;
        for (int i = 0; same && i < all[0].ndim; i++)
            same = i == free_dim || all[r].shape[i] == all[0].shape[i];
        if (same)
            continue;
        char first[TEXT], other[TEXT];
        print_form(first, sizeof first, &all[0]);
        print_form(other, sizeof other, &all[r]);
        status =
            fsdp_error(FSDP_ERR_INVALID, "accelerator: %s: rank 0 has %s, but rank %d has %s%s",
                       call, first, r, other,
                       free_dim < 0 ? "; fsdp_accelerator_pad_across_processes() makes shapes "
                                      "equal"
                                    : "");
    }
    if (status == FSDP_OK)
        *forms = all;
    else
        fsdp_free(all);
    return status;
}

/* ---- elements ---- */

static size_t bytes_of(const fsdp_tensor *tensor)
{
    return (size_t)fsdp_tensor_numel(tensor) * fsdp_dtype_size(fsdp_tensor_dtype(tensor));
}

/* Copy the elements of a tensor to host memory, row-major. The tensor may be strided. */
static fsdp_status copy_out(fsdp_tensor *tensor, void *to)
{
    fsdp_tensor *packed = NULL;
    if (fsdp_tensor_is_contiguous(tensor))
        return fsdp_tensor_copy_to_host(tensor, to, bytes_of(tensor));
    FSDP_TRY(fsdp_tensor_to(tensor, fsdp_tensor_dtype(tensor), FSDP_TAG_DATA, &packed));
    const fsdp_status status = fsdp_tensor_copy_to_host(packed, to, bytes_of(packed));
    fsdp_tensor_release(packed);
    return status;
}

/* ---- gather ---- */

/* Gather the tensors of all ranks. The tensor of rank r has rows[r] rows. Write the first `keep` of
 * all gathered rows to `out` [keep * row_bytes]. Collective. */
static fsdp_status gather_rows(fsdp_accelerator *a, fsdp_tensor *tensor, const int64_t *rows,
                               size_t row_bytes, int64_t keep, unsigned char *out)
{
    const int world_size = fsdp_group_world_size(a->group);
    int64_t most = 0;
    for (int r = 0; r < world_size; r++)
        most = rows[r] > most ? rows[r] : most;
    const size_t bytes = (size_t)most * row_bytes;
    unsigned char *mine = fsdp_calloc(bytes + 1, 1);
    unsigned char *all = fsdp_calloc(bytes * (size_t)world_size + 1, 1);
    fsdp_status status = mine && all ? copy_out(tensor, mine) : FSDP_ERR_NOMEM;
    status = fsdp_agree(a->group, status);
    if (status == FSDP_OK)
        status = fsdp_all_gather(a->group, mine, bytes, all);
    for (int r = 0; status == FSDP_OK && r < world_size && keep > 0; r++) {
        const int64_t n = rows[r] < keep ? rows[r] : keep;
        memcpy(out, all + (size_t)r * bytes, (size_t)n * row_bytes);
        out += (size_t)n * row_bytes;
        keep -= n;
    }
    fsdp_free(all);
    fsdp_free(mine);
    return status;
}

/* Gather the tensors of all ranks, which have the given forms [world_size], into a new tensor. The
 * new tensor gets the first `most` rows, or all rows if `most` is -1 or if there are fewer than
 * `most` rows. Collective. */
static fsdp_status gather_forms(fsdp_accelerator *a, fsdp_tensor *tensor, const form *forms,
                                int64_t most, fsdp_tensor **gathered)
{
    const int world_size = fsdp_group_world_size(a->group);
    const fsdp_dtype dtype = fsdp_tensor_dtype(tensor);
    form f = forms[0];
    size_t row_bytes = fsdp_dtype_size(dtype);
    int64_t total = 0;
    int64_t *rows = fsdp_calloc((size_t)world_size, sizeof *rows);
    for (int r = 0; rows && r < world_size; r++)
        total += rows[r] = f.ndim ? forms[r].shape[0] : 1;
    for (int i = 1; i < f.ndim; i++)
        row_bytes *= (size_t)f.shape[i];
    const int64_t keep = most >= 0 && most < total ? most : total;
    unsigned char *out = rows ? fsdp_calloc((size_t)keep * row_bytes + 1, 1) : NULL;
    fsdp_status status = fsdp_agree(a->group, out ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = gather_rows(a, tensor, rows, row_bytes, keep, out);
    f.ndim = f.ndim ? f.ndim : 1;
    f.shape[0] = keep;
    if (status == FSDP_OK)
        status = fsdp_agree(a->group, fsdp_tensor_from_data(a->device, dtype, f.ndim, f.shape, out,
                                                            FSDP_TAG_DATA, gathered));
    fsdp_free(out);
    fsdp_free(rows);
    return status;
}

fsdp_status fsdp_accelerator_gather(fsdp_accelerator *a, fsdp_tensor *tensor,
                                    fsdp_tensor **gathered)
{
    form *forms;
    FSDP_TRY(exchange(a, "gather", tensor, -1, &forms));
    const fsdp_status status = gather_forms(a, tensor, forms, -1, gathered);
    fsdp_free(forms);
    return status;
}

fsdp_status fsdp_accelerator_gather_for_metrics(fsdp_accelerator *a, fsdp_tensor *tensor,
                                                fsdp_tensor **gathered)
{
    form *forms;
    const int64_t rows = fsdp_accelerator_rows_of_round(a);
    FSDP_TRY(exchange(a, "gather_for_metrics", tensor, 0, &forms));
    const fsdp_status status = gather_forms(a, tensor, forms, rows, gathered);
    fsdp_free(forms);
    return status;
}

/* ---- reduce ---- */

static fsdp_status read_reduction(const char *word, fsdp_dtype dtype, fsdp_reduce_op *op)
{
    static const char *const words[] = {"sum", "mean", "max"};
    static const fsdp_reduce_op ops[] = {FSDP_REDUCE_SUM, FSDP_REDUCE_AVG, FSDP_REDUCE_MAX};
    size_t i = 0;
    while (i < 3 && strcmp(words[i], word) != 0)
        i++;
    if (i == 3)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: reduce: \"%s\": expected sum, mean, max or none", word);
    if (dtype == FSDP_DTYPE_U8)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "accelerator: reduce: uint8 would overflow; convert it to int32");
    if (i == 1 && !fsdp_dtype_is_floating(dtype))
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: reduce: the mean of %s is not an integer; use sum",
                          fsdp_dtype_name(dtype));
    *op = ops[i];
    return FSDP_OK;
}

/* Reduce a contiguous tensor of a dtype that fsdp_all_reduce() supports. */
static fsdp_status reduce_plain(fsdp_accelerator *a, const fsdp_tensor *tensor, fsdp_reduce_op op,
                                fsdp_tensor **reduced)
{
    const size_t bytes = bytes_of(tensor);
    const fsdp_dtype dtype = fsdp_tensor_dtype(tensor);
    void *values = fsdp_calloc(bytes + 1, 1);
    fsdp_status status = values ? fsdp_tensor_copy_to_host(tensor, values, bytes) : FSDP_ERR_NOMEM;
    status = fsdp_agree(a->group, status);
    if (status == FSDP_OK)
        status = fsdp_all_reduce(a->group, values, (size_t)fsdp_tensor_numel(tensor), dtype, op);
    if (status == FSDP_OK)
        status =
            fsdp_agree(a->group, fsdp_tensor_from_data(a->device, dtype, fsdp_tensor_ndim(tensor),
                                                       fsdp_tensor_shape(tensor), values,
                                                       FSDP_TAG_DATA, reduced));
    fsdp_free(values);
    return status;
}

/* Reduce a tensor. Reduce bfloat16 and float16 in float32, and round the result once. */
static fsdp_status reduce_as(fsdp_accelerator *a, fsdp_tensor *tensor, fsdp_reduce_op op,
                             fsdp_tensor **reduced)
{
    const fsdp_dtype dtype = fsdp_tensor_dtype(tensor);
    const bool is_half = dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16;
    fsdp_tensor *wide = NULL, *sum = NULL;
    FSDP_TRY(fsdp_agree(
        a->group, fsdp_tensor_to(tensor, is_half ? FSDP_DTYPE_F32 : dtype, FSDP_TAG_DATA, &wide)));
    fsdp_status status = reduce_plain(a, wide, op, &sum);
    if (status == FSDP_OK)
        status = fsdp_agree(a->group, fsdp_tensor_to(sum, dtype, FSDP_TAG_DATA, reduced));
    fsdp_tensor_release(sum);
    fsdp_tensor_release(wide);
    return status;
}

fsdp_status fsdp_accelerator_reduce(fsdp_accelerator *a, fsdp_tensor *tensor, const char *reduction,
                                    fsdp_tensor **reduced)
{
    const fsdp_dtype dtype = fsdp_tensor_dtype(tensor);
    fsdp_reduce_op op = FSDP_REDUCE_SUM;
    form *forms;
    if (strcmp(reduction, "none") == 0)
        return fsdp_tensor_to(tensor, dtype, FSDP_TAG_DATA, reduced);
    FSDP_TRY(fsdp_agree(a->group, read_reduction(reduction, dtype, &op)));
    FSDP_TRY(exchange(a, "reduce", tensor, -1, &forms));
    fsdp_free(forms);
    return reduce_as(a, tensor, op, reduced);
}

/* ---- pad_across_processes ---- */

/* Return an error if a tensor of an integer dtype cannot hold pad_index. */
static fsdp_status check_pad_index(double value, fsdp_dtype dtype)
{
    double least, end; /* the values are least <= value < end */
    switch (dtype) {
    case FSDP_DTYPE_I64:
        least = -0x1p63, end = 0x1p63;
        break;
    case FSDP_DTYPE_I32:
        least = -0x1p31, end = 0x1p31;
        break;
    case FSDP_DTYPE_U8:
        least = 0, end = 256;
        break;
    default:
        return FSDP_OK;
    }
    if (value >= least && value < end && (double)(int64_t)value == value)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "accelerator: pad_across_processes: pad_index %g is not a value of %s, the "
                      "dtype of the tensor",
                      value, fsdp_dtype_name(dtype));
}

/* Write `value` to `to` as one element of the dtype `dtype`. */
static fsdp_status element_of(fsdp_accelerator *a, double value, fsdp_dtype dtype, void *to)
{
    const float single = (float)value;
    fsdp_tensor *wide = NULL, *narrow = NULL;
    switch (dtype) {
    case FSDP_DTYPE_F64:
        memcpy(to, &value, sizeof value);
        return FSDP_OK;
    case FSDP_DTYPE_I64:
        memcpy(to, &(int64_t){(int64_t)value}, sizeof(int64_t));
        return FSDP_OK;
    case FSDP_DTYPE_I32:
        memcpy(to, &(int32_t){(int32_t)value}, sizeof(int32_t));
        return FSDP_OK;
    case FSDP_DTYPE_U8:
        memcpy(to, &(uint8_t){(uint8_t)value}, 1);
        return FSDP_OK;
    default:
        break;
    }
    FSDP_TRY(
        fsdp_tensor_from_data(a->device, FSDP_DTYPE_F32, 0, NULL, &single, FSDP_TAG_DATA, &wide));
    fsdp_status status = fsdp_tensor_to(wide, dtype, FSDP_TAG_DATA, &narrow);
    if (status == FSDP_OK)
        status = fsdp_tensor_copy_to_host(narrow, to, fsdp_dtype_size(dtype));
    fsdp_tensor_release(narrow);
    fsdp_tensor_release(wide);
    return status;
}

/* How to pad a tensor. The tensor consists of `outer` blocks. A block has `old` entries of
 * `entry_bytes` bytes before it is padded, and `wide` entries afterwards. */
typedef struct padding {
    size_t outer, old, wide, entry_bytes;
    bool pad_first;
} padding;

static void place(const padding *p, const unsigned char *from, const unsigned char *element,
                  size_t element_bytes, unsigned char *to)
{
    const size_t block = p->wide * p->entry_bytes, kept = p->old * p->entry_bytes;
    for (size_t at = 0; at < p->outer * block; at += element_bytes)
        memcpy(to + at, element, element_bytes);
    for (size_t i = 0; i < p->outer; i++)
        memcpy(to + i * block + (p->pad_first ? block - kept : 0), from + i * kept, kept);
}

static fsdp_status pad(fsdp_accelerator *a, fsdp_tensor *tensor, int dim, int64_t most,
                       double value, bool pad_first, fsdp_tensor **padded)
{
    form f = form_of(tensor);
    const fsdp_dtype dtype = fsdp_tensor_dtype(tensor);
    unsigned char element[sizeof(double)] = {0};
    padding p = {.outer = 1,
                 .old = (size_t)f.shape[dim],
                 .wide = (size_t)most,
                 .entry_bytes = fsdp_dtype_size(dtype),
                 .pad_first = pad_first};
    for (int i = 0; i < f.ndim; i++) {
        p.outer *= i < dim ? (size_t)f.shape[i] : 1;
        p.entry_bytes *= i > dim ? (size_t)f.shape[i] : 1;
    }
    f.shape[dim] = most;
    FSDP_TRY(element_of(a, value, dtype, element));
    unsigned char *from = fsdp_calloc(bytes_of(tensor) + 1, 1);
    unsigned char *to = fsdp_calloc(p.outer * p.wide * p.entry_bytes + 1, 1);
    fsdp_status status = from && to ? copy_out(tensor, from) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        place(&p, from, element, fsdp_dtype_size(dtype), to);
        status =
            fsdp_tensor_from_data(a->device, dtype, f.ndim, f.shape, to, FSDP_TAG_DATA, padded);
    }
    fsdp_free(to);
    fsdp_free(from);
    return status;
}

fsdp_status fsdp_accelerator_pad_across_processes(fsdp_accelerator *a, fsdp_tensor *tensor, int dim,
                                                  double pad_index, bool pad_first,
                                                  fsdp_tensor **padded)
{
    const int ndim = fsdp_tensor_ndim(tensor), at = dim < 0 ? dim + ndim : dim;
    form *forms;
    int64_t most = 0;
    fsdp_status status = FSDP_OK;
    if (at < 0 || at >= ndim)
        status = fsdp_error(FSDP_ERR_INVALID,
                            "accelerator: pad_across_processes: dim %d of a tensor with %d "
                            "dimensions",
                            dim, ndim);
    if (status == FSDP_OK)
        status = check_pad_index(pad_index, fsdp_tensor_dtype(tensor));
    FSDP_TRY(fsdp_agree(a->group, status));
    FSDP_TRY(exchange(a, "pad_across_processes", tensor, at, &forms));
    for (int r = 0; r < fsdp_group_world_size(a->group); r++)
        most = forms[r].shape[at] > most ? forms[r].shape[at] : most;
    fsdp_free(forms);
    return fsdp_agree(a->group, pad(a, tensor, at, most, pad_index, pad_first, padded));
}
