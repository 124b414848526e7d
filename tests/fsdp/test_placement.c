/* shard_placement_fn: parameters that are sharded along any dimension train, load and save like
 * those sharded by rows, evenly and unevenly, over one and two dimensions of a mesh. */
#include <stdio.h>
#include <sys/stat.h>

#include <fsdp/ckpt.h>
#include <fsdp/dtensor.h>
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = UNDER_SANITIZER ? 3 : 10 /* steps differ only in values */
};

/* Shard matrices by columns, and vectors by rows. */
static int last_dim(const char *name, const fsdp_parameter *parameter, void *arg)
{
    (void)name, (void)parameter, (void)arg;
    return -1;
}

/* Shard `up` by columns, and the others by rows. */
static int up_by_columns(const char *name, const fsdp_parameter *parameter, void *arg)
{
    (void)parameter, (void)arg;
    const char *last = strrchr(name, '.');
    return strcmp(last ? last + 1 : name, "up") == 0 ? 1 : 0;
}

static fsdp_shard_placement_fn *const functions[] = {last_dim, up_by_columns};

static fsdp_status train(fsdp_group *group, int64_t width, const fsdp_fully_shard_options *options,
                         int steps, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, options->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(width, &m->model));
    FSDP_TRY(tree_example_shard(m->model, group, m->device, options));
    for (int step = 0; step < steps; step++)
        FSDP_TRY(tree_step(m, step, group ? 2 * fsdp_group_world_size(group) : 2));
    return FSDP_OK;
}

/* Train on one rank with the same leaves. */
static fsdp_status train_alone(int64_t width, const fsdp_fully_shard_options *options, int leaves,
                               trainee *m)
{
    FSDP_TRY(train(NULL, width, options, 0, m));
    for (int step = 0; step < STEPS; step++)
        FSDP_TRY(tree_step(m, step, leaves));
    return FSDP_OK;
}

static void compare_with_one_rank(fsdp_test *t, const fsdp_device_mesh *mesh)
{
    static const int64_t widths[] = {7, 15, 16, 17, 1};
    fsdp_group_set_delay(t->group, 9, 50);
    for (int v = 0; v < TREE_VARIANTS * 2; v++) {
        const fsdp_fully_shard_options *variant = &tree_variants[v / 2];
        const int64_t width = widths[v % 5];
        trainee many, one = {0};
        fsdp_fully_shard_options o = *variant;
        o.mesh = mesh;
        o.shard_placement_fn = functions[v % 2];
        ASSERT_OK(train(t->group, width, &o, STEPS, &many));
        if (t->rank == 0)
            ASSERT_OK(train_alone(width, variant, 2 * t->world_size, &one));
        ASSERT_OK(tree_same_params(&many, t->rank == 0 ? &one : NULL));
        ASSERT_OK(trainee_close(&many));
        ASSERT_OK(trainee_close(&one));
    }
}

TEST_RANKS(two_ranks_train_to_the_bits_of_one, 2)
{
    compare_with_one_rank(t, NULL);
}

TEST_RANKS(four_ranks_train_to_the_bits_of_one, 4)
{
    compare_with_one_rank(t, NULL);
}

TEST_RANKS(eight_ranks_some_of_which_have_nothing_train_to_the_bits_of_one, 8)
{
    compare_with_one_rank(t, NULL);
}

TEST_RANKS(replicas_train_to_the_bits_of_one_rank, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    compare_with_one_rank(t, mesh);
    fsdp_device_mesh_destroy(mesh);
}

TEST_RANKS(locals_are_sharded_along_the_chosen_dimension, 3)
{
    const fsdp_fully_shard_options o = {.shard_placement_fn = up_by_columns};
    static const int64_t columns[] = {3, 3, 1}, rows[] = {3, 3, 1};
    trainee m;
    int64_t begin, end;
    ASSERT_OK(train(t->group, 7, &o, 1, &m));
    const tree *root = tree_of(m.model);
    const fsdp_tensor *all[] = {fsdp_parameter_local(root->up), fsdp_parameter_grad(root->up)};
    for (int i = 0; i < 2; i++) {
        ASSERT_INT(fsdp_dtensor_placement(all[i]).kind, FSDP_SHARD);
        ASSERT_INT(fsdp_dtensor_placement(all[i]).dim, 1);
        ASSERT_INT(all[i]->shape[0], 5);
        ASSERT_INT(all[i]->shape[1], columns[t->rank]);
    }
    ASSERT_INT(fsdp_parameter_shard_dim(root->up), 1);
    fsdp_parameter_rows(root->up, &begin, &end);
    ASSERT_INT(begin, 3 * t->rank);
    ASSERT_INT(end, begin + columns[t->rank]);
    ASSERT_INT(fsdp_parameter_shard_dim(root->down), 0);
    ASSERT_INT(fsdp_parameter_local(root->down)->shape[0], rows[t->rank]);
    ASSERT_OK(trainee_close(&m));
}

/* --- operations that know of rows --- */

/* A unit with a parameter of three dimensions, an embedding whose row 2 is zero, and a vector. */
static fsdp_status open_shapes(fsdp_group *group, fsdp_shard_placement_fn *fn, void *arg,
                               trainee *m)
{
    static const fsdp_init draw = {.std = 0.5f};
    static const fsdp_init padded = {.std = 0.5f, .has_zero_row = true, .zero_row = 2};
    fsdp_parameter *unused;
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(tree_add(NULL, "", 1, 0, &m->model));
    FSDP_TRY(fsdp_module_add_parameter(m->model, "cube", 3, (int64_t[]){3, 5, 4}, draw, &unused));
    FSDP_TRY(fsdp_module_add_parameter(m->model, "table", 2, (int64_t[]){4, 6}, padded, &unused));
    FSDP_TRY(fsdp_module_add_parameter(m->model, "vector", 1, (int64_t[]){5}, draw, &unused));
    FSDP_TRY(fsdp_fully_shard(
        m->model, group, m->device,
        &(fsdp_fully_shard_options){.shard_placement_fn = fn, .shard_placement_arg = arg}));
    return fsdp_module_init(m->model, 11);
}

static int dim_of_arg(const char *name, const fsdp_parameter *parameter, void *arg)
{
    (void)name;
    const int dim = *(const int *)arg;
    return dim < fsdp_parameter_ndim(parameter) ? dim : 0;
}

TEST_RANKS(drawn_values_do_not_depend_on_the_dimension, 3)
{
    trainee alone;
    ASSERT_OK(open_shapes(NULL, NULL, NULL, &alone));
    for (int dim = 0; dim < 3; dim++) {
        trainee m;
        fsdp_tensor *table;
        float values[4 * 6];
        ASSERT_OK(open_shapes(t->group, dim_of_arg, &dim, &m));
        ASSERT_OK(tree_same_params(&m, &alone));
        ASSERT_OK(fsdp_full_tensor(fsdp_parameter_local(fsdp_module_parameter(m.model, "table")),
                                   &table));
        ASSERT_OK(fsdp_tensor_to_floats(table, values));
        fsdp_tensor_release(table);
        for (int i = 0; i < 4 * 6; i++)
            ASSERT((values[i] == 0.0f) == (i / 6 == 2));
        ASSERT_OK(trainee_close(&m));
    }
    ASSERT_OK(trainee_close(&alone));
}

/* A file that was written with any placement can be read with any other. */
TEST_RANKS(files_are_written_and_read_whole, 3)
{
    char dir[512] = "";
    if (t->rank == 0)
        snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    ASSERT_OK(fsdp_broadcast(t->group, dir, sizeof dir, 0));
    for (int dim = 0; dim < 3; dim++) {
        trainee from, to;
        fsdp_checkpoint_reader *reader;
        int other = (dim + 1) % 3;
        char path[600];
        snprintf(path, sizeof path, "%s/%d", dir, dim);
        if (t->rank == 0)
            ASSERT(mkdir(path, 0700) == 0);
        ASSERT_OK(open_shapes(t->group, dim_of_arg, &dim, &from));
        ASSERT_OK(fsdp_module_save(from.model, path, t->group, NULL));
        ASSERT_OK(open_shapes(t->group, dim_of_arg, &other, &to));
        ASSERT_OK(fsdp_module_init(to.model, 99));
        ASSERT_OK(fsdp_checkpoint_open(path, &reader));
        ASSERT_OK(fsdp_module_load(to.model, reader, t->group, NULL, NULL));
        fsdp_checkpoint_close(reader);
        ASSERT_OK(tree_same_params(&from, &to));
        ASSERT_OK(trainee_close(&from));
        ASSERT_OK(trainee_close(&to));
    }
}

/* A parameter keeps the values that it had before it was sharded. */
TEST_RANKS(values_of_before_are_kept, 3)
{
    int dim = 1;
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, 5));
    float *before, *after;
    size_t n_before, n_after;
    ASSERT_OK(tree_params(m.model, &before, &n_before));
    ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device,
                               &(fsdp_fully_shard_options){.shard_placement_fn = dim_of_arg,
                                                           .shard_placement_arg = &dim}));
    ASSERT_OK(tree_params(m.model, &after, &n_after));
    ASSERT_INT(n_before, n_after);
    ASSERT(memcmp(before, after, n_before * sizeof *before) == 0);
    fsdp_free(before);
    fsdp_free(after);
    ASSERT_OK(trainee_close(&m));
}

static fsdp_status norm_of(trainee *m, double type, double *norm)
{
    fsdp_parameter_list list;
    float scale;
    const fsdp_clip_grad_options options = {.norm_type = type};
    FSDP_TRY(fsdp_module_parameters(m->model, false, &list));
    fsdp_status status = fsdp_clip_grad_norm(&list, 1e9, &options, norm, &scale);
    fsdp_parameter_list_free(&list);
    return status;
}

/* The sum over ranks has another order, so the norm is equal up to rounding. The largest magnitude
 * is equal in every bit. */
TEST_RANKS(the_global_norm_is_that_of_one_rank, 4)
{
    static const double types[] = {1.0, 2.0, 3.0, (double)INFINITY};
    trainee many, one;
    ASSERT_OK(train(t->group, 17, &(fsdp_fully_shard_options){.shard_placement_fn = last_dim},
                    STEPS, &many));
    ASSERT_OK(train_alone(17, &(fsdp_fully_shard_options){0}, 8, &one));
    for (int i = 0; i < 4; i++) {
        double norm = 0, alone = 1;
        ASSERT_OK(norm_of(&many, types[i], &norm));
        ASSERT_OK(norm_of(&one, types[i], &alone));
        ASSERT(norm > 0);
        ASSERT_NEAR(norm, alone, isinf(types[i]) ? 0 : 1e-12 * alone);
    }
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
}

TEST_RANKS(adamw_steps_as_on_one_rank, 2)
{
    const fsdp_adamw_options adamw = fsdp_adamw_defaults();
    fsdp_optimizer *a, *b;
    trainee many, one;
    ASSERT_OK(
        train(t->group, 15, &(fsdp_fully_shard_options){.shard_placement_fn = last_dim}, 0, &many));
    ASSERT_OK(train(NULL, 15, &(fsdp_fully_shard_options){0}, 0, &one));
    ASSERT_OK(fsdp_adamw_create(many.model, &adamw, &a));
    ASSERT_OK(fsdp_adamw_create(one.model, &adamw, &b));
    for (int step = 0; step < STEPS; step++) {
        ASSERT_OK(tree_step(&many, step, 4));
        ASSERT_OK(tree_step(&one, step, 4));
        ASSERT_OK(fsdp_optimizer_step(a, 1.0f));
        ASSERT_OK(fsdp_optimizer_step(b, 1.0f));
    }
    ASSERT_OK(tree_same_params(&many, &one));
    const fsdp_tensor *moment = fsdp_optimizer_state(a, tree_of(many.model)->up, "exp_avg");
    ASSERT_INT(fsdp_dtensor_placement(moment).dim, 1);
    fsdp_optimizer_destroy(a);
    fsdp_optimizer_destroy(b);
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
}

/* --- three dimensions --- */

enum {
    CUBE = 2 * 5 * 7
};

typedef struct cube {
    fsdp_parameter *weight; /* [2, 5, 7] */
} cube;

static void times_weight(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const cube *c = self->impl;
    *out = (fsdp_args){.t = {fsdp_mul(s, in->t[0], fsdp_read(s, c->weight))}, .n = 1};
}

static int given_dim(const char *name, const fsdp_parameter *parameter, void *arg)
{
    (void)name, (void)parameter;
    return *(const int *)arg;
}

static fsdp_status open_cube(fsdp_group *group, int dim, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(fsdp_module_create("Cube", &m->model));
    cube *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return FSDP_ERR_NOMEM;
    fsdp_module_set_forward(m->model, times_weight, c, fsdp_free);
    FSDP_TRY(fsdp_module_add_parameter(m->model, "weight", 3, (int64_t[]){2, 5, 7},
                                       (fsdp_init){.std = 1.0f}, &c->weight));
    FSDP_TRY(fsdp_fully_shard(
        m->model, group, m->device,
        &(fsdp_fully_shard_options){.shard_placement_fn = given_dim, .shard_placement_arg = &dim}));
    return fsdp_module_init(m->model, 11);
}

/* y = x * weight, where element i of x is i + 1. All elements of dy are rank + 1, so dweight is
 * x * (rank + 1). */
static fsdp_status run_cube(trainee *m, float *y)
{
    static const int64_t shape[] = {2, 5, 7};
    float x[CUBE], dy[CUBE];
    fsdp_tensor *in = NULL, *grad = NULL;
    fsdp_scope *s = NULL;
    for (int i = 0; i < CUBE; i++) {
        x[i] = (float)(i + 1);
        dy[i] = (float)(trainee_rank(m) + 1);
    }
    fsdp_status status =
        fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 3, shape, x, FSDP_TAG_DATA, &in);
    if (status == FSDP_OK)
        status =
            fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 3, shape, dy, FSDP_TAG_DATA, &grad);
    if (status == FSDP_OK)
        status = tree_scope(m, m->tape, &(tree_call){0}, &s);
    fsdp_tensor *out = status == FSDP_OK ? fsdp_module_call1(s, m->model, in) : NULL;
    if (status == FSDP_OK)
        status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_to_floats(out, y);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &out, &grad, 1);
    fsdp_scope_close(s);
    fsdp_tensor_release(grad);
    fsdp_tensor_release(in);
    return status;
}

/* For any sharded dimension, operations read the whole parameter, and each shard gets its part. */
TEST_RANKS(any_of_three_dimensions_may_be_cut, 3)
{
    float alone[CUBE], y[CUBE], grad[CUBE];
    trainee m;
    ASSERT_OK(open_cube(NULL, 0, &m));
    ASSERT_OK(run_cube(&m, alone));
    ASSERT_OK(trainee_close(&m));
    for (int dim = 0; dim < 3; dim++) {
        fsdp_tensor *full;
        ASSERT_OK(open_cube(t->group, dim, &m));
        const cube *c = m.model->impl;
        fsdp_parameter *weight = c->weight;
        ASSERT_OK(run_cube(&m, y));
        ASSERT(memcmp(y, alone, sizeof y) == 0);
        ASSERT_INT(fsdp_dtensor_placement(fsdp_parameter_local(weight)).dim, dim);
        ASSERT_OK(fsdp_full_tensor(fsdp_parameter_grad(weight), &full));
        ASSERT_OK(fsdp_tensor_to_floats(full, grad));
        for (int i = 0; i < CUBE; i++)
            ASSERT_F32(grad[i], 2.0f * (float)(i + 1)); /* the mean of 1, 2 and 3 */
        fsdp_tensor_release(full);
        ASSERT_OK(trainee_close(&m));
    }
}

/* --- invalid arguments --- */

TEST_RANKS(adafactor_refuses_by_name_what_is_not_cut_by_rows, 2)
{
    fsdp_adafactor_options options = fsdp_adafactor_defaults();
    fsdp_optimizer *adafactor;
    trainee m;
    ASSERT_OK(train(t->group, 7, &(fsdp_fully_shard_options){.shard_placement_fn = up_by_columns},
                    1, &m));
    ASSERT_ERROR(fsdp_adafactor_create(m.model, &options, &adafactor), FSDP_ERR_UNSUPPORTED,
                 "parameter up: adafactor needs whole rows, it is sharded as Shard(1)");
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(dimensions_that_a_parameter_has_not_are_refused, 2)
{
    static const int wrong[] = {1, 7, -2};
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    for (int i = 0; i < 3; i++) {
        int dim = wrong[i];
        char text[64];
        snprintf(text, sizeof text, "Shard(%d) of 'norm', which has 1 dimensions", dim);
        ASSERT_ERROR(fsdp_fully_shard(m.model, t->group, m.device,
                                      &(fsdp_fully_shard_options){.shard_placement_fn = given_dim,
                                                                  .shard_placement_arg = &dim}),
                     FSDP_ERR_INVALID, text);
        ASSERT(!fsdp_module_is_unit(m.model));
    }
    ASSERT_OK(trainee_close(&m));
}
