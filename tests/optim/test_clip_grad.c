/* The global norm against PyTorch's clip_grad_norm_ (tests/golden/optim/clip.safetensors), and its
 * bits at several world sizes. */
#include <stdio.h>

#include <fsdp/ckpt.h>

#include "tests/optim/shards.h"
#include "tests/test.h"

enum {
    MAX_ELEMENTS = 64,
    N_GRADS = 4
};

static const char *const names[N_GRADS] = {"matrix", "one", "vector", "wide"};

/* Reads up to MAX_ELEMENTS floats of prefix + name and returns their number. */
static int64_t read_array(fsdp_test *t, const fsdp_safetensors *file, const char *prefix,
                          const char *name, float *values, const fsdp_checkpoint_entry **entry)
{
    char key[128];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    *entry = fsdp_safetensors_find(file, key);
    if (!*entry || (*entry)->bytes > MAX_ELEMENTS * sizeof *values) {
        fsdp_test_fail(t, __FILE__, __LINE__, "%s is missing or too large", key);
        return 0;
    }
    memcpy(values, (*entry)->data, (*entry)->bytes);
    return (*entry)->numel;
}

/* A module with the gradients of the golden file, sharded over the test's ranks. */
static void load_gradients(fsdp_test *t, const fsdp_safetensors *file, fsdp_device *device,
                           fsdp_module **module)
{
    float values[MAX_ELEMENTS];
    const fsdp_checkpoint_entry *entry;
    fsdp_parameter *p;
    ASSERT_OK(fsdp_module_create("Weights", module));
    for (int i = 0; i < N_GRADS; i++) {
        read_array(t, file, "grad.", names[i], values, &entry);
        CHECK_HERE();
        ASSERT_OK(fsdp_module_add_parameter(*module, names[i], entry->ndim, entry->shape,
                                            (fsdp_init){0}, &p));
    }
    ASSERT_OK(fsdp_fully_shard(*module, t->group, device, NULL));
    for (int i = 0; i < N_GRADS; i++) {
        read_array(t, file, "grad.", names[i], values, &entry);
        ASSERT_OK(shards_set_grad(fsdp_module_parameter(*module, names[i]), values));
    }
}

static void check_bound(fsdp_test *t, const fsdp_safetensors *file, fsdp_module *module,
                        double type, double bound)
{
    char start[64], prefix[96];
    float want[MAX_ELEMENTS], got[MAX_ELEMENTS], scale;
    double total_norm;
    const fsdp_checkpoint_entry *entry;
    fsdp_parameter_list list;
    fsdp_clip_grad_options options = {.norm_type = type};
    ASSERT_OK(fsdp_module_parameters(module, false, &list));
    ASSERT_OK(fsdp_clip_grad_norm(&list, bound, &options, &total_norm, &scale));
    snprintf(start, sizeof start, "norm_%g_max_%g.", type != 0.0 ? type : 2.0, bound);
    read_array(t, file, start, "total_norm", want, &entry);
    ASSERT_NEAR(total_norm, want[0], 2e-6 * (double)want[0]);
    double factor = bound / (total_norm + 1e-6);
    ASSERT_F32(scale, (float)(factor < 1.0 ? factor : 1.0));
    ASSERT_OK(fsdp_clip_grad_norm(&list, bound, &options, NULL, NULL));
    snprintf(prefix, sizeof prefix, "%sclipped.", start);
    for (int i = 0; i < N_GRADS; i++) {
        int64_t n = read_array(t, file, prefix, names[i], want, &entry);
        ASSERT_OK(shards_full(fsdp_parameter_grad(fsdp_module_parameter(module, names[i])), got));
        for (int64_t k = 0; k < n; k++)
            ASSERT_NEAR(got[k], want[k], 1e-6 * fabs((double)want[k]) + 1e-12);
    }
    fsdp_parameter_list_free(&list);
}

static void check_golden(fsdp_test *t)
{
    static const double types[] = {0.0, 1.0, 2.0, (double)INFINITY}; /* 0: the default */
    fsdp_safetensors *file;
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_safetensors_open(fsdp_test_path("golden/optim/clip.safetensors"), &file));
    for (int i = 0; i < 4; i++) {
        fsdp_module *module = NULL;
        load_gradients(t, file, device, &module);
        CHECK_HERE();
        check_bound(t, file, module, types[i], 10000.0); /* does not clip, so the gradients stay */
        check_bound(t, file, module, types[i], 0.5);
        CHECK_HERE();
        fsdp_module_destroy(module);
    }
    fsdp_safetensors_close(file);
    fsdp_device_destroy(device);
}

TEST_RANKS(norm_and_factor_are_torchs, 1)
{
    check_golden(t);
}
TEST_RANKS(norm_and_factor_are_torchs_on_2_ranks, 2)
{
    check_golden(t);
}
TEST_RANKS(norm_and_factor_are_torchs_on_3_ranks, 3)
{
    check_golden(t);
}
TEST_RANKS(norm_and_factor_are_torchs_on_4_ranks, 4)
{
    check_golden(t);
}

/* --- NaN, infinity and bounds --- */

typedef struct three {
    fsdp_device *device;
    fsdp_module *module;
    fsdp_parameter_list list;
    float values[3][34];
} three;

/* p0 [7, 2], p1 [17, 2], p2 [1, 2] with gradients of ones, except that p1's last element is
 * `odd`. */
static void open_three(fsdp_test *t, three *x, float odd)
{
    ASSERT_OK(fsdp_device_create(NULL, &x->device));
    ASSERT_OK(shards_create((int64_t[]){7, 17, 1}, 3, 2, &x->module));
    ASSERT_OK(fsdp_fully_shard(x->module, t->group, x->device, NULL));
    ASSERT_OK(fsdp_module_parameters(x->module, false, &x->list));
    for (size_t i = 0; i < x->list.n; i++) {
        for (int k = 0; k < 34; k++)
            x->values[i][k] = i == 1 && k == 33 ? odd : 1.0f;
        ASSERT_OK(shards_set_grad(x->list.items[i].parameter, x->values[i]));
    }
}

static void close_three(three *x)
{
    fsdp_parameter_list_free(&x->list);
    fsdp_module_destroy(x->module);
    fsdp_device_destroy(x->device);
}

/* Only the last rank has the bad row, but all ranks name its tensor. */
static void check_nonfinite(fsdp_test *t, double type)
{
    three x;
    double norm = 0.0;
    float scale = 0.0f;
    fsdp_clip_grad_options strict = {.norm_type = type, .error_if_nonfinite = true};
    open_three(t, &x, NAN);
    CHECK_HERE();
    ASSERT_ERROR(fsdp_clip_grad_norm(&x.list, 1.0, &strict, &norm, &scale), FSDP_ERR_NUMERIC,
                 "NaN: that of p1 is NaN");
    ASSERT_OK(fsdp_clip_grad_norm(&x.list, 1.0, NULL, &norm, &scale));
    ASSERT(isnan(norm) && isnan(scale));
    x.values[1][33] = INFINITY;
    ASSERT_OK(shards_set_grad(x.list.items[1].parameter, x.values[1]));
    ASSERT_ERROR(fsdp_clip_grad_norm(&x.list, 1.0, &strict, &norm, &scale), FSDP_ERR_NUMERIC,
                 "infinite: that of p1 is infinite");
    ASSERT_OK(fsdp_clip_grad_norm(&x.list, 1.0, NULL, &norm, &scale));
    ASSERT(isinf(norm) && scale == 0.0f);
    close_three(&x);
}

/* The caller's order is that of the model. */
TEST(the_first_of_the_list_is_named)
{
    three x;
    fsdp_clip_grad_options strict = {.error_if_nonfinite = true};
    open_three(t, &x, NAN);
    CHECK_HERE();
    x.values[2][0] = NAN;
    ASSERT_OK(shards_set_grad(x.list.items[2].parameter, x.values[2]));
    fsdp_named_parameter order[] = {x.list.items[0], x.list.items[2], x.list.items[1]};
    const fsdp_parameter_list list = {.items = order, .n = 3};
    ASSERT_ERROR(fsdp_clip_grad_norm(&list, 1.0, &strict, NULL, NULL), FSDP_ERR_NUMERIC,
                 "that of p2 is");
    ASSERT_ERROR(fsdp_clip_grad_norm(&x.list, 1.0, &strict, NULL, NULL), FSDP_ERR_NUMERIC,
                 "that of p1 is");
    close_three(&x);
}

/* The norm is NaN because of p2, but p1 comes first. */
TEST(an_infinite_gradient_before_a_nan_is_called_infinite)
{
    three x;
    fsdp_clip_grad_options strict = {.error_if_nonfinite = true};
    open_three(t, &x, INFINITY);
    CHECK_HERE();
    x.values[2][0] = NAN;
    ASSERT_OK(shards_set_grad(x.list.items[2].parameter, x.values[2]));
    ASSERT_ERROR(fsdp_clip_grad_norm(&x.list, 1.0, &strict, NULL, NULL), FSDP_ERR_NUMERIC,
                 "the norm of gradients is NaN: that of p1 is infinite");
    close_three(&x);
}

TEST_RANKS(every_rank_names_the_tensor_that_is_not_finite, 3)
{
    check_nonfinite(t, 2.0);
    check_nonfinite(t, 1.0);
    check_nonfinite(t, (double)INFINITY);
}

TEST_RANKS(any_p_above_0_is_a_norm, 2)
{
    three x;
    double norm;
    float scale;
    open_three(t, &x, 3.0f);
    CHECK_HERE();
    fsdp_clip_grad_options options = {.norm_type = 3.0};
    ASSERT_OK(fsdp_clip_grad_norm(&x.list, 1.0, &options, &norm, &scale));
    ASSERT_NEAR(norm, cbrt(49.0 + 27.0), 1e-12);
    options.norm_type = -1.0;
    ASSERT_ERROR(fsdp_clip_grad_norm(&x.list, 1.0, &options, &norm, &scale), FSDP_ERR_INVALID,
                 "norm_type is -1");
    close_three(&x);
}

TEST_RANKS(elements_are_limited_by_value, 2)
{
    three x;
    float got[34];
    open_three(t, &x, -3.0f);
    CHECK_HERE();
    ASSERT_OK(fsdp_clip_grad_value(&x.list, 2.0));
    ASSERT_OK(shards_full(fsdp_parameter_grad(x.list.items[1].parameter), got));
    ASSERT_F32(got[32], 1.0f);
    ASSERT_F32(got[33], -2.0f);
    ASSERT_OK(shards_set_grad(x.list.items[1].parameter, NULL));
    ASSERT_OK(fsdp_clip_grad_value(&x.list, 0.5));
    ASSERT_OK(shards_full(fsdp_parameter_grad(x.list.items[0].parameter), got));
    ASSERT_F32(got[13], 0.5f);
    x.values[0][1] = NAN;
    ASSERT_OK(shards_set_grad(x.list.items[0].parameter, x.values[0]));
    ASSERT_OK(fsdp_clip_grad_value(&x.list, 0.5));
    ASSERT_OK(shards_full(fsdp_parameter_grad(x.list.items[0].parameter), got));
    ASSERT(isnan(got[1]));
    ASSERT_F32(got[2], 0.5f);
    ASSERT_ERROR(fsdp_clip_grad_value(&x.list, (double)NAN), FSDP_ERR_INVALID, "clip_value is nan");
    close_three(&x);
}

/* A norm over parameters of many row counts. */
typedef struct norm_job {
    double type;
    double norm; /* rank 0's result */
} norm_job;

static fsdp_status norm_on_rank(fsdp_group *group, void *arg)
{
    static const int64_t rows[] = {1, 2, 3, 31, 32, 33, 100};
    norm_job *j = arg;
    fsdp_device *device;
    fsdp_module *module = NULL;
    fsdp_parameter_list list = {0};
    float values[300], scale;
    double norm = 0.0;
    FSDP_TRY(fsdp_device_create(NULL, &device));
    fsdp_status status = shards_create(rows, 7, 3, &module);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(module, group, device, NULL);
    if (status == FSDP_OK)
        status = fsdp_module_parameters(module, false, &list);
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        for (int k = 0; k < 300; k++)
            values[k] = shards_random(i, k);
        status = shards_set_grad(list.items[i].parameter, values);
    }
    if (status == FSDP_OK)
        status = fsdp_clip_grad_norm(&list, 1.0, &(fsdp_clip_grad_options){.norm_type = j->type},
                                     &norm, &scale);
    if (fsdp_group_rank(group) == 0)
        j->norm = norm;
    fsdp_parameter_list_free(&list);
    fsdp_module_destroy(module);
    fsdp_device_destroy(device);
    return status;
}

/* The bits do not depend on which rank has which rows. */
TEST(norms_have_the_same_bits_on_1_to_7_ranks)
{
    static const double types[] = {1.0, 2.0, 2.5, (double)INFINITY};
    for (int i = 0; i < 4; i++) {
        norm_job one = {.type = types[i]};
        ASSERT_OK(fsdp_run_ranks(1, norm_on_rank, &one, NULL));
        ASSERT(one.norm > 0.5 && isfinite(one.norm));
        for (int world_size = 2; world_size <= 7; world_size++) {
            norm_job many = {.type = types[i]};
            ASSERT_OK(fsdp_run_ranks(world_size, norm_on_rank, &many, NULL));
            ASSERT_F32(many.norm, one.norm);
        }
    }
}

TEST_RANKS(parameters_without_a_gradient_do_not_count, 2)
{
    three x;
    double norm;
    float scale;
    open_three(t, &x, 1.0f);
    CHECK_HERE();
    ASSERT_OK(fsdp_clip_grad_norm(&x.list, (double)INFINITY, NULL, &norm, &scale));
    ASSERT_NEAR(norm, sqrt(50.0), 1e-12);
    ASSERT_F32(scale, 1.0f);
    ASSERT_OK(shards_set_grad(x.list.items[1].parameter, NULL));
    ASSERT_OK(fsdp_clip_grad_norm(&x.list, 2.0, NULL, &norm, &scale));
    ASSERT_F32(norm, 4.0);
    ASSERT_F32(scale, (float)(2.0 / (4.0 + 1e-6)));
    ASSERT_ERROR(fsdp_clip_grad_norm(&x.list, -1.0, NULL, &norm, &scale), FSDP_ERR_INVALID,
                 "max_norm is -1");
    ASSERT_OK(shards_set_grad(x.list.items[0].parameter, NULL));
    ASSERT_OK(shards_set_grad(x.list.items[2].parameter, NULL));
    ASSERT_OK(fsdp_clip_grad_norm(&x.list, 2.0, NULL, &norm, &scale));
    ASSERT_F32(norm, 0.0);
    ASSERT_F32(scale, 1.0f);
    close_three(&x);
}
