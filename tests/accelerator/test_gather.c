/* gather, gather_for_metrics, reduce, pad_across_processes, split_between_processes. */
#include <math.h>
#include <string.h>

#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "tests/accelerator/job.h"
#include "tests/test.h"

enum {
    MOST = 64
};

static fsdp_accelerator *open_accelerator(fsdp_test *t, const fsdp_accelerator_options *more)
{
    fsdp_accelerator_options options = more ? *more : (fsdp_accelerator_options){0};
    fsdp_accelerator *a = NULL;
    options.group = t->group;
    options.cpu = true;
    if (fsdp_accelerator_create(&options, &a) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return a;
}

static fsdp_tensor *ints(fsdp_test *t, fsdp_accelerator *a, int ndim, const int64_t *shape,
                         const int32_t *values)
{
    fsdp_tensor *tensor = NULL;
    if (fsdp_tensor_from_data(fsdp_accelerator_device(a), FSDP_DTYPE_I32, ndim, shape, values,
                              FSDP_TAG_DATA, &tensor) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tensor;
}

/* Copy int32 elements, release the tensor, and return how many there are. */
static int64_t take(fsdp_test *t, fsdp_tensor *tensor, int32_t values[MOST])
{
    const int64_t n = fsdp_tensor_numel(tensor);
    if (n > MOST || fsdp_tensor_copy_to_host(tensor, values, (size_t)n * sizeof *values) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%lld: %s", (long long)n, fsdp_last_error());
    fsdp_tensor_release(tensor);
    return n;
}

TEST_RANKS(gather_concatenates_in_rank_order, 3)
{
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    const int32_t mine[] = {t->rank * 10, t->rank * 10 + 1, t->rank * 10 + 2, t->rank * 10 + 3};
    int32_t all[MOST];
    fsdp_tensor *matrix = ints(t, a, 2, (int64_t[]){2, 2}, mine), *gathered, *turned;
    CHECK_HERE();
    ASSERT_OK(fsdp_accelerator_gather(a, matrix, &gathered));
    ASSERT_INT(fsdp_tensor_ndim(gathered), 2);
    ASSERT_INT(fsdp_tensor_size(gathered, 0), 6);
    ASSERT_INT(take(t, gathered, all), 12);
    for (int i = 0; i < 12; i++)
        ASSERT_INT(all[i], i / 4 * 10 + i % 4);
    /* a view that is not contiguous */
    ASSERT_OK(fsdp_tensor_transpose(matrix, 0, 1, &turned));
    ASSERT_OK(fsdp_accelerator_gather(a, turned, &gathered));
    ASSERT_INT(take(t, gathered, all), 12);
    ASSERT_INT(all[1], 2);
    ASSERT_INT(all[4], 10);
    fsdp_tensor_release(turned);
    /* a scalar */
    fsdp_tensor *scalar = ints(t, a, 0, NULL, mine);
    CHECK_HERE();
    ASSERT_OK(fsdp_accelerator_gather(a, scalar, &gathered));
    ASSERT_INT(fsdp_tensor_ndim(gathered), 1);
    ASSERT_INT(take(t, gathered, all), 3);
    ASSERT_INT(all[2], 20);
    fsdp_tensor_release(scalar);
    fsdp_tensor_release(matrix);
    fsdp_accelerator_destroy(a);
}

TEST_RANKS(gather_of_unlike_shapes_is_an_error_on_all_ranks, 2)
{
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    const int32_t mine[] = {1, 2, 3};
    fsdp_tensor *tensor = ints(t, a, 1, (int64_t[]){t->rank + 2}, mine), *gathered;
    CHECK_HERE();
    ASSERT_ERROR(fsdp_accelerator_gather(a, tensor, &gathered), FSDP_ERR_INVALID,
                 "rank 0 has int32 [2], but rank 1 has int32 [3]; "
                 "fsdp_accelerator_pad_across_processes()");
    ASSERT_ERROR(fsdp_accelerator_reduce(a, tensor, "sum", &gathered), FSDP_ERR_INVALID,
                 "reduce: rank 0 has int32 [2]");
    ASSERT_ERROR(fsdp_accelerator_reduce(a, tensor, "median", &gathered), FSDP_ERR_INVALID,
                 "\"median\": expected sum, mean, max or none");
    ASSERT_ERROR(fsdp_accelerator_reduce(a, tensor, "mean", &gathered), FSDP_ERR_INVALID,
                 "the mean of int32");
    ASSERT_ERROR(fsdp_accelerator_pad_across_processes(a, tensor, 1, 0, false, &gathered),
                 FSDP_ERR_INVALID, "dim 1 of a tensor with 1 dimensions");
    const double wrong[] = {0x1p31, -0x1p32, 0.5, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++)
        ASSERT_ERROR(
            fsdp_accelerator_pad_across_processes(a, tensor, 0, wrong[i], false, &gathered),
            FSDP_ERR_INVALID, "is not a value of int32");
    fsdp_tensor_release(tensor);
    fsdp_accelerator_destroy(a);
}

/* ---- gather_for_metrics ---- */

/* Read an epoch of `rows` rows, gather a number that identifies each row, and check that each row
 * is there exactly once, in order. */
static void check_metrics(fsdp_test *t, const fsdp_accelerator_options *options, int64_t rows,
                          int batch_size, int accumulation, bool drop_last)
{
    fsdp_accelerator *a = open_accelerator(t, options);
    CHECK_HERE();
    fsdp_dataset *dataset;
    fsdp_loader *loader;
    fsdp_batch *batch;
    const fsdp_loader_options loading = {.sampler = {.batch_size = batch_size,
                                                     .world_size = 1,
                                                     .accumulation = accumulation,
                                                     .drop_last = drop_last,
                                                     .no_shuffle = true},
                                         .format = {.task = FSDP_TASK_CLASSIFICATION}};
    ASSERT_OK(job_dataset(rows, &dataset));
    ASSERT_OK(fsdp_loader_create(dataset, &loading, &loader));
    ASSERT_OK(fsdp_accelerator_prepare_data_loader(a, loader));
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t seen = 0;
        for (;;) {
            int32_t mine[MOST], all[MOST];
            fsdp_tensor *tensor, *gathered;
            ASSERT_OK(fsdp_accelerator_next(a, loader, &batch));
            if (!batch)
                break;
            for (int32_t i = 0; i < batch->rows; i++)
                mine[i] = batch->input_ids[batch->source_offsets[i]];
            tensor = ints(t, a, 1, (int64_t[]){batch->rows}, mine);
            CHECK_HERE();
            fsdp_batch_release(batch);
            ASSERT_OK(fsdp_accelerator_gather_for_metrics(a, tensor, &gathered));
            fsdp_tensor_release(tensor);
            const int64_t n = take(t, gathered, all);
            CHECK_HERE();
            for (int64_t i = 0; i < n; i++, seen++)
                ASSERT_INT(all[i], 5 + 16 * (seen % 2) + seen * 31 % 16);
        }
        ASSERT_INT(seen,
                   drop_last ? rows - rows % (batch_size * t->world_size * accumulation) : rows);
    }
    fsdp_loader_destroy(loader);
    fsdp_dataset_close(dataset);
    fsdp_accelerator_destroy(a);
}

/* A tensor may have more rows than the batch. Only the last batches of the epoch, which have
 * repeated examples, are cut. 2 ranks read 7 rows in batches of 2, so 3 rows are left for the last
 * ones. */
TEST_RANKS(gather_for_metrics_cuts_only_at_the_end_of_the_epoch, 2)
{
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    fsdp_dataset *dataset;
    fsdp_loader *loader;
    fsdp_batch *batch;
    const int32_t mine[] = {1, 2, 3, 4, 5, 6, 7};
    int32_t all[MOST];
    const fsdp_loader_options loading = {
        .sampler = {.batch_size = 2, .world_size = 1, .no_shuffle = true},
        .format = {.task = FSDP_TASK_CLASSIFICATION}};
    ASSERT_OK(job_dataset(7, &dataset));
    ASSERT_OK(fsdp_loader_create(dataset, &loading, &loader));
    ASSERT_OK(fsdp_accelerator_prepare_data_loader(a, loader));
    for (int round = 0; round < 2; round++) {
        fsdp_tensor *gathered, *tensor = ints(t, a, 1, (int64_t[]){7}, mine);
        CHECK_HERE();
        ASSERT_OK(fsdp_accelerator_next(a, loader, &batch));
        fsdp_batch_release(batch);
        ASSERT_OK(fsdp_accelerator_gather_for_metrics(a, tensor, &gathered));
        ASSERT_INT(take(t, gathered, all), round == 0 ? 14 : 3);
        fsdp_tensor_release(tensor);
    }
    fsdp_loader_destroy(loader);
    fsdp_dataset_close(dataset);
    fsdp_accelerator_destroy(a);
}

static void check_all_metrics(fsdp_test *t)
{
    const fsdp_accelerator_options even = {.gradient_accumulation_steps = 3},
                                   uneven = {.no_even_batches = true,
                                             .gradient_accumulation_steps = 3};
    for (int64_t rows = 1; rows < 32; rows += 5) {
        check_metrics(t, &even, rows, 4, 1, false);
        CHECK_HERE();
        check_metrics(t, &uneven, rows, 4, 1, false);
        CHECK_HERE();
        check_metrics(t, &even, rows, 2, 3, false);
        CHECK_HERE();
    }
    check_metrics(t, &even, 31, 3, 1, true);
}

TEST_RANKS(gather_for_metrics_has_each_row_once_on_one_rank, 1)
{
    check_all_metrics(t);
}

TEST_RANKS(gather_for_metrics_has_each_row_once_on_two_ranks, 2)
{
    check_all_metrics(t);
}

TEST_RANKS(gather_for_metrics_has_each_row_once_on_three_ranks, 3)
{
    check_all_metrics(t);
}

TEST_RANKS(gather_for_metrics_has_each_row_once_on_four_ranks, 4)
{
    const fsdp_accelerator_options split = {.split_batches = true};
    check_all_metrics(t);
    CHECK_HERE();
    check_metrics(t, &split, 26, 8, 1, false);
}

/* With even batches, all ranks have full batches, which is why rows are repeated. */
TEST_RANKS(even_batches_have_equal_rows, 2)
{
    job j;
    fsdp_batch *batch;
    const job_options options = {.rows = 7, .batch_size = 3};
    ASSERT_OK(job_open(&j, t->group, &options));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(fsdp_accelerator_next(j.accelerator, j.loader, &batch));
        ASSERT_INT(batch->rows, 3);
        ASSERT_INT(fsdp_accelerator_end_of_dataloader(j.accelerator), i == 1);
        fsdp_batch_release(batch);
    }
    job_close(&j);
}

/* ---- reduce and pad ---- */

TEST_RANKS(reduce_works_for_all_dtypes, 3)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    const float mine[] = {(float)t->rank, 1.5f, (float)(-2 * t->rank)};
    const float sums[] = {3, 4.5f, -6}, means[] = {1, 1.5f, -2}, mosts[] = {2, 1.5f, 0};
    for (int i = 0; i < 3; i++) {
        static const char *const words[] = {"sum", "mean", "max", "none"};
        const float *const expected[] = {sums, means, mosts, mine};
        fsdp_tensor *wide, *tensor, *out;
        ASSERT_OK(fsdp_tensor_from_data(fsdp_accelerator_device(a), FSDP_DTYPE_F32, 1,
                                        (int64_t[]){3}, mine, FSDP_TAG_DATA, &wide));
        ASSERT_OK(fsdp_tensor_to(wide, dtypes[i], FSDP_TAG_DATA, &tensor));
        for (int k = 0; k < 4; k++) {
            float found[3];
            ASSERT_OK(fsdp_accelerator_reduce(a, tensor, words[k], &out));
            ASSERT_INT(fsdp_tensor_dtype(out), dtypes[i]);
            ASSERT_OK(fsdp_tensor_to_floats(out, found));
            for (int e = 0; e < 3; e++)
                ASSERT_F32(found[e], expected[k][e]);
            fsdp_tensor_release(out);
        }
        fsdp_tensor_release(tensor);
        fsdp_tensor_release(wide);
    }
    const int32_t number = 5 + t->rank;
    int32_t sum[MOST];
    fsdp_tensor *integers = ints(t, a, 1, (int64_t[]){1}, &number), *out;
    CHECK_HERE();
    ASSERT_OK(fsdp_accelerator_reduce(a, integers, "sum", &out));
    ASSERT_INT(take(t, out, sum), 1);
    ASSERT_INT(sum[0], 18);
    fsdp_tensor_release(integers);
    fsdp_accelerator_destroy(a);
}

/* Rank r has r + 1 columns; all get 3. */
TEST_RANKS(pad_across_processes_fills_any_dimension, 3)
{
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    int32_t mine[6], found[MOST];
    const int n = t->rank + 1;
    for (int i = 0; i < 2 * n; i++)
        mine[i] = 10 * t->rank + i;
    fsdp_tensor *tensor = ints(t, a, 2, (int64_t[]){2, n}, mine), *padded;
    CHECK_HERE();
    for (int first = 0; first < 2; first++) {
        ASSERT_OK(fsdp_accelerator_pad_across_processes(a, tensor, -1, -100, first, &padded));
        ASSERT_INT(fsdp_tensor_size(padded, 0), 2);
        ASSERT_INT(take(t, padded, found), 6);
        for (int i = 0; i < 6; i++) {
            const int column = i % 3 - (first ? 3 - n : 0);
            const bool old = column >= 0 && column < n;
            ASSERT_INT(found[i], old ? mine[i / 3 * n + column] : -100);
        }
    }
    fsdp_tensor_release(tensor);
    fsdp_tensor *wide, *half, *out;
    float values[3];
    ASSERT_OK(fsdp_tensor_from_data(fsdp_accelerator_device(a), FSDP_DTYPE_F32, 1, (int64_t[]){n},
                                    (float[]){1, 2, 3}, FSDP_TAG_DATA, &wide));
    ASSERT_OK(fsdp_tensor_to(wide, FSDP_DTYPE_BF16, FSDP_TAG_DATA, &half));
    ASSERT_OK(fsdp_accelerator_pad_across_processes(a, half, 0, -0.5, false, &out));
    ASSERT_OK(fsdp_tensor_to_floats(out, values));
    ASSERT_F32(values[0], 1);
    ASSERT_F32(values[2], n == 3 ? 3 : -0.5);
    fsdp_tensor_release(out);
    fsdp_tensor_release(half);
    fsdp_tensor_release(wide);
    fsdp_accelerator_destroy(a);
}

TEST_RANKS(work_is_split_between_processes, 3)
{
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    static const int64_t expected[] = {0, 3, 5, 7};
    int64_t begin, end;
    fsdp_accelerator_split_between_processes(a, 7, &begin, &end);
    ASSERT_INT(begin, expected[t->rank]);
    ASSERT_INT(end, expected[t->rank + 1]);
    bool triggered;
    ASSERT_OK(fsdp_accelerator_check_trigger(a, &triggered));
    ASSERT(!triggered);
    if (t->rank == 1)
        fsdp_accelerator_set_trigger(a);
    ASSERT_OK(fsdp_accelerator_check_trigger(a, &triggered));
    ASSERT(triggered);
    ASSERT_OK(fsdp_accelerator_check_trigger(a, &triggered));
    ASSERT(!triggered);
    ASSERT_INT(fsdp_accelerator_is_main_process(a), t->rank == 0);
    ASSERT_INT(fsdp_accelerator_is_last_process(a), t->rank == 2);
    ASSERT_INT(fsdp_accelerator_num_processes(a), 3);
    ASSERT_INT(fsdp_accelerator_local_process_index(a), t->rank);
    fsdp_accelerator_destroy(a);
}

/* ---- bytes ---- */

TEST_RANKS(objects_of_any_length_are_gathered, 3)
{
    static const char *const texts[] = {"a", "", "longer than the others"};
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    fsdp_object_bytes *objects, *none = NULL;
    ASSERT_OK(fsdp_accelerator_gather_object(a, texts[t->rank], strlen(texts[t->rank]), &objects));
    for (int r = 0; r < 3; r++) {
        ASSERT_INT(objects[r].n, strlen(texts[r]));
        ASSERT_STR((const char *)objects[r].bytes, texts[r]);
    }
    fsdp_object_bytes_free(objects);
    ASSERT_OK(fsdp_accelerator_gather_object(a, NULL, 0, &objects));
    ASSERT_INT(objects[2].n, 0);
    ASSERT_STR((const char *)objects[2].bytes, "");
    fsdp_object_bytes_free(objects);
    /* The error of one rank is that of all. */
    ASSERT_ERROR(fsdp_accelerator_gather_object(a, t->rank == 1 ? NULL : "x", 1, &none),
                 FSDP_ERR_INVALID, "gather_object: bytes is NULL");
    ASSERT(!none);
    fsdp_accelerator_destroy(a);
}

TEST_RANKS(an_object_of_any_process_is_broadcast, 3)
{
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    fsdp_object_bytes *object, *none = NULL;
    const char *mine = t->rank == 2 ? "from two" : NULL; /* not read on the other ranks */
    ASSERT_OK(fsdp_accelerator_broadcast_object(a, mine, t->rank == 2 ? 8 : 99, 2, &object));
    ASSERT_INT(object->n, 8);
    ASSERT_STR((const char *)object->bytes, "from two");
    fsdp_object_bytes_free(object);
    ASSERT_OK(fsdp_accelerator_broadcast_object(a, NULL, 0, 0, &object));
    ASSERT_INT(object->n, 0);
    fsdp_object_bytes_free(object);
    ASSERT_ERROR(fsdp_accelerator_broadcast_object(a, "x", 1, 3, &none), FSDP_ERR_INVALID,
                 "from_process 3, but the processes are 0 to 2");
    ASSERT_ERROR(fsdp_accelerator_broadcast_object(a, "x", 1, t->rank == 0 ? -1 : 0, &none),
                 FSDP_ERR_INVALID, "from_process -1");
    fsdp_accelerator_destroy(a);
}

/* One rank fails before it sends its length to the others. */
TEST_RANKS(no_rank_waits_for_one_without_memory, 2)
{
    fsdp_accelerator *a = open_accelerator(t, NULL);
    CHECK_HERE();
    fsdp_object_bytes *objects = NULL;
    fsdp_alloc_fail_at(t->rank == 1);
    const fsdp_status status = fsdp_accelerator_gather_object(a, "text", 4, &objects);
    fsdp_alloc_fail_at(0);
    ASSERT_INT(status, FSDP_ERR_NOMEM);
    ASSERT(!objects);
    ASSERT_OK(fsdp_accelerator_gather_object(a, "text", 4, &objects));
    ASSERT_STR((const char *)objects[1].bytes, "text");
    fsdp_object_bytes_free(objects);
    fsdp_accelerator_destroy(a);
}

/* An allocation of a collective that fails ends the group, so each attempt has its own. */
static fsdp_status gather_with_failure(fsdp_group *group, void *arg)
{
    fsdp_accelerator *a;
    fsdp_object_bytes *objects = NULL;
    const fsdp_accelerator_options options = {.group = group, .cpu = true};
    FSDP_TRY(fsdp_accelerator_create(&options, &a));
    fsdp_alloc_fail_at(*(const long *)arg);
    const fsdp_status status = fsdp_accelerator_gather_object(a, "text", 4, &objects);
    fsdp_alloc_fail_at(0);
    fsdp_object_bytes_free(objects);
    fsdp_accelerator_destroy(a);
    return status;
}

TEST(gathering_objects_without_memory_leaks_nothing)
{
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        status = fsdp_run_ranks(1, gather_with_failure, &n, NULL);
    }
}
