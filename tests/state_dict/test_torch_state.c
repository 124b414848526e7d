/* State dicts in files of torch.save: the values that are read are those that were written, at any
 * world size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp.h>

#include "src/source/source.h"
#include "src/state_dict/groups.h"
#include "tests/test.h"

typedef struct fixture {
    fsdp_device *device;
    fsdp_state_dict *dict;
    char path[64];
} fixture;

static void fixture_open(fsdp_test *t, fixture *f)
{
    snprintf(f->path, sizeof f->path, "/tmp/fsdp_test_torch_%d.pt", (int)getpid());
    ASSERT_OK(fsdp_device_create(NULL, &f->device));
    ASSERT_OK(fsdp_state_dict_create(&f->dict));
}

static void fixture_close(fixture *f)
{
    fsdp_state_dict_destroy(f->dict);
    fsdp_device_destroy(f->device);
    remove(f->path);
}

/* A [rows, 2] tensor of 0, 1, 2, ...; over `group` a DTensor of it. */
static fsdp_status counting(fsdp_device *device, fsdp_group *group, int64_t rows,
                            fsdp_tensor **tensor)
{
    float values[64];
    int64_t begin = 0, end = rows;
    if (group)
        fsdp_shard_rows(rows, fsdp_group_world_size(group), fsdp_group_rank(group), &begin, &end);
    for (int64_t i = begin * 2; i < end * 2; i++)
        values[i - begin * 2] = (float)i;
    FSDP_TRY(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (int64_t[]){end - begin, 2}, values,
                                   FSDP_TAG_DATA, tensor));
    if (!group)
        return FSDP_OK;
    return fsdp_dtensor_from_local(*tensor, group, (fsdp_placement){FSDP_SHARD, 0},
                                   (int64_t[]){rows, 2});
}

static fsdp_status put_counting(fixture *f, fsdp_group *group, const fsdp_state_key *keys,
                                int n_keys, int64_t rows)
{
    fsdp_tensor *tensor;
    FSDP_TRY(counting(f->device, group, rows, &tensor));
    fsdp_status status = fsdp_state_dict_put_tensor(f->dict, keys, n_keys, tensor);
    fsdp_tensor_release(tensor);
    return status;
}

static void check_counting(fsdp_test *t, const fsdp_state_dict *dict, const char *fqn, int64_t rows)
{
    float values[64];
    const fsdp_state_entry *e = fsdp_state_dict_find(dict, fqn);
    if (!e || !e->tensor)
        FAIL("no tensor %s", fqn);
    ASSERT_INT(fsdp_tensor_ndim(e->tensor), 2);
    ASSERT_INT(fsdp_tensor_size(e->tensor, 0), rows);
    ASSERT_OK(fsdp_tensor_to_floats(e->tensor, values));
    for (int64_t i = 0; i < rows * 2; i++)
        ASSERT(values[i] == (float)i);
}

/* Items of one nested dict are not adjacent. */
static fsdp_status put_mixed(fixture *f, fsdp_group *group)
{
    static const fsdp_plain items[] = {{.kind = FSDP_PLAIN_FLOAT, .as.number = 0.9},
                                       {.kind = FSDP_PLAIN_NONE}};
    static const fsdp_plain plain[] = {
        {.kind = FSDP_PLAIN_TUPLE, .as.list = {items, 2}},
        {.kind = FSDP_PLAIN_BOOL, .as.boolean = true},
        {.kind = FSDP_PLAIN_INT, .as.integer = -5000000000},
        {.kind = FSDP_PLAIN_STR, .as.text = "gr\xc3\xb6\xc3\x9f"},
        {.kind = FSDP_PLAIN_LIST},
    };
    static const char *const names[] = {"betas", "fused", "step", "name", "params"};
    FSDP_TRY(put_counting(
        f, group, (fsdp_state_key[]){{.name = "state"}, {.name = "a.weight"}, {.name = "exp_avg"}},
        3, 7));
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 5; i++)
            FSDP_TRY(fsdp_state_dict_put_value(
                f->dict,
                (fsdp_state_key[]){{.name = "param_groups"}, {.index = g}, {.name = names[i]}}, 3,
                &plain[i]));
    FSDP_TRY(put_counting(
        f, group, (fsdp_state_key[]){{.name = "state"}, {.name = "b"}, {.name = "exp_avg"}}, 3, 1));
    return put_counting(
        f, group,
        (fsdp_state_key[]){{.name = "state"}, {.name = "a.weight"}, {.name = "exp_avg_sq"}}, 3, 5);
}

static void check_mixed(fsdp_test *t, const fixture *f)
{
    fsdp_state_dict *read;
    ASSERT_OK(fsdp_torch_load(f->path, f->device, &read));
    ASSERT_INT(fsdp_state_dict_count(read), fsdp_state_dict_count(f->dict));
    check_counting(t, read, "state.a.weight.exp_avg", 7);
    CHECK_HERE();
    check_counting(t, read, "state.a.weight.exp_avg_sq", 5);
    CHECK_HERE();
    check_counting(t, read, "state.b.exp_avg", 1);
    CHECK_HERE();
    const fsdp_state_entry *betas = fsdp_state_dict_find(read, "param_groups.1.betas");
    ASSERT(betas && betas->value && betas->value->kind == FSDP_PLAIN_TUPLE);
    ASSERT_INT(betas->value->as.list.n, 2);
    ASSERT(betas->value->as.list.items[0].as.number == 0.9);
    ASSERT(betas->value->as.list.items[1].kind == FSDP_PLAIN_NONE);
    ASSERT(!betas->keys[1].name && betas->keys[1].index == 1);
    const fsdp_state_entry *step = fsdp_state_dict_find(read, "param_groups.0.step");
    ASSERT(step && step->value->kind == FSDP_PLAIN_INT && step->value->as.integer == -5000000000);
    ASSERT(fsdp_state_dict_find(read, "param_groups.0.fused")->value->as.boolean);
    ASSERT_STR(fsdp_state_dict_find(read, "param_groups.0.name")->value->as.text,
               "gr\xc3\xb6\xc3\x9f");
    const fsdp_state_entry *params = fsdp_state_dict_find(read, "param_groups.0.params");
    ASSERT(params && params->value->kind == FSDP_PLAIN_LIST && params->value->as.list.n == 0);
    fsdp_state_dict_destroy(read);
}

TEST_RANKS(dicts_lists_tensors_and_values_come_back, 1)
{
    fixture f;
    fixture_open(t, &f);
    CHECK_HERE();
    ASSERT_OK(put_mixed(&f, NULL));
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, NULL));
    check_mixed(t, &f);
    CHECK_HERE();
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, NULL)); /* replaces the first file */
    check_mixed(t, &f);
    fixture_close(&f);
}

TEST_RANKS(what_3_ranks_hold_is_one_file, 3)
{
    fixture f;
    fixture_open(t, &f);
    CHECK_HERE();
    ASSERT_OK(put_mixed(&f, t->group));
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, t->group));
    check_mixed(t, &f);
    CHECK_HERE();
    ASSERT_OK(fsdp_barrier(t->group));
    fixture_close(&f);
}

TEST_RANKS(a_file_that_cannot_be_is_an_error_on_all_ranks, 2)
{
    fixture f;
    fixture_open(t, &f);
    CHECK_HERE();
    ASSERT_OK(put_mixed(&f, t->group));
    char missing[96];
    snprintf(missing, sizeof missing, "%s.no_folder/x.pt", f.path);
    ASSERT_ERROR(fsdp_torch_save(f.dict, missing, t->group), FSDP_ERR_NOT_FOUND, missing);
    const fsdp_plain one = {.kind = FSDP_PLAIN_INT, .as.integer = 1};
    ASSERT_OK(fsdp_state_dict_put_value(
        f.dict, (fsdp_state_key[]){{.name = "param_groups"}, {.name = "named"}}, 2, &one));
    ASSERT_ERROR(fsdp_torch_save(f.dict, f.path, t->group), FSDP_ERR_INVALID,
                 "neither a dict's item nor a list's");
    ASSERT(access(f.path, F_OK) != 0);
    fixture_close(&f);
}

TEST(an_empty_dict_and_scalars)
{
    fixture f;
    fsdp_state_dict *read;
    fsdp_tensor *scalar;
    double value;
    fixture_open(t, &f);
    CHECK_HERE();
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, NULL));
    ASSERT_OK(fsdp_torch_load(f.path, f.device, &read));
    ASSERT_INT(fsdp_state_dict_count(read), 0);
    fsdp_state_dict_destroy(read);
    ASSERT_OK(fsdp_tensor_from_data(f.device, FSDP_DTYPE_F32, 0, NULL, &(float){4.5f},
                                    FSDP_TAG_DATA, &scalar));
    ASSERT_OK(fsdp_state_dict_put_tensor(f.dict, (fsdp_state_key[]){{.name = "step"}}, 1, scalar));
    fsdp_tensor_release(scalar);
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, NULL));
    ASSERT_OK(fsdp_torch_load(f.path, f.device, &read));
    ASSERT_OK(fsdp_tensor_item(fsdp_state_dict_find(read, "step")->tensor, &value));
    ASSERT(value == 4.5);
    fsdp_state_dict_destroy(read);
    fixture_close(&f);
}

/* Two names of one tensor share it, saved once or twice. */
TEST(tied_tensors_and_endless_values)
{
    fixture f;
    fsdp_state_dict *read;
    fsdp_tensor *tied;
    fixture_open(t, &f);
    CHECK_HERE();
    ASSERT_OK(counting(f.device, NULL, 5, &tied));
    ASSERT_OK(fsdp_state_dict_put_tensor(f.dict, (fsdp_state_key[]){{.name = "shared"}}, 1, tied));
    ASSERT_OK(fsdp_state_dict_put_tensor(f.dict, (fsdp_state_key[]){{.name = "lm_head"}}, 1, tied));
    fsdp_tensor_release(tied);
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, NULL));
    ASSERT_OK(fsdp_torch_load(f.path, f.device, &read));
    check_counting(t, read, "shared", 5);
    CHECK_HERE();
    check_counting(t, read, "lm_head", 5);
    CHECK_HERE();
    ASSERT(fsdp_state_dict_find(read, "lm_head")->tensor ==
           fsdp_state_dict_find(read, "shared")->tensor); /* one storage in the file, too */
    fsdp_state_dict_destroy(read);
    /* Texts of 1 MiB each, in total more than any checkpoint's values need. */
    char *text = malloc(1 << 20);
    ASSERT(text);
    memset(text, 'x', (1 << 20) - 1);
    text[(1 << 20) - 1] = 0;
    fsdp_plain items[65];
    for (int i = 0; i < 65; i++)
        items[i] = (fsdp_plain){.kind = FSDP_PLAIN_STR, .as.text = text};
    const fsdp_plain list = {.kind = FSDP_PLAIN_LIST, .as.list = {items, 65}};
    ASSERT_OK(fsdp_state_dict_put_value(f.dict, (fsdp_state_key[]){{.name = "texts"}}, 1, &list));
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, NULL));
    ASSERT_ERROR(fsdp_torch_load(f.path, f.device, &read), FSDP_ERR_FORMAT,
                 "its plain values take more than 64 MiB");
    free(text);
    fixture_close(&f);
}

TEST(a_cut_file_is_an_error_that_names_it)
{
    fixture f;
    fsdp_state_dict *read;
    fixture_open(t, &f);
    CHECK_HERE();
    ASSERT_ERROR(fsdp_torch_load(f.path, f.device, &read), FSDP_ERR_NOT_FOUND, f.path);
    ASSERT_OK(put_mixed(&f, NULL));
    ASSERT_OK(fsdp_torch_save(f.dict, f.path, NULL));
    ASSERT(truncate(f.path, 700) == 0);
    ASSERT_ERROR(fsdp_torch_load(f.path, f.device, &read), FSDP_ERR_FORMAT, f.path);
    fixture_close(&f);
}

TEST(files_that_pytorch_wrote)
{
    static const struct {
        const char *name;
        fsdp_status status;
    } files[] = {
        {"fixtures/torch/optimizer.pt", FSDP_OK},
        {"fixtures/torch/state_dict.pt", FSDP_OK},
        {"fixtures/torch/strides.pt", FSDP_OK},
        {"fixtures/torch/empty.pt", FSDP_OK},
        {"fixtures/torch/list.pt", FSDP_ERR_FORMAT},
        {"fixtures/torch/legacy.pt", FSDP_ERR_UNSUPPORTED},
        {"fixtures/torch/script.pt", FSDP_ERR_UNSUPPORTED},
        {"fixtures/torch/one_name.pt", FSDP_ERR_UNSUPPORTED},
        {"fixtures/torch/unusual.pt", FSDP_OK},
        {"fixtures/torch/tuple.pt", FSDP_ERR_UNSUPPORTED},
    };
    fsdp_device *device;
    fsdp_state_dict *read;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = fsdp_test_path(files[i].name);
        fsdp_status status = fsdp_torch_load(path, device, &read);
        if (status != files[i].status)
            FAIL("%s: %s", files[i].name, fsdp_last_error());
        if (status != FSDP_OK) {
            ASSERT(strstr(fsdp_last_error(), path));
            continue;
        }
        if (i == 0) /* an optimizer counts its parameters: keys are numbers */
            ASSERT(fsdp_state_dict_find(read, "state.0.exp_avg"));
        if (strstr(path, "unusual")) /* what is not read is left out */
            ASSERT(fsdp_state_dict_find(read, "weight") && fsdp_state_dict_find(read, "step") &&
                   fsdp_state_dict_count(read) == 2);
        fsdp_state_dict_destroy(read);
    }
    fsdp_device_destroy(device);
}

/* The keys of `fqn` in a file; the second one is what an optimizer counts a parameter with. */
static bool has_int_key(const fsdp_source *source, const char *fqn)
{
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        if (strcmp(item->fqn, fqn) == 0)
            return item->n_keys == 3 && item->keys[1].is_int && !item->keys[2].is_int;
    }
    return false;
}

TEST(numbers_that_are_keys_stay_numbers)
{
    const char *path = fsdp_test_path("fixtures/torch/optimizer.pt");
    char copy[300];
    fsdp_device *device;
    fsdp_state_dict *read;
    fsdp_source *source;
    snprintf(copy, sizeof copy, "%s/copy.pt", fsdp_test_dir(t));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_torch_load(path, device, &read));
    ASSERT_OK(fsdp_torch_save(read, copy, NULL));
    ASSERT_OK(fsdp_source_open(copy, &source));
    ASSERT(has_int_key(source, "state.0.exp_avg"));
    fsdp_source_close(source);
    ASSERT_OK(fsdp_torch_load_into(read, path, NULL));
    ASSERT_OK(fsdp_torch_load_into(read, copy, NULL));
    fsdp_state_dict_destroy(read);
    fsdp_device_destroy(device);
}

/* The keys are those that torch.optim.Muon of PyTorch 2.15 writes. */
TEST(groups_of_torchs_muon_lack_nothing)
{
    static const char *const keys[] = {"lr",  "weight_decay", "momentum",     "nesterov",
                                       "eps", "ns_steps",     "adjust_lr_fn", "ns_coefficients"};
    const size_t n = sizeof keys / sizeof *keys;
    const fsdp_plain value = {.kind = FSDP_PLAIN_FLOAT, .as.number = 1};
    fsdp_state_dict *dict;
    ASSERT_OK(fsdp_state_dict_create(&dict));
    for (size_t i = 0; i < n; i++) {
        if (i + 1 == n)
            ASSERT_STR(fsdp_state_group_lacks(dict, "group", "muon"), "ns_coefficients");
        const fsdp_state_key path[] = {{.name = "group"}, {.name = keys[i]}};
        ASSERT_OK(fsdp_state_dict_put_value(dict, path, 2, &value));
    }
    ASSERT(!fsdp_state_group_lacks(dict, "group", "muon"));
    ASSERT_STR(fsdp_state_group_lacks(dict, "group", "adamw"), "betas");
    fsdp_state_dict_destroy(dict);
}
