/* The caching allocator. The places of blocks are not tested under AddressSanitizer, where each
 * block is an allocation of its own. */
#include <sys/resource.h>

#include "src/base/alloc_testing.h"
#include "src/base/philox.h"
#include "src/tensor/allocator.h"
#include "tests/test.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
static const bool caches = false;
#else
static const bool caches = true;
#endif

#if defined(__SANITIZE_THREAD__)
static const bool sanitizes_threads = true;
#else
static const bool sanitizes_threads = false;
#endif

static const size_t MIB = (size_t)1 << 20;

typedef struct allocation {
    fsdp_block *block;
    char *data;
    size_t bytes;
    fsdp_tag tag;
} allocation;

static void allocate(fsdp_test *t, fsdp_allocator *a, size_t bytes, fsdp_tag tag, allocation *out)
{
    void *data;
    *out = (allocation){.bytes = bytes, .tag = tag};
    ASSERT_OK(fsdp_allocator_alloc(a, bytes, tag, &out->block, &data));
    out->data = data;
}

static void allocate_lasting(fsdp_test *t, fsdp_allocator *a, size_t bytes, fsdp_tag tag,
                             allocation *out)
{
    void *data;
    *out = (allocation){.bytes = bytes, .tag = tag};
    ASSERT_OK(fsdp_allocator_alloc_lasting(a, bytes, tag, &out->block, &data));
    out->data = data;
}

static void release(fsdp_allocator *a, allocation *x)
{
    fsdp_allocator_free(a, x->block);
    x->block = NULL;
}

TEST(memory_is_aligned_and_zero_bytes_are_valid)
{
    fsdp_allocator *a;
    allocation x[3];
    ASSERT_OK(fsdp_allocator_create(false, &a));
    for (size_t i = 0; i < 3; i++) {
        allocate(t, a, i * 100, FSDP_TAG_DATA, &x[i]);
        CHECK_HERE();
        ASSERT(x[i].data);
        ASSERT_INT((uintptr_t)x[i].data % 64, 0);
        memset(x[i].data, 1, x[i].bytes);
    }
    for (int i = 0; i < 3; i++)
        release(a, &x[i]);
    fsdp_allocator_free(a, NULL);
    fsdp_allocator_destroy(a);
    fsdp_allocator_destroy(NULL);
}

TEST(a_freed_block_serves_the_next_request_of_its_size)
{
    fsdp_allocator *a;
    allocation x, y;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    static const size_t sizes[] = {100, 3 << 20, 50 << 20};
    for (int i = 0; i < 3; i++) {
        allocate(t, a, sizes[i], FSDP_TAG_DATA, &x);
        CHECK_HERE();
        int64_t reserved = fsdp_allocator_stats(a)->reserved;
        release(a, &x);
        allocate(t, a, sizes[i], FSDP_TAG_COMM, &y);
        CHECK_HERE();
        ASSERT(y.data == x.data);
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, reserved);
        release(a, &y);
    }
    /* Freed memory stays reserved, and each size reused what the smaller one left; the block of 100
     * bytes is small. */
    ASSERT_INT(fsdp_allocator_stats(a)->allocated, 0);
    ASSERT_INT(fsdp_allocator_stats(a)->reserved, 51 * MIB);
    fsdp_allocator_destroy(a);
}

/* Four neighbors, freed in any order, become the one block that they were cut from. */
TEST(freed_neighbors_join_in_every_order)
{
    fsdp_allocator *a;
    allocation x[4], whole;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    for (int order = 0; order < 24; order++) {
        for (int i = 0; i < 4; i++) {
            allocate(t, a, 5 * MIB, FSDP_TAG_DATA, &x[i]);
            CHECK_HERE();
        }
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, 20 * MIB);
        int code = order, left[4] = {0, 1, 2, 3};
        for (int n = 4; n > 0; n--) {
            int pick = code % n;
            code /= n;
            release(a, &x[left[pick]]);
            memmove(left + pick, left + pick + 1, (size_t)(3 - pick) * sizeof *left);
        }
        allocate(t, a, 20 * MIB, FSDP_TAG_DATA, &whole);
        CHECK_HERE();
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, 20 * MIB);
        release(a, &whole);
    }
    fsdp_allocator_destroy(a);
}

TEST(the_smallest_block_that_fits_is_taken)
{
    fsdp_allocator *a;
    allocation x[5], y;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    /* Free blocks of 6 and of 3 MiB, separated by blocks in use. */
    static const size_t sizes[] = {6, 1, 3, 1, 9};
    for (int i = 0; i < 5; i++) {
        allocate(t, a, sizes[i] * MIB, FSDP_TAG_DATA, &x[i]);
        CHECK_HERE();
    }
    release(a, &x[0]);
    release(a, &x[2]);
    allocate(t, a, 2 * MIB, FSDP_TAG_DATA, &y);
    CHECK_HERE();
    ASSERT(y.data == x[2].data);
    release(a, &y);
    allocate(t, a, 4 * MIB, FSDP_TAG_DATA, &y);
    CHECK_HERE();
    ASSERT(y.data == x[0].data);
    release(a, &y);
    release(a, &x[1]);
    release(a, &x[3]);
    release(a, &x[4]);
    fsdp_allocator_destroy(a);
}

/* State is allocated within the first step, during and after backward, while some of its
 * activations exist. The second step finds its memory in the same places as the first, so it
 * touches no new memory. */
TEST(lasting_memory_takes_no_room_from_the_next_step)
{
    enum {
        TENSORS = 6
    };
    fsdp_allocator *a;
    allocation step[TENSORS], state[3];
    char *first[TENSORS];
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    for (int n = 0; n < 3; n++) {
        for (size_t i = 0; i < TENSORS; i++) {
            allocate(t, a, (1 + i * i) * MIB, FSDP_TAG_ACTIVATION, &step[i]);
            CHECK_HERE();
            ASSERT(n == 0 || step[i].data == first[i]);
            first[i] = step[i].data;
        }
        for (size_t i = TENSORS; i-- > 0;) {
            release(a, &step[i]);
            if (n == 0 && i % 2 == 0) {
                allocate_lasting(t, a, (1 + i) * MIB, FSDP_TAG_OPTIM, &state[i / 2]);
                CHECK_HERE();
            }
        }
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, (61 + 9) * MIB);
    }
    /* Freed lasting memory is reused for lasting memory. */
    for (int i = 0; i < 3; i++)
        release(a, &state[i]);
    allocate_lasting(t, a, 9 * MIB, FSDP_TAG_GRAD, &state[0]);
    CHECK_HERE();
    ASSERT_INT(fsdp_allocator_stats(a)->reserved, (61 + 9) * MIB);
    release(a, &state[0]);
    ASSERT_INT(fsdp_allocator_stats(a)->allocated, 0);
    fsdp_allocator_destroy(a);
}

/* If the first block is free and larger than the last one, the range grows below it. */
TEST(memory_grows_at_the_end_that_needs_less)
{
    fsdp_allocator *a;
    allocation low, high, x;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    for (int meta = 0; meta < 2; meta++) {
        ASSERT_OK(fsdp_allocator_create(meta, &a));
        allocate(t, a, 30 * MIB, FSDP_TAG_ACTIVATION, &low);
        allocate(t, a, 10 * MIB, FSDP_TAG_ACTIVATION, &high);
        CHECK_HERE();
        char *was = low.data;
        release(a, &low);
        allocate(t, a, 32 * MIB, FSDP_TAG_ACTIVATION, &low);
        CHECK_HERE();
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, 42 * MIB);
        if (!meta) {
            ASSERT(low.data == was - 2 * MIB);
            memset(low.data, 1, 32 * MIB);
            memset(high.data, 2, 10 * MIB);
            ASSERT(low.data[32 * MIB - 1] == 1);
        }
        release(a, &low);
        release(a, &high); /* memory added below coalesces with the rest */
        allocate(t, a, 42 * MIB, FSDP_TAG_ACTIVATION, &x);
        CHECK_HERE();
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, 42 * MIB);
        release(a, &x);
        fsdp_allocator_destroy(a);
    }
}

/* A small loss that lives from forward to backward does not separate two large blocks. */
TEST(small_blocks_do_not_separate_large_ones)
{
    fsdp_allocator *a;
    allocation first, small, second;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    allocate(t, a, 10 * MIB, FSDP_TAG_ACTIVATION, &first);
    allocate(t, a, 4, FSDP_TAG_ACTIVATION, &small);
    allocate(t, a, 10 * MIB, FSDP_TAG_ACTIVATION, &second);
    CHECK_HERE();
    release(a, &first);
    release(a, &second);
    allocate(t, a, 20 * MIB, FSDP_TAG_ACTIVATION, &first);
    CHECK_HERE();
    ASSERT_INT(fsdp_allocator_stats(a)->reserved, 21 * MIB);
    release(a, &first);
    release(a, &small);
    fsdp_allocator_destroy(a);
}

/* Backward frees activations from the last to the first and allocates a gradient for each. The last
 * and largest gradient, that of an embedding, finds the freed memory in one piece. */
TEST(gradients_leave_no_holes_behind_the_activations)
{
    enum {
        LAYERS = 12
    };
    fsdp_allocator *a;
    allocation kept[LAYERS], grads[LAYERS], last;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < LAYERS; i++) {
            allocate(t, a, 10 * MIB, FSDP_TAG_ACTIVATION, &kept[i]);
            CHECK_HERE();
        }
        for (int i = LAYERS - 1; i >= 0; i--) {
            release(a, &kept[i]);
            allocate(t, a, 2 * MIB, FSDP_TAG_GRAD, &grads[i]);
            CHECK_HERE();
        }
        allocate(t, a, 90 * MIB, FSDP_TAG_GRAD, &last);
        CHECK_HERE();
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, 10 * LAYERS * MIB);
        for (int i = 0; i < LAYERS; i++)
            release(a, &grads[i]);
        release(a, &last);
    }
    fsdp_allocator_destroy(a);
}

/* Gradients without room go to the high end, even if the low end would need less new memory. The
 * activations that backward frees afterwards then coalesce with the low end, which grows for the
 * last gradient. */
TEST(gradients_without_room_leave_the_low_end_to_freed_activations)
{
    enum {
        LAYERS = 4
    };
    fsdp_allocator *a;
    allocation low, kept[LAYERS], grads[LAYERS], last;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    allocate(t, a, 1 * MIB, FSDP_TAG_ACTIVATION, &low);
    for (int i = 0; i < LAYERS; i++) {
        allocate(t, a, 6 * MIB, FSDP_TAG_ACTIVATION, &kept[i]);
        CHECK_HERE();
    }
    release(a, &low);
    for (int i = LAYERS - 1; i >= 0; i--) {
        allocate(t, a, 4 * MIB, FSDP_TAG_GRAD, &grads[i]);
        release(a, &kept[i]);
        CHECK_HERE();
    }
    allocate(t, a, 20 * MIB, FSDP_TAG_GRAD, &last);
    CHECK_HERE();
    ASSERT_INT(fsdp_allocator_stats(a)->reserved, (LAYERS * 4 + 20) * MIB);
    for (int i = 0; i < LAYERS; i++)
        release(a, &grads[i]);
    release(a, &last);
    fsdp_allocator_destroy(a);
}

/* In the second step, the logits are a little larger. Only that little is new, since they are the
 * last block of the range, and not the gradient that the head computes before them. */
TEST(a_gradient_of_forward_leaves_the_high_end_to_the_logits)
{
    fsdp_allocator *a;
    allocation kept, grad = {0}, logits;
    void *data;
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    for (int step = 0; step < 2; step++) {
        allocate(t, a, 10 * MIB, FSDP_TAG_ACTIVATION, &kept);
        ASSERT_OK(fsdp_allocator_alloc_in_forward(a, 5 * MIB, FSDP_TAG_GRAD, &grad.block, &data));
        allocate(t, a, (40 + step) * MIB, FSDP_TAG_ACTIVATION, &logits);
        CHECK_HERE();
        ASSERT_INT(fsdp_allocator_stats(a)->reserved, (55 + step) * MIB);
        release(a, &logits);
        release(a, &kept);
        fsdp_allocator_free(a, grad.block);
    }
    fsdp_allocator_destroy(a);
}

/* Steps of a training run whose batches differ in length. Activations are allocated and freed in
 * reverse order, and lasting state is allocated in the first step. The reserved memory stays near
 * the peak of the allocated memory. */
TEST(steps_of_different_lengths_reserve_no_more_than_the_longest)
{
    enum {
        LAYERS = 40,
        STEPS = 50,
        STATES = 8
    };
    fsdp_allocator *a;
    allocation kept[LAYERS][3], state[STATES];
    if (!caches)
        SKIP("no cache under AddressSanitizer");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    for (int step = 0; step < STEPS; step++) {
        size_t tokens = 1000 + fsdp_mix64((uint64_t)step) % 3000;
        for (size_t i = 0; i < LAYERS; i++)
            for (size_t k = 0; k < 3; k++) {
                allocate(t, a, tokens * (k == 1 ? 4 : 256 << k), FSDP_TAG_ACTIVATION, &kept[i][k]);
                CHECK_HERE();
            }
        for (int i = LAYERS - 1; i >= 0; i--)
            for (int k = 0; k < 3; k++)
                release(a, &kept[i][k]);
        for (int i = 0; i < STATES && step == 0; i++) {
            allocate_lasting(t, a, 1300 * 1024, FSDP_TAG_OPTIM, &state[i]);
            CHECK_HERE();
        }
    }
    const fsdp_memory_stats *stats = fsdp_allocator_stats(a);
    ASSERT((double)stats->reserved_peak < 1.02 * (double)stats->allocated_peak + (double)MIB);
    for (int i = 0; i < STATES; i++)
        release(a, &state[i]);
    fsdp_allocator_destroy(a);
}

/* With `ulimit -v` the range is smaller. A request beyond the limit fails, and the allocator
 * remains usable. */
TEST(few_addresses_are_enough)
{
    struct rlimit before, few;
    fsdp_allocator *a;
    allocation x, y;
    if (!caches || sanitizes_threads)
        SKIP("sanitizers need addresses of their own");
    ASSERT_OK(fsdp_allocator_create(false, &a));
    getrlimit(RLIMIT_AS, &before);
    few = (struct rlimit){.rlim_cur = (rlim_t)(1024 * MIB), .rlim_max = before.rlim_max};
    ASSERT(setrlimit(RLIMIT_AS, &few) == 0);
    fsdp_status status =
        fsdp_allocator_alloc(a, 100 * MIB, FSDP_TAG_DATA, &x.block, (void *[1]){0});
    fsdp_status second =
        fsdp_allocator_alloc(a, 2048 * MIB, FSDP_TAG_DATA, &y.block, (void *[1]){0});
    setrlimit(RLIMIT_AS, &before);
    ASSERT_OK(status);
    ASSERT_INT(second, FSDP_ERR_NOMEM);
    release(a, &x);
    allocate(t, a, 2048 * MIB, FSDP_TAG_DATA, &y); /* needs a second range */
    CHECK_HERE();
    y.data[2048 * MIB - 1] = 1;
    release(a, &y);
    fsdp_allocator_destroy(a);
}

TEST(requested_bytes_are_counted_by_tag_with_peaks)
{
    fsdp_allocator *a;
    allocation param, grad, activation;
    ASSERT_OK(fsdp_allocator_create(false, &a));
    const fsdp_memory_stats *stats = fsdp_allocator_stats(a);
    allocate(t, a, 1001, FSDP_TAG_PARAM, &param); /* requested bytes, not rounded ones */
    allocate(t, a, 500, FSDP_TAG_ACTIVATION, &activation);
    CHECK_HERE();
    release(a, &activation);
    allocate(t, a, 300, FSDP_TAG_GRAD, &grad);
    CHECK_HERE();
    ASSERT_INT(stats->allocated, 1301);
    ASSERT_INT(stats->allocated_peak, 1501);
    ASSERT_INT(stats->tag_allocated[FSDP_TAG_PARAM], 1001);
    ASSERT_INT(stats->tag_allocated[FSDP_TAG_ACTIVATION], 0);
    ASSERT_INT(stats->tag_peak[FSDP_TAG_ACTIVATION], 500);
    ASSERT_INT(stats->tag_peak[FSDP_TAG_GRAD], 300);
    ASSERT_INT(stats->tag_at_peak[FSDP_TAG_ACTIVATION], 500);
    ASSERT_INT(stats->tag_at_peak[FSDP_TAG_GRAD], 0);
    fsdp_allocator_reset_peak(a);
    ASSERT_INT(stats->allocated_peak, 1301);
    ASSERT_INT(stats->tag_peak[FSDP_TAG_ACTIVATION], 0);
    ASSERT_INT(stats->tag_at_peak[FSDP_TAG_GRAD], 300);
    fsdp_allocator_account(a, FSDP_TAG_COMM, 4096);
    ASSERT_INT(stats->tag_allocated[FSDP_TAG_COMM], 4096);
    ASSERT_INT(stats->allocated, 5397);
    fsdp_allocator_account(a, FSDP_TAG_COMM, -4096);
    release(a, &grad);
    release(a, &param);
    ASSERT_INT(stats->allocated, 0);
    ASSERT_INT(stats->allocated_peak, 5397);
    fsdp_allocator_destroy(a);
}

TEST(the_limit_error_names_the_request)
{
    fsdp_allocator *a;
    allocation x, y;
    void *data;
    ASSERT_OK(fsdp_allocator_create(false, &a));
    fsdp_allocator_set_limit(a, 1000);
    allocate(t, a, 600, FSDP_TAG_PARAM, &x);
    allocate(t, a, 400, FSDP_TAG_PARAM, &y);
    CHECK_HERE();
    ASSERT_ERROR(fsdp_allocator_alloc(a, 1, FSDP_TAG_GRAD, &x.block, &data), FSDP_ERR_NOMEM,
                 "1 bytes (grad) on top of 1000 allocated exceed the limit of 1000");
    release(a, &y);
    allocate(t, a, 400, FSDP_TAG_GRAD, &y);
    CHECK_HERE();
    fsdp_allocator_set_limit(a, 0);
    allocation z;
    allocate(t, a, 5000, FSDP_TAG_GRAD, &z);
    CHECK_HERE();
    release(a, &x);
    release(a, &y);
    release(a, &z);
    fsdp_allocator_destroy(a);
}

TEST(meta_counts_and_gives_no_memory)
{
    fsdp_allocator *a;
    allocation x;
    ASSERT_OK(fsdp_allocator_create(true, &a));
    allocate(t, a, (size_t)1 << 45, FSDP_TAG_PARAM, &x); /* 32 TiB */
    CHECK_HERE();
    ASSERT(!x.data);
    ASSERT_INT(fsdp_allocator_stats(a)->allocated, (int64_t)1 << 45);
    release(a, &x);
    ASSERT_INT(fsdp_allocator_stats(a)->allocated, 0);
    fsdp_allocator_destroy(a);
}

static void fill(const allocation *x, int i)
{
    memset(x->data, i & 0x7f, x->bytes);
}

static bool is_filled(const allocation *x, int i)
{
    for (size_t k = 0; k < x->bytes; k += x->bytes / 64 + 1)
        if (x->data[k] != (i & 0x7f))
            return false;
    return x->bytes == 0 || x->data[x->bytes - 1] == (i & 0x7f);
}

/* Ten thousand allocations and frees of random sizes from 0 to 12 MiB: no two blocks overlap, and
 * the counters are right. */
TEST(random_use_never_overlaps)
{
    enum {
        SLOTS = 48
    };
    fsdp_allocator *a;
    allocation x[SLOTS] = {0};
    int64_t held = 0;
    ASSERT_OK(fsdp_allocator_create(false, &a));
    for (int step = 0; step < 10000; step++) {
        uint64_t bits = fsdp_mix64((uint64_t)step);
        int i = (int)(bits % SLOTS);
        if (x[i].block) {
            ASSERT(is_filled(&x[i], i));
            held -= (int64_t)x[i].bytes;
            release(a, &x[i]);
        } else {
            int kind = (int)(bits >> 32 & 31);
            size_t most = kind == 0 ? 12 * MIB : kind < 3 ? 2 * MIB : 20000;
            allocate(t, a, (size_t)(bits >> 40) % most, (fsdp_tag)(bits >> 8 & 3), &x[i]);
            CHECK_HERE();
            fill(&x[i], i);
            held += (int64_t)x[i].bytes;
        }
        ASSERT_INT(fsdp_allocator_stats(a)->allocated, held);
    }
    for (int i = 0; i < SLOTS; i++)
        if (x[i].block)
            release(a, &x[i]);
    ASSERT_INT(fsdp_allocator_stats(a)->allocated, 0);
    fsdp_allocator_destroy(a);
}

TEST(a_failing_host_allocation_leaves_the_allocator_usable)
{
    int failures = 0;
    for (long n = 1, successes = 0; successes < 6; n++) {
        fsdp_allocator *a;
        allocation x[3] = {0};
        void *data;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_allocator_create(false, &a);
        bool created = status == FSDP_OK;
        for (size_t i = 0; i < 3 && status == FSDP_OK; i++) {
            status = fsdp_allocator_alloc(a, (i * 3 + 1) * MIB, FSDP_TAG_DATA, &x[i].block, &data);
            if (status == FSDP_OK)
                memset(data, 1, MIB);
        }
        fsdp_alloc_fail_at(0);
        for (int i = 0; created && i < 3; i++)
            release(a, &x[i]);
        if (created) {
            ASSERT_INT(fsdp_allocator_stats(a)->allocated, 0);
            allocate(t, a, 5 * MIB, FSDP_TAG_DATA, &x[0]);
            CHECK_HERE();
            release(a, &x[0]);
            fsdp_allocator_destroy(a);
        }
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        failures += status != FSDP_OK;
        successes = status == FSDP_OK ? successes + 1 : 0;
        ASSERT(n < 100);
    }
    ASSERT(failures > 1);
}
