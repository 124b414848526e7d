/* Samplers: properties over many shapes, and the split over ranks against its definition. */
#include <fsdp/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "tests/test.h"

TEST(an_epoch_s_order_is_a_permutation)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 15, 16, 17, 255, 256, 257, 1000, 4096, 4097, 70000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *seen = fsdp_calloc((size_t)sizes[i], 1);
        fsdp_sampler s = {.samples = sizes[i], .batch_size = 1, .world_size = 1, .seed = i};
        for (int64_t position = 0; position < sizes[i]; position++) {
            int64_t index = fsdp_sampler_order(&s, 3, position);
            ASSERT(index >= 0 && index < sizes[i]);
            ASSERT(!seen[index]);
            seen[index] = 1;
        }
        fsdp_free(seen);
    }
}

/* Positions in a set that is too large to list: distinct, in range, and different for other seeds
 * and epochs. */
TEST(large_sets_are_ordered_point_by_point)
{
    fsdp_sampler s = {.samples = INT64_C(1) << 61, .batch_size = 1, .world_size = 1, .seed = 1};
    ASSERT_OK(fsdp_sampler_check(&s));
    int64_t previous = -1;
    for (int64_t position = 0; position < 1000; position++) {
        int64_t index = fsdp_sampler_order(&s, 0, position << 51);
        ASSERT(index >= 0 && index < s.samples && index != previous);
        ASSERT(index != fsdp_sampler_order(&s, 1, position << 51));
        previous = index;
    }
}

/* Each of the 120 orders of 5 items is as frequent as expected by chance: chi-squared over 24,000
 * (seed, epoch) pairs has 119 degrees of freedom, so 119 +- 15; the bound is 6 standard
 * deviations. */
TEST(all_orders_are_equally_likely)
{
    enum {
        ORDERS = 120,
        DRAWS = 24000
    };
    int counts[ORDERS] = {0};
    for (int draw = 0; draw < DRAWS; draw++) {
        fsdp_sampler s = {.samples = 5, .batch_size = 1, .world_size = 1, .seed = draw / 4};
        int rank = 0, order[5];
        for (int i = 0; i < 5; i++) {
            int smaller = 0;
            order[i] = (int)fsdp_sampler_order(&s, draw % 4, i);
            for (int k = 0; k < i; k++)
                smaller += order[k] < order[i];
            rank = rank * (5 - i) + (order[i] - smaller);
        }
        counts[rank]++;
    }
    double chi = 0, expected = (double)DRAWS / ORDERS;
    for (int i = 0; i < ORDERS; i++)
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    if (chi > 119 + 6 * 15.4 || chi < 119 - 6 * 15.4)
        FAIL("chi-squared %.1f of 119 +- 15", chi);
}

/* The position of an item does not depend on its index: the mean of (position - index)^2 over (n^2
 * - 1) / 6, its value for random orders, is near 1. */
TEST(neighbours_are_scattered)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        fsdp_sampler s = {.samples = 10007, .batch_size = 1, .world_size = 1, .seed = seed};
        double n = (double)s.samples, sum = 0, steps = 0;
        for (int64_t i = 0; i < s.samples; i++) {
            double index = (double)fsdp_sampler_order(&s, 0, i);
            double next = (double)fsdp_sampler_order(&s, 0, (i + 1) % s.samples);
            sum += (index - (double)i) * (index - (double)i);
            steps += (index - next) * (index - next);
        }
        ASSERT_NEAR(sum / n / ((n * n - 1) / 6), 1, 0.05);
        ASSERT_NEAR(steps / n / ((n * n - 1) / 6), 1, 0.05);
    }
}

TEST(the_order_depends_on_seed_and_epoch_alone)
{
    fsdp_sampler s = {.samples = 100, .batch_size = 4, .world_size = 1, .seed = 7}, other = s;
    other.batch_size = 3;
    other.rank = 2;
    other.world_size = 4;
    other.accumulation = 5;
    int same_seed = 0, same_epoch = 0;
    for (int64_t i = 0; i < 100; i++) {
        ASSERT_INT(fsdp_sampler_order(&s, 2, i), fsdp_sampler_order(&other, 2, i));
        fsdp_sampler seed = s;
        seed.seed = 8;
        same_seed += fsdp_sampler_order(&s, 2, i) == fsdp_sampler_order(&seed, 2, i);
        same_epoch += fsdp_sampler_order(&s, 2, i) == fsdp_sampler_order(&s, 3, i);
        s.no_shuffle = true;
        ASSERT_INT(fsdp_sampler_order(&s, 2, i), i);
        s.no_shuffle = false;
    }
    ASSERT(same_seed < 10 && same_epoch < 10);
}

/* ---- the default sampler ---- */

/* Leaf m of every step, for any division over ranks, is positions m B .. of the step's block. Every
 * position is used once (with drop_last, all positions of whole blocks). */
static void check_default(fsdp_test *t, int64_t samples, int32_t batch, int ranks, int32_t micro,
                          bool drop_last)
{
    fsdp_sampler s = {.samples = samples,
                      .batch_size = batch,
                      .world_size = ranks,
                      .accumulation = micro,
                      .drop_last = drop_last,
                      .seed = 5};
    int64_t block = (int64_t)batch * ranks * micro;
    int64_t steps = drop_last ? samples / block : (samples + block - 1) / block;
    ASSERT_INT(fsdp_sampler_steps(&s), steps);
    if (steps == 0) {
        ASSERT_ERROR(fsdp_sampler_check(&s), FSDP_ERR_INVALID, "drop_last leaves no step");
        return;
    }
    ASSERT_OK(fsdp_sampler_check(&s));
    int64_t indices[16], position = 0;
    for (int64_t step = 0; step < steps; step++)
        for (int32_t a = 0; a < micro; a++)
            for (s.rank = 0; s.rank < ranks; s.rank++) {
                int32_t count = fsdp_sampler_batch(&s, 1, step, a, indices);
                int64_t left = samples - position;
                ASSERT_INT(count, left < batch ? left : batch);
                for (int32_t i = 0; i < count; i++)
                    ASSERT_INT(indices[i], fsdp_sampler_order(&s, 1, position++));
            }
    ASSERT_INT(position, drop_last ? steps * block : samples);
}

TEST(leaves_do_not_depend_on_the_split)
{
    for (uint64_t seed = 1; seed <= 400 && !t->failed; seed++) {
        fsdp_philox r = fsdp_philox4x32(seed, 0, 0);
        int64_t samples = 1 + r.v[0] % 90;
        int32_t batch = 1 + (int32_t)(r.v[1] % 5), micro = 1 + (int32_t)(r.v[2] % 4);
        check_default(t, samples, batch, 1 + (int)(r.v[3] % 4), micro, r.v[3] >> 8 & 1);
        if (t->failed)
            printf("seed %llu\n", (unsigned long long)seed);
    }
}

/* 1 x 4, 2 x 2 and 4 x 1 (ranks x micro-steps) have the same eight rows in each leaf. */
TEST(the_same_leaf_at_any_world_size)
{
    int64_t leaves[3][4][2] = {0};
    for (int split = 0; split < 3; split++) {
        int ranks = 1 << split;
        fsdp_sampler s = {.samples = 21,
                          .batch_size = 2,
                          .world_size = ranks,
                          .accumulation = 4 / ranks,
                          .seed = 3};
        for (int32_t a = 0; a < 4 / ranks; a++)
            for (s.rank = 0; s.rank < ranks; s.rank++)
                ASSERT_INT(fsdp_sampler_batch(&s, 0, 1, a, leaves[split][a * ranks + s.rank]), 2);
    }
    ASSERT(memcmp(leaves[0], leaves[1], sizeof leaves[0]) == 0);
    ASSERT(memcmp(leaves[0], leaves[2], sizeof leaves[0]) == 0);
}

/* ---- the distributed sampler ---- */

/* torch.utils.data.DistributedSampler, implemented directly: indices of `rank` over file
 * positions. */
static int64_t reference_distributed(int64_t samples, int ranks, int rank, bool drop_last,
                                     int64_t *out)
{
    int64_t each = (samples + ranks - 1) / ranks;
    if (drop_last && samples % ranks)
        each = (samples - ranks + ranks - 1) / ranks;
    int64_t total = each * ranks, count = 0;
    for (int64_t i = rank; i < total; i += ranks)
        out[count++] = i % samples; /* padding repeats the first examples */
    return count;
}

static void check_distributed(fsdp_test *t, int64_t samples, int32_t batch, int ranks,
                              int32_t micro, bool drop_last)
{
    for (int rank = 0; rank < ranks; rank++) {
        int64_t expected[256], indices[16];
        int64_t total = reference_distributed(samples, ranks, rank, drop_last, expected);
        int64_t batches = drop_last ? total / batch : (total + batch - 1) / batch;
        fsdp_sampler s = {.kind = FSDP_SAMPLER_DISTRIBUTED,
                          .samples = samples,
                          .batch_size = batch,
                          .rank = rank,
                          .world_size = ranks,
                          .accumulation = micro,
                          .drop_last = drop_last,
                          .seed = 5};
        int64_t steps = fsdp_sampler_steps(&s), at = 0;
        ASSERT_INT(steps, (batches + micro - 1) / micro);
        for (int64_t k = 0; k < steps * micro; k++) {
            int32_t count = fsdp_sampler_batch(&s, 1, k / micro, (int32_t)(k % micro), indices);
            int64_t left = total - at;
            ASSERT_INT(count, k >= batches ? 0 : left < batch ? left : batch);
            for (int32_t i = 0; i < count; i++)
                ASSERT_INT(indices[i], fsdp_sampler_order(&s, 1, expected[at++]));
        }
        ASSERT_INT(at, drop_last ? batches * batch : total);
    }
}

TEST(distributed_is_torch_s_distributed_sampler)
{
    for (uint64_t seed = 1; seed <= 400 && !t->failed; seed++) {
        fsdp_philox r = fsdp_philox4x32(seed, 1, 0);
        int64_t samples = 1 + r.v[0] % 90;
        int32_t batch = 1 + (int32_t)(r.v[1] % 5), micro = 1 + (int32_t)(r.v[2] % 3);
        check_distributed(t, samples, batch, 1 + (int)(r.v[3] % 5), micro, r.v[3] >> 8 & 1);
        if (t->failed)
            printf("seed %llu\n", (unsigned long long)seed);
    }
}

TEST(a_sampler_out_of_range_is_refused)
{
    const fsdp_sampler good = {.samples = 10, .batch_size = 2, .world_size = 2};
    ASSERT_OK(fsdp_sampler_check(&good));
    fsdp_sampler s = good;
    s.samples = 0;
    ASSERT_ERROR(fsdp_sampler_check(&s), FSDP_ERR_INVALID, "0 samples");
    s = good;
    s.batch_size = 0;
    ASSERT_ERROR(fsdp_sampler_check(&s), FSDP_ERR_INVALID, "batch size 0");
    s = good;
    s.rank = 2;
    ASSERT_ERROR(fsdp_sampler_check(&s), FSDP_ERR_INVALID, "rank 2 of 2");
    s = good;
    s.accumulation = -1;
    ASSERT_ERROR(fsdp_sampler_check(&s), FSDP_ERR_INVALID, "-1 micro-steps");
    s = good;
    s.batch_size = INT32_MAX;
    ASSERT_ERROR(fsdp_sampler_check(&s), FSDP_ERR_INVALID, "too large");
    s = good;
    s.drop_last = true;
    s.accumulation = 3;
    ASSERT_ERROR(fsdp_sampler_check(&s), FSDP_ERR_INVALID, "drop_last");
}

/* Accelerate's BatchSamplerShard with even_batches: batch i of an epoch goes to rank i modulo the
 * number of ranks, and the last round is filled up from the beginning of the epoch. */
TEST(even_batches_repeat_the_first_examples_as_accelerate_does)
{
    for (int samples = 1; samples < 30; samples++) {
        for (int world_size = 1; world_size < 5; world_size++) {
            fsdp_sampler s = {.samples = samples,
                              .batch_size = 3,
                              .world_size = world_size,
                              .even_batches = true,
                              .no_shuffle = true};
            const int64_t rounds = (samples + 3 * world_size - 1) / (3 * world_size);
            ASSERT_INT(fsdp_sampler_steps(&s), rounds);
            for (int64_t at = 0; at < rounds * world_size; at++) {
                int64_t indices[3];
                s.rank = (int)(at % world_size);
                ASSERT_INT(fsdp_sampler_batch(&s, 0, at / world_size, 0, indices), 3);
                for (int i = 0; i < 3; i++)
                    ASSERT_INT(indices[i], (at * 3 + i) % samples);
            }
        }
    }
}

/* A round that no example belongs to has no rows; drop_last leaves no round to fill. */
TEST(even_batches_fill_only_rounds_with_examples)
{
    int64_t indices[2];
    fsdp_sampler s = {
        .samples = 5, .batch_size = 2, .world_size = 2, .accumulation = 4, .even_batches = true};
    ASSERT_INT(fsdp_sampler_steps(&s), 1);
    s.rank = 1;
    ASSERT_INT(fsdp_sampler_batch(&s, 0, 0, 1, indices), 2);
    ASSERT_INT(fsdp_sampler_batch(&s, 0, 0, 2, indices), 0);
    s.accumulation = 1;
    s.drop_last = true;
    ASSERT_INT(fsdp_sampler_steps(&s), 1);
}
