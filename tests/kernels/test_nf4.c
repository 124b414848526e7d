/* NF4 against bitsandbytes: tests/fixtures/nf4/bitsandbytes.safetensors has what bitsandbytes
 * 0.50.2 makes of several tensors on a CPU (tools/check_nf4.py writes it). The cases have short
 * blocks, odd numbers of elements, zeros, elements between two levels and next to them, and a
 * second block of scales. Every byte must be equal. */
#include <fsdp/ckpt.h>

#include "tests/kernels/operands.h"

static const char PATH[] = "tests/fixtures/nf4/bitsandbytes.safetensors";
static const char *const cases[] = {"rows", "tail", "one", "zeros", "ties", "narrow"};

/* Sets *copied to a copy of the tensor `name`.`part`. The caller frees it. */
static void take(fsdp_test *t, const fsdp_safetensors *file, const char *name, const char *part,
                 size_t *bytes, void **copied)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s%s", name, *name ? "." : "", part);
    const fsdp_checkpoint_entry *entry = fsdp_safetensors_find(file, key);
    if (!entry)
        FAIL("%s: no tensor '%s'", PATH, key);
    *copied = malloc(entry->bytes + 1);
    ASSERT(*copied);
    memcpy(*copied, entry->data, entry->bytes);
    *bytes = entry->bytes;
}

static void check_equal(fsdp_test *t, const char *name, const char *part, const void *got,
                        const void *want, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const uint8_t *)got)[i] != ((const uint8_t *)want)[i])
            FAIL("%s.%s: byte %zu is %d, not %d", name, part, i, ((const uint8_t *)got)[i],
                 ((const uint8_t *)want)[i]);
}

typedef struct nf4_arrays {
    int64_t n, blocks, nested_blocks;
    float *x, *absmax, *offset, *map, *nested;
    uint8_t *packed, *codes;
} nf4_arrays;

static void open_case(fsdp_test *t, const fsdp_safetensors *file, const char *name, nf4_arrays *a)
{
    size_t bytes;
    take(t, file, name, "x", &bytes, (void **)&a->x);
    a->n = (int64_t)(bytes / sizeof(float));
    take(t, file, name, "absmax", &bytes, (void **)&a->absmax);
    a->blocks = (int64_t)(bytes / sizeof(float));
    ASSERT_INT(a->blocks, (a->n + FSDP_NF4_BLOCK - 1) / FSDP_NF4_BLOCK);
    take(t, file, name, "nested", &bytes, (void **)&a->nested);
    a->nested_blocks = (int64_t)(bytes / sizeof(float));
    take(t, file, name, "offset", &bytes, (void **)&a->offset);
    take(t, file, "", "map", &bytes, (void **)&a->map);
    ASSERT_INT(bytes, FSDP_NF4_MAP * sizeof(float));
    take(t, file, name, "packed", &bytes, (void **)&a->packed);
    ASSERT_INT(bytes, (a->n + 1) / 2);
    take(t, file, name, "codes", &bytes, (void **)&a->codes);
    ASSERT_INT(bytes, a->blocks);
}

static void close_case(nf4_arrays *a)
{
    free(a->x);
    free(a->absmax);
    free(a->nested);
    free(a->offset);
    free(a->map);
    free(a->packed);
    free(a->codes);
}

static void quantize_case(fsdp_test *t, const char *name, const nf4_arrays *a)
{
    operands o = {.n = 0};
    uint8_t *packed = operand_bytes(&o, (size_t)(a->n + 1) / 2);
    uint8_t *codes = operand_bytes(&o, (size_t)a->blocks);
    float *absmax = operand(&o, FSDP_DTYPE_F32, a->blocks);
    float *nested = operand(&o, FSDP_DTYPE_F32, a->nested_blocks);
    ASSERT_INT(fsdp_nf4_quantize(a->x, a->n, FSDP_NF4_BLOCK, packed, absmax), a->n);
    check_equal(t, name, "packed", packed, a->packed, (size_t)(a->n + 1) / 2);
    check_equal(t, name, "absmax", absmax, a->absmax, (size_t)a->blocks * sizeof *absmax);
    fsdp_nf4_quantize_scales(absmax, a->blocks, FSDP_NF4_NESTED_BLOCK, *a->offset, a->map, codes,
                             nested);
    check_equal(t, name, "codes", codes, a->codes, (size_t)a->blocks);
    check_equal(t, name, "nested", nested, a->nested, (size_t)a->nested_blocks * sizeof *nested);
    ASSERT(operands_close(&o));
}

TEST(quantizes_as_bitsandbytes)
{
    fsdp_safetensors *file;
    ASSERT_OK(fsdp_safetensors_open(PATH, &file));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nf4_arrays a;
        open_case(t, file, cases[i], &a);
        CHECK_HERE();
        quantize_case(t, cases[i], &a);
        close_case(&a);
    }
    fsdp_safetensors_close(file);
}

TEST(the_map_is_that_of_bitsandbytes)
{
    fsdp_safetensors *file;
    size_t bytes;
    float map[FSDP_NF4_MAP];
    ASSERT_OK(fsdp_safetensors_open(PATH, &file));
    void *want;
    take(t, file, "", "map", &bytes, &want);
    fsdp_nf4_fill_map(map);
    check_equal(t, "bitsandbytes", "map", map, want, sizeof map);
    free(want);
    fsdp_safetensors_close(file);
}

/* With a scale for each block, the values are levels times the scale. */
static void dequantize_plain(fsdp_test *t, const variant *at, const char *name, const nf4_arrays *a)
{
    operands o = {.n = 0};
    float *out = operand(&o, FSDP_DTYPE_F32, a->n);
    const fsdp_nf4_args args = {.out = out,
                                .dtype = FSDP_DTYPE_F32,
                                .n = a->n,
                                .packed = a->packed,
                                .block = FSDP_NF4_BLOCK,
                                .absmax = a->absmax};
    at->k->nf4_dequantize(at->c, &args);
    for (int64_t i = 0; i < a->n; i++) {
        const unsigned index = i % 2 ? a->packed[i / 2] & 0xf : a->packed[i / 2] >> 4;
        const float want = fsdp_nf4_levels[index] * a->absmax[i / FSDP_NF4_BLOCK];
        if (memcmp(&out[i], &want, sizeof want) != 0)
            FAIL("%s: element %lld", name, (long long)i);
    }
    ASSERT(operands_close(&o));
}

static void dequantize_double(fsdp_test *t, const variant *at, const fsdp_safetensors *file,
                              const char *name, const nf4_arrays *a, fsdp_dtype dtype)
{
    operands o = {.n = 0};
    size_t bytes;
    char part[64];
    snprintf(part, sizeof part, "%s.values.%s", name, fsdp_dtype_name(dtype));
    if (!fsdp_safetensors_find(file, part))
        return;
    void *want;
    take(t, file, "", part, &bytes, &want);
    void *out = operand(&o, dtype, a->n);
    const fsdp_nf4_args args = {.out = out,
                                .dtype = dtype,
                                .n = a->n,
                                .packed = a->packed,
                                .block = FSDP_NF4_BLOCK,
                                .codes = a->codes,
                                .nested = a->nested,
                                .nested_block = FSDP_NF4_NESTED_BLOCK,
                                .offset = *a->offset,
                                .map = a->map};
    ASSERT_INT(bytes, (size_t)a->n * fsdp_dtype_size(dtype));
    at->k->nf4_dequantize(at->c, &args);
    check_equal(t, name, part, out, want, bytes);
    free(want);
    ASSERT(operands_close(&o));
}

static void dequantize_all(fsdp_test *t, const variant *at)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    fsdp_safetensors *file;
    ASSERT_OK(fsdp_safetensors_open(PATH, &file));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nf4_arrays a;
        open_case(t, file, cases[i], &a);
        CHECK_HERE();
        dequantize_plain(t, at, cases[i], &a);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            dequantize_double(t, at, file, cases[i], &a, dtypes[d]);
        close_case(&a);
    }
    fsdp_safetensors_close(file);
}

TEST(dequantizes_as_bitsandbytes)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        dequantize_all(t, &v.at[j]);
    variants_close(&v);
}

/* A number that is no value of a float cannot be quantized, and the result says where it is. */
TEST(finds_the_first_element_that_is_not_finite)
{
    float x[200], absmax[4];
    uint8_t packed[100];
    for (int64_t at = 0; at < 200; at += 61) {
        for (int i = 0; i < 200; i++)
            x[i] = (float)i;
        x[at] = at % 2 ? NAN : -INFINITY;
        x[199] = NAN;
        ASSERT_INT(fsdp_nf4_quantize(x, 200, FSDP_NF4_BLOCK, packed, absmax), at);
    }
}

/* Any tensor may be cut where a block of scales begins: each part gives the bytes of the whole. */
TEST(parts_have_the_bytes_of_the_whole)
{
    enum {
        N = 5 * 64 * 2 + 7,
        BLOCK = 64,
        NESTED = 2
    };
    float x[N], map[FSDP_NF4_MAP], absmax[2][11], nested[2][6];
    uint8_t packed[2][(N + 1) / 2], codes[2][11];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i * 37 % 1009 - 500) / 499.0f;
    fsdp_nf4_fill_map(map);
    ASSERT_INT(fsdp_nf4_quantize(x, N, BLOCK, packed[0], absmax[0]), N);
    fsdp_nf4_quantize_scales(absmax[0], 11, NESTED, 0.5f, map, codes[0], nested[0]);
    for (int64_t at = 0; at < N; at += (int64_t)NESTED * BLOCK) {
        const int64_t n = N - at < (int64_t)NESTED * BLOCK ? N - at : (int64_t)NESTED * BLOCK;
        const int64_t block = at / BLOCK;
        ASSERT_INT(fsdp_nf4_quantize(x + at, n, BLOCK, packed[1] + at / 2, absmax[1] + block), n);
        fsdp_nf4_quantize_scales(absmax[1] + block, (n + BLOCK - 1) / BLOCK, NESTED, 0.5f, map,
                                 codes[1] + block, nested[1] + block / NESTED);
    }
    check_equal(t, "part", "packed", packed[1], packed[0], sizeof packed[0]);
    check_equal(t, "part", "absmax", absmax[1], absmax[0], sizeof absmax[0]);
    check_equal(t, "part", "codes", codes[1], codes[0], sizeof codes[0]);
    check_equal(t, "part", "nested", nested[1], nested[0], sizeof nested[0]);
}
