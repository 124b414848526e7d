/* Tensors: geometry, views, ownership, reading elements, write guards, failing allocations. */
#include "src/base/alloc_testing.h"
#include "src/tensor/tensor.h"
#include "tests/test.h"

static int64_t allocated(const fsdp_device *device)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(device, &stats);
    return stats.allocated;
}

/* [2, 3, 4]; the value of element i is i. */
static fsdp_tensor *counting(fsdp_test *t, fsdp_device *device, fsdp_dtype dtype)
{
    static const int64_t shape[] = {2, 3, 4};
    float values[24];
    for (int i = 0; i < 24; i++)
        values[i] = (float)i;
    fsdp_tensor *f32 = NULL, *out = NULL;
    fsdp_status status =
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 3, shape, values, FSDP_TAG_DATA, &f32);
    if (status == FSDP_OK)
        status = fsdp_tensor_to(f32, dtype, FSDP_TAG_DATA, &out);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    fsdp_tensor_release(f32);
    return out;
}

TEST(a_tensor_knows_its_geometry)
{
    static const int64_t shape[] = {2, 0, 5};
    fsdp_device *device;
    fsdp_tensor *x, *scalar, *empty;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    x = counting(t, device, FSDP_DTYPE_BF16);
    ASSERT_INT(fsdp_tensor_ndim(x), 3);
    ASSERT_INT(fsdp_tensor_numel(x), 24);
    ASSERT_INT(fsdp_tensor_row_numel(x), 12);
    ASSERT_INT(fsdp_tensor_size(x, 2), 4);
    ASSERT_INT(fsdp_tensor_dtype(x), FSDP_DTYPE_BF16);
    ASSERT(fsdp_tensor_device(x) == device);
    ASSERT(fsdp_tensor_has_data(x));
    ASSERT_INT((uintptr_t)fsdp_tensor_data(x) % 64, 0);
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 0, NULL, FSDP_TAG_DATA, &scalar));
    ASSERT_INT(fsdp_tensor_numel(scalar), 1);
    ASSERT_INT(fsdp_tensor_row_numel(scalar), 1);
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 3, shape, FSDP_TAG_DATA, &empty));
    ASSERT_INT(fsdp_tensor_numel(empty), 0);
    ASSERT(fsdp_tensor_is_contiguous(empty));
    ASSERT_OK(fsdp_tensor_to_floats(empty, NULL));
    ASSERT_INT(allocated(device), 24 * 2 + 4);
    fsdp_tensor_release(x);
    fsdp_tensor_release(scalar);
    fsdp_tensor_release(empty);
    fsdp_tensor_release(NULL);
    ASSERT_INT(allocated(device), 0);
    fsdp_device_destroy(device);
}

TEST(invalid_shapes_are_errors)
{
    static const struct {
        int ndim;
        int64_t shape[7];
        const char *message;
    } cases[] = {
        {2, {3, -1}, "shape [3, -1] is negative"},
        {2, {INT64_MAX, 2}, "too large"},
        {1, {INT64_MAX / 4}, "too large"},
        {3, {0, INT64_MAX, INT64_MAX}, "too large"},
        {7, {1, 1, 1, 1, 1, 1, 1}, "0 to 6 dimensions, not 7"},
        {-1, {0}, "0 to 6 dimensions, not -1"},
    };
    fsdp_device *device;
    fsdp_tensor *x;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_ERROR(fsdp_tensor_create(device, FSDP_DTYPE_F32, cases[i].ndim, cases[i].shape,
                                        FSDP_TAG_DATA, &x),
                     FSDP_ERR_INVALID, cases[i].message);
    fsdp_device_destroy(device);
}

/* --- views --- */

TEST(narrow_views_rows_of_the_same_memory)
{
    fsdp_device *device;
    fsdp_tensor *rows, *first;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = counting(t, device, FSDP_DTYPE_F32);
    ASSERT_OK(fsdp_tensor_view(x, 2, (const int64_t[]){6, -1}, &rows));
    ASSERT_INT(fsdp_tensor_size(rows, 1), 4);
    ASSERT_OK(fsdp_tensor_narrow(rows, 2, 5, &first));
    ASSERT_INT(fsdp_tensor_size(first, 0), 3);
    float values[12];
    ASSERT_OK(fsdp_tensor_to_floats(first, values));
    for (int i = 0; i < 12; i++)
        ASSERT_F32(values[i], (float)(8 + i));
    ((float *)fsdp_tensor_data(first))[0] = -1.0f;
    ASSERT_F32(((float *)fsdp_tensor_data(x))[8], -1.0f);
    /* Views keep the memory alive after the tensor they came from is released. */
    fsdp_tensor_release(x);
    fsdp_tensor_release(rows);
    ASSERT_INT(allocated(device), 96);
    ASSERT_F32(((float *)fsdp_tensor_data(first))[11], 19.0f);
    fsdp_tensor_release(first);
    ASSERT_INT(allocated(device), 0);
    fsdp_device_destroy(device);
}

TEST(views_of_nothing_are_allowed)
{
    static const int64_t shape[] = {0, 4};
    fsdp_device *device;
    fsdp_tensor *x, *none, *turned, *flat, *end;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, shape, FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_tensor_narrow(x, 0, 0, &none));
    ASSERT_OK(fsdp_tensor_transpose(x, 0, 1, &turned));
    ASSERT_OK(fsdp_tensor_view(x, 1, (const int64_t[]){-1}, &flat));
    ASSERT_INT(fsdp_tensor_numel(flat), 0);
    ASSERT_INT(fsdp_tensor_size(turned, 0), 4);
    ASSERT(fsdp_tensor_is_contiguous(turned)); /* as in PyTorch */
    fsdp_tensor_release(x);
    fsdp_tensor_release(none);
    fsdp_tensor_release(turned);
    fsdp_tensor_release(flat);
    /* An empty view at the end of a tensor with elements is valid too. */
    x = counting(t, device, FSDP_DTYPE_F32);
    ASSERT_OK(fsdp_tensor_narrow(x, 2, 2, &end));
    ASSERT_INT(fsdp_tensor_numel(end), 0);
    fsdp_tensor_release(end);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

TEST(transpose_swaps_strides_and_copies_become_contiguous)
{
    fsdp_device *device;
    fsdp_tensor *turned, *copy, *back, *view;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = counting(t, device, FSDP_DTYPE_F32);
    ASSERT_OK(fsdp_tensor_transpose(x, 0, 2, &turned)); /* [4, 3, 2] */
    ASSERT(!fsdp_tensor_is_contiguous(turned));
    ASSERT_OK(fsdp_tensor_to(turned, FSDP_DTYPE_BF16, FSDP_TAG_DATA, &copy));
    ASSERT(fsdp_tensor_is_contiguous(copy));
    float direct[24], copied[24];
    ASSERT_OK(fsdp_tensor_to_floats(turned, direct));
    ASSERT_OK(fsdp_tensor_to_floats(copy, copied));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++) {
                ASSERT_F32(direct[(i * 3 + j) * 2 + k], (float)((k * 3 + j) * 4 + i));
                ASSERT_F32(copied[(i * 3 + j) * 2 + k], (float)((k * 3 + j) * 4 + i));
            }
    ASSERT_OK(fsdp_tensor_transpose(turned, 2, 0, &back));
    ASSERT(fsdp_tensor_is_contiguous(back));
    ASSERT_ERROR(fsdp_tensor_view(turned, 1, (const int64_t[]){24}, &view), FSDP_ERR_INVALID,
                 "not contiguous");
    fsdp_tensor_release(x);
    fsdp_tensor_release(turned);
    fsdp_tensor_release(copy);
    fsdp_tensor_release(back);
    fsdp_device_destroy(device);
}

TEST(views_that_do_not_fit_are_errors)
{
    fsdp_device *device;
    fsdp_tensor *view;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = counting(t, device, FSDP_DTYPE_F32);
    ASSERT_ERROR(fsdp_tensor_narrow(x, 1, 3, &view), FSDP_ERR_INVALID,
                 "rows [1, 3) of a tensor with 2");
    ASSERT_ERROR(fsdp_tensor_narrow(x, 1, 0, &view), FSDP_ERR_INVALID, "rows [1, 0)");
    ASSERT_ERROR(fsdp_tensor_view(x, 2, (const int64_t[]){5, -1}, &view), FSDP_ERR_INVALID,
                 "view of shape [2, 3, 4] as [5, -1]");
    ASSERT_ERROR(fsdp_tensor_view(x, 2, (const int64_t[]){-1, -1}, &view), FSDP_ERR_INVALID,
                 "shape");
    ASSERT_ERROR(fsdp_tensor_view(x, 3, (const int64_t[]){INT64_MAX, INT64_MAX, -1}, &view),
                 FSDP_ERR_INVALID, "too large");
    ASSERT_ERROR(fsdp_tensor_transpose(x, 0, 3, &view), FSDP_ERR_INVALID,
                 "dimensions 0 and 3 of 3");
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

/* --- elements --- */

TEST(elements_are_read_in_every_dtype)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16,
                                        FSDP_DTYPE_F64, FSDP_DTYPE_I64,  FSDP_DTYPE_I32,
                                        FSDP_DTYPE_U8};
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        float values[24];
        double item;
        fsdp_tensor *x = counting(t, device, dtypes[i]), *flat, *one;
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_to_floats(x, values));
        for (int e = 0; e < 24; e++)
            ASSERT_F32(values[e], (float)e);
        ASSERT_ERROR(fsdp_tensor_item(x, &item), FSDP_ERR_INVALID, "24 elements");
        ASSERT_OK(fsdp_tensor_view(x, 1, (const int64_t[]){24}, &flat));
        ASSERT_OK(fsdp_tensor_narrow(flat, 17, 18, &one));
        ASSERT_OK(fsdp_tensor_item(one, &item));
        ASSERT_F32(item, 17.0);
        fsdp_tensor_release(x);
        fsdp_tensor_release(flat);
        fsdp_tensor_release(one);
    }
    fsdp_device_destroy(device);
}

/* As with a resharded parameter: a view refers to the storage, not to its data pointer. */
TEST(a_storage_is_emptied_and_refilled_under_its_views)
{
    static const int64_t shape[] = {2, 2};
    float first[] = {1, 2, 3, 4}, second[] = {5, 6, 7, 8}, values[4];
    double item;
    fsdp_device *device;
    fsdp_storage *storage;
    fsdp_tensor *x, *row, *copy;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_storage_from_memory(device, first, sizeof first, &storage));
    ASSERT_OK(fsdp_tensor_over(storage, FSDP_DTYPE_F32, 2, shape, 0, &x));
    ASSERT_OK(fsdp_tensor_narrow(x, 1, 2, &row));
    ASSERT_OK(fsdp_tensor_to_floats(row, values));
    ASSERT_F32(values[0], 3.0f);
    fsdp_storage_set_data(storage, NULL);
    ASSERT(!fsdp_tensor_has_data(row));
    ASSERT(!fsdp_tensor_data(row));
    ASSERT(strstr(fsdp_last_error(), "resharded"));
    ASSERT_ERROR(fsdp_tensor_to_floats(row, values), FSDP_ERR_STATE, "resharded");
    ASSERT_ERROR(fsdp_tensor_item(row, &item), FSDP_ERR_INVALID, "2 elements");
    ASSERT_ERROR(fsdp_tensor_to(row, FSDP_DTYPE_BF16, FSDP_TAG_DATA, &copy), FSDP_ERR_STATE,
                 "resharded");
    fsdp_storage_set_data(storage, second);
    ASSERT_OK(fsdp_tensor_to_floats(row, values));
    ASSERT_F32(values[0], 7.0f);
    fsdp_tensor_release(x);
    fsdp_tensor_release(row);
    fsdp_storage_release(storage);
    ASSERT_INT(allocated(device), 0); /* foreign memory does not count */
    fsdp_device_destroy(device);
}

/* --- write guards --- */

typedef struct guard_log {
    fsdp_storage_guard guard;
    char name, *log;
    bool fail;
} guard_log;

static void append(char *log, char letter)
{
    size_t n = strlen(log);
    log[n] = letter;
    log[n + 1] = 0;
}

static fsdp_status guard_begin(void *self)
{
    guard_log *g = self;
    append(g->log, g->name);
    return g->fail ? fsdp_error(FSDP_ERR_COMM, "guard %c", g->name) : FSDP_OK;
}

static void guard_end(void *self)
{
    guard_log *g = self;
    append(g->log, (char)(g->name - 'a' + 'A'));
}

TEST(writes_are_bracketed_by_every_guard)
{
    char log[32] = "";
    guard_log guards[3];
    fsdp_device *device;
    fsdp_tensor *view;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = counting(t, device, FSDP_DTYPE_F32);
    ASSERT_OK(fsdp_tensor_narrow(x, 0, 1, &view));
    for (int i = 0; i < 3; i++)
        guards[i] = (guard_log){.guard = {.begin_write = guard_begin,
                                          .end_write = guard_end,
                                          .self = &guards[i],
                                          .next = i < 2 ? &guards[i + 1].guard : NULL},
                                .name = (char)('a' + i),
                                .log = log};
    x->storage->guards = &guards[0].guard;
    ASSERT_OK(fsdp_tensor_begin_write(view)); /* guards are per storage, so any view will do */
    fsdp_tensor_end_write(view);
    ASSERT_STR(log, "abcABC");
    /* If one fails, those before it are ended. */
    log[0] = 0;
    guards[2].fail = true;
    ASSERT_ERROR(fsdp_tensor_begin_write(x), FSDP_ERR_COMM, "guard c");
    ASSERT_STR(log, "abcAB");
    x->storage->guards = NULL;
    fsdp_tensor_release(x);
    fsdp_tensor_release(view);
    fsdp_device_destroy(device);
}

/* --- devices --- */

TEST(meta_has_shapes_and_counts_but_no_data)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &device));
    ASSERT(fsdp_device_is_meta(device));
    ASSERT_STR(fsdp_device_name(device), "meta");
    fsdp_tensor *x = counting(t, device, FSDP_DTYPE_BF16), *row;
    CHECK_HERE();
    ASSERT_INT(allocated(device), 48);
    ASSERT(!fsdp_tensor_has_data(x));
    ASSERT(!fsdp_tensor_data(x));
    ASSERT(strstr(fsdp_last_error(), "meta"));
    ASSERT_OK(fsdp_tensor_narrow(x, 1, 2, &row));
    ASSERT_INT(fsdp_tensor_numel(row), 12);
    float values[12];
    ASSERT_ERROR(fsdp_tensor_to_floats(row, values), FSDP_ERR_STATE, "meta");
    fsdp_tensor_release(x);
    fsdp_tensor_release(row);
    ASSERT_INT(allocated(device), 0);
    fsdp_device_destroy(device);
}

TEST(device_options_are_checked)
{
    fsdp_device *device;
    ASSERT_ERROR(fsdp_device_create(&(fsdp_device_options){.name = "gpu"}, &device),
                 FSDP_ERR_INVALID, "unknown device 'gpu' (known: cpu, meta");
    ASSERT_ERROR(fsdp_device_create(&(fsdp_device_options){.threads = -1}, &device),
                 FSDP_ERR_INVALID, "threads -1");
    ASSERT_ERROR(fsdp_device_create(&(fsdp_device_options){.isa = "x86-64-v9"}, &device),
                 FSDP_ERR_UNSUPPORTED, "x86-64-v9");
    fsdp_device_destroy(NULL);
}

/* CPUs with AVX512-BF16 have AVX-512, and those with AMX-BF16 have AVX512-BF16. */
TEST(bfloat16_is_not_supported_below_avx512)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.isa = "x86-64"}, &device));
    ASSERT(!fsdp_device_is_bf16_supported(device));
    fsdp_device_destroy(device);
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &device));
    ASSERT(!fsdp_device_is_bf16_supported(device));
    fsdp_device_destroy(device);
}

/* Create, view, transpose, copy and release, with the n-th host allocation failing. */
static fsdp_status make_and_release(fsdp_device *device)
{
    static const int64_t shape[] = {3, 5};
    fsdp_tensor *x = NULL, *row = NULL, *turned = NULL, *copy = NULL;
    fsdp_status status = fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, shape, FSDP_TAG_PARAM, &x);
    if (status == FSDP_OK) {
        memset(fsdp_tensor_data(x), 0, 60);
        status = fsdp_tensor_narrow(x, 1, 3, &row);
    }
    if (status == FSDP_OK)
        status = fsdp_tensor_transpose(row, 0, 1, &turned);
    if (status == FSDP_OK)
        status = fsdp_tensor_to(turned, FSDP_DTYPE_BF16, FSDP_TAG_GRAD, &copy);
    fsdp_tensor_release(x);
    fsdp_tensor_release(row);
    fsdp_tensor_release(turned);
    fsdp_tensor_release(copy);
    return status;
}

TEST(a_failing_allocation_leaks_nothing)
{
    int failures = 0;
    for (long n = 1, successes = 0; successes < 12; n++) {
        fsdp_device *device;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_device_create(NULL, &device);
        if (status == FSDP_OK) {
            status = make_and_release(device);
            fsdp_alloc_fail_at(0);
            ASSERT_INT(allocated(device), 0);
            fsdp_device_destroy(device);
        }
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        failures += status != FSDP_OK;
        successes = status == FSDP_OK ? successes + 1 : 0;
        ASSERT(n < 200);
    }
    ASSERT(failures > 8);
}
