/* The rows in the cache of keys and values. */
#include "src/base/alloc_testing.h"
#include "src/models/kv_cache.h"

#include <limits.h>

#include "tests/elements.h"
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
    float *data = rows && !fsdp_device_is_meta(b->device) ? elements_of(rows) : NULL;
    for (int64_t i = 0; data && i < n; i++) {
        data[2 * i] = values[i];
        data[2 * i + 1] = -values[i];
    }
    if (data)
        elements_changed(rows, data);
    return rows;
}

/* Adds tokens with these values to both layers. Layer 1's values are larger by 100; values are half
 * of keys. */
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

/* Checks that sequence i has the tokens values[offsets[i]], ... values[offsets[i + 1] - 1]. */
static void expect(fsdp_test *t, bench *b, const int32_t *offsets, int32_t n, const float *values)
{
    ASSERT_OK(fsdp_scope_status(b->s));
    ASSERT_INT(fsdp_kv_cache_sequences(b->cache), n);
    for (int layer = 0; layer < 2; layer++) {
        const fsdp_kv kv = fsdp_kv_cache_get(b->cache, layer);
        ASSERT_INT(kv.offsets[0], 0);
        ASSERT_INT(fsdp_tensor_size(kv.k, 0), kv.offsets[n]);
        ASSERT_INT(fsdp_tensor_size(kv.v, 0), kv.offsets[n]);
        const bool meta = fsdp_device_is_meta(b->device);
        const float *k = meta ? NULL : elements_of(kv.k);
        const float *v = meta ? NULL : elements_of(kv.v);
        for (int32_t i = 0; i < n; i++) {
            ASSERT_INT(fsdp_kv_cache_length(b->cache, i), offsets[i + 1] - offsets[i]);
            ASSERT_INT(kv.ends[i] - kv.offsets[i], offsets[i + 1] - offsets[i]);
            ASSERT(kv.ends[i] <= kv.offsets[i + 1]);
            for (int32_t j = offsets[i]; j < offsets[i + 1] && !meta; j++) {
                const int32_t at = 2 * (kv.offsets[i] + j - offsets[i]);
                ASSERT_F32(k[at], values[j] + 100.0f * (float)layer);
                ASSERT_F32(k[at + 1], -k[at]);
                ASSERT_F32(v[at], k[at] / 2.0f);
            }
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

TEST(rows_stay_with_their_sequence)
{
    check_packing(t, NULL);
}
TEST(without_data_the_shapes_are_the_same)
{
    check_packing(t, "meta");
}

/* Two sequences that get one token per step, or sometimes one of them two, for so many steps that
 * they are moved more than once, but rarely. */
TEST(most_tokens_are_put_into_room)
{
    enum {
        STEPS = 200
    };
    static float values[2][2 * STEPS];
    bench b;
    bench_open(t, NULL, &b);
    CHECK_HERE();
    int32_t lengths[2] = {0, 0};
    int moves = 0;
    const fsdp_tensor *last = NULL;
    for (int step = 0; step < STEPS; step++) {
        const int32_t more = step % 50 == 49 ? 3 : 1, offsets[] = {0, more, more + 1};
        float fresh[4];
        for (int i = 0; i <= more; i++) {
            const int sequence = i == more;
            fresh[i] = (float)(1000 * sequence + step + i);
            values[sequence][lengths[sequence]++] = fresh[i];
        }
        feed(t, &b, offsets, 2, fresh);
        CHECK_HERE();
        moves += fsdp_kv_cache_get(b.cache, 1).v != last;
        last = fsdp_kv_cache_get(b.cache, 1).v;
        for (int i = 0; i < 2 && step % 40 == 20; i++) /* swap the sequences, and swap them back */
            fsdp_kv_cache_select(b.s, b.cache, (const int32_t[]){1, 0}, 2);
        last = fsdp_kv_cache_get(b.cache, 1).v;
    }
    float all[4 * STEPS];
    memcpy(all, values[0], (size_t)lengths[0] * sizeof *all);
    memcpy(all + lengths[0], values[1], (size_t)lengths[1] * sizeof *all);
    expect(t, &b, (const int32_t[]){0, lengths[0], lengths[0] + lengths[1]}, 2, all);
    CHECK_HERE();
    ASSERT(moves > 2 && moves < STEPS / 8);
    bench_close(&b);
}

TEST(what_stays_as_it_is_is_not_copied)
{
    bench b;
    bench_open(t, NULL, &b);
    CHECK_HERE();
    feed(t, &b, (const int32_t[]){0, 2, 5}, 2, (const float[]){1, 2, 3, 4, 5});
    const fsdp_tensor *k = fsdp_kv_cache_get(b.cache, 0).k;
    fsdp_kv_cache_select(b.s, b.cache, (const int32_t[]){0, 1}, 2);
    ASSERT(fsdp_kv_cache_get(b.cache, 0).k == k);
    fsdp_kv_cache_select(b.s, b.cache, (const int32_t[]){0}, 1);
    ASSERT(fsdp_kv_cache_get(b.cache, 0).k != k);
    expect(t, &b, (const int32_t[]){0, 2}, 1, (const float[]){1, 2});
    bench_close(&b);
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

/* Whichever allocation fails, the scope fails and everything is freed. */
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
