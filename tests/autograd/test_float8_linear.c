/* float8_linear: results and gradients of torchao's Float8Linear for each recipe
 * (tools/check_float8.py --write made the fixture), memory on meta, codes of a weight that was
 * gathered in float8, and what is refused. A finite-difference check would be useless: the result
 * is a step function. */
#include <stdio.h>

#include <fsdp/hf.h>

#include "src/autograd/float8_linear.h"
#include "src/base/float8.h"
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

static const char *const recipes[] = {"tensorwise", "rowwise", "rowwise_with_gw_hp"};

/* --- torchao's numbers --- */

static fsdp_tensor *read(fsdp_test *t, fsdp_device *device, const fsdp_checkpoint_reader *file,
                         const char *name)
{
    const fsdp_checkpoint_entry *e = fsdp_checkpoint_find(file, name);
    float values[4096];
    fsdp_tensor *tensor = NULL;
    if (!e || e->bytes > sizeof values) {
        fsdp_test_fail(t, __FILE__, __LINE__, "the fixture has no '%s' of this size", name);
        return NULL;
    }
    memcpy(values, e->data, e->bytes);
    const fsdp_status status = fsdp_tensor_from_data(device, FSDP_DTYPE_F32, e->ndim, e->shape,
                                                     values, FSDP_TAG_ACTIVATION, &tensor);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tensor;
}

static void check_against(fsdp_test *t, const fsdp_checkpoint_reader *file, const char *recipe,
                          const char *name, float factor, const fsdp_tensor *got)
{
    char full[64];
    float values[4096];
    double largest = 0.0, difference = 0.0;
    snprintf(full, sizeof full, "%s.%s", recipe, name);
    const fsdp_checkpoint_entry *e = fsdp_checkpoint_find(file, full);
    ASSERT(e && got && e->numel == fsdp_tensor_numel(got));
    ASSERT_OK(fsdp_tensor_to_floats(got, values));
    for (int64_t i = 0; i < e->numel; i++) {
        float want;
        memcpy(&want, (const char *)e->data + (size_t)i * sizeof want, sizeof want);
        want *= factor;
        largest = fmax(largest, fabs((double)want));
        difference = fmax(difference, fabs((double)want - (double)values[i]));
    }
    if (!(difference <= 2e-6 * largest))
        FAIL("%s differs by %g; its largest value is %g", full, difference, largest);
}

static void check_recipe(fsdp_test *t, fsdp_device *device, const fsdp_checkpoint_reader *file,
                         int recipe)
{
    static const char *const names[] = {"x", "w", "bias"}, *const grads[] = {"dx", "dw", "dbias"};
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *in[3], *dy = read(t, device, file, "dy");
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    for (int i = 0; i < 3; i++) {
        in[i] = read(t, device, file, names[i]);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(in[i], true));
    }
    /* Twice: the gradients of the second forward are added to those of the first. */
    for (int times = 1; times <= 2; times++) {
        fsdp_tensor *y = fsdp_float8_linear(s, in[0], in[1], in[2], (fsdp_float8_recipe)recipe);
        ASSERT_OK(fsdp_scope_status(s));
        check_against(t, file, recipes[recipe], "y", 1.0f, y);
        CHECK_HERE();
        ASSERT_OK(fsdp_backward(tape, &y, &dy, 1));
        for (int i = 0; i < 3; i++) {
            check_against(t, file, recipes[recipe], grads[i], (float)times,
                          fsdp_tensor_grad(in[i]));
            CHECK_HERE();
        }
    }
    for (int i = 0; i < 3; i++)
        fsdp_tensor_release(in[i]);
    fsdp_tensor_release(dy);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
}

TEST(every_recipe_gives_the_numbers_of_torchao)
{
    fsdp_checkpoint_reader *file;
    fsdp_device *device;
    ASSERT_OK(fsdp_checkpoint_open(fsdp_test_path("fixtures/float8/linear.safetensors"), &file));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (int recipe = 0; recipe < 3; recipe++) {
        check_recipe(t, device, file, recipe);
        CHECK_HERE();
    }
    fsdp_device_destroy(device);
    fsdp_checkpoint_close(file);
}

/* --- one layer on any device --- */

typedef struct layer_run {
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *x, *w, *y;
} layer_run;

static void run_layer(fsdp_test *t, const char *device, fsdp_dtype dtype, int64_t rows, int recipe,
                      layer_run *r)
{
    const fsdp_device_options options = {.name = device};
    ASSERT_OK(fsdp_device_create(&options, &r->device));
    ASSERT_OK(fsdp_tape_create(&r->tape));
    ASSERT_OK(fsdp_scope_open(r->device, r->tape, NULL, &r->s));
    r->x = op_random_tensor(t, r->device, dtype, 2, (const int64_t[]){rows, 32}, 1);
    r->w = op_random_tensor(t, r->device, dtype, 2, (const int64_t[]){48, 32}, 2);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(r->x, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(r->w, true));
    r->y = fsdp_float8_linear(r->s, r->x, r->w, NULL, (fsdp_float8_recipe)recipe);
    ASSERT_OK(fsdp_scope_status(r->s));
    ASSERT_OK(fsdp_backward(r->tape, &r->y, &r->y, 1));
}

static void end_layer(layer_run *r)
{
    fsdp_tensor_release(r->x);
    fsdp_tensor_release(r->w);
    fsdp_scope_close(r->s);
    fsdp_tape_destroy(r->tape);
    fsdp_device_destroy(r->device);
}

/* A plan counts the memory of a step on meta. */
TEST(meta_counts_the_memory_of_a_real_run)
{
    for (int recipe = 0; recipe < 3; recipe++)
        for (int d = 0; d < 2; d++) {
            const fsdp_dtype dtype = d ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
            int64_t peaks[2];
            for (int meta = 0; meta < 2; meta++) {
                layer_run r;
                fsdp_memory_stats stats;
                run_layer(t, meta ? "meta" : "cpu", dtype, 40, recipe, &r);
                CHECK_HERE();
                fsdp_device_memory(r.device, &stats);
                peaks[meta] = stats.allocated_peak;
                end_layer(&r);
            }
            ASSERT_INT(peaks[0], peaks[1]);
        }
}

TEST(no_rows_give_zero_weight_gradients)
{
    for (int recipe = 0; recipe < 3; recipe++) {
        layer_run r;
        float dw[48 * 32];
        run_layer(t, "cpu", FSDP_DTYPE_F32, 0, recipe, &r);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(r.w), dw));
        for (int i = 0; i < 48 * 32; i++)
            ASSERT_F32(dw[i], 0.0f);
        end_layer(&r);
    }
}

/* --- codes --- */

/* A weight that was cast once, and read as codes with its scale, gives the bits of a weight that
 * each call casts. */
TEST(codes_of_a_weight_give_the_same_bits)
{
    enum {
        N = 48,
        D = 32,
        T = 24
    };
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    uint8_t bytes[N * D];
    float w[N * D], most = 0.0f, y[2][T * N], dx[2][T * D];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    op_random(w, N * D, 5);
    for (int i = 0; i < N * D; i++)
        most = fmaxf(most, fabsf(w[i]));
    const float scale = fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, most, false);
    for (int i = 0; i < N * D; i++)
        bytes[i] = fsdp_float8_saturated(FSDP_FLOAT8_E4M3FN, w[i] * scale);
    for (int coded = 0; coded < 2; coded++) {
        const int64_t shape[] = {N, D}, one = 1;
        fsdp_tensor *weight, *of_codes = NULL;
        fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (int64_t[]){T, D}, 1);
        fsdp_tensor *dy = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (int64_t[]){T, N}, 3);
        ASSERT_OK(fsdp_tensor_from_data(device, coded ? FSDP_DTYPE_U8 : FSDP_DTYPE_F32, 2, shape,
                                        coded ? (void *)bytes : (void *)w, FSDP_TAG_PARAM,
                                        &weight));
        if (coded)
            ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, &one, &scale, FSDP_TAG_PARAM,
                                            &of_codes));
        ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
        fsdp_tensor *out =
            fsdp_float8_linear_of(s, x, weight, of_codes, NULL, FSDP_FLOAT8_TENSORWISE);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT_OK(fsdp_tensor_to_floats(out, y[coded]));
        ASSERT_OK(fsdp_backward(tape, &out, &dy, 1));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), dx[coded]));
        fsdp_tensor_release(x);
        fsdp_tensor_release(dy);
        fsdp_tensor_release(weight);
        fsdp_tensor_release(of_codes);
    }
    ASSERT(memcmp(y[0], y[1], sizeof y[0]) == 0);
    ASSERT(memcmp(dx[0], dx[1], sizeof dx[0]) == 0);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_device_destroy(device);
}

TEST(a_weight_of_another_kind_is_refused)
{
    fsdp_device *device;
    fsdp_scope *s;
    fsdp_tensor *w;
    const uint8_t bytes[16] = {0};
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_U8, 2, (int64_t[]){4, 4}, bytes,
                                    FSDP_TAG_PARAM, &w));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (int64_t[]){3, 4}, 1);
    fsdp_tensor *narrow = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (int64_t[]){4, 5}, 1);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_float8_linear(s, x, w, NULL, FSDP_FLOAT8_TENSORWISE)); /* codes without a scale */
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "uint8");
    fsdp_scope_close(s);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_float8_linear(s, x, narrow, NULL, FSDP_FLOAT8_ROWWISE));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "the last dimensions differ");
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    fsdp_tensor_release(narrow);
    fsdp_device_destroy(device);
}
