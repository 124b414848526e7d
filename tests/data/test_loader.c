/* Collating and loading from a dataset whose examples identify themselves: example i has source [i,
 * i, ...] of i % 3 + 1 ids and label i. */
#include <fsdp/data.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/test.h"

typedef struct numbers {
    int64_t len;
    int64_t bad;  /* the example that fails; -1: none */
    int delay_us; /* maximum delay, different for each example */
    atomic_int gets, open;
} numbers;

static int64_t numbers_len(void *self)
{
    return ((const numbers *)self)->len;
}

static fsdp_status numbers_get(void *self, int64_t index, fsdp_example *example)
{
    numbers *n = self;
    atomic_fetch_add(&n->gets, 1);
    if (n->delay_us) {
        struct timespec pause = {.tv_nsec = 1000L * (long)(index * 7919 % (n->delay_us + 1))};
        nanosleep(&pause, NULL);
    }
    if (index == n->bad)
        return fsdp_error(FSDP_ERR_FORMAT, "numbers: line %d: bad", (int)index);
    const int32_t source[3] = {(int32_t)index, (int32_t)index, (int32_t)index};
    FSDP_TRY(fsdp_token_list_set(&example->source, source, (size_t)(index % 3 + 1)));
    return fsdp_token_list_set(&example->labels, source, 1);
}

static void numbers_close(void *self)
{
    atomic_fetch_sub(&((numbers *)self)->open, 1);
}

static const fsdp_dataset_ops numbers_ops = {
    .len = numbers_len, .get = numbers_get, .close = numbers_close};

TEST(examples_are_gathered_in_order)
{
    numbers n = {.len = 10, .bad = 4, .open = 1};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 10);
    const int64_t indices[] = {8, 1, 3}, bad[] = {1, 4}, outside[] = {10};
    fsdp_batch *batch = NULL;
    ASSERT_OK(fsdp_collate(dataset, indices, 3, NULL, &batch));
    ASSERT_INT(batch->rows, 3);
    ASSERT_INT(batch->source_tokens, 3 + 2 + 1);
    ASSERT_INT(batch->input_ids[0], 8);
    ASSERT_INT(batch->input_ids[3], 1);
    ASSERT_INT(batch->input_ids[5], 3);
    ASSERT_INT(batch->labels[2], 3);
    ASSERT_INT(batch->decoder_input_ids[2], 0);
    ASSERT_INT(batch->label_tokens, 3);
    fsdp_batch_release(batch);
    batch = NULL;
    ASSERT_ERROR(fsdp_collate(dataset, bad, 2, NULL, &batch), FSDP_ERR_FORMAT, "line 4: bad");
    ASSERT_ERROR(fsdp_collate(dataset, outside, 1, NULL, &batch), FSDP_ERR_INVALID, "example 10");
    ASSERT(batch == NULL);
    ASSERT_OK(fsdp_collate(dataset, NULL, 0, NULL, &batch));
    ASSERT_INT(batch->rows, 0);
    fsdp_batch_release(batch);
    char *text;
    ASSERT_ERROR(fsdp_dataset_texts(dataset, 0, &text, NULL), FSDP_ERR_UNSUPPORTED, "no texts");
    fsdp_dataset_close(dataset);
    ASSERT_INT(n.open, 0);
    fsdp_dataset_close(NULL);
}

/* Check that the batches from (epoch, step) to the end of the epoch are those of the sampler. */
static void check_epoch(fsdp_test *t, fsdp_loader *loader, const fsdp_sampler *s, int64_t epoch,
                        int64_t step)
{
    fsdp_batch *batch;
    for (; step < fsdp_sampler_steps(s); step++)
        for (int32_t a = 0; a < s->accumulation; a++) {
            int64_t indices[16];
            int32_t count = fsdp_sampler_batch(s, epoch, step, a, indices);
            ASSERT_OK(fsdp_loader_next(loader, &batch));
            ASSERT(batch != NULL);
            ASSERT_INT(batch->rows, count);
            for (int32_t i = 0; i < count; i++)
                ASSERT_INT(batch->input_ids[batch->source_offsets[i]], indices[i]);
            ASSERT_INT(batch->seed, s->seed);
            ASSERT_INT(batch->epoch, epoch);
            ASSERT_INT(batch->step, epoch * fsdp_sampler_steps(s) + step);
            ASSERT_INT(batch->micro_batch, a * s->world_size + s->rank);
            fsdp_batch_release(batch);
        }
    for (int again = 0; again < 2; again++) {
        ASSERT_OK(fsdp_loader_next(loader, &batch));
        ASSERT(batch == NULL);
    }
}

TEST(any_number_of_workers_gives_the_same_batches)
{
    static const int workers[] = {0, 1, 2, 5};
    numbers n = {.len = 43, .bad = -1, .delay_us = 300, .open = 1};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    for (int i = 0; i < 8; i++) {
        fsdp_loader_options options = {
            .sampler = {.kind = i < 4 ? FSDP_SAMPLER_DEFAULT : FSDP_SAMPLER_DISTRIBUTED,
                        .samples = 43,
                        .batch_size = 3,
                        .rank = 1,
                        .world_size = 2,
                        .accumulation = 2,
                        .seed = 9},
            .num_workers = workers[i % 4],
            .prefetch_factor = i % 3};
        fsdp_loader *loader;
        ASSERT_OK(fsdp_loader_create(dataset, &options, &loader));
        ASSERT_INT(fsdp_loader_steps(loader), 4);
        check_epoch(t, loader, &options.sampler, 0, 0);
        CHECK_HERE();
        fsdp_loader_set_epoch(loader, 1);
        check_epoch(t, loader, &options.sampler, 1, 0);
        CHECK_HERE();
        fsdp_loader_seek(loader, 5, 3);
        check_epoch(t, loader, &options.sampler, 5, 3);
        CHECK_HERE();
        fsdp_loader_seek(loader, 0, 4);
        check_epoch(t, loader, &options.sampler, 0, 4);
        CHECK_HERE();
        fsdp_loader_destroy(loader);
    }
    fsdp_dataset_close(dataset);
}

/* Seek and destroy in the middle of an epoch, with batches ready, in progress and not started. */
TEST(a_loader_may_be_turned_or_ended_at_any_time)
{
    numbers n = {.len = 64, .bad = -1, .delay_us = 100, .open = 1};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    fsdp_loader_options options = {
        .sampler = {.batch_size = 2, .world_size = 1, .accumulation = 1, .seed = 2},
        .num_workers = 3};
    for (int taken = 0; taken < 12; taken++) {
        fsdp_loader *loader;
        fsdp_batch *batch;
        ASSERT_OK(fsdp_loader_create(dataset, &options, &loader));
        for (int turn = 0; turn < 3; turn++) {
            for (int i = 0; i < taken; i++) {
                ASSERT_OK(fsdp_loader_next(loader, &batch));
                ASSERT(batch != NULL);
                fsdp_batch_release(batch);
            }
            fsdp_loader_set_epoch(loader, turn);
        }
        fsdp_sampler s = options.sampler;
        s.samples = 64;
        check_epoch(t, loader, &s, 2, 0);
        CHECK_HERE();
        fsdp_loader_seek(loader, 0, taken);
        fsdp_loader_destroy(loader);
    }
    fsdp_dataset_close(dataset);
}

/* At most workers x prefetch_factor batches are ready. */
TEST(workers_do_not_run_away)
{
    numbers n = {.len = 1000, .bad = -1, .open = 1};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    const fsdp_loader_options options = {
        .sampler = {.batch_size = 5, .world_size = 1}, .num_workers = 2, .prefetch_factor = 3};
    fsdp_loader *loader;
    ASSERT_OK(fsdp_loader_create(dataset, &options, &loader));
    for (int i = 0; i < 60000 && atomic_load(&n.gets) < 30; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    ASSERT_INT(atomic_load(&n.gets), 30);
    fsdp_loader_destroy(loader);
    fsdp_dataset_close(dataset);
}

TEST(a_worker_s_error_comes_in_its_turn_and_stays)
{
    numbers n = {.len = 20, .bad = 9, .delay_us = 200, .open = 1};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    for (int workers = 0; workers < 4; workers++) {
        const fsdp_loader_options options = {
            .sampler = {.batch_size = 2, .world_size = 1, .no_shuffle = true},
            .num_workers = workers};
        fsdp_loader *loader;
        fsdp_batch *batch;
        ASSERT_OK(fsdp_loader_create(dataset, &options, &loader));
        for (int i = 0; i < 4; i++) {
            ASSERT_OK(fsdp_loader_next(loader, &batch));
            fsdp_batch_release(batch);
        }
        for (int again = 0; again < 3; again++)
            ASSERT_ERROR(fsdp_loader_next(loader, &batch), FSDP_ERR_FORMAT, "numbers: line 9: bad");
        fsdp_loader_seek(loader, 0, 5);
        ASSERT_OK(fsdp_loader_next(loader, &batch));
        ASSERT_INT(batch->labels[0], 10);
        fsdp_batch_release(batch);
        fsdp_loader_destroy(loader);
    }
    fsdp_dataset_close(dataset);
}

TEST(a_loader_out_of_range_is_refused)
{
    numbers n = {.len = 20, .bad = -1, .open = 1};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    fsdp_loader *loader = NULL;
    fsdp_loader_options options = {.sampler = {.batch_size = 2, .world_size = 1},
                                   .num_workers = -1};
    ASSERT_ERROR(fsdp_loader_create(dataset, &options, &loader), FSDP_ERR_INVALID, "-1 workers");
    options.num_workers = 1;
    options.prefetch_factor = -2;
    ASSERT_ERROR(fsdp_loader_create(dataset, &options, &loader), FSDP_ERR_INVALID, "factor -2");
    options.prefetch_factor = 0;
    options.sampler.samples = 21;
    ASSERT_ERROR(fsdp_loader_create(dataset, &options, &loader), FSDP_ERR_INVALID, "more samples");
    options.sampler.samples = 0;
    options.sampler.world_size = 0;
    ASSERT_ERROR(fsdp_loader_create(dataset, &options, &loader), FSDP_ERR_INVALID, "rank 0 of 0");
    ASSERT(loader == NULL);
    fsdp_loader_destroy(NULL);
    fsdp_dataset_close(dataset);
}

/* Tokenizing real texts in threads gives the same ids as tokenizing inline. */
TEST(text_is_tokenised_alike_in_threads)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer;
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer));
    const fsdp_dataset_options data = {.tokenizer = tokenizer, .source_prefix = "summarize: "};
    ASSERT_OK(fsdp_dataset_open(fsdp_test_path("../data/debian/validation.csv"), &data, &dataset));
    fsdp_loader *loaders[2];
    for (int i = 0; i < 2; i++) {
        const fsdp_loader_options options = {.sampler = {.batch_size = 4, .world_size = 1},
                                             .num_workers = 3 * i};
        ASSERT_OK(fsdp_loader_create(dataset, &options, &loaders[i]));
    }
    int64_t batches = 0;
    for (;; batches++) {
        fsdp_batch *inline_made, *worker_made;
        ASSERT_OK(fsdp_loader_next(loaders[0], &inline_made));
        ASSERT_OK(fsdp_loader_next(loaders[1], &worker_made));
        ASSERT_INT(inline_made == NULL, worker_made == NULL);
        if (!inline_made)
            break;
        ASSERT_INT(inline_made->source_tokens, worker_made->source_tokens);
        ASSERT(memcmp(inline_made->input_ids, worker_made->input_ids,
                      (size_t)inline_made->source_tokens * sizeof(int32_t)) == 0);
        ASSERT_INT(inline_made->target_tokens, worker_made->target_tokens);
        ASSERT(memcmp(inline_made->labels, worker_made->labels,
                      (size_t)inline_made->target_tokens * sizeof(int32_t)) == 0);
        fsdp_batch_release(inline_made);
        fsdp_batch_release(worker_made);
    }
    ASSERT_INT(batches, 25);
    for (int i = 0; i < 2; i++)
        fsdp_loader_destroy(loaders[i]);
    fsdp_dataset_close(dataset);
    fsdp_tokenizer_close(tokenizer);
}

/* The new sampler applies at once, also to batches that workers had prepared. */
TEST(a_loader_can_be_split_over_ranks_afterwards)
{
    numbers n = {.len = 43, .bad = -1, .delay_us = 100, .open = 1};
    fsdp_dataset *dataset;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    for (int workers = 0; workers < 3; workers++) {
        const fsdp_loader_options options = {
            .sampler = {.batch_size = 4, .world_size = 1, .seed = 3}, .num_workers = workers};
        fsdp_loader *loader;
        fsdp_batch *batch;
        ASSERT_OK(fsdp_loader_create(dataset, &options, &loader));
        ASSERT_OK(fsdp_loader_next(loader, &batch));
        fsdp_batch_release(batch);
        fsdp_sampler split = fsdp_loader_get_options(loader)->sampler;
        ASSERT_INT(split.samples, 43);
        split.rank = 2;
        split.world_size = 3;
        split.even_batches = true;
        ASSERT_OK(fsdp_loader_set_sampler(loader, &split));
        check_epoch(t, loader, &split, 0, 0);
        CHECK_HERE();
        fsdp_sampler wrong = split;
        wrong.rank = 3;
        ASSERT_ERROR(fsdp_loader_set_sampler(loader, &wrong), FSDP_ERR_INVALID, "rank 3 of 3");
        fsdp_loader_set_epoch(loader, 1);
        check_epoch(t, loader, &split, 1, 0);
        CHECK_HERE();
        fsdp_loader_destroy(loader);
    }
    fsdp_dataset_close(dataset);
}

/* Set the size of the stacks of new threads, and return the old size. */
static size_t set_stack_size(size_t bytes)
{
    pthread_attr_t attributes;
    size_t before = 0;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &before);
    pthread_attr_setstacksize(&attributes, bytes);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    return before;
}

/* No thread can be started, because its stack would be too large. A loader whose workers could not
 * be started again does not wait for them. It starts them as soon as it can. */
TEST(a_loader_without_workers_does_not_wait_for_them)
{
    numbers n = {.len = 4, .bad = -1, .open = 1};
    const fsdp_loader_options options = {.sampler = {.batch_size = 1, .world_size = 1},
                                         .num_workers = 2};
    fsdp_dataset *dataset;
    fsdp_loader *loader;
    fsdp_batch *batch;
    ASSERT_OK(fsdp_dataset_create(&numbers_ops, &n, &dataset));
    ASSERT_OK(fsdp_loader_create(dataset, &options, &loader));
    const size_t before = set_stack_size((size_t)1 << 60);
    const fsdp_status split = fsdp_loader_set_sampler(loader, &options.sampler);
    const fsdp_status next = fsdp_loader_next(loader, &batch);
    set_stack_size(before);
    ASSERT(split == FSDP_ERR_IO && next == FSDP_ERR_IO);
    ASSERT(strstr(fsdp_last_error(), "loader: worker 0 of 2: "));
    ASSERT_OK(fsdp_loader_next(loader, &batch));
    ASSERT_INT(batch->rows, 1);
    fsdp_batch_release(batch);
    fsdp_loader_destroy(loader);
    fsdp_dataset_close(dataset);
}
