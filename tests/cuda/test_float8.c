/* Float8 on a CUDA device: scales, codes, values and descaled products have the bits of the CPU. */
#include "tests/cuda/shifted.h"

static const int64_t shapes[][2] = {{0, 8},  {8, 0},   {1, 1},    {1, 1003},
                                    {3, 24}, {37, 19}, {300, 264}};

enum {
    N_SHAPES = 7
};

static int64_t scales_of(fsdp_float8_axis axis, const int64_t shape[2])
{
    return axis == FSDP_FLOAT8_TENSOR ? 1 : axis == FSDP_FLOAT8_ROW ? shape[0] : shape[1];
}

/* Values from the subnormal numbers of both formats to large ones, with zeros; `special` adds
 * infinity and NaN. */
static shifted make_values(conform *x, fsdp_dtype dtype, int64_t n, int64_t shift, bool special)
{
    const shifted s = shifted_output(x, dtype, n, shift);
    for (int64_t i = 0; i < n; i++) {
        const double u = 2.0 * uniform_of(9, i) - 1.0;
        const double v = i % 7 == 3 ? 0.0 : u * pow(2.0, (double)(i % 13) - 10.0);
        set_value(s.host, dtype, i,
                  special && i == n / 2 ? (n % 2 ? (double)NAN : (double)-INFINITY) : v);
    }
    conform_send(x, s.array);
    return s;
}

typedef struct operand_8 {
    shifted x, scales, codes, values;
    fsdp_float8_cast_args args;
} operand_8;

static void cast(conform *x, const operand_8 *o, fsdp_dtype to, bool device)
{
    fsdp_float8_cast_args a = o->args;
    const fsdp_kernels *k = device ? x->dk : x->k;
    fsdp_kernel_context *c = device ? x->dc : x->c;
    const shifted *out = to == FSDP_DTYPE_U8 ? &o->codes : &o->values;
    a.x = device ? o->x.device : o->x.host;
    a.scales = device ? o->scales.device : o->scales.host;
    a.codes = device ? out->device : out->host;
    a.codes_dtype = to;
    if (to == FSDP_DTYPE_U8)
        k->float8_scales(c, &a);
    k->float8_cast(c, &a);
}

static operand_8 make_operand(conform *x, int s, int i)
{
    const int64_t n = shapes[s][0] * shapes[s][1], shift = (s + i) % 3 == 0;
    operand_8 o = {.args = {.dtype = float_dtypes[i % 3],
                            .rows = shapes[s][0],
                            .columns = shapes[s][1],
                            .format = (fsdp_float8_format)(i / 3 % 2),
                            .axis = (fsdp_float8_axis)((i + s) % 3),
                            .power_of_2 = (i + s) % 2}};
    o.x = make_values(x, o.args.dtype, n, shift, i > 12);
    o.scales = shifted_output(x, FSDP_DTYPE_F32, scales_of(o.args.axis, shapes[s]), shift);
    o.codes = shifted_output(x, FSDP_DTYPE_U8, n, shift);
    o.values = shifted_output(x, FSDP_DTYPE_BF16, n, shift);
    return o;
}

static void decode(conform *x, const operand_8 *o, const shifted *out, bool device)
{
    const fsdp_float8_decode_args a = {.codes = device ? o->codes.device : o->codes.host,
                                       .format = o->args.format,
                                       .rows = o->args.rows,
                                       .columns = o->args.columns,
                                       .out = device ? out->device : out->host,
                                       .out_dtype = FSDP_DTYPE_BF16};
    if (device)
        x->dk->float8_decode(x->dc, &a);
    else
        x->k->float8_decode(x->c, &a);
}

TEST(scales_codes_and_values_have_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; i < 15; i++) {
            const operand_8 o = make_operand(&x, s, i);
            const shifted back =
                shifted_output(&x, FSDP_DTYPE_BF16, o.args.rows * o.args.columns, (s + i) % 3 == 0);
            for (int device = 0; device < 2; device++) {
                cast(&x, &o, FSDP_DTYPE_U8, device);
                cast(&x, &o, FSDP_DTYPE_BF16, device);
                decode(&x, &o, &back, device);
            }
            conform_near(&x, o.scales.array, 0.0, 0.0, "scales");
            conform_equal(&x, o.codes.array, "codes");
            conform_near(&x, o.values.array, 0.0, 0.0, "values");
            conform_near(&x, back.array, 0.0, 0.0, "decoded values");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* Every code of both formats. */
TEST(codes_have_the_values_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int format = 0; format < 2; format++) {
        operand_8 o = {.args = {.rows = 16, .columns = 16, .format = (fsdp_float8_format)format}};
        const shifted back = shifted_output(&x, FSDP_DTYPE_BF16, 256, 0);
        o.codes = shifted_output(&x, FSDP_DTYPE_U8, 256, 0);
        for (int i = 0; i < 256; i++)
            ((uint8_t *)o.codes.host)[i] = (uint8_t)i;
        conform_send(&x, o.codes.array);
        decode(&x, &o, &back, false);
        decode(&x, &o, &back, true);
        conform_near(&x, back.array, 0.0, 0.0, "values");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* On this device codes may be stored transposed: by the cast, and by float8_decode(). */
TEST(transposed_codes_are_those_of_the_transpose)
{
    enum {
        ROWS = 37,
        COLUMNS = 24
    };
    CONFORM_OPEN(x);
    operand_8 o = {.args = {.dtype = FSDP_DTYPE_BF16, .rows = ROWS, .columns = COLUMNS}};
    conform_array *twice[2];
    o.x = make_values(&x, FSDP_DTYPE_BF16, ROWS * COLUMNS, 0, false);
    o.scales = shifted_output(&x, FSDP_DTYPE_F32, 1, 0);
    o.codes = shifted_output(&x, FSDP_DTYPE_U8, ROWS * COLUMNS, 0);
    cast(&x, &o, FSDP_DTYPE_U8, false);
    cast(&x, &o, FSDP_DTYPE_U8, true);
    for (int k = 0; k < 2; k++) {
        twice[k] = conform_output(&x, FSDP_DTYPE_U8, ROWS * COLUMNS);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            ((uint8_t *)twice[k]->host)[i % COLUMNS * ROWS + i / COLUMNS] =
                ((const uint8_t *)o.codes.host)[i];
    }
    fsdp_float8_cast_args a = o.args;
    a.x = o.x.device;
    a.scales = o.scales.device;
    a.codes = twice[0]->device;
    a.codes_dtype = FSDP_DTYPE_U8;
    a.transposed = true;
    x.dk->float8_cast(x.dc, &a);
    x.dk->float8_decode(x.dc, &(fsdp_float8_decode_args){.codes = o.codes.device,
                                                         .rows = ROWS,
                                                         .columns = COLUMNS,
                                                         .out = twice[1]->device,
                                                         .out_dtype = FSDP_DTYPE_U8});
    conform_equal(&x, twice[0], "the cast");
    conform_equal(&x, twice[1], "the transposed codes");
    conform_close(&x);
}

/* --- products --- */

static void product(conform *x, const operand_8 *a, const operand_8 *b, bool trans_a, bool trans_b,
                    const shifted *sums, bool device)
{
    const int64_t k = trans_a ? a->args.rows : a->args.columns;
    const fsdp_float8_gemm_args args = {.m = trans_a ? a->args.columns : a->args.rows,
                                        .n = trans_b ? b->args.rows : b->args.columns,
                                        .k = k,
                                        .a = device ? a->values.device : a->values.host,
                                        .b = device ? b->values.device : b->values.host,
                                        .a_format = a->args.format,
                                        .b_format = b->args.format,
                                        .trans_a = trans_a,
                                        .trans_b = trans_b,
                                        .c = device ? sums->device : sums->host};
    fsdp_test *t = x->t;
    ASSERT_OK(device ? x->dk->float8_gemm(x->dc, &args) : x->k->float8_gemm(x->c, &args));
}

static operand_8 matrix(conform *x, int64_t rows, int64_t columns, fsdp_float8_format format)
{
    operand_8 o = {
        .args = {.dtype = FSDP_DTYPE_F32, .rows = rows, .columns = columns, .format = format}};
    o.x = make_values(x, FSDP_DTYPE_F32, rows * columns, 0, false);
    o.scales = shifted_output(x, FSDP_DTYPE_F32, 1, 0);
    o.codes = shifted_output(x, FSDP_DTYPE_U8, rows * columns, 0);
    o.values = shifted_output(x, FSDP_DTYPE_BF16, rows * columns, 0);
    for (int device = 0; device < 2; device++) {
        cast(x, &o, FSDP_DTYPE_U8, device);
        cast(x, &o, FSDP_DTYPE_BF16, device);
    }
    return o;
}

TEST(products_are_those_of_the_cpu)
{
    enum {
        M = 24,
        N = 17,
        K = 40
    };
    CONFORM_OPEN(x);
    for (int i = 0; i < 4; i++) {
        const bool trans_a = i % 2, trans_b = i / 2;
        const operand_8 a = matrix(&x, trans_a ? K : M, trans_a ? M : K, FSDP_FLOAT8_E5M2);
        const operand_8 b = matrix(&x, trans_b ? N : K, trans_b ? K : N, FSDP_FLOAT8_E4M3FN);
        const shifted sums = shifted_output(&x, FSDP_DTYPE_F32, M * N, 0);
        product(&x, &a, &b, trans_a, trans_b, &sums, false);
        product(&x, &a, &b, trans_a, trans_b, &sums, true);
        CHECK_HERE();
        conform_near(&x, sums.array, 1e-5, 30.0, "float8_gemm");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

TEST(descaled_sums_have_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; i < 8; i++) {
            const int64_t rows = shapes[s][0], columns = shapes[s][1], n = rows * columns;
            const bool by_row = i % 2, by_column = i / 2 % 2, has_bias = (i + s) % 3 == 0;
            const fsdp_dtype dtype = float_dtypes[(i + s) % 3];
            const int64_t shift = (s + i) % 4 == 0;
            const shifted sums = shifted_input(&x, FSDP_DTYPE_F32, n, shift, 2, -99.0, 99.0);
            const shifted a =
                shifted_input(&x, FSDP_DTYPE_F32, by_row ? rows : 1, shift, 3, 0.1, 9.0);
            const shifted b =
                shifted_input(&x, FSDP_DTYPE_F32, by_column ? columns : 1, shift, 4, 0.1, 9.0);
            const shifted bias = shifted_input(&x, dtype, columns, shift, 5, -1.0, 1.0);
            const shifted out = shifted_input(&x, dtype, n, shift, 6, -1.0, 1.0);
            for (int device = 0; device < 2; device++) {
                const fsdp_float8_descale_args args = {.sums = device ? sums.device : sums.host,
                                                       .rows = rows,
                                                       .columns = columns,
                                                       .a_scales = device ? a.device : a.host,
                                                       .b_scales = device ? b.device : b.host,
                                                       .a_by_row = by_row,
                                                       .b_by_column = by_column,
                                                       .bias = !has_bias ? NULL
                                                               : device  ? bias.device
                                                                         : bias.host,
                                                       .out = device ? out.device : out.host,
                                                       .out_dtype = dtype,
                                                       .beta = i > 3};
                if (device)
                    x.dk->float8_descale(x.dc, &args);
                else
                    x.k->float8_descale(x.c, &args);
            }
            conform_equal(&x, out.array, "float8_descale");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
