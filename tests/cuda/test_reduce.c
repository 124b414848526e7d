/* tree_sum, tree_sum_rows and row_power_sums on a CUDA device. */
#include "tests/cuda/conform.h"

enum {
    MOST_SOURCES = 41
};

static void *element(const conform_array *a, bool device, int64_t i)
{
    return (char *)(device ? a->device : a->host) + (size_t)i * fsdp_dtype_size(a->dtype);
}

/* If `over` is the number of a source, the sum overwrites it. */
static void check_tree_sum(conform *x, fsdp_dtype dtype, int sources, int64_t n, int64_t skip,
                           int over)
{
    conform_array *src[MOST_SOURCES] = {NULL}, *dst;
    for (int s = 0; s < sources; s++)
        src[s] = conform_input(x, dtype, n + skip, (uint64_t)s + 1, -1.0, 1.0);
    dst = over >= 0 ? src[over] : conform_output(x, FSDP_DTYPE_F32, n + skip);
    for (int device = 0; device < 2; device++) {
        const void *pointers[MOST_SOURCES];
        for (int s = 0; s < sources; s++)
            pointers[s] = element(src[s], device, skip);
        if (device)
            x->dk->tree_sum(x->dc, element(dst, true, skip), pointers, sources, dtype, n, 0.3f);
        else
            x->k->tree_sum(x->c, element(dst, false, skip), pointers, sources, dtype, n, 0.3f);
        memset(pointers, 0, sizeof pointers); /* the call has copied them */
    }
    conform_equal(x, dst, fsdp_dtype_name(dtype));
    conform_free(x);
}

TEST(tree_sum_gives_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 9, 1027};
    static const int sources[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 16, 17, 24, 39, 41};
    CONFORM_OPEN(x);
    for (int s = 0; s < 14; s++)
        for (int n = 0; n < 4; n++)
            for (int d = 0; d < 3; d++) {
                if (sources[s] > 9 && (s + n + d) % 3 == 1) /* some of the combinations */
                    continue;
                check_tree_sum(&x, float_dtypes[d], sources[s], counts[n], (s + n + d) % 3 == 0,
                               -1);
                CHECK_HERE();
            }
    conform_close(&x);
}

TEST(tree_sum_may_overwrite_a_source)
{
    CONFORM_OPEN(x);
    for (int sources = 1; sources < 20; sources += 6)
        for (int over = 0; over < sources; over += 2) {
            check_tree_sum(&x, FSDP_DTYPE_F32, sources, 1003, over % 3 == 2, over);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* --- tree_sum_rows --- */

enum {
    DST_ROWS = 37,
    TABLE_ROWS = 20,
    MOST_ROWS = DST_ROWS * (1 + FSDP_MAX_SUMMED_TABLES)
};

/* Sums to rows of dst in steps of `step`, the last of them first. Without `step`, there are none.
 */
static int64_t choose_rows(int32_t *rows, int tables, int step)
{
    int64_t n = 0;
    for (int row = DST_ROWS - 1; row >= 0 && step; row -= step, n++) {
        *rows++ = row;
        for (int t = 0; t < tables; t++)
            *rows++ = (row * 3 + t * 7) % TABLE_ROWS;
    }
    return n;
}

static void check_rows(conform *x, int tables, int64_t width, int64_t skip, int step)
{
    int32_t rows[MOST_ROWS];
    conform_array *table[FSDP_MAX_SUMMED_TABLES];
    conform_array *dst = conform_output(x, FSDP_DTYPE_F32, DST_ROWS * width + skip);
    for (int t = 0; t < tables; t++)
        table[t] =
            conform_input(x, FSDP_DTYPE_F32, TABLE_ROWS * width + skip, (uint64_t)t + 1, -1.0, 1.0);
    for (int device = 0; device < 2; device++) {
        fsdp_tree_sum_rows_args args = {.dst = element(dst, device, skip),
                                        .n_tables = tables,
                                        .rows = rows,
                                        .n = choose_rows(rows, tables, step),
                                        .width = width,
                                        .scale = 0.3f};
        for (int t = 0; t < tables; t++)
            args.tables[t] = element(table[t], device, skip);
        if (device)
            x->dk->tree_sum_rows(x->dc, &args);
        else
            x->k->tree_sum_rows(x->c, &args);
        memset(rows, 0, sizeof rows); /* the call has copied them */
    }
    conform_equal(x, dst, "tree_sum_rows");
    conform_free(x);
}

TEST(tree_sum_rows_gives_the_bits_of_the_cpu)
{
    static const int64_t widths[] = {1, 5, 64, 768, 1028, 1101};
    CONFORM_OPEN(x);
    for (int tables = 1; tables <= FSDP_MAX_SUMMED_TABLES; tables++)
        for (int w = 0; w < 6; w++) {
            check_rows(&x, tables, widths[w], (tables + w) % 3 == 0, 1 + (tables + w) % 4);
            CHECK_HERE();
        }
    check_rows(&x, 1, 8, 0, 0);
    conform_close(&x);
}

/* --- row_power_sums --- */

enum {
    ROWS = 5
};

static void power_sums(const conform *x, bool device, const void *of, fsdp_dtype dtype,
                       int64_t rows, int64_t width, double *sums, double power)
{
    const fsdp_row_powers tensor = {of, dtype, rows, width, sums};
    if (device)
        x->dk->row_power_sums(x->dc, &tensor, 1, power);
    else
        x->k->row_power_sums(x->c, &tensor, 1, power);
}

/* The order of the terms differs from the CPU's. */
static void check_powers(conform *x, fsdp_dtype dtype, int64_t rows, int64_t width, double power)
{
    fsdp_test *t = x->t;
    conform_array *a = conform_input(x, dtype, rows * width, 1, -1.0, 1.0);
    conform_array *sums = conform_output(x, FSDP_DTYPE_F64, rows);
    power_sums(x, false, a->host, dtype, rows, width, sums->host, power);
    power_sums(x, true, a->device, dtype, rows, width, sums->device, power);
    conform_near(x, sums, isinf(power) ? 0.0 : 1e-14 * (double)(width < 100 ? 100 : 1000), 0.0,
                 fsdp_dtype_name(dtype));
    CHECK_HERE();
    /* A row alone, at another address, has the same bits: ranks that have other rows compute the
     * same sums. */
    if (rows > 1) {
        conform_array *alone = conform_output(x, FSDP_DTYPE_F64, 1);
        conform_array *moved = conform_output(x, dtype, width + 1);
        const size_t bytes = (size_t)width * fsdp_dtype_size(dtype);
        memcpy(element(moved, false, 1), element(a, false, width * (rows - 1)), bytes);
        conform_send(x, moved);
        power_sums(x, true, element(moved, true, 1), dtype, 1, width, alone->device, power);
        memcpy(alone->host, (double *)sums->result + rows - 1, sizeof(double));
        conform_equal(x, alone, "a row alone");
    }
    conform_free(x);
}

TEST(row_power_sums_equal_the_cpu_and_are_row_by_row)
{
    static const int64_t widths[] = {0, 1, 7, 16, 17, 768, 1001, 2048, 2049, 16384, 16385, 40008};
    static const double powers[] = {1.0, 2.0, (double)INFINITY, 3.5};
    CONFORM_OPEN(x);
    for (int w = 0; w < 12; w++)
        for (int p = 0; p < 4; p++)
            for (int d = 0; d < 3; d++) {
                if (powers[p] == 3.5 && (w % 3 || w > 8)) /* pow() is slow */
                    continue;
                check_powers(&x, float_dtypes[d], widths[w] > 2000 ? 2 : ROWS, widths[w],
                             powers[p]);
                CHECK_HERE();
            }
    check_powers(&x, FSDP_DTYPE_F32, 0, 5, 2.0);
    CHECK_HERE();
    check_powers(&x, FSDP_DTYPE_BF16, 1000, 1, 2.0);
    conform_close(&x);
}

enum {
    N_MANY = 9
};

/* Tensors of all dtypes and shapes in one call: each has the bits that it has in a call of its
 * own. */
TEST(many_tensors_have_the_bits_of_one)
{
    static const int64_t shapes[N_MANY][2] = {{300, 1}, {0, 7},    {5, 768}, {2, 40008}, {9, 16},
                                              {3, 17},  {1, 2049}, {4, 0},   {2, 20000}};
    static const double powers[] = {2.0, (double)INFINITY};
    CONFORM_OPEN(x);
    for (int p = 0; p < 2; p++) {
        fsdp_row_powers many[N_MANY];
        conform_array *sums[N_MANY];
        for (int i = 0; i < N_MANY; i++) {
            const int64_t rows = shapes[i][0], width = shapes[i][1];
            const fsdp_dtype dtype = float_dtypes[(i + p) % 3];
            conform_array *a = conform_input(&x, dtype, rows * width + 1, (uint64_t)i, -1.0, 1.0);
            conform_array *alone = conform_output(&x, FSDP_DTYPE_F64, rows);
            sums[i] = conform_output(&x, FSDP_DTYPE_F64, rows);
            many[i] =
                (fsdp_row_powers){element(a, true, i % 2), dtype, rows, width, sums[i]->device};
            power_sums(&x, true, many[i].x, dtype, rows, width, alone->device, powers[p]);
            conform_fetch(&x, alone);
            CHECK_HERE();
            memcpy(sums[i]->host, alone->result, (size_t)rows * sizeof(double));
        }
        x.dk->row_power_sums(x.dc, many, N_MANY, powers[p]);
        memset(many, 0, sizeof many); /* the call has copied them */
        for (int i = 0; i < N_MANY; i++) {
            conform_equal(&x, sums[i], "sums");
            CHECK_HERE();
        }
        conform_free(&x);
    }
    conform_close(&x);
}

/* Declared in src/kernels/cuda/tables.h, which a build without CUDA cannot include. It is NULL in
 * such a build. */
__attribute__((weak)) int64_t fsdp_cuda_table_copies(fsdp_kernel_context *context);

/* Tensors of each dtype need a table of their own. All of them stay on the device. */
TEST(tables_of_all_dtypes_stay_on_the_device)
{
    CONFORM_OPEN(x);
    fsdp_row_powers tensors[3];
    const int64_t before = fsdp_cuda_table_copies(x.dc);
    for (int i = 0; i < 3; i++) {
        conform_array *a = conform_input(&x, float_dtypes[i], ROWS * 16, (uint64_t)i, -1.0, 1.0);
        conform_array *sums = conform_output(&x, FSDP_DTYPE_F64, ROWS);
        tensors[i] = (fsdp_row_powers){a->device, float_dtypes[i], ROWS, 16, sums->device};
    }
    for (int call = 0; call < 4; call++)
        x.dk->row_power_sums(x.dc, tensors, 3, 2.0);
    ASSERT_INT(fsdp_cuda_table_copies(x.dc) - before, 3);
    conform_close(&x);
}

/* At any place of a row, and even for the maximum. */
TEST(a_nan_makes_its_rows_sum_nan)
{
    static const double powers[] = {1.0, 2.0, (double)INFINITY, 3.5};
    static const int64_t widths[] = {9, 300, 20000};
    CONFORM_OPEN(x);
    for (int w = 0; w < 3; w++)
        for (int p = 0; p < 4; p++)
            for (int i = 0; i < 8; i++) {
                const int64_t width = widths[w], at = i * (width - 1) / 7;
                conform_array *a = conform_input(&x, FSDP_DTYPE_F32, 2 * width, 1, -1.0, 1.0);
                conform_array *sums = conform_output(&x, FSDP_DTYPE_F64, 2);
                ((float *)a->host)[width + at] = NAN;
                conform_send(&x, a);
                power_sums(&x, true, a->device, FSDP_DTYPE_F32, 2, width, sums->device, powers[p]);
                conform_fetch(&x, sums);
                CHECK_HERE();
                ASSERT(isfinite(((double *)sums->result)[0]) && isnan(((double *)sums->result)[1]));
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}
