/* Which rows the cache of keys and values holds. */
#include "src/models/kv_cache.h"

#include <limits.h>

#include "src/base/alloc.h"
#include "tests/test.h"

typedef struct bench {
    fsdp_device *device;
    fsdp_scope *s;
    fsdp_kv_cache *cache;
} bench;

static void bench_open(fsdp_test *t, const char *device, bench *b)
{
    *b = (bench){0};
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = device}, &b->device));
    ASSERT_OK(fsdp_scope_open(b->device, NULL, NULL, &b->s));
    ASSERT_OK(fsdp_kv_cache_create(2, &b->cache));
}

static void bench_close(bench *b)
{
    fsdp_kv_cache_destroy(b->cache);
    fsdp_scope_close(b->s);
    fsdp_device_destroy(b->device);
}

/* Rows [n, 2] of (value, -value). */
static fsdp_tensor *rows_of(bench *b, const float *values, int64_t n)
{
    fsdp_tensor *rows = fsdp_new(b->s, FSDP_DTYPE_F32, 2, (const int64_t[]){n, 2});
    float *data = rows && !fsdp_device_is_meta(b->device) ? fsdp_tensor_data(rows) : NULL;
    for (int64_t i = 0; data && i < n; i++) {
        data[2 * i] = values[i];
        data[2 * i + 1] = -values[i];
    }
    return rows;
}

/* Both layers get tokens of these values; layer 1's are 100 more, values half of keys. */
static void feed(fsdp_test *t, bench *b, const int32_t *offsets, int32_t n, const float *values)
{
    fsdp_kv_cache_extend(b->s, b->cache, offsets, n);
    for (int layer = 0; layer < 2; layer++) {
        float k[16], v[16];
        for (int i = 0; i < offsets[n]; i++) {
            k[i] = values[i] + 100.0f * (float)layer;
            v[i] = k[i] / 2.0f;
        }
        fsdp_kv kv = fsdp_kv_cache_append(b->s, b->cache, layer, rows_of(b, k, offsets[n]),
                                          rows_of(b, v, offsets[n]));
        ASSERT_OK(fsdp_scope_status(b->s));
        ASSERT(kv.k && kv.k == fsdp_kv_cache_get(b->cache, layer).k);
    }
}

static void expect(fsdp_test *t, bench *b, const int32_t *offsets, int32_t n, const float *values)
{
    ASSERT_OK(fsdp_scope_status(b->s));
    ASSERT_INT(fsdp_kv_cache_sequences(b->cache), n);
    for (int32_t i = 0; i <= n; i++)
        ASSERT_INT(fsdp_kv_cache_offsets(b->cache)[i], offsets[i]);
    for (int layer = 0; layer < 2; layer++) {
        const fsdp_kv kv = fsdp_kv_cache_get(b->cache, layer);
        ASSERT_INT(fsdp_tensor_size(kv.k, 0), offsets[n]);
        ASSERT_INT(fsdp_tensor_size(kv.v, 0), offsets[n]);
        if (fsdp_device_is_meta(b->device))
            continue;
        const float *k = fsdp_tensor_data(kv.k), *v = fsdp_tensor_data(kv.v);
        for (int32_t i = 0; i < offsets[n]; i++) {
            ASSERT_F32(k[2 * i], values[i] + 100.0f * (float)layer);
            ASSERT_F32(k[2 * i + 1], -k[2 * i]);
            ASSERT_F32(v[2 * i], k[2 * i] / 2.0f);
        }
    }
}

static void check_packing(fsdp_test *t, const char *device)
{
    bench b;
    bench_open(t, device, &b);
    CHECK_HERE();
    feed(t, &b, (const int32_t[]){0, 2, 2, 5}, 3, (const float[]){1, 2, 3, 4, 5});
    expect(t, &b, (const int32_t[]){0, 2, 2, 5}, 3, (const float[]){1, 2, 3, 4, 5});
    CHECK_HERE();
    feed(t, &b, (const int32_t[]){0, 1, 3, 3}, 3, (const float[]){6, 7, 8});
    expect(t, &b, (const int32_t[]){0, 3, 5, 8}, 3, (const float[]){1, 2, 6, 7, 8, 3, 4, 5});
    CHECK_HERE();
    fsdp_kv_cache_select(b.s, b.cache, (const int32_t[]){1, 0, 1, 1}, 4);
    expect(t, &b, (const int32_t[]){0, 2, 5, 7, 9}, 4, (const float[]){7, 8, 1, 2, 6, 7, 8, 7, 8});
    CHECK_HERE();
    feed(t, &b, (const int32_t[]){0, 1, 2, 3, 4}, 4, (const float[]){10, 11, 12, 13});
    expect(t, &b, (const int32_t[]){0, 3, 7, 10, 13}, 4,
           (const float[]){7, 8, 10, 1, 2, 6, 11, 7, 8, 12, 7, 8, 13});
    CHECK_HERE();
    fsdp_kv_cache_select(b.s, b.cache, NULL, 0);
    expect(t, &b, (const int32_t[]){0}, 0, NULL);
    bench_close(&b);
}

TEST(rows_stay_packed_by_sequence)
{
    check_packing(t, NULL);
}
TEST(without_data_the_shapes_are_the_same)
{
    check_packing(t, "meta");
}

TEST(more_tokens_than_offsets_can_count_are_refused)
{
    bench b;
    bench_open(t, "meta", &b);
    CHECK_HERE();
    fsdp_kv_cache_extend(b.s, b.cache, (const int32_t[]){0, INT_MAX}, 1);
    ASSERT_OK(fsdp_scope_status(b.s));
    fsdp_kv_cache_extend(b.s, b.cache, (const int32_t[]){0, 1}, 1);
    ASSERT_ERROR(fsdp_scope_status(b.s), FSDP_ERR_INVALID, "more than 2147483647 tokens");
    bench_close(&b);
}

/* Whatever allocation fails, the scope says so and everything is freed. */
TEST(running_out_of_memory_fails_the_scope)
{
    for (long n = 1; n < 12; n++) {
        bench b;
        bench_open(t, NULL, &b);
        CHECK_HERE();
        feed(t, &b, (const int32_t[]){0, 1}, 1, (const float[]){1});
        CHECK_HERE();
        fsdp_alloc_fail_at(n);
        fsdp_kv_cache_select(b.s, b.cache, (const int32_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0}, 9);
        fsdp_kv_cache_extend(b.s, b.cache, (const int32_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 9);
        fsdp_alloc_fail_at(0);
        const fsdp_status status = fsdp_scope_status(b.s);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        ASSERT(n > 1 || status == FSDP_ERR_NOMEM);
        bench_close(&b);
    }
}
