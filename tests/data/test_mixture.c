/* Mixtures of datasets that identify themselves: an example of part p has source [p, index,
 * epoch]. */
#include <fsdp/data.h>

#include <string.h>

#include "tests/test.h"

typedef struct numbers {
    int64_t len;
    int32_t name;
    int closed;
} numbers;

static int64_t numbers_len(void *self)
{
    return ((const numbers *)self)->len;
}

static fsdp_status numbers_draw(void *self, int64_t index, const fsdp_draw *draw,
                                fsdp_example *example)
{
    const int32_t ids[] = {((const numbers *)self)->name, (int32_t)index, (int32_t)draw->epoch};
    return fsdp_token_list_set(&example->source, ids, 3);
}

static void numbers_close(void *self)
{
    ((numbers *)self)->closed++;
}

static const fsdp_dataset_ops ops = {
    .len = numbers_len, .draw = numbers_draw, .close = numbers_close};

enum {
    PARTS = 3
};

/* Parts of 50, 7 and 300 examples. */
static void open_parts(fsdp_test *t, const double *weights, numbers *n, fsdp_mixture_part *parts)
{
    static const int64_t lens[PARTS] = {50, 7, 300};
    for (int i = 0; i < PARTS; i++) {
        n[i] = (numbers){.len = lens[i], .name = i};
        ASSERT_OK(fsdp_dataset_create(&ops, &n[i], &parts[i].dataset));
        parts[i].weight = weights[i];
    }
}

/* Over many epochs of a mixture, count how often each example of a part came, and in which of the
 * part's own epochs. */
static void check_mixture(fsdp_test *t, const double *weights, const int *counts, bool no_shuffle)
{
    enum {
        EPOCHS = 20
    };
    static int seen[PARTS][300][1024];
    numbers n[PARTS];
    fsdp_mixture_part parts[PARTS];
    fsdp_dataset *mixture;
    fsdp_example e = {0};
    int64_t total[PARTS] = {0};
    memset(seen, 0, sizeof seen);
    open_parts(t, weights, n, parts);
    CHECK_HERE();
    ASSERT_OK(fsdp_mixture_create(parts, PARTS, no_shuffle, &mixture));
    ASSERT_INT(fsdp_dataset_len(mixture), 357);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        const fsdp_draw draw = {.seed = 5, .epoch = epoch};
        int found[PARTS] = {0};
        for (int64_t i = 0; i < 357; i++) {
            ASSERT_OK(fsdp_dataset_draw(mixture, i, &draw, &e));
            const int32_t *who = e.source.ids;
            found[who[0]]++;
            ASSERT(who[2] < 1024);
            ASSERT_INT(seen[who[0]][who[1]][who[2]]++, 0);
            total[who[0]]++;
            /* Parts are spread evenly: part 0 exactly, the others among the remaining examples. */
            ASSERT_NEAR(found[who[0]], (double)(i + 1) * counts[who[0]] / 357, who[0] ? 2.0 : 1.0);
        }
        for (int p = 0; p < PARTS; p++)
            ASSERT_INT(found[p], counts[p]);
    }
    for (int p = 0; p < PARTS; p++) /* whole epochs of the part, then the beginning of another */
        for (int64_t k = 0; k < n[p].len; k++)
            for (int64_t own = 0; own < total[p] / n[p].len; own++)
                ASSERT_INT(seen[p][k][own], 1);
    fsdp_example_fini(&e);
    fsdp_dataset_close(mixture);
    for (int p = 0; p < PARTS; p++)
        ASSERT_INT(n[p].closed, 1);
}

TEST(each_part_has_its_rate_in_every_epoch)
{
    static const double weights[][PARTS] = {{1, 1, 2}, {0.7, 0.2, 0.1}, {0, 0, 0}, {3, 3, 3}};
    static const int counts[][PARTS] = {
        {89, 89, 179}, {250, 71, 36}, {50, 7, 300}, {119, 119, 119}};
    for (size_t i = 0; i < 4; i++)
        for (int no_shuffle = 0; no_shuffle < 2; no_shuffle++) {
            check_mixture(t, weights[i], counts[i], no_shuffle);
            CHECK_HERE();
        }
}

/* Fill `rows` [357] with part and index of each example of a loader's first epoch. */
static void list_rows(fsdp_test *t, const fsdp_sampler *sampler, int32_t rows[][2])
{
    static const double weights[PARTS] = {25, 32, 300};
    numbers n[PARTS];
    fsdp_mixture_part parts[PARTS];
    fsdp_dataset *mixture;
    fsdp_loader *loader;
    const fsdp_loader_options options = {.sampler = *sampler};
    open_parts(t, weights, n, parts);
    CHECK_HERE();
    ASSERT_OK(fsdp_mixture_create(parts, PARTS, false, &mixture));
    ASSERT_OK(fsdp_loader_create(mixture, &options, &loader));
    for (int i = 0; i < 357; i++) {
        fsdp_batch *batch;
        ASSERT_OK(fsdp_loader_next(loader, &batch));
        rows[i][0] = batch->input_ids[0];
        rows[i][1] = batch->input_ids[1];
        fsdp_batch_release(batch);
    }
    fsdp_loader_destroy(loader);
    fsdp_dataset_close(mixture);
}

/* With order_seed, the order of all rows depends on it alone, and without it on the seed. */
TEST(order_seed_decides_the_order_within_the_parts)
{
    static int32_t plain[357][2], same[357][2], other[357][2];
    fsdp_sampler sampler = {.samples = 357, .batch_size = 1, .world_size = 1, .seed = 3};
    list_rows(t, &sampler, plain);
    CHECK_HERE();
    sampler.seed = 4;
    list_rows(t, &sampler, other);
    ASSERT(memcmp(plain, other, sizeof plain) != 0);
    sampler.has_order_seed = true;
    sampler.order_seed = 3;
    list_rows(t, &sampler, same);
    ASSERT(memcmp(plain, same, sizeof plain) == 0);
}

/* The first 25 of 50 examples in a first epoch are in file order without a shuffle, else in any
 * order. */
TEST(parts_keep_their_order_only_without_shuffle)
{
    static const double weights[PARTS] = {25, 32, 300};
    numbers n[PARTS];
    fsdp_mixture_part parts[PARTS];
    fsdp_example e = {0};
    for (int no_shuffle = 0; no_shuffle < 2; no_shuffle++) {
        fsdp_dataset *mixture;
        int32_t next = 0;
        bool in_order = true;
        open_parts(t, weights, n, parts);
        CHECK_HERE();
        ASSERT_OK(fsdp_mixture_create(parts, PARTS, no_shuffle, &mixture));
        for (int64_t i = 0; i < 357; i++) {
            ASSERT_OK(fsdp_dataset_get(mixture, i, &e));
            if (e.source.ids[0] == 0)
                in_order &= e.source.ids[1] == next++;
        }
        ASSERT_INT(next, 25);
        ASSERT_INT(in_order, no_shuffle);
        fsdp_dataset_close(mixture);
    }
    fsdp_example_fini(&e);
}

TEST(weights_that_leave_nothing_are_refused)
{
    static const double bad[][PARTS] = {{1, -1, 1},   {1, 1, (double)NAN}, {1, (double)INFINITY, 1},
                                        {1, 1e-9, 1}, {0, 1, 1},           {1e308, 1e308, 1}};
    static const char *const messages[] = {"weight -1 of part 2",  "weight nan of part 3",
                                           "weight inf of part 2", "part 2, of all 2",
                                           "weight 0 of part 1",   "weights of inf in all"};
    numbers n[PARTS];
    fsdp_mixture_part parts[PARTS];
    fsdp_dataset *mixture = NULL;
    for (size_t i = 0; i < 6; i++) {
        open_parts(t, bad[i], n, parts);
        CHECK_HERE();
        ASSERT_ERROR(fsdp_mixture_create(parts, PARTS, false, &mixture), FSDP_ERR_INVALID,
                     messages[i]);
        for (int p = 0; p < PARTS; p++) {
            ASSERT_INT(n[p].closed, 0); /* the caller still owns it */
            fsdp_dataset_close(parts[p].dataset);
        }
    }
    /* A part without rows cannot supply the share that its weight gives it. */
    open_parts(t, (const double[]){1, 1, 1}, n, parts);
    CHECK_HERE();
    fsdp_dataset_close(parts[1].dataset);
    n[1].len = 0;
    ASSERT_OK(fsdp_dataset_create(&ops, &n[1], &parts[1].dataset));
    ASSERT_ERROR(fsdp_mixture_create(parts, PARTS, false, &mixture), FSDP_ERR_INVALID,
                 "part 2 has no rows");
    for (int p = 0; p < PARTS; p++)
        fsdp_dataset_close(parts[p].dataset);
    ASSERT_ERROR(fsdp_mixture_create(parts, 0, false, &mixture), FSDP_ERR_INVALID, "no parts");
    ASSERT(mixture == NULL);
}
