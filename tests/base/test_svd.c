/* src/base/svd.h: the vectors are orthonormal, all singular values together give the matrix, and
 * both methods find those of a matrix that was made from known ones. */
#include "src/base/svd.h"

#include <math.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/philox.h"
#include "tests/test.h"

enum {
    MOST = 40
};

typedef struct matrix {
    int64_t rows, cols;
    float w[MOST * MOST];
} matrix;

static void draw(matrix *m, int64_t rows, int64_t cols, uint64_t seed)
{
    m->rows = rows;
    m->cols = cols;
    for (int64_t i = 0; i < rows * cols; i++)
        m->w[i] = fsdp_uniform_from_bits(fsdp_philox4x32(seed, (uint64_t)i, 0).v[0]) - 0.5f;
}

/* Check that the columns of x [n, r] are orthonormal. */
static void check_orthonormal(fsdp_test *t, const double *x, int64_t n, int64_t r)
{
    for (int64_t a = 0; a < r; a++)
        for (int64_t b = 0; b <= a; b++) {
            double sum = 0.0;
            for (int64_t i = 0; i < n; i++)
                sum += x[i * r + a] * x[i * r + b];
            ASSERT(fabs(sum - (a == b ? 1.0 : 0.0)) < 1e-11);
        }
}

/* Return the largest element of w - u diag(s) v^T. */
static double largest_rest(const matrix *m, const fsdp_svd *svd, int64_t r)
{
    double largest = 0.0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++) {
            double rest = (double)m->w[i * m->cols + j];
            for (int64_t k = 0; k < r; k++)
                rest -= svd->u[i * r + k] * svd->s[k] * svd->v[j * r + k];
            largest = fmax(largest, fabs(rest));
        }
    return largest;
}

TEST(all_singular_values_give_the_matrix)
{
    static const int64_t shapes[][2] = {{1, 1},   {1, 9},   {9, 1},  {7, 7},
                                        {12, 33}, {40, 21}, {40, 40}};
    static matrix m;
    for (size_t i = 0; i < FSDP_LENGTH(shapes); i++) {
        const int64_t rows = shapes[i][0], cols = shapes[i][1], r = rows < cols ? rows : cols;
        fsdp_svd svd;
        draw(&m, rows, cols, i);
        ASSERT_OK(fsdp_svd_exact(m.w, rows, cols, r, &svd));
        check_orthonormal(t, svd.u, rows, r);
        check_orthonormal(t, svd.v, cols, r);
        CHECK_HERE();
        ASSERT(largest_rest(&m, &svd, r) < 1e-12);
        for (int64_t k = 1; k < r; k++)
            ASSERT(svd.s[k] <= svd.s[k - 1]);
        fsdp_svd_fini(&svd);
    }
}

/* Set m to u diag(values) v^T, where u and v are the singular vectors of a random matrix. */
static void make_known(fsdp_test *t, matrix *m, int64_t rows, int64_t cols, const double *values,
                       int64_t n)
{
    fsdp_svd svd;
    draw(m, rows, cols, 77);
    ASSERT_OK(fsdp_svd_exact(m->w, rows, cols, n, &svd));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < n; k++)
                sum += svd.u[i * n + k] * values[k] * svd.v[j * n + k];
            m->w[i * cols + j] = (float)sum;
        }
    fsdp_svd_fini(&svd);
}

TEST(both_methods_find_the_values_of_a_matrix_that_was_made_from_them)
{
    static const double values[] = {9.0, 4.0, 4.0, 1.0, 0.25, 0.125};
    static const int64_t shapes[][2] = {{31, 18}, {18, 31}};
    static matrix m;
    for (size_t i = 0; i < FSDP_LENGTH(shapes); i++) {
        const int64_t rows = shapes[i][0], cols = shapes[i][1];
        make_known(t, &m, rows, cols, values, FSDP_LENGTH(values));
        CHECK_HERE();
        for (int niter = -1; niter < 30; niter += 30) {
            fsdp_svd svd;
            ASSERT_OK(niter < 0 ? fsdp_svd_exact(m.w, rows, cols, 4, &svd)
                                : fsdp_svd_low_rank(m.w, rows, cols, 4, niter, 5, &svd));
            check_orthonormal(t, svd.u, rows, 4);
            check_orthonormal(t, svd.v, cols, 4);
            CHECK_HERE();
            for (int k = 0; k < 4; k++)
                ASSERT(fabs(svd.s[k] - values[k]) < 1e-6);
            fsdp_svd_fini(&svd);
        }
    }
}

/* More iterations come closer to the largest singular values. */
TEST(iterations_improve_the_approximation)
{
    static matrix m;
    double before = 0.0;
    draw(&m, 40, 30, 6);
    for (int niter = 0; niter < 20; niter += 4) {
        fsdp_svd svd;
        ASSERT_OK(fsdp_svd_low_rank(m.w, 40, 30, 5, niter, 5, &svd));
        double sum = 0.0;
        for (int k = 0; k < 5; k++)
            sum += svd.s[k] * svd.s[k];
        ASSERT(sum > before);
        before = sum;
        fsdp_svd_fini(&svd);
    }
}

TEST(the_random_vectors_are_a_function_of_the_seed)
{
    static matrix m;
    fsdp_svd a, same, other;
    draw(&m, 20, 30, 6);
    ASSERT_OK(fsdp_svd_low_rank(m.w, 20, 30, 5, 0, 1, &a));
    ASSERT_OK(fsdp_svd_low_rank(m.w, 20, 30, 5, 0, 1, &same));
    ASSERT_OK(fsdp_svd_low_rank(m.w, 20, 30, 5, 0, 2, &other));
    ASSERT(memcmp(a.u, same.u, 20 * 5 * sizeof(double)) == 0);
    ASSERT(memcmp(a.u, other.u, 20 * 5 * sizeof(double)) != 0);
    fsdp_svd_fini(&a);
    fsdp_svd_fini(&same);
    fsdp_svd_fini(&other);
}

TEST(a_matrix_of_zeros_has_singular_values_of_zero)
{
    static matrix m;
    memset(&m, 0, sizeof m);
    for (int niter = -1; niter < 3; niter += 3) {
        fsdp_svd svd;
        ASSERT_OK(niter < 0 ? fsdp_svd_exact(m.w, 6, 9, 3, &svd)
                            : fsdp_svd_low_rank(m.w, 6, 9, 3, niter, 5, &svd));
        for (int k = 0; k < 3; k++)
            ASSERT(svd.s[k] == 0.0);
        for (int k = 0; k < 6 * 3; k++)
            ASSERT(isfinite(svd.u[k]));
        fsdp_svd_fini(&svd);
    }
}

TEST(a_number_that_is_not_finite_is_refused)
{
    static matrix m;
    fsdp_svd svd;
    draw(&m, 5, 4, 6);
    m.w[2 * 4 + 3] = INFINITY;
    ASSERT_ERROR(fsdp_svd_exact(m.w, 5, 4, 2, &svd), FSDP_ERR_INVALID, "element [2, 3] is inf");
    fsdp_svd_fini(&svd);
    m.w[2 * 4 + 3] = NAN;
    ASSERT_ERROR(fsdp_svd_low_rank(m.w, 5, 4, 2, 3, 1, &svd), FSDP_ERR_INVALID, "[2, 3] is");
    fsdp_svd_fini(&svd);
}
