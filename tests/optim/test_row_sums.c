/* Sums over rows of whole tensors: every partition of the rows gives the same bits as a naive
 * tree. */
#include "src/optim/row_sums.h"
#include "src/tensor/tensor.h"
#include "tests/optim/shards.h"
#include "tests/test.h"

enum {
    MAX_ROWS = 130,
    WIDTH = 3
};

/* Level by level: neighbors are added; an odd last one moves up. */
static double tree_of(double *level, int64_t n)
{
    while (n > 1) {
        for (int64_t i = 0; i < n / 2; i++)
            level[i] = level[2 * i] + level[2 * i + 1];
        if (n % 2)
            level[n / 2] = level[n - 1];
        n = (n + 1) / 2;
    }
    return n ? level[0] : 0.0;
}

static double value_at(int64_t row, int column)
{
    return (double)shards_random((uint64_t)column, row) * exp2((double)(row % 40));
}

/* Combines the numbers of this rank's rows, which are in host memory. */
static void put_rows(fsdp_test *t, const fsdp_row_sums *sums, fsdp_device *device, size_t item,
                     int64_t column, const double *values)
{
    const fsdp_row_sum *s = &sums->items[item];
    fsdp_tensor *rows;
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F64, 1, (int64_t[]){s->end - s->begin},
                                    values, FSDP_TAG_COMM, &rows));
    const fsdp_row_values of = {
        .item = item, .column = column, .rows = fsdp_tensor_ptr(rows), .n = s->end - s->begin};
    fsdp_row_sums_combine(sums, &of, 1);
    fsdp_tensor_release(rows);
}

/* Two tensors at once; the second has `inner` rows per row of dimension 0. */
static void check_rows(fsdp_test *t, fsdp_device *device, int64_t rows, int64_t inner)
{
    fsdp_row_sum items[2] = {
        {.group = t->group, .rows = rows, .inner = 1, .width = WIDTH},
        {.group = t->group, .rows = rows, .inner = inner, .width = 1},
    };
    fsdp_row_sums sums;
    double values[MAX_ROWS];
    ASSERT_OK(fsdp_row_sums_open(&sums, items, 2, FSDP_REDUCE_SUM, device));
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < items[i].width; c++) {
            for (int64_t r = items[i].begin; r < items[i].end; r++)
                values[r - items[i].begin] = value_at(r, c);
            put_rows(t, &sums, device, (size_t)i, c, values);
            CHECK_HERE();
        }
    ASSERT_OK(fsdp_row_sums_gather(&sums));
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < items[i].width; c++) {
            int64_t n = rows * items[i].inner;
            for (int64_t r = 0; r < n; r++)
                values[r] = value_at(r, c);
            ASSERT_F32(items[i].total[c], tree_of(values, n));
        }
    fsdp_row_sums_close(&sums);
}

static void check_sums(fsdp_test *t)
{
    static const int64_t rows[] = {0, 1, 2, 3, 7, 8, 17, 31, 33, 43};
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (int i = 0; i < 10; i++) {
        check_rows(t, device, rows[i], 1);
        check_rows(t, device, rows[i], 3);
        CHECK_HERE();
    }
    fsdp_device_destroy(device);
}

TEST(sums_are_the_aligned_binary_tree_without_a_group)
{
    check_sums(t);
}
TEST_RANKS(sums_are_the_aligned_binary_tree_on_2_ranks, 2)
{
    check_sums(t);
}
TEST_RANKS(sums_are_the_aligned_binary_tree_on_3_ranks, 3)
{
    check_sums(t);
}
TEST_RANKS(sums_are_the_aligned_binary_tree_on_7_ranks, 7)
{
    check_sums(t);
}

TEST_RANKS(segments_are_aligned_powers_of_two, 2)
{
    for (int64_t begin = 0; begin < 40; begin++)
        for (int64_t end = begin + 1; end <= 40; end++)
            for (int64_t b = begin, e; b < end; b = e) {
                const fsdp_row_sum item = {.group = t->group, .begin = begin, .end = end};
                e = fsdp_row_segment_end(&item, b);
                ASSERT(e > b && e <= end);
                int64_t size = e - b;
                ASSERT_INT(size & (size - 1), 0);
                ASSERT_INT(b % size, 0);
                ASSERT(b % (2 * size) || b + 2 * size > end); /* no larger segment is possible */
            }
}

/* The largest of all rows; a NaN is larger than any number, whichever rank has it. */
TEST_RANKS(largest_of_all_rows, 3)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (int64_t nan = -1; nan < 11; nan++) {
        fsdp_row_sum item = {.group = t->group, .rows = 11, .inner = 1, .width = 1};
        fsdp_row_sums sums;
        double values[11];
        ASSERT_OK(fsdp_row_sums_open(&sums, &item, 1, FSDP_REDUCE_MAX, device));
        for (int64_t r = item.begin; r < item.end; r++)
            values[r - item.begin] = r == nan ? (double)NAN : (double)(r * (10 - r));
        put_rows(t, &sums, device, 0, 0, values);
        CHECK_HERE();
        ASSERT_OK(fsdp_row_sums_gather(&sums));
        if (nan < 0)
            ASSERT_F32(item.total[0], 25.0);
        else
            ASSERT(isnan(item.total[0]));
        fsdp_row_sums_close(&sums);
    }
    fsdp_device_destroy(device);
}
