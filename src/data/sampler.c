/* Decides which examples a rank uses at each step.
 *
 * Note [Order of an epoch]. The example at position i depends on seed, epoch and i alone. So a run
 * can resume anywhere, at any world size, without replaying a random generator. The order is a
 * permutation of [0, n), where n is the number of examples. A balanced Feistel network of 2h bits
 * permutes [0, 4^h), which contains [0, n). As long as the result is not below n, the network is
 * applied to the result again (cycle walking). h is the smallest number with 4^h >= n, but at least
 * 4. It is at least 4 because a network of few bits has few permutations. If n is above 64, 4^h is
 * less than 4 n, so fewer than four applications are expected. The network's round function is a
 * 64-bit mix of the half, the round and the key. Ten rounds are far more than a shuffle needs. */
#include <fsdp/data.h>

#include <inttypes.h>

#include "src/base/assert.h"
#include "src/base/philox.h"

enum {
    ROUNDS = 10,
    HALF_BITS_MIN = 4
};

static uint64_t permute(uint64_t key, int half_bits, uint64_t x)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (fsdp_mix64(key + (right << 8 | round)) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

int64_t fsdp_sampler_order(const fsdp_sampler *s, int64_t epoch, int64_t position)
{
    if (s->no_shuffle)
        return position;
    int half_bits = HALF_BITS_MIN;
    while (half_bits < 31 && UINT64_C(1) << 2 * half_bits < (uint64_t)s->samples)
        half_bits++;
    const uint64_t seed = s->has_order_seed ? s->order_seed : s->seed;
    const uint64_t key = fsdp_mix64(fsdp_mix64(seed) + (uint64_t)epoch);
    uint64_t x = (uint64_t)position;
    do
        x = permute(key, half_bits, x);
    while (x >= (uint64_t)s->samples);
    return (int64_t)x;
}

static int64_t accumulation(const fsdp_sampler *s)
{
    return s->accumulation ? s->accumulation : 1;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Return the number of examples of each rank in an epoch, for FSDP_SAMPLER_DISTRIBUTED. */
static int64_t rank_samples(const fsdp_sampler *s)
{
    return s->drop_last ? s->samples / s->world_size : divide_up(s->samples, s->world_size);
}

fsdp_status fsdp_sampler_check(const fsdp_sampler *s)
{
    const int64_t samples_max = INT64_C(1) << 62, block_max = INT64_C(1) << 31;
    if (s->samples <= 0 || s->samples > samples_max)
        return fsdp_error(FSDP_ERR_INVALID, "sampler: %" PRId64 " samples", s->samples);
    if (s->batch_size <= 0)
        return fsdp_error(FSDP_ERR_INVALID, "sampler: batch size %d must be positive",
                          (int)s->batch_size);
    if (s->world_size <= 0 || s->rank < 0 || s->rank >= s->world_size)
        return fsdp_error(FSDP_ERR_INVALID, "sampler: rank %d of %d", s->rank, s->world_size);
    if (s->accumulation < 0)
        return fsdp_error(FSDP_ERR_INVALID, "sampler: %d micro-steps", (int)s->accumulation);
    if (s->kind != FSDP_SAMPLER_DEFAULT && s->kind != FSDP_SAMPLER_DISTRIBUTED)
        return fsdp_error(FSDP_ERR_INVALID, "sampler: unknown kind %d", (int)s->kind);
    if (accumulation(s) > block_max / s->world_size / s->batch_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "sampler: batch size %d x %d ranks x %d micro-steps is too large",
                          (int)s->batch_size, s->world_size, (int)accumulation(s));
    if (fsdp_sampler_steps(s) == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "sampler: drop_last leaves no step, because %" PRId64
                          " rows do not fill one (batch size %d x %d ranks x %d micro-steps); use "
                          "a smaller batch size, or no drop_last",
                          s->samples, (int)s->batch_size, s->world_size, (int)accumulation(s));
    return FSDP_OK;
}

int64_t fsdp_sampler_steps(const fsdp_sampler *s)
{
    if (s->kind == FSDP_SAMPLER_DISTRIBUTED) {
        int64_t samples = rank_samples(s), batch = s->batch_size;
        int64_t batches = s->drop_last ? samples / batch : divide_up(samples, batch);
        return divide_up(batches, accumulation(s));
    }
    int64_t block = accumulation(s) * s->world_size * s->batch_size;
    return s->drop_last ? s->samples / block : divide_up(s->samples, block);
}

static int32_t clamp(int64_t count, int32_t most)
{
    return count < 0 ? 0 : count < most ? (int32_t)count : most;
}

int32_t fsdp_sampler_batch(const fsdp_sampler *s, int64_t epoch, int64_t step, int32_t micro_step,
                           int64_t *indices)
{
    FSDP_ASSERT(step >= 0);
    FSDP_ASSERT(micro_step >= 0 && micro_step < accumulation(s));
    int64_t first, stride, available; /* positions are first, first + stride, ... */
    if (s->kind == FSDP_SAMPLER_DISTRIBUTED) {
        int64_t at = (step * accumulation(s) + micro_step) * s->batch_size;
        available = rank_samples(s) - at;
        if (s->drop_last && available < s->batch_size)
            available = 0;
        first = s->rank + at * s->world_size;
        stride = s->world_size;
    } else {
        int64_t micro_batch = (int64_t)micro_step * s->world_size + s->rank;
        first = (step * accumulation(s) * s->world_size + micro_batch) * s->batch_size;
        stride = 1;
        available = s->samples - first;
        const int64_t round = first - (int64_t)s->rank * s->batch_size;
        if (s->even_batches && round < s->samples)
            available = s->batch_size;
    }
    int32_t count = clamp(available, s->batch_size);
    for (int32_t i = 0; i < count; i++)
        indices[i] = fsdp_sampler_order(s, epoch, (first + i * stride) % s->samples);
    return count;
}
