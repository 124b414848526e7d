/* Folders of Accelerate's save_state: folders that Accelerate wrote (tests/fixtures/accelerate, by
 * Accelerate 1.15 on two ranks after two steps), and folders of this library. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <fsdp.h>

#include "src/base/io.h"
#include "src/comm/agree.h"
#include "tests/elements.h"
#include "tests/fsdp/toy.h"
#include "tests/test.h"

enum {
    PATH = 300
};

typedef struct fixture {
    fsdp_device *device;
    fsdp_module *models[2];
    fsdp_optimizer *optimizers[2];
    fsdp_accelerate_scheduler schedulers[2];
    fsdp_grad_scaler *scaler; /* NULL at first */
    fsdp_accelerate_state state;
} fixture;

static fsdp_status add_linear(fsdp_module *root, const char *name, int64_t out, int64_t in)
{
    const fsdp_init zero = {.mean = 0.0f, .std = 0.0f};
    fsdp_module *m;
    fsdp_parameter *p;
    FSDP_TRY(fsdp_module_create("Linear", &m));
    FSDP_TRY(fsdp_module_add_child(root, name, m));
    FSDP_TRY(fsdp_module_add_parameter(m, "weight", 2, (int64_t[]){out, in}, zero, &p));
    return fsdp_module_add_parameter(m, "bias", 1, &out, zero, &p);
}

/* The Sequential of the fixture. */
static fsdp_status create_sequential(fsdp_module **model)
{
    FSDP_TRY(fsdp_module_create("Sequential", model));
    FSDP_TRY(add_linear(*model, "0", 3, 4));
    return add_linear(*model, "1", 1, 3);
}

static fsdp_status create_toy(fsdp_module **model, int i)
{
    const toy_shape shape = {.vocab = 7 + i, .width = 3, .hidden = 5, .blocks = 2 - i};
    return toy_create(&shape, model);
}

/* n models: toys, or the fixture's if `sequential`. */
static fsdp_status fixture_open(fixture *f, fsdp_group *group, int n, bool sequential,
                                uint64_t seed)
{
    *f = (fixture){.state = {.n_models = (size_t)n,
                             .n_optimizers = (size_t)n,
                             .n_schedulers = (size_t)n,
                             .seed = 7}};
    f->state.models = f->models;
    f->state.optimizers = f->optimizers;
    f->state.schedulers = f->schedulers;
    FSDP_TRY(fsdp_device_create(NULL, &f->device));
    for (int i = 0; i < n; i++) {
        fsdp_adamw_options options = fsdp_adamw_defaults();
        FSDP_TRY(sequential ? create_sequential(&f->models[i]) : create_toy(&f->models[i], i));
        if (sequential)
            FSDP_TRY(fsdp_fully_shard(f->models[i], group, f->device, NULL));
        else
            FSDP_TRY(toy_shard(f->models[i], group, f->device, NULL));
        FSDP_TRY(fsdp_module_init(f->models[i], seed + (uint64_t)i));
        options.lr = 0.125 * (double)(seed + 1);
        FSDP_TRY(fsdp_adamw_create(f->models[i], &options, &f->optimizers[i]));
        f->schedulers[i] = (fsdp_accelerate_scheduler){
            .base_lr = 0.5, .last_lr = 0.25, .last_epoch = (int64_t)seed + i};
    }
    return FSDP_OK;
}

static void fixture_close(fixture *f)
{
    fsdp_grad_scaler_destroy(f->scaler);
    for (int i = 0; i < 2; i++) {
        fsdp_optimizer_destroy(f->optimizers[i]);
        fsdp_module_destroy(f->models[i]);
    }
    fsdp_device_destroy(f->device);
}

/* Make a scaler with this scale, in the fixture's state. */
static fsdp_status add_scaler(fixture *f, double scale, bool disabled)
{
    const fsdp_grad_scaler_options options = {.init_scale = scale, .disabled = disabled};
    FSDP_TRY(fsdp_grad_scaler_create(&options, &f->scaler));
    f->state.scaler = f->scaler;
    return FSDP_OK;
}

static fsdp_status train_one(fixture *f, int i, fsdp_tape *tape)
{
    static const int32_t ids[] = {1, 2, 3, 4, 5}, labels[] = {2, 3, 4, 5, 6};
    const toy_batch batch = {.ids = ids, .labels = labels, .n = 5, .factor = 0.2f};
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(f->device, tape, NULL, &s));
    fsdp_tensor *loss = toy_loss(s, f->models[i], &batch);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    if (status == FSDP_OK)
        status = fsdp_optimizer_step(f->optimizers[i], 1.0f);
    fsdp_optimizer_zero_grad(f->optimizers[i]);
    return status;
}

static fsdp_status train(fixture *f)
{
    fsdp_tape *tape;
    FSDP_TRY(fsdp_tape_create(&tape));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < f->state.n_models && status == FSDP_OK; i++)
        status = train_one(f, (int)i, tape);
    fsdp_tape_destroy(tape);
    return status;
}

/* --- the same --- */

static void assert_same_entry(fsdp_test *t, const fsdp_state_entry *a, const fsdp_state_entry *b)
{
    ASSERT(b && (a->tensor != NULL) == (b->tensor != NULL));
    if (!a->tensor) {
        if (a->value->kind == FSDP_PLAIN_FLOAT && a->value->as.number != b->value->as.number)
            FAIL("%s is %g, not %g", a->fqn, b->value->as.number, a->value->as.number);
        return;
    }
    size_t bytes =
        (size_t)fsdp_tensor_numel(a->tensor) * fsdp_dtype_size(fsdp_tensor_dtype(a->tensor));
    ASSERT(fsdp_tensor_numel(a->tensor) == fsdp_tensor_numel(b->tensor));
    if (memcmp(elements_of(a->tensor), elements_of(b->tensor), bytes) != 0)
        FAIL("%s differs", a->fqn);
}

static void assert_same_dict(fsdp_test *t, fsdp_state_dict *a, fsdp_state_dict *b)
{
    ASSERT_INT(fsdp_state_dict_count(a), fsdp_state_dict_count(b));
    for (size_t i = 0; i < fsdp_state_dict_count(a); i++) {
        const fsdp_state_entry *e = fsdp_state_dict_at(a, i);
        assert_same_entry(t, e, fsdp_state_dict_find(b, e->fqn));
        CHECK_HERE();
    }
    fsdp_state_dict_destroy(a);
    fsdp_state_dict_destroy(b);
}

/* Compare values, state and options, bit by bit. Collective. */
static void assert_same(fsdp_test *t, fsdp_group *group, const fixture *a, const fixture *b)
{
    const fsdp_state_dict_options full = {.full_state_dict = true, .group = group};
    fsdp_state_dict *model[2], *optim[2];
    for (size_t i = 0; i < a->state.n_models; i++) {
        ASSERT_OK(fsdp_get_state_dict(a->models[i], a->optimizers[i], &full, &model[0], &optim[0]));
        ASSERT_OK(fsdp_get_state_dict(b->models[i], b->optimizers[i], &full, &model[1], &optim[1]));
        assert_same_dict(t, model[0], model[1]);
        CHECK_HERE();
        assert_same_dict(t, optim[0], optim[1]);
        CHECK_HERE();
        ASSERT_INT(a->schedulers[i].last_epoch, b->schedulers[i].last_epoch);
    }
}

/* --- what Accelerate wrote --- */

static void read_fixture(fsdp_test *t, fsdp_group *group, const char *name, fixture *f)
{
    char dir[PATH];
    snprintf(dir, sizeof dir, "%s/%s", fsdp_test_path("fixtures/accelerate"), name);
    ASSERT_OK(fixture_open(f, group, 1, true, 1));
    ASSERT_OK(fsdp_accelerate_load_state(&f->state, dir, group, NULL));
}

static void check_fixture(fsdp_test *t, fsdp_group *group)
{
    fixture full, sharded;
    float values[12];
    fsdp_parameter_list list;
    fsdp_tensor *whole;
    read_fixture(t, group, "full", &full);
    CHECK_HERE();
    read_fixture(t, group, "sharded", &sharded);
    CHECK_HERE();
    assert_same(t, group, &full, &sharded);
    CHECK_HERE();
    ASSERT_OK(fsdp_module_parameters(full.models[0], false, &list));
    ASSERT_OK(fsdp_full_tensor(fsdp_parameter_local(list.items[0].parameter), &whole));
    ASSERT_OK(fsdp_tensor_to_floats(whole, values));
    ASSERT(fabsf(values[0] + 0.0150f) < 1e-4f && fabsf(values[11] - 1.3598f) < 1e-4f);
    ASSERT_INT(fsdp_optimizer_steps(full.optimizers[0], list.items[3].parameter), 2);
    ASSERT_INT(full.schedulers[0].last_epoch, 2);
    ASSERT(full.schedulers[0].base_lr == 0.01);
    ASSERT(fabs(full.schedulers[0].last_lr - 0.01 / 3) < 1e-12);
    fsdp_tensor_release(whole);
    fsdp_parameter_list_free(&list);
    fixture_close(&full);
    fixture_close(&sharded);
}

TEST_RANKS(what_accelerate_wrote_is_read_on_one_rank, 1)
{
    check_fixture(t, t->group);
}

TEST_RANKS(what_accelerate_wrote_is_read_on_three_ranks, 3)
{
    check_fixture(t, t->group);
}

/* --- what we wrote --- */

static void shared_dir(fsdp_test *t, char dir[PATH])
{
    if (t->rank == 0)
        snprintf(dir, PATH, "%s/state", fsdp_test_dir(t));
    if (t->group)
        ASSERT_OK(fsdp_broadcast(t->group, dir, PATH, 0));
}

static bool has(const char *dir, const char *name)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fsdp_path_is_file(path);
}

/* Two models and two optimizers are saved, loaded into others, and trained further in the same
 * way. */
static void go_through(fsdp_test *t, const fsdp_accelerate_options *options, const char *model,
                       const char *optimizer)
{
    char dir[PATH] = "";
    fixture a, b;
    shared_dir(t, dir);
    CHECK_HERE();
    ASSERT_OK(fixture_open(&a, t->group, 2, false, 1));
    ASSERT_OK(train(&a));
    ASSERT_OK(train(&a));
    ASSERT_OK(fsdp_accelerate_save_state(&a.state, dir, t->group, options));
    ASSERT(has(dir, model) && has(dir, optimizer) && has(dir, "scheduler.bin") &&
           has(dir, "scheduler_1.bin") && has(dir, "random_states_0.pkl"));
    ASSERT(fsdp_accelerate_save_state(&a.state, dir, t->group, NULL) == FSDP_ERR_INVALID);
    ASSERT_OK(fixture_open(&b, t->group, 2, false, 5));
    ASSERT_OK(fsdp_accelerate_load_state(&b.state, dir, t->group, NULL));
    assert_same(t, t->group, &a, &b);
    CHECK_HERE();
    ASSERT_OK(train(&a));
    ASSERT_OK(train(&b));
    assert_same(t, t->group, &a, &b);
    CHECK_HERE();
    fixture_close(&a);
    fixture_close(&b);
    ASSERT_OK(fsdp_barrier(t->group));
}

TEST_RANKS(sharded_folders_go_through, 3)
{
    go_through(t, NULL, "pytorch_model_fsdp_1/.metadata", "optimizer_1/.metadata");
}

TEST_RANKS(full_files_go_through, 2)
{
    const fsdp_accelerate_options full = {.type = FSDP_STATE_DICT_FULL};
    go_through(t, &full, "pytorch_model_fsdp_1.bin", "optimizer_1.bin");
}

TEST_RANKS(old_names_go_through, 1)
{
    const fsdp_accelerate_options old = {.old_names = true};
    go_through(t, &old, "pytorch_model_1/.metadata", "optimizer_0/.metadata");
}

/* --- the gradient scaler --- */

/* Write `state` as scaler.pt of a folder, and read it into another. */
TEST_RANKS(a_scaler_goes_through, 2)
{
    const fsdp_grad_scaler_state state = {.scale = 512.0,
                                          .growth_factor = 3.0,
                                          .backoff_factor = 0.25,
                                          .growth_interval = 77,
                                          .growth_tracker = 5};
    char dir[PATH] = "";
    fixture a, b;
    shared_dir(t, dir);
    CHECK_HERE();
    ASSERT_OK(fixture_open(&a, t->group, 1, false, 1));
    ASSERT_OK(fixture_open(&b, t->group, 1, false, 5));
    ASSERT_OK(add_scaler(&a, 1024.0, false));
    ASSERT_OK(add_scaler(&b, 1024.0, false));
    ASSERT_OK(fsdp_grad_scaler_set_state(a.scaler, &state));
    ASSERT_OK(fsdp_accelerate_save_state(&a.state, dir, t->group, NULL));
    ASSERT(has(dir, "scaler.pt"));
    ASSERT_OK(fsdp_accelerate_load_state(&b.state, dir, t->group, NULL));
    const fsdp_grad_scaler_state read = fsdp_grad_scaler_get_state(b.scaler);
    ASSERT(read.scale == 512.0 && read.growth_factor == 3.0 && read.backoff_factor == 0.25);
    ASSERT_INT(read.growth_interval, 77);
    ASSERT_INT(read.growth_tracker, 5);
    fixture_close(&a);
    fixture_close(&b);
}

/* A folder of a run without a scaler leaves the scaler unchanged; a disabled scaler is not
 * written. */
TEST_RANKS(a_folder_without_a_scaler_is_read, 1)
{
    char dir[PATH] = "";
    fixture f;
    shared_dir(t, dir);
    ASSERT_OK(fixture_open(&f, t->group, 1, false, 1));
    ASSERT_OK(fsdp_accelerate_save_state(&f.state, dir, t->group, NULL));
    ASSERT_OK(add_scaler(&f, 1024.0, false));
    ASSERT_OK(fsdp_accelerate_load_state(&f.state, dir, t->group, NULL));
    ASSERT(fsdp_grad_scaler_scale(f.scaler) == 1024.0);
    fsdp_grad_scaler_destroy(f.scaler);
    ASSERT_OK(add_scaler(&f, 1024.0, true));
    /* Save again in another format: the old files are removed, files of others stay. */
    const fsdp_accelerate_options full = {.type = FSDP_STATE_DICT_FULL, .overwrite = true};
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/letter", dir);
    ASSERT_OK(fsdp_file_write(path, "1", 1));
    snprintf(path, sizeof path, "%s/optimizer_0/letter", dir);
    ASSERT_OK(fsdp_file_write(path, "1", 1));
    ASSERT_OK(fsdp_accelerate_save_state(&f.state, dir, t->group, &full));
    ASSERT(!has(dir, "scaler.pt") && has(dir, "optimizer.bin"));
    ASSERT(has(dir, "letter") && has(dir, "optimizer_0/letter"));
    ASSERT(!has(dir, "optimizer_0/.metadata") && !has(dir, "pytorch_model_fsdp_0/.metadata"));
    fixture_close(&f);
}

/* scaler.pt by torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=1000). */
TEST_RANKS(a_scaler_of_torch_is_read, 1)
{
    char dir[PATH];
    fixture f;
    snprintf(dir, sizeof dir, "%s", fsdp_test_path("fixtures/accelerate/full"));
    ASSERT_OK(fixture_open(&f, t->group, 1, true, 1));
    ASSERT_OK(add_scaler(&f, 1024.0, false));
    ASSERT_OK(fsdp_accelerate_load_state(&f.state, dir, t->group, NULL));
    ASSERT(fsdp_grad_scaler_scale(f.scaler) == 512.0);
    ASSERT_INT(fsdp_grad_scaler_get_state(f.scaler).growth_interval, 1000);
    fixture_close(&f);
}

/* An impossible number is an error that names the file. */
TEST_RANKS(a_damaged_scaler_is_refused, 1)
{
    char dir[PATH] = "", path[PATH + 64];
    fsdp_state_dict *dict;
    fixture f;
    shared_dir(t, dir);
    ASSERT_OK(fixture_open(&f, t->group, 1, false, 1));
    ASSERT_OK(fsdp_accelerate_save_state(&f.state, dir, t->group, NULL));
    ASSERT_OK(add_scaler(&f, 1024.0, false));
    snprintf(path, sizeof path, "%s/scaler.pt", dir);
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(fsdp_torch_save(dict, path, NULL));
    ASSERT_ERROR(fsdp_accelerate_load_state(&f.state, dir, t->group, NULL), FSDP_ERR_FORMAT,
                 "scaler.pt: there is no number 'scale'");
    fsdp_state_dict_destroy(dict);
    fixture_close(&f);
}

/* The learning rates of the resumed run are kept. */
TEST_RANKS(options_can_be_kept, 1)
{
    const fsdp_accelerate_options keep = {.keep_optimizer_options = true};
    char dir[PATH] = "";
    fixture a, b;
    fsdp_state_dict *optim;
    shared_dir(t, dir);
    ASSERT_OK(fixture_open(&a, t->group, 1, false, 1));
    ASSERT_OK(fixture_open(&b, t->group, 1, false, 5));
    ASSERT_OK(train(&a));
    ASSERT_OK(fsdp_accelerate_save_state(&a.state, dir, t->group, NULL));
    ASSERT_OK(fsdp_accelerate_load_state(&b.state, dir, t->group, &keep));
    ASSERT_OK(fsdp_get_optimizer_state_dict(b.models[0], b.optimizers[0], NULL, &optim));
    ASSERT(fsdp_state_dict_find(optim, "param_groups.0.lr")->value->as.number == 0.75);
    fsdp_state_dict_destroy(optim);
    fixture_close(&a);
    fixture_close(&b);
}

static fsdp_status put_option(fsdp_state_dict *optim, fsdp_device *device, const char *name,
                              int64_t n)
{
    static const float values[2] = {0.25f, 0.5f};
    const fsdp_state_key keys[] = {{.name = "param_groups"}, {.index = 0}, {.name = name}};
    fsdp_tensor *tensor;
    FSDP_TRY(
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, n > 1, &n, values, FSDP_TAG_DATA, &tensor));
    fsdp_status status = fsdp_state_dict_put_tensor(optim, keys, 3, tensor);
    fsdp_tensor_release(tensor);
    return status;
}

/* The checkpoint is from AdamW(lr=torch.tensor(0.25)). */
TEST_RANKS(a_tensor_of_one_number_is_that_option, 1)
{
    fixture f;
    fsdp_state_dict *optim;
    ASSERT_OK(fixture_open(&f, t->group, 1, false, 1));
    ASSERT_OK(train(&f));
    ASSERT_OK(fsdp_get_optimizer_state_dict(f.models[0], f.optimizers[0], NULL, &optim));
    ASSERT_OK(put_option(optim, f.device, "lr", 1));
    ASSERT_OK(fsdp_set_optimizer_state_dict(f.models[0], f.optimizers[0], optim, NULL));
    fsdp_state_dict_destroy(optim);
    ASSERT_OK(fsdp_get_optimizer_state_dict(f.models[0], f.optimizers[0], NULL, &optim));
    ASSERT(fsdp_state_dict_find(optim, "param_groups.0.lr")->value->as.number == 0.25);
    ASSERT_OK(put_option(optim, f.device, "lr", 2));
    ASSERT_ERROR(fsdp_set_optimizer_state_dict(f.models[0], f.optimizers[0], optim, NULL),
                 FSDP_ERR_INVALID, "param_groups.0.lr': item of a tensor of 2 elements");
    ASSERT_OK(put_option(optim, f.device, "lr", 1));
    ASSERT_OK(put_option(optim, f.device, "betas", 2));
    ASSERT_ERROR(fsdp_set_optimizer_state_dict(f.models[0], f.optimizers[0], optim, NULL),
                 FSDP_ERR_INVALID, "param_groups.0.betas' is not a plain value");
    fsdp_state_dict_destroy(optim);
    fixture_close(&f);
}

/* --- damage --- */

TEST_RANKS(what_is_missing_or_damaged_is_named, 2)
{
    const fsdp_accelerate_options full = {.type = FSDP_STATE_DICT_FULL, .overwrite = true},
                                  local = {.type = FSDP_STATE_DICT_LOCAL};
    char dir[PATH] = "", path[PATH + 64];
    fixture f;
    shared_dir(t, dir);
    CHECK_HERE();
    ASSERT_OK(fixture_open(&f, t->group, 1, false, 1));
    ASSERT(fsdp_accelerate_load_state(&f.state, dir, t->group, NULL) == FSDP_ERR_NOT_FOUND);
    ASSERT(strstr(fsdp_last_error(), "neither pytorch_model_fsdp_0 nor pytorch_model_fsdp.bin"));
    ASSERT(fsdp_accelerate_save_state(&f.state, dir, t->group, &local) == FSDP_ERR_UNSUPPORTED);
    ASSERT_OK(fsdp_accelerate_save_state(&f.state, dir, t->group, &full));
    snprintf(path, sizeof path, "%s/optimizer.bin", dir);
    if (t->rank == 0) {
        FILE *file = fopen(path, "r+b");
        ASSERT(file && fseek(file, 100, SEEK_SET) == 0 && fputc('x', file) != EOF);
        fclose(file);
    }
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(fsdp_accelerate_load_state(&f.state, dir, t->group, NULL) == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "optimizer.bin"));
    ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0)
        ASSERT(remove(path) == 0);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(fsdp_accelerate_load_state(&f.state, dir, t->group, NULL) == FSDP_ERR_NOT_FOUND);
    ASSERT(strstr(fsdp_last_error(), "neither optimizer_0 nor optimizer.bin"));
    ASSERT_OK(fsdp_barrier(t->group));
    if (t->rank == 0) {
        snprintf(path, sizeof path, "%s/optimizer_0_rank0.bin", dir);
        ASSERT_OK(fsdp_file_write(path, "x", 1));
    }
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(fsdp_accelerate_load_state(&f.state, dir, t->group, NULL) == FSDP_ERR_UNSUPPORTED);
    ASSERT(strstr(fsdp_last_error(), "one rank each"));
    fixture_close(&f);
}
